"""`tilewright bench`: the speed of the behavioural model and where its time goes, or the cycles of the circuit."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from . import report
from .main import THREAD_VARIABLES
from .options import config_option, device_option, device_options, json_option, skip_option

if TYPE_CHECKING:
    import numpy as np

    from ..hw.config import Config
    from ..runtime.device import Stats
    from ..runtime.launch import Launch

RUNS = 5
# module of the model -> what it executes
PARTS = {"gemm": "GEMM", "alu": "ALU", "transfer": "loads and stores"}


@click.command()
@click.argument("workload", required=False, type=click.Choice(["resnet18"]))
@click.option("--layer", "layers", multiple=True, metavar="NAME", help="Only this layer; may be given several times.")
@click.option("--threads", default=1, show_default=True, type=click.IntRange(1), help="Threads of matrix products.")
@device_option()
@skip_option
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
@json_option
def command(
    workload: str | None,
    layers: tuple[str, ...],
    threads: int,
    device: str,
    skip: tuple[str, ...],
    config: str,
    compare: tuple[str, ...],
    out: str | None,
    as_json: bool,
) -> int:
    """Measure model or circuit on the convolutions C2 to C12 of ResNet-18, batch 1, with our own schedules.

    A layer is compiled once. The behavioural model replays the recorded program, and the time is the best of 5
    replays, without compiling and without moving data in and out. The circuit (`--on rtl`) runs it once: its cycles,
    and the share of them in which all multipliers do useful work. `exact` says whether every output equals a numpy
    computation that cannot round. The exit status is 0 only if all are.

    `bench resnet18` measures all layers of the network instead, requantised, `--on timing` or `--on rtl`: cycles,
    utilisation, what bounds the layer, the roofline (GEMM, loads and stores at full speed, each tensor moved once), and
    what is published of VTA. `--compare` adds what the same circuit needs with other schedules, by the timing model.
    """
    for variable in THREAD_VARIABLES:
        os.environ[variable] = str(threads)
    from ..compiler.workloads import resnet18_layers
    from ..hw.config import load_config

    options = device_options(device, None, skip)
    cfg = load_config(config)
    if workload:
        from .bench_resnet18 import run

        return run(layers, cfg, device, options, compare, out, as_json)
    if compare or out:
        raise click.UsageError("--compare and --out go with a workload: tilewright bench resnet18")
    names = list(layers) or [layer.name for layer in resnet18_layers()]
    if device != "model":
        return _bench_clocked(names, cfg, device, options, as_json)
    rows, profile = [], dict.fromkeys([*PARTS.values(), "the rest"], 0.0)
    with report.progress("compiling and replaying", len(names)) as advance:
        for name in names:
            advance(0, name)
            rows.append(_measure(name, cfg, profile))
            advance()
    total = _total(rows)
    spent = {part: seconds / sum(profile.values()) for part, seconds in profile.items()}
    if as_json:
        facts = {"config": cfg.name, "threads": threads, "runs": RUNS, "time_share": spent}
        report.emit_json(facts | {"layers": rows, "total": total})
        return int(not total["exact"])
    columns = [key.replace("_", " ") for key in total]
    columns[columns.index("ms")] = f"ms, best of {RUNS}"
    report.table(columns, [list(row.values()) for row in rows], list(total.values()))
    noun = "thread" if threads == 1 else "threads"
    click.echo(f"configuration {cfg.name}, batch {cfg.batch}, matrix products on {threads} {noun}")
    click.echo("time goes to " + ", ".join(f"{part} {100 * share:.0f} %" for part, share in spent.items()))
    return int(not total["exact"])


def _measure(name: str, cfg: Config, profile: dict[str, float]) -> dict:
    """Compile, replay and check one layer; adds to `profile` where a further replay spends its time."""
    import numpy as np

    from ..compiler.workloads import build_layer, layer, layer_data

    launch = build_layer(name, cfg).finish()
    inputs, expected = layer_data(name, cfg)
    replay, read = _place(launch, inputs, "model")
    seconds = []
    for _ in range(RUNS):
        start = time.perf_counter()
        replay()
        seconds.append(time.perf_counter() - start)
    operations = 2 * layer(name).macs
    _add_profile(replay, profile)
    return {
        "layer": name,
        "MOP": operations / 1e6,
        "ms": 1e3 * min(seconds),
        "GOP/s": operations / min(seconds) / 1e9,
        "instructions": len(launch.insn),
        "exact": bool(np.array_equal(read(), expected)),
    }


def _bench_clocked(names: list[str], cfg: Config, device: str, options: dict[str, object], as_json: bool) -> int:
    """Run each layer once on a device that counts cycles, and print what it counted."""
    with report.progress("compiling and simulating", len(names)) as advance:
        rows = []
        for name in names:
            advance(0, name)
            rows.append(_measure_clocked(name, cfg, device, options))
            advance()
    keys = ("MOP", "cycles", "bytes", "seconds", "instructions")
    total: dict[str, object] = {"layer": "total", **{key: sum(row[key] for row in rows) for key in keys}}
    total["macs"], total["exact"] = sum(row["macs"] for row in rows), all(row["exact"] for row in rows)
    table = [_clocked_row(row, cfg) for row in [*rows, total]]
    build = _build(cfg) if device == "rtl" else None
    if as_json:
        facts = {"config": cfg.name, "device": device, "build": build}
        report.emit_json(facts | {"layers": table[:-1], "total": table[-1]})
    else:
        report.table(list(table[0]), [list(row.values()) for row in table[:-1]], list(table[-1].values()))
        click.echo(f"configuration {cfg.name}, batch {cfg.batch}, simulated; memory as DRAM preset zynq_hp")
        if build:
            click.echo(f"one thread; {build}")
    return int(not total["exact"])


def _build(cfg: Config) -> str:
    from ..sim.rtl import describe_build

    return describe_build(cfg)


def _measure_clocked(name: str, cfg: Config, device: str, options: dict[str, object]) -> dict:
    import numpy as np

    from ..compiler.workloads import build_layer, layer, layer_data

    launch = build_layer(name, cfg).finish()
    inputs, expected = layer_data(name, cfg)
    replay, read = _place(launch, inputs, device, options)
    start = time.perf_counter()
    stats = replay()
    return {
        "layer": name,
        "MOP": 2 * layer(name).macs / 1e6,
        "macs": layer(name).macs,
        "cycles": stats.cycles,
        "bytes": stats.bytes_loaded.total() + stats.bytes_stored.total(),
        "seconds": time.perf_counter() - start,
        "instructions": len(launch.insn),
        "exact": bool(np.array_equal(read(), expected)),
    }


def _clocked_row(row: dict, cfg: Config) -> dict[str, object]:
    cycles = row["cycles"]
    return {
        "layer": row["layer"],
        "MOP": row["MOP"],
        "cycles": cycles,
        "utilisation %": 100 * row["macs"] / (cfg.macs_per_cycle * cycles),
        "bytes/cycle": row["bytes"] / cycles,
        "instructions": row["instructions"],
        "cycles/s": int(cycles / row["seconds"]),
        "exact": row["exact"],
    }


def _place(
    launch: Launch, inputs: dict[str, np.ndarray], on: str, options: dict[str, object] | None = None
) -> tuple[Callable[[], Stats], Callable[[], np.ndarray]]:
    """(replays `launch` on the device `on`, which holds it and its inputs; reads its output `out`)."""
    import numpy as np

    from ..runtime.device import open_device

    device = open_device(on, launch.cfg, **options or {})
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

    profiler = cProfile.Profile()
    profiler.runcall(replay)
    stats = pstats.Stats(profiler)
    entered = dict.fromkeys(PARTS, 0.0)
    for (file, *_), (*_, callers) in stats.stats.items():  # pyright: ignore[reportAttributeAccessIssue]
        module = os.path.basename(file).removesuffix(".py")
        if module in entered and os.path.basename(os.path.dirname(file)) == "sim":
            entered[module] += sum(row[3] for caller, row in callers.items() if caller[0] != file)
    for module, seconds in entered.items():
        profile[PARTS[module]] += seconds
    profile["the rest"] += max(0.0, stats.total_tt - sum(entered.values()))  # pyright: ignore[reportAttributeAccessIssue]


def _total(rows: list[dict]) -> dict:
    mop, ms = sum(row["MOP"] for row in rows), sum(row["ms"] for row in rows)
    total = {"layer": "total", "MOP": mop, "ms": ms, "GOP/s": mop / ms}
    return total | {"instructions": sum(r["instructions"] for r in rows), "exact": all(r["exact"] for r in rows)}
