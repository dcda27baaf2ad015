"""`tilewright bench`: speed and profile of the behavioural model, or cycles of the circuit."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from ...runtime.registry import CIRCUITS
from .. import report
from ..main import KERNELS_VARIABLE, THREAD_VARIABLES
from ..options import config_option, device_option, device_options, dram_option, json_option, skip_option
from ..profile.files import Profile, profile_option
from . import dense, encoder, split, units
from . import rows as bench_rows

if TYPE_CHECKING:
    import numpy as np

    from ...hw.config import Config
    from ...runtime.device import Stats
    from ...runtime.launch import Launch

RUNS = 5
# module of the model -> what it executes
PARTS = {"gemm": "GEMM", "alu": "ALU", "transfer": "loads and stores"}
REST = "rest"
_WORKLOADS = ("resnet18", *dense.WORKLOADS, *encoder.WORKLOADS, split.WORKLOAD, *units.WORKLOADS)


@click.command()
@click.argument("workload", required=False, type=click.Choice([*_WORKLOADS]))
@click.option("--layer", "layers", multiple=True, metavar="NAME", help="Only this layer; may be given several times.")
@click.option("--threads", default=1, show_default=True, type=click.IntRange(1), help="Threads of matrix products.")
@device_option()
@skip_option
@dram_option
@config_option()
@click.option(
    "--compare",
    multiple=True,
    type=click.Choice(["threads", "tiles"]),
    help="With resnet18: virtual threads on against off; searched tiles against the largest that fit.",
)
@click.option(
    "--out",
    metavar="FOLDER",
    help="With resnet18: write layers.csv and, where cycles are known, roofline.png, roofline.svg and timeline.json.",
)
@profile_option
@json_option
def command(
    workload: str | None,
    layers: tuple[str, ...],
    threads: int,
    device: str,
    skip: tuple[str, ...],
    dram: str | None,
    config: str,
    compare: tuple[str, ...],
    out: str | None,
    profiles: tuple[str, ...],
    as_json: bool,
) -> int:
    """Measure model or circuit on the convolutions C2 to C12 of ResNet-18, batch 1, with our own schedules.

    A layer is compiled once. The behavioural model replays the recorded program, and the time is the best of 5
    replays, without compiling and without moving data in and out. The circuit (`--on rtl`) runs it once: its cycles,
    and the share of them in which all multipliers do useful work. `exact` is true if every output equals an exact
    computation in numpy. The exit status is 0 only if all are.

    `bench resnet18` measures all layers of the network instead, requantised, `--on timing` or `--on rtl`: cycles,
    utilisation, what bounds the layer, the roofline (GEMM, loads and stores at full speed, each tensor moved once), and
    VTA's published times. `--compare` adds the cycles of other schedules on the same circuit, by the timing model.

    `bench mobilebert-384` and the like measure the dense layers of a transformer on so many rows, each shape once: one
    launch, its cycles times the number of such layers. `bench mobilebert-layer` measures a whole layer of one.

    `bench resnet8-units` measures a network of ResNet8's shape by the share of channels on the second compute unit,
    `bench resnet8x4-units` one of four times the channels; --layer chooses points.

    `bench split --config pynq_z1_two` measures layers whose channels units GEMM and ternary divide, half and half, and
    the same layers on GEMM alone.
    """
    for variable in THREAD_VARIABLES:
        os.environ[variable] = str(threads)
    from ...hw.config import load_config

    options = device_options(device, None, skip, dram)
    cfg = load_config(config)
    if (compare or out) and workload != "resnet18":
        raise click.UsageError("--compare and --out need a workload: tilewright bench resnet18")
    bench = bench_rows.Bench(cfg, device, options, Profile(profiles, device, {"--config": config}))
    for family in (dense, units):
        if workload in family.WORKLOADS:
            return family.run(workload, layers, bench, as_json)
    if workload in encoder.WORKLOADS:
        return encoder.run(workload, bench, as_json)
    if workload == split.WORKLOAD:
        return split.run(layers, bench, as_json)
    if workload:
        from .resnet18 import run

        return run(layers, bench, compare, out, as_json)
    return _convolutions(layers, bench, threads, as_json)


def _convolutions(layers: tuple[str, ...], bench: bench_rows.Bench, threads: int, as_json: bool) -> int:
    """Measure and print the convolutions of ResNet-18; the exit status."""
    from .layers import resnet18_layers

    names = list(layers) or list(resnet18_layers())
    rows, profile = [], dict.fromkeys([*PARTS, REST], 0.0)
    for row, replay in bench.each(names, lambda name: _measure(name, bench)):
        if bench.name == "model":
            _add_profile(replay, profile)
        rows.append(row)
    facts, total = bench.facts("convolutions"), _total(rows)
    facts |= _about(bench.cfg, bench.name, threads, profile)
    facts |= bench.profile.write("convolutions", facts | {"layers": rows, "total": total})
    if as_json:
        bench_rows.emit(facts, rows, {"total": total})
    else:
        _print(rows, total, facts, bench.cfg)
        bench.say(facts)
    return int(not total["exact"])


def _about(cfg: Config, device: str, threads: int, profile: dict[str, float]) -> dict[str, object]:
    """What the document says of the device: where the model's time goes, or how the circuit was built."""
    if device == "model":
        shares = {part: seconds / sum(profile.values()) for part, seconds in profile.items()}
        kernels = os.environ.get(KERNELS_VARIABLE)
        return {"threads": threads, "runs": RUNS, "time_share": shares, "kernels": kernels}
    if device in CIRCUITS:
        from ...sim.rtl.device import describe_build

        return {"build": describe_build(cfg, fast=device == "rtl_fast")}
    return {}


