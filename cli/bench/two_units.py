"""`tilewright bench split` and `resnet8-units`: layers whose channels two compute units share, and networks of them.

`split` measures a layer that both units divide beside the same layer on GEMM alone. The networks have the shape of
ResNet8 for CIFAR-10 (16, 32 and 64 channels, three residual blocks), or four times the channels, with random weights,
which are ternary in the channels of unit `ternary`; a point is the share of these channels. First and last layer stay
on GEMM but for the last two points: all layers on unit `ternary`, and the mapping with the least predicted time.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...compiler import graph as g
from ...compiler.conv_shape import ConvShape
from ...compiler.mapping import ChannelMapping
from ...compiler.network import compile_for, compile_graph, min_cost
from ...hw.config import Config
from ...hw.errors import UnsupportedError
from ...runtime.executable import Executable
from ...runtime.launch import Launch
from ...sim.dram import Dram
from ...sim.profile import profile
from ...sim.profile import total as whole_launch
from .. import report
from .measure import Bench, Row

SPLIT = "split"
LAYERS = {f"{size}x{size}": size for size in (56, 28, 14, 7)}  # 3x3, 64 to 64 channels
_CHANNELS = 64
WORKLOADS = {"resnet8-units": (16, 32, 64), "resnet8x4-units": (64, 128, 256)}  # channels of the blocks
SHARES = {"0": 0.0, "25": 0.25, "50": 0.5, "75": 0.75, "100": 1.0}  # of the blocks of channels of each layer
POINTS = (*SHARES, "all", "min-cost")
_SIZE, _CLASSES = 32, 10
_SPREAD = 45  # of values, in steps: they fill int8


def run(bench: Bench, names: tuple[str, ...]) -> bool:
    """Measure and print; returns whether all results are exact."""
    return _run_split(bench, names) if bench.workload == SPLIT else _run_points(bench, names)


@dataclass(frozen=True)
class Division:
    """A layer of `shape` whose last `ternary` output channels run on unit `ternary`."""

    shape: ConvShape
    ternary: int

    @property
    def name(self) -> str:
        """Kernel, strides, channels on both units and size of the image."""
        shape = self.shape
        kernel, size = ("x".join(map(str, pair)) for pair in (shape.kernel, shape.size))
        strides = "" if shape.strides == (1, 1) else f" / {shape.strides[0]}"
        return f"{kernel}{strides}, {shape.c} to {shape.o - self.ternary} + {self.ternary}, {size}"

    def graph(self) -> g.Graph:
        """The layer as a network, with random weights whose sums fill int8."""
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

    def launch(self, cfg: Config) -> Launch:
        """The layer's only launch."""
        (launch,) = (step.launch for step in compiled(self.graph(), cfg).launches)
        return launch


def compiled(graph: g.Graph, cfg: Config) -> Executable:
    """The program of a network of one layer, all on the accelerator."""
    return compile_for(graph, cfg, refused={"host": {"layer": "it is the accelerator's work"}}).executable


