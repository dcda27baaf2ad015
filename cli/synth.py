"""`tilewright synth`: FPGA resources of the core, and its clock on another family."""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from . import report
from .options import config_option, json_option

if TYPE_CHECKING:
    from ..boards.synthesis import Clock, Resources, Synthesis

SMALL = 0.01  # blocks below this share of everything are left out of the table


@click.command()
@click.option("--ecp5", is_flag=True, help="Place and route on an ECP5 instead, for a clock figure.")
@click.option("--all", "everything", is_flag=True, help="List the small blocks too.")
@config_option()
@json_option
def command(ecp5: bool, everything: bool, config: str, as_json: bool) -> None:
    """Synthesise the core with Yosys and count the resources of the PYNQ-Z1's xc7z020 that each block uses.

    The counts are before place-and-route. With --ecp5: the clock that nextpnr reaches on a Lattice ECP5, to
    compare versions of the core with each other; it does not predict the clock on the PYNQ-Z1.
    """
    from ..boards import synthesis
    from ..hw.config import load_config

    cfg = load_config(config)
    start = time.perf_counter()
    run = synthesis.place_and_route if ecp5 else synthesis.synthesise
    with report.progress("starting") as advance:
        found = run(cfg, report=lambda what: advance(0, what))
    seconds = time.perf_counter() - start
    if isinstance(found, synthesis.Clock):
        _clock(found, seconds, as_json)
    elif as_json:
        report.emit_json(
            {
                "config": cfg.name,
                "part": synthesis.PART,
                "total": asdict(found.total),
                "available": asdict(synthesis.AVAILABLE),
                "modules": {path: asdict(use) for path, use in found.modules.items()},
                "seconds": seconds,
            }
        )
    else:
        resource_table(found, synthesis.AVAILABLE, everything)
        click.echo(
            f"{cfg.name} after synthesis with Yosys, in {seconds:.0f} s; the share is of an {synthesis.PART}, "
            "RAMB18 count as half a BRAM"
        )


def _clock(found: Clock, seconds: float, as_json: bool) -> None:
    from ..boards.synthesis import ECP5_DEVICE

    if as_json:
        facts = {"config": found.config, "device": ECP5_DEVICE, "clock_mhz": found.mhz, "cells": found.cells}
        report.emit_json(facts | {"seconds": seconds})
        return
    report.table(["cell", "used"], list(found.cells.items()))
    click.echo(f"{found.config} on a Lattice ECP5 ({ECP5_DEVICE}): {found.mhz:.1f} MHz after routing, {seconds:.0f} s")
    click.echo("use it to compare versions of the core; it does not predict the clock on the PYNQ-Z1")


def resource_table(found: Synthesis, available: Resources, everything: bool) -> None:
    """Blocks, each including the parts listed below it, then the total and its share of the FPGA."""
    total = asdict(found.total)
    rows = []
    for path, use in found.modules.items():
        shares = [value / total[key] for key, value in asdict(use).items() if total[key]]
        if everything or max(shares) >= SMALL:
            rows.append(["  " * path.count(".") + path.rpartition(".")[2], *_cells(asdict(use))])
    share = [f"{100 * value / have:.1f} %" for value, have in zip(total.values(), asdict(available).values())]
    report.table(["block", "LUT", "FF", "BRAM", "DSP"], [*rows, ["total", *_cells(total)]], ["share", *share])


def _cells(use: dict) -> list:
    return [f"{value:g}" if key == "bram" else value for key, value in use.items()]
