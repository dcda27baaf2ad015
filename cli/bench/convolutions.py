"""`tilewright bench`: the convolutions C2 to C12 of ResNet-18, and where the behavioural model spends its time."""

from __future__ import annotations

import cProfile
import os
import pstats
import time
from collections.abc import Callable

import numpy as np

from ...runtime.device import Stats
from ...runtime.launch import Launch
from ...runtime.registry import CIRCUITS
from ...sim.model import alu, gemm, transfer
from ...sim.rtl.device import describe_build
from .. import report
from ..main import KERNELS_VARIABLE
from .layers import CONVOLUTIONS, plain_convolution, plain_data
from .measure import Bench, Row, row, total

RUNS = 5
# module of the model -> what it executes
PARTS = {"gemm": "GEMM", "alu": "ALU", "transfer": "loads and stores"}
REST = "rest"


def run(bench: Bench, names: tuple[str, ...]) -> bool:
    """Measure and print; returns whether all results are exact."""
    rows, spent = [], dict.fromkeys([*PARTS, REST], 0.0)
    for measured, replay in bench.each(names, CONVOLUTIONS, lambda name: _measure(name, bench)):
        if bench.name == "model":
            _add_profile(replay, spent)
        rows.append(measured)
    whole, about = total(rows, "seconds"), _about(bench, spent)
    bench.finish(rows, lambda: _print(rows, whole, about, bench), about, {"total": whole})
    return whole["exact"]


def _about(bench: Bench, spent: dict[str, float]) -> Row:
    """Facts about the device for the document: where the model's time goes, or how the circuit was built."""
    if bench.name == "model":
        shares = {part: seconds / sum(spent.values()) for part, seconds in spent.items()}
        kernels = os.environ.get(KERNELS_VARIABLE)
        return {"threads": bench.threads, "runs": RUNS, "time_share": shares, "kernels": kernels}
    if bench.name in CIRCUITS:
        return {"build": describe_build(bench.cfg, fast=bench.name == "rtl_fast")}
    return {}


def _measure(name: str, bench: Bench) -> tuple[Row, Callable[[], Stats]]:
    """Compile, run and check a layer: (its row, a function that runs it again)."""
    launch = plain_convolution(name, bench.cfg).finish()
    inputs, expected = plain_data(name, bench.cfg)
    replay, read = _prepared(launch, inputs, bench)
    stats, seconds = None, []
    for _ in range(RUNS if bench.name == "model" else 1):
        start = time.perf_counter()
        stats = replay()
        seconds.append(time.perf_counter() - start)
    assert stats is not None
    bench.profile.add(name, launch, stats)
    exact = bool(np.array_equal(read(), expected))
    counts = row(bench.cfg, stats, macs=CONVOLUTIONS[name].macs, instructions=len(launch.insn), exact=exact)
    return {"name": name, "op": "conv2d"} | counts | {"seconds": min(seconds)}, replay


def _print(rows: list[Row], whole: Row, about: Row, bench: Bench) -> None:
    cells = _model_cells if bench.name == "model" else _clocked_cells
    report.records([cells(row) for row in rows], cells({"name": "total"} | whole))
    configuration = f"configuration {bench.cfg.name}, batch {bench.cfg.batch}"
    if bench.name == "model":
        kernels = f"{KERNELS_VARIABLE}={about['kernels']}"
        chosen = f", with the kernels of {kernels}" if about["kernels"] else ""
        report.say(f"{configuration}, matrix products on {report.counted(bench.threads, 'thread')}{chosen}")
        shares = [f"{PARTS.get(part, 'the rest')} {100 * share:.0f} %" for part, share in about["time_share"].items()]
        report.say("time goes to " + ", ".join(shares))
        return
    report.say(f"{configuration}, simulated; memory as DRAM {bench.dram.name}")
    if "build" in about:
        report.say(f"one thread; {about['build']}")


def _model_cells(row: Row) -> dict[str, object]:
    mop = 2 * row["macs"] / 1e6
    return {
        "layer": row["name"],
        "MOP": mop,
        f"ms, best of {RUNS}": 1e3 * row["seconds"],
        "GOP/s": mop / 1e3 / row["seconds"],
        "instructions": row["instructions"],
        "exact": row["exact"],
    }


def _clocked_cells(row: Row) -> dict[str, object]:
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
    launch: Launch, inputs: dict[str, np.ndarray], bench: Bench
) -> tuple[Callable[[], Stats], Callable[[], np.ndarray]]:
    """(replays `launch` on the device, which holds it and its inputs; reads its output `out`)."""
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


def _add_profile(replay: Callable[[], Stats], spent: dict[str, float]) -> None:
    """Add the seconds that one replay spends in each part of the model, by the calls that enter the part's module."""
    modules = {module.__file__: module.__name__.rpartition(".")[2] for module in (gemm, alu, transfer)}
    profiler = cProfile.Profile()
    profiler.runcall(replay)
    stats = pstats.Stats(profiler)
    entered = dict.fromkeys(PARTS, 0.0)
    for (file, *_), (*_, callers) in stats.stats.items():  # pyright: ignore[reportAttributeAccessIssue]
        if file in modules:
            entered[modules[file]] += sum(call[3] for caller, call in callers.items() if caller[0] != file)
    for module, seconds in entered.items():
        spent[module] += seconds
    spent[REST] += max(0.0, stats.total_tt - sum(entered.values()))  # pyright: ignore[reportAttributeAccessIssue]