def _measure(name: str, bench: bench_rows.Bench) -> tuple[dict, Callable[[], Stats]]:
    """Compile, run and check a layer: (its row, a function that runs it again)."""
    import numpy as np

    from .layers import build_layer, layer, layer_data

    cfg = bench.cfg
    launch = build_layer(name, cfg).finish()
    inputs, expected = layer_data(name, cfg)
    replay, read = _prepared(launch, inputs, bench)
    stats, seconds = None, []
    for _ in range(RUNS if bench.name == "model" else 1):
        start = time.perf_counter()
        stats = replay()
        seconds.append(time.perf_counter() - start)
    assert stats is not None
    bench.profile.add(name, launch, stats)
    exact = bool(np.array_equal(read(), expected))
    counts = bench_rows.row(cfg, stats, macs=layer(name).macs, instructions=len(launch.insn), exact=exact)
    return {"name": name, "op": "conv2d"} | counts | {"seconds": min(seconds)}, replay


def _total(rows: list[dict]) -> dict:
    clocked = ["cycles"] * (rows[0]["cycles"] is not None)
    keys = (*clocked, *bench_rows.SUMS, "seconds")
    total = {key: sum(row[key] for row in rows) for key in keys} | {"exact": all(row["exact"] for row in rows)}
    total = {"cycles": None} | total
    return total | bench_rows.rates(total)


def _print(rows: list[dict], total: dict, facts: dict, cfg: Config) -> None:
    cells = _model_cells if facts["device"] == "model" else _clocked_cells
    report.records([cells(row) for row in rows], cells({"name": "total"} | total))
    if facts["device"] == "model":
        threads = report.counted(facts["threads"], "thread")
        kernels = f"{KERNELS_VARIABLE}={facts['kernels']}"
        chosen = f", with the kernels of {kernels}" if facts["kernels"] else ""
        report.say(f"configuration {cfg.name}, batch {cfg.batch}, matrix products on {threads}{chosen}")
        shares = [f"{PARTS.get(part, 'the rest')} {100 * share:.0f} %" for part, share in facts["time_share"].items()]
        report.say("time goes to " + ", ".join(shares))
        return
    report.say(f"configuration {cfg.name}, batch {cfg.batch}, simulated; memory as DRAM {facts['dram']}")
    if "build" in facts:
        report.say(f"one thread; {facts['build']}")


def _model_cells(row: dict) -> dict[str, object]:
    mop = 2 * row["macs"] / 1e6
    return {
        "layer": row["name"],
        "MOP": mop,
        f"ms, best of {RUNS}": 1e3 * row["seconds"],
        "GOP/s": mop / 1e3 / row["seconds"],
        "instructions": row["instructions"],
        "exact": row["exact"],
    }


def _clocked_cells(row: dict) -> dict[str, object]:
    return {
        "layer": row["name"],
        "MOP": 2 * row["macs"] / 1e6,
        "cycles": row["cycles"],
        "utilisation %": 100 * row["utilisation"],
        "bytes/cycle": row["bytes_per_cycle"],
        "instructions": row["instructions"],
        "cycles/s": int(row["cycles"] / row["seconds"]),
        "exact": row["exact"],
    }


def _prepared(
    launch: Launch, inputs: dict[str, np.ndarray], bench: bench_rows.Bench
) -> tuple[Callable[[], Stats], Callable[[], np.ndarray]]:
    """(replays `launch` on the device, which holds it and its inputs; reads its output `out`)."""
    import numpy as np

    device = bench.open()
    addresses = [device.allocate(buffer.nbytes, buffer.align) for buffer in launch.buffers]
    for buffer, address in zip(launch.buffers, addresses):
        if buffer.data is not None:
            device.write(address, buffer.data)
        elif buffer.name in inputs:
            device.write(address, buffer.pack(inputs[buffer.name]))
    code = device.allocate(launch.insn_bytes, 64)
    device.write(code, np.ascontiguousarray(launch.relocate(addresses), "<u8").view(np.uint8).reshape(-1))
    ((out, at),) = ((b, a) for b, a in zip(launch.buffers, addresses) if b.name == "out")
    return lambda: device.run(code, len(launch.insn)), lambda: out.unpack(device.read(at, out.nbytes))


def _add_profile(replay: Callable[[], Stats], profile: dict[str, float]) -> None:
    """Add the seconds that one replay spends in each part of the model, by the calls that enter the part's module."""
    import cProfile
    import pstats

    from ...sim.model import alu, gemm, transfer

    modules = {module.__file__: module.__name__.rpartition(".")[2] for module in (gemm, alu, transfer)}
    profiler = cProfile.Profile()
    profiler.runcall(replay)
    stats = pstats.Stats(profiler)
    entered = dict.fromkeys(PARTS, 0.0)
    for (file, *_), (*_, callers) in stats.stats.items():  # pyright: ignore[reportAttributeAccessIssue]
        if file in modules:
            entered[modules[file]] += sum(row[3] for caller, row in callers.items() if caller[0] != file)
    for module, seconds in entered.items():
        profile[module] += seconds
    profile[REST] += max(0.0, stats.total_tt - sum(entered.values()))  # pyright: ignore[reportAttributeAccessIssue]
