"""`tilewright synth`: FPGA resources of the core, its timing before placement, and its clock on another family."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TypeVar

import click

from ..boards import synthesis
from ..boards import timing as analysis
from ..boards.ecp5 import Clock
from ..boards.route import RoutedCore
from ..boards.synthesis import AVAILABLE, PART, Resources, Synthesis
from ..boards.timing import GRADE, NOT_COUNTED, PLAIN_FACTOR, SKEW, Route, TimedCore, Timing
from ..hw.config import Config, load_config
from . import report
from .options import config_option, json_option

Found = TypeVar("Found")

SMALL = 0.01  # blocks below this share of everything are left out of the table
BAR = 40  # characters of a histogram's longest bar


@click.command()
@click.option("--timing", is_flag=True, help="Estimate the clock on the 7 series, and list the longest paths.")
@click.option("--ecp5", is_flag=True, help="Place and route on an ECP5 instead, for a clock figure.")
@click.option("--route", "routed", is_flag=True, help="Place and route on the 7 series with nextpnr, where installed.")
@click.option("--chipdb", metavar="FILE", help="With --route: nextpnr's chip database. [the variable CHIPDB]")
@click.option(
    "--seed",
    "seeds",
    type=click.IntRange(1),
    multiple=True,
    help="With --route: a seed of nextpnr; may be given several times. [1, 2 and 3]",
)
@click.option("--liberty", metavar="FILE", help="Map to the standard cells of a Liberty file instead: area and delay.")
@click.option("--all", "everything", is_flag=True, help="List the small blocks too; the cells of each path.")
@config_option()
@json_option
def command(
    timing: bool,
    ecp5: bool,
    routed: bool,
    chipdb: str | None,
    seeds: tuple[int, ...],
    liberty: str | None,
    everything: bool,
    config: str,
    as_json: bool,
) -> None:
    """Synthesise the core with Yosys and count the resources of the PYNQ-Z1's xc7z020 that each block uses.

    The counts are before place-and-route. With --timing: static timing of the flattened core for speed grade -1,
    with a model of routing. With --ecp5: the clock that nextpnr reaches on a Lattice ECP5, to compare versions of
    the core with each other; it does not predict the clock on the PYNQ-Z1. With --route: the clock that nextpnr
    reaches on the xc7z020, the median of several seeds. With several of them: one after the
    other. With --liberty: area and longest path of an ASIC's logic, before placement; memories are listed apart.
    """
    cfg = load_config(config)
    if not routed and (chipdb or seeds):
        raise click.UsageError(
            f"{'--chipdb' if chipdb else '--seed'} is for place-and-route on the 7 series: add --route"
        )
    facts: dict = {"config": cfg.name}
    if liberty is not None:
        if timing or ecp5 or routed:
            raise click.UsageError("--liberty is for the cells of a library, the other options for an FPGA: give one")
        facts |= _library(cfg, liberty, as_json)
        if as_json:
            report.emit_json(facts)
        return
    if timing:
        facts |= _timing(cfg, as_json, everything)
    if ecp5:
        stand_in = _ecp5(cfg, as_json)
        facts |= {"ecp5": stand_in} if timing or routed else stand_in
    if routed:
        facts |= {"route": _route(cfg, as_json, everything, chipdb, seeds)}
    if not (timing or ecp5 or routed):
        facts |= _resources(cfg, as_json, everything)
    if as_json:
        report.emit_json(facts)


def _timed(work: Callable[[Callable[[str], None]], Found]) -> tuple[Found, float]:
    """Result of `work` and its seconds. `work` gets a function that shows its current step."""
    start = time.perf_counter()
    with report.progress("starting") as advance:
        found = work(lambda what: advance(0, what))
    return found, time.perf_counter() - start


def _resources(cfg: Config, as_json: bool, everything: bool) -> dict:
    found, seconds = _timed(lambda say: synthesis.synthesise(cfg, report=say))
    if not as_json:
        resource_table(found, synthesis.AVAILABLE, everything)
        report.say(
            f"{cfg.name} after synthesis with Yosys, in {seconds:.0f} s; the share is of an {synthesis.PART}, "
            "RAMB18 count as half a BRAM"
        )
    return _totals(found.total) | {
        "modules": {path: asdict(use) for path, use in found.modules.items()},
        "seconds": seconds,
    }


def _totals(total: Resources) -> dict:
    return {"part": PART, "total": asdict(total), "available": asdict(AVAILABLE)}


def _timing(cfg: Config, as_json: bool, everything: bool) -> dict:
    found, seconds = _timed(lambda say: analysis.time_core(cfg, report=say))
    timing = found.timing
    if not as_json:
        _show_timing(found, everything)
        report.say(f"{cfg.name}, flattened, after synthesis with Yosys and before placement, in {seconds:.0f} s")
    clocks = {"fmax_estimate_mhz": timing.fmax_estimate_mhz, "fmax_plain_mhz": timing.fmax_plain_mhz}
    known = {"speed_grade": analysis.GRADE, "not_counted": analysis.NOT_COUNTED}
    return _totals(found.total) | {"timing": asdict(timing) | clocks | known, "seconds": seconds}


def _show_timing(found: TimedCore, everything: bool) -> None:
    timing = found.timing
    report.say("longest paths with the routing model:")
    _show_paths(timing.paths, everything)
    report.say("longest paths of cells alone:")
    _show_paths(timing.logic_paths, everything)
    report.say("ends by arrival, with the routing model:")
    _show_histogram(timing.histogram)
    report.say("ends by arrival, cells alone:")
    _show_histogram(timing.logic_histogram)
    _show_cells(timing)
    report.say(f"logic: {timing.logic_ns:.2f} ns, {report.counted(timing.levels, 'level')}, speed grade {GRADE}")
    report.say(
        f"clock: {timing.fmax_estimate_mhz:.1f} MHz by the routing model ({timing.estimate_ns:.2f} ns with "
        f"{SKEW / 1000} ns of skew and jitter), {timing.fmax_plain_mhz:.1f} MHz by the rule logic x {PLAIN_FACTOR}"
    )
    report.say(f"not counted: {'; '.join(NOT_COUNTED)}; routing does not bear the clock out (docs/synthesis.md)")


def _show_paths(paths: list[Route], everything: bool) -> None:
    rows = []
    for path in paths:
        through = ", ".join(f"{n} {kind}" for kind, n in path.through.items()) or "none"
        ends = f"{path.start} ({path.start_source})", f"{path.end} ({path.end_source})"
        figures = [f"{path.total_ns:.2f}", f"{path.logic_ns:.2f}", f"{path.route_ns:.2f}", path.levels]
        rows.append([*figures, through, " -> ".join(ends)])
        if everything:
            steps = [f"{ns:.2f} {kind} {name}, fan-out {fanout}" for name, kind, fanout, ns in path.steps]
            rows += [["", "", "", "", "", "  " + step] for step in steps]
    report.table(["ns", "logic", "route", "levels", "through", "from -> to"], rows)


def _show_histogram(counts: list[int]) -> None:
    most = max(counts, default=1)
    rows = [[f"{k} to {k + 1} ns", f"{n:,}", "#" * -(-BAR * n // most)] for k, n in enumerate(counts)]
    report.table(["arrival", "ends", ""], rows)


def _show_cells(timing: Timing) -> None:
    registers = ", ".join(f"{n} with {names}" for names, n in timing.dsp_registers.items())
    report.say(f"DSP48E1 by registers: {registers or 'no cell'}; {timing.dsp_full} with all of a product's")
    report.say(f"block RAMs with their output register: {timing.bram_registered} of {timing.bram}")
    uncovered = ", ".join(f"{n} {kind}" for kind, n in timing.uncovered.items())
    report.say(f"cells without delays: {sum(timing.uncovered.values())}{f' ({uncovered})' if uncovered else ''}")


def _library(cfg: Config, liberty: str, as_json: bool) -> dict:
    from ..boards import library

    found, seconds = _timed(lambda say: library.map_core(cfg, Path(liberty), report=say))
    if not as_json:
        report.table(["cell", "used"], Counter(found.cells).most_common())
        memories = Counter(f"{words:,} x {width}" for words, width in found.memories)
        report.say(f"memories, not in the area: {', '.join(f'{n} of {kind} bits' for kind, n in memories.items())}")
        report.say(
            f"{cfg.name} in the cells of {liberty}: area {found.area:,.1f}, longest path through gates "
            f"{found.delay_ns:.2f} ns without wires, {found.memory_bits:,} bits of memories, {seconds:.0f} s"
        )
    return {"liberty": asdict(found) | {"memory_bits": found.memory_bits}, "seconds": seconds}


def _route(cfg: Config, as_json: bool, everything: bool, chipdb: str | None, seeds: tuple[int, ...]) -> dict:
    from ..boards import route

    found, seconds = _timed(lambda say: route.route_core(cfg, seeds or route.SEEDS, chipdb, report=say))
    if not as_json:
        _show_route(found, everything)
        report.say(f"{cfg.name}, flattened, after routing with {found.tool}, in {seconds:.0f} s")
    known = {"tool": found.tool, "device": route.DEVICE, "target_mhz": route.TARGET_MHZ, "speed_grade": GRADE}
    run = asdict(found.median) | {"fmax_mhz": found.median.fmax_mhz}
    return known | run | {"seeds": found.seeds, "seconds": seconds}


def _show_route(found: RoutedCore, everything: bool) -> None:
    run = found.median
    report.say("longest paths after routing:")
    _show_paths(run.paths, everything)
    report.table(["cell", "used"], list(run.used.items()), ["slices", run.slices])
    covered = "; ".join(f"{kind}: {how}" for kind, how in run.covered.items())
    report.say(f"delays that nextpnr does not know: {covered or 'none'}")
    uncovered = ", ".join(f"{n} {kind}" for kind, n in run.uncovered.items())
    report.say(f"without a delay: {uncovered or 'nothing'}; nets without a way: {run.unrouted}")
    seeds = ", ".join(f"{mhz:.1f} with seed {seed}" for seed, mhz in found.seeds.items())
    report.say(
        f"clock: {run.fmax_mhz:.1f} MHz after routing, speed grade {GRADE} ({run.period_ns:.2f} ns with {SKEW / 1000} "
        f"ns of skew and jitter), the median of {seeds}"
    )


def _ecp5(cfg: Config, as_json: bool) -> dict:
    from ..boards import ecp5

    found, seconds = _timed(lambda say: ecp5.place_and_route(cfg, report=say))
    if not as_json:
        _show_clock(found, ecp5.DEVICE, seconds)
    paths = [asdict(path) for path in found.paths]
    return {"device": ecp5.DEVICE, "clock_mhz": found.mhz, "cells": found.cells, "paths": paths, "seconds": seconds}


def _show_clock(found: Clock, device: str, seconds: float) -> None:
    report.table(["cell", "used"], list(found.cells.items()))
    rows = [
        [
            f"{path.total_ns:.2f}",
            f"{path.logic_ns:.2f}",
            f"{path.route_ns:.2f}",
            path.levels,
            f"{path.start_domain} -> {path.end_domain}",
            f"{path.start} ({path.start_source}) -> {path.end} ({path.end_source})",
        ]
        for path in found.paths
    ]
    if rows:
        report.table(["ns", "logic", "route", "levels", "clocks", "from -> to"], rows)
    report.say(f"{found.config} on a Lattice ECP5 ({device}): {found.mhz:.1f} MHz after routing, {seconds:.0f} s")
    report.say("use it to compare versions of the core; it does not predict the clock on the PYNQ-Z1")


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
