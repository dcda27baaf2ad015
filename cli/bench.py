"""`tilewright bench`: how fast the behavioural model replays recorded programs, and where its time goes."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from . import report
from .options import config_option, json_option

if TYPE_CHECKING:
    import numpy as np

    from ..hw.config import Config

RUNS = 5
# what numpy's matrix products may be built on; read when numpy is imported
THREAD_VARIABLES = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
# module of the model -> what it executes
PARTS = {"gemm": "GEMM", "alu": "ALU", "transfer": "loads and stores"}


@click.command()
@click.option("--layer", "layers", multiple=True, metavar="NAME", help="Only this layer; may be given several times.")
@click.option("--threads", default=1, show_default=True, type=click.IntRange(1), help="Threads of matrix products.")
@config_option()
@json_option
def command(layers: tuple[str, ...], threads: int, config: str, as_json: bool) -> int:
    """Measure the behavioural model on the convolutions C2 to C12 of ResNet-18, batch 1, with our own schedules.

    A layer is compiled once, and the recorded program is replayed; the time is the best of 5 replays, without
    compiling and without moving data in and out. `exact` says whether every output equals a numpy computation that
    cannot round. The exit status is 0 only if all are.
    """
    for variable in THREAD_VARIABLES:
        os.environ[variable] = str(threads)
    from ..compiler.workloads import resnet18_layers
    from ..hw.config import load_config

    cfg = load_config(config)
    names = list(layers) or [layer.name for layer in resnet18_layers()]
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
    replay, read = _place(launch, inputs)
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


def _place(launch, inputs: dict[str, np.ndarray]) -> tuple[Callable[[], object], Callable[[], np.ndarray]]:
    """(replays `launch` on a model that holds it and its inputs; reads its output `out`)."""
    import numpy as np

    from ..runtime.device import open_device

    device = open_device("model", launch.cfg)
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


def _add_profile(replay: Callable[[], object], profile: dict[str, float]) -> None:
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
