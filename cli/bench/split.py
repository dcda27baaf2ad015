"""`tilewright bench split`: layers that two compute units divide, beside the same layers on GEMM alone."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .. import report
from . import rows as bench_rows

if TYPE_CHECKING:
    from ...compiler.conv_shape import ConvShape
    from ...compiler.graph import Graph
    from ...hw.config import Config
    from ...runtime.executable import Executable
    from ...runtime.launch import Launch

WORKLOAD = "split"
LAYERS = {f"{size}x{size}": size for size in (56, 28, 14, 7)}  # 3x3, 64 to 64 channels
_CHANNELS = 64


@dataclass(frozen=True)
class Division:
    """A layer of `shape` whose last `ternary` output channels run on unit `ternary`."""

    shape: ConvShape
    ternary: int

    @property
    def name(self) -> str:
        """What it is."""
        shape = self.shape
        kernel, size = ("x".join(map(str, pair)) for pair in (shape.kernel, shape.size))
        strides = "" if shape.strides == (1, 1) else f" / {shape.strides[0]}"
        return f"{kernel}{strides}, {shape.c} to {shape.o - self.ternary} + {self.ternary}, {size}"

    def graph(self) -> Graph:
        """The layer as a network, with random weights whose sums fill int8."""
        import numpy as np

        from ...compiler import graph as g

        shape, rng = self.shape, np.random.default_rng(self.shape.o)
        own, products = shape.o - self.ternary, shape.c * shape.taps
        weight = rng.integers(-127, 128, (shape.o, shape.c, *shape.kernel), np.int8)
        weight[own:] = rng.integers(-1, 2, weight[own:].shape, np.int8)
        scale = np.full(shape.o, 45 / (5000 * products**0.5), np.float32)
        scale[own:] *= 90
        bias = rng.integers(-(1 << 10), 1 << 10, shape.o, np.int32)
        x = g.Tensor("x", (shape.n, shape.c, *shape.size), zero_point=-3)
        y = g.Tensor("y", (shape.n, shape.o, *shape.output), zero_point=7)
        facts = {"strides": shape.strides, "pads": shape.pads, "ternary": self.ternary}
        return g.Graph("layer", (x,), (y,), (g.QConv2d("layer", (x,), y, weight, scale, bias, **facts),))


def divisions(cfg: Config) -> Iterator[Division]:
    """Layers for a comparison of timing model and circuit: kernels, strides, sizes, and quarters of the channels."""
    from ...compiler.conv_shape import ConvShape

    channels = 4 * cfg.block_out
    sizes = (56, 28, 14, 7) if cfg.block_out > 8 else (28, 14, 7, 5)
    for kernel in (3, 1):
        pads = (1, 1, 1, 1) if kernel == 3 else (0, 0, 0, 0)
        for stride in (1, 2):
            for size in sizes[: len(sizes) + 1 - stride]:
                shape = ConvShape(1, channels, size, size, channels, (kernel, kernel), (stride, stride), pads)
                yield from (Division(shape, k * cfg.block_out) for k in range(1, 5))
    for inputs, outputs in ((4 * channels, channels), (channels, 8 * channels)):
        for quarters in range(1, 5):
            yield Division(ConvShape(1, inputs, 1, 1, outputs), outputs * quarters // 4)


def compiled(graph: Graph, cfg: Config) -> Executable:
    """The program of a network of one layer, all on the accelerator."""
    from ...compiler.network import compile_for

    return compile_for(graph, cfg, refused={"host": {"layer": "it is the accelerator's work"}}).executable


def launch_of(division: Division, cfg: Config) -> Launch:
    """The launch of a layer."""

    (launch,) = (step.launch for step in compiled(division.graph(), cfg).launches)
    return launch


def run(names: tuple[str, ...], bench: bench_rows.Bench, as_json: bool) -> int:
    """Measure and print; the exit status."""
    from ...hw.errors import UnsupportedError

    cfg = bench.cfg
    if "ternary" not in cfg.units:
        raise UnsupportedError(
            f"bench {WORKLOAD}: configuration {cfg.name} has units {', '.join(cfg.units)}, not ternary; "
            "use --config pynq_z1_two"
        )
    bench_rows.check_names(names, LAYERS)

    def both(name: str) -> dict[str, Any]:
        return _row(name, *(_measure(division(LAYERS[name], ternary), bench) for ternary in (0, _CHANNELS // 2)))

    measured = list(bench.each(names or LAYERS, both))
    facts = bench.facts(WORKLOAD) | {"channels": _CHANNELS, "ternary": _CHANNELS // 2}
    facts |= bench.profile.write(WORKLOAD, facts | {"layers": measured})
    exact = all(row["exact"] for row in measured)
    if as_json:
        bench_rows.emit(facts, measured, {"exact": exact})
    else:
        report.records([_cells(row) for row in measured])
        bench.say(facts)
        report.say(
            f"configuration {cfg.name}: 3x3, {_CHANNELS} to {_CHANNELS} channels, {_CHANNELS // 2} of them ternary; "
            "share: cycles of both units as part of those of GEMM alone; STORE waits: its cycles for accumulators or "
            "multipliers; input: bytes loaded as part of the tensor's, where more than 1 is the edges of tiles"
        )
    return int(not exact)


def division(size: int, ternary: int) -> Division:
    """A layer of the table."""
    from ...compiler.conv_shape import ConvShape

    return Division(ConvShape(1, _CHANNELS, size, size, _CHANNELS, (3, 3), pads=(1, 1, 1, 1)), ternary)


def _measure(one: Division, bench: bench_rows.Bench) -> dict[str, Any]:
    """The row of one layer."""
    from ...sim.profile import profile, total

    graph = one.graph()
    executable = compiled(graph, bench.cfg)
    (launch,) = (step.launch for step in executable.launches)
    row, stats = bench.measured(one.name, graph, executable)
    row["input_loads"] = stats.bytes_loaded["INP"] / math.prod(graph.inputs[0].shape)
    if stats.timeline is None or stats.cycles is None:
        return row | dict.fromkeys(("wait_bank", "gemm_use", "ternary_use"))
    whole = total(profile(launch, stats.timeline(), stats.cycles))
    return row | {"wait_bank": whole.waits["bank"], "gemm_use": whole.gemm_use, "ternary_use": whole.ternary_use}


def _row(name: str, alone: dict[str, Any], both: dict[str, Any]) -> dict[str, Any]:
    """The row of a layer: that on both units, and cycles and loads of that on GEMM alone."""
    share = both["cycles"] / alone["cycles"] if both["cycles"] else None
    row = {"name": name, "op": "conv2d", "alone": alone["cycles"], "share": share} | both
    return row | {"alone_input_loads": alone["input_loads"], "exact": alone["exact"] and both["exact"]}


def _cells(row: dict[str, Any]) -> dict[str, object]:
    def percent(key: str) -> object:
        return None if row[key] is None else f"{100 * row[key]:.1f}"

    return {
        "layer": row["name"],
        "GEMM alone": row["alone"],
        "both": row["cycles"],
        "share %": percent("share"),
        "GEMM use %": percent("gemm_use"),
        "ternary use %": percent("ternary_use"),
        "STORE waits": row["wait_bank"],
        "input, alone": f"{row['alone_input_loads']:.2f}",
        "input, both": f"{row['input_loads']:.2f}",
        "exact": row["exact"],
    }