def _run_split(bench: Bench, names: tuple[str, ...]) -> bool:
    cfg = bench.cfg
    if "ternary" not in cfg.units:
        raise UnsupportedError(
            f"bench {SPLIT}: configuration {cfg.name} has units {', '.join(cfg.units)}, not ternary; "
            "use --config pynq_z1_two"
        )
    rows = list(bench.each(names, LAYERS, lambda name: _split_row(name, bench)))
    exact = all(row["exact"] for row in rows)

    def show() -> None:
        report.records([_split_cells(row) for row in rows])
        report.say(
            f"configuration {cfg.name}: 3x3, {_CHANNELS} to {_CHANNELS} channels, {_CHANNELS // 2} of them ternary; "
            "share: cycles of both units as part of those of GEMM alone; STORE waits: its cycles for accumulators or "
            "multipliers; input: bytes loaded as part of the tensor's, where more than 1 is the edges of tiles"
        )

    bench.finish(rows, show, {"channels": _CHANNELS, "ternary": _CHANNELS // 2}, {"exact": exact})
    return exact


def _split_row(name: str, bench: Bench) -> Row:
    """A layer on both units, with cycles and loads of the same layer on GEMM alone."""
    shape = ConvShape(1, _CHANNELS, LAYERS[name], LAYERS[name], _CHANNELS, (3, 3), pads=(1, 1, 1, 1))
    alone, both = (_measured_division(Division(shape, ternary), bench) for ternary in (0, _CHANNELS // 2))
    share = both["cycles"] / alone["cycles"] if both["cycles"] else None
    row = {"name": name, "op": "conv2d", "alone": alone["cycles"], "share": share} | both
    return row | {"alone_input_loads": alone["input_loads"], "exact": alone["exact"] and both["exact"]}


def _measured_division(division: Division, bench: Bench) -> Row:
    graph = division.graph()
    executable = compiled(graph, bench.cfg)
    (launch,) = (step.launch for step in executable.launches)
    row, stats = bench.measured(division.name, graph, executable)
    row["input_loads"] = stats.bytes_loaded["INP"] / math.prod(graph.inputs[0].shape)
    if stats.timeline is None or stats.cycles is None:
        return row | dict.fromkeys(("wait_bank", "gemm_use", "ternary_use"))
    whole = whole_launch(profile(launch, stats.timeline(), stats.cycles))
    return row | {"wait_bank": whole.waits["bank"], "gemm_use": whole.gemm_use, "ternary_use": whole.ternary_use}


def _split_cells(row: Row) -> dict[str, object]:
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


def _run_points(bench: Bench, names: tuple[str, ...]) -> bool:
    if unknown := [name for name in names if name not in POINTS]:
        raise UnsupportedError(f"--layer {unknown[0]}: {bench.workload} has the points {', '.join(POINTS)}")
    if "ternary" not in bench.cfg.units:
        raise UnsupportedError(
            f"bench {bench.workload}: configuration {bench.cfg.name} has unit gemm alone; use pynq_z1_two"
        )
    rows = list(bench.each(names, POINTS, lambda name: _point_row(name, WORKLOADS[bench.workload], bench)))
    bench.finish(rows, lambda: _print_points(rows, bench.cfg), {}, {}, key="points")
    return not any(row["exact"] is False for row in rows)


def _point_row(name: str, widths: Sequence[int], bench: Bench) -> Row:
    """One point: compiled, run, on every device but the timing model compared with the golden interpreter."""
    cfg, dram = bench.cfg, bench.options.get("dram")
    graph, split = point(name, widths, cfg, dram)
    count = {op.name: len(op.weight) for op in graph.layers}
    channels = {}
    for op, ternary in split.items():
        if ternary:
            first = count[op] - ternary
            channels[op] = {"gemm": tuple(range(first)), "ternary": tuple(range(first, count[op]))}
    executable = compile_graph(graph, cfg, mapping=ChannelMapping(channels), dram=dram)
    if bench.name == "timing":
        cycles, exact = sum(bench.predict(f"{name}: {step.name}", step.launch) for step in executable.launches), None
    else:
        row, _ = bench.measured(name, graph, executable)
        cycles, exact = row["cycles"], row["exact"]
    share = sum(split.values()) / sum(count.values())
    return {"name": name, "share": share, "cycles": cycles, "exact": exact, "ternary": split}


def _print_points(rows: Sequence[Row], cfg: Config) -> None:
    base = next((row["cycles"] for row in rows if row["name"] == "0"), None)
    table = []
    for row in rows:
        cells = {"point": row["name"], "ternary channels %": 100 * row["share"], "cycles": row["cycles"] or ""}
        if base and row["cycles"]:
            cells["of all on gemm %"] = 100 * row["cycles"] / base
        if row["exact"] is not None:
            cells["exact"] = row["exact"]
        table.append(cells)
    report.records(table)
    report.say(f"configuration {cfg.name}; points: per cent of the blocks of channels between first and last layer")


def point(name: str, widths: Sequence[int], cfg: Config, dram: Dram | None = None) -> tuple[g.Graph, dict[str, int]]:
    """(The network of a point, the number of ternary channels of each of its layers, which are the last)."""
    if name not in SHARES:
        every = {op.name: len(op.weight) for op in network(widths, {}).layers}
        graph = network(widths, every)
        if name == "all":
            return graph, every
        chosen = min_cost(graph, cfg, dram=dram).layers
        return graph, {op: len(chosen[op]["ternary"]) if op in chosen else 0 for op in every}
    split, blocks = {}, cfg.block_out
    *layers, last = network(widths, {}).layers
    for op in layers[1:]:
        count = len(op.weight)
        split[op.name] = min(count, blocks * math.floor(SHARES[name] * -(-count // blocks) + 0.5))
    split = {layers[0].name: 0, **split, last.name: 0}
    return network(widths, split), split


def network(widths: Sequence[int], ternary: dict[str, int], seed: int = 0) -> g.Graph:
    """The network, whose layers have the last `ternary` channels by layer ternary."""
    made = _Network(seed, ternary)
    image = x = made.tensor("image", (1, 3, _SIZE, _SIZE))
    x = made.conv("first", x, widths[0])
    for k, width in enumerate(widths, 1):
        stride = 1 if k == 1 else 2
        y = made.conv(f"block{k}.b", made.conv(f"block{k}.a", x, width, stride), width, relu=False)
        x = made.conv(f"block{k}.skip", x, width, stride, kernel=1, relu=False) if stride > 1 else x
        x = made.append(g.Add, f"block{k}.sum", (x, y), made.tensor(f"block{k}.sum.y", x.shape, 1.4), 0)
    mean = made.append(g.Mean, "mean", (x,), made.tensor("mean.y", (1, x.shape[1])), (2, 3))
    scores = made.tensor("scores", (1, _CLASSES))
    made.append(g.QDense, "last", (mean,), scores, *made.parameters("last", mean, scores, (x.shape[1],)))
    return g.Graph("resnet8", (image,), (scores,), tuple(made.ops))


class _Network:
    """A network in the making, whose layers have the last `ternary` channels ternary."""

    def __init__(self, seed: int, ternary: dict[str, int]):
        self.rng, self.ternary, self.ops = np.random.default_rng(seed), ternary, list[Any]()

    def tensor(self, name: str, shape: tuple[int, ...], spread: float = 1.0) -> g.Tensor:
        return g.Tensor(name, shape, scale=spread / _SPREAD * float(self.rng.uniform(0.8, 1.25)))

    def append(self, kind: Any, name: str, inputs: tuple[g.Tensor, ...], y: g.Tensor, *args: Any, **facts: Any) -> Any:
        """Append an operator; its output."""
        self.ops.append(kind(name, inputs, y, *args, **facts))
        return y

    def parameters(
        self, name: str, x: g.Tensor, y: g.Tensor, fan: tuple[int, ...]
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Weights, scales and biases of layer `name`, which give `y` about the spread of `x`."""
        channels, last = y.shape[1], self.ternary.get(name, 0)
        weight = self.rng.integers(-127, 128, (channels, *fan))
        weight[channels - last :] = self.rng.integers(-1, 2, (last, *fan))
        spread = np.maximum(weight.reshape(channels, -1).std(1), 0.5)
        scale = y.scale / x.scale / (spread * math.sqrt(math.prod(fan)))
        bias = self.rng.integers(-9, 10, channels) * spread * math.sqrt(math.prod(fan))
        return weight.astype(np.int8), scale.astype(np.float32), bias.astype(np.int32)

    def conv(
        self, name: str, x: g.Tensor, channels: int, stride: int = 1, kernel: int = 3, relu: bool = True
    ) -> g.Tensor:
        size, pad = -(-x.shape[2] // stride), kernel // 2
        y = self.tensor(f"{name}.y", (1, channels, size, size))
        before = pad if stride == 1 else 0  # as TensorFlow pads: what is over is behind
        parameters = self.parameters(name, x, y, (x.shape[1], kernel, kernel))
        facts = {"strides": (stride, stride), "pads": (before, before, pad, pad), "low": 0 if relu else -128}
        return self.append(g.QConv2d, name, (x,), y, *parameters, **facts)
