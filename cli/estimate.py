"""`tilewright estimate`: the command line of apps/explore/evaluate.py."""

from __future__ import annotations

from typing import Any

import click

from ..apps.explore.evaluate import estimate
from ..hw.config import load_config
from ..sim.dram import load_dram
from . import report
from .options import config_option, json_option

_NAMES = {"lut": "LUT", "ff": "FF", "bram": "BRAM", "dsp": "DSP"}


@click.command()
@click.argument("network", required=False, metavar="[MODEL]")
@click.option("--mhz", default=100, type=click.IntRange(min=1), show_default=True, help="The accelerator's clock.")
@click.option("--dram", default="zynq_hp4", show_default=True, metavar="NAME|FILE", help="The memory behind the ports.")
@config_option()
@json_option
def command(network: str | None, mhz: int, dram: str, config: str, as_json: bool) -> None:
    """Estimate what a configuration takes of an xc7z020, its clock, and one inference of the network MODEL.

    Nothing is synthesised. Block RAMs and DSPs follow from the sizes; LUTs and flip-flops are a fit to what Yosys
    counts, whose error is the largest one at configurations that were held out of it. The clock is one before
    placement, as that of `synth --timing`. Cycles are simulated by the timing model, the host is a modelled Cortex-A9.
    """
    found = estimate(load_config(config), load_dram(dram), mhz, network)
    if as_json:
        report.emit_json(found)
    else:
        _print(found)


def _print(found: dict[str, Any]) -> None:
    rows = []
    for key, name in _NAMES.items():
        value, there, error = found["area"][key], found["available"][key], found["area_error"][key]
        within = ("not known" if found["outside"] else f"{100 * error:.1f} %") if error else "by rule"
        rows.append([name, f"{value:,.4g}" if key == "bram" else f"{value:,}", within, f"{100 * value / there:.1f} %"])
    report.table(["xc7z020", found["config"]["name"], "+/-", "share"], rows)
    clock, error, rates = found["fmax_estimate_mhz"], found["fmax_error_mhz"], found["bandwidth"]
    within = f"+/- {error:.0f} MHz" if error else "as synth --timing estimated it"
    report.say(f"clock: {clock:.0f} MHz before placement, which routing does not bear out, {within}")
    moved = f"; {rates['used'] / 1e6:,.0f} MB/s used" if "used" in rates else ""
    report.say(
        f"bandwidth at {found['mhz']} MHz: loads {rates['load'] / 1e6:,.0f} MB/s, stores {rates['store'] / 1e6:,.0f}, "
        f"together {rates['both'] / 1e6:,.0f}{moved}"
    )
    report.say_contract(found["contract"])
    if found["cycles"] is not None:
        report.say(
            f"{found['network']}: {found['cycles']:,} cycles simulated by the timing model, {found['host_us']:,.0f} us "
            f"of a modelled host, {found['latency_us']:,.0f} us in all"
        )
    if found["outside"]:
        report.say(f"beyond the points of the fit, so its error is not known: {', '.join(found['outside'])}")
    if found["misfit"]:
        report.say(f"does not fit: {found['misfit']}")
