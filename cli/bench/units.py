"""`tilewright bench resnet8-units`: a network by the share of channels on the second compute unit, a row per point.

The network has the shape of ResNet8 for CIFAR-10 (16, 32 and 64 channels, three residual blocks), or four times the
channels, with random weights, which are ternary in the channels of unit `ternary`. First and last layer stay on GEMM
but for the last two points: all layers on unit `ternary`, and the mapping with the least predicted time.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ...hw.errors import UnsupportedError
from .. import report
from . import rows as bench_rows

if TYPE_CHECKING:
    import numpy as np

    from ...compiler import graph as g
    from ...hw.config import Config
    from ...sim.dram import Dram

WORKLOADS = {"resnet8-units": (16, 32, 64), "resnet8x4-units": (64, 128, 256)}  # channels of the blocks
SHARES = {"0": 0.0, "25": 0.25, "50": 0.5, "75": 0.75, "100": 1.0}  # of the blocks of channels of each layer
POINTS = (*SHARES, "all", "min-cost")
_SIZE, _CLASSES = 32, 10
_SPREAD = 45  # of values, in steps: they fill int8


def run(workload: str, names: Sequence[str], bench: bench_rows.Bench, as_json: bool) -> int:
    """Measure the points `names`, all unless given, and print; the exit status. Raises `UnsupportedError`."""
    if unknown := [name for name in names if name not in POINTS]:
        raise UnsupportedError(f"--layer {unknown[0]}: {workload} has the points {', '.join(POINTS)}")
    if "ternary" not in bench.cfg.units:
        raise UnsupportedError(f"bench {workload}: configuration {bench.cfg.name} has unit gemm alone; use pynq_z1_two")
    rows = list(bench.each(names or POINTS, lambda name: _measured(name, WORKLOADS[workload], bench)))
    facts = bench.facts(workload)
    facts |= bench.profile.write(workload, facts | {"points": rows})
    if as_json:
        report.emit_json(facts | {"points": rows})
    else:
        bench.say(facts)
        _print(rows, bench.cfg)
    return int(any(row["exact"] is False for row in rows))


def _measured(name: str, widths: Sequence[int], bench: bench_rows.Bench) -> dict[str, Any]:
    """One point: compiled, run, on every device but the timing model compared with the golden interpreter."""
    from ...compiler.mapping import ChannelMapping
    from ...compiler.network import compile_graph

    cfg = bench.cfg
    dram = bench.options.get("dram")
    graph, split = point(name, widths, cfg, dram)
    count = {op.name: len(op.weight) for op in graph.layers}
    mapping = ChannelMapping({op: _last(count[op], found) for op, found in split.items() if found})
    executable = compile_graph(graph, cfg, mapping=mapping, dram=dram)
    if bench.name == "timing":
        cycles, exact = sum(bench.predict(f"{name}: {step.name}", step.launch) for step in executable.launches), None
    else:
        row, _ = bench.measured(name, graph, executable)
        cycles, exact = row["cycles"], row["exact"]
    share = sum(split.values()) / sum(count.values())
    return {"name": name, "share": share, "cycles": cycles, "exact": exact, "ternary": split}


def point(name: str, widths: Sequence[int], cfg: Config, dram: Dram | None = None) -> tuple[g.Graph, dict[str, int]]:
    """(The network of a point, the number of ternary channels of each of its layers, which are the last)."""
    from ...compiler.network import min_cost

    if name not in SHARES:
        graph = network(widths, {})
        every = {op.name: len(op.weight) for op in graph.layers}
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
    import numpy as np

    made = _Network(np.random.default_rng(seed), ternary)
    image = x = made.tensor("image", (1, 3, _SIZE, _SIZE))
    x = made.conv("first", x, widths[0])
    for k, width in enumerate(widths, 1):
        stride = 1 if k == 1 else 2
        y = made.conv(f"block{k}.b", made.conv(f"block{k}.a", x, width, stride), width, relu=False)
        x = made.conv(f"block{k}.skip", x, width, stride, kernel=1, relu=False) if stride > 1 else x
        x = made.total(f"block{k}.sum", x, y)
    return made.graph(image, x)


@dataclass
class _Network:
    """A network in the making; every method appends operators and returns the last one's output."""

    rng: np.random.Generator
    ternary: dict[str, int]
    ops: list[Any] = field(default_factory=list)

    def tensor(self, name: str, shape: tuple[int, ...], spread: float = 1.0) -> g.Tensor:
        from ...compiler import graph as g

        return g.Tensor(name, shape, scale=spread / _SPREAD * float(self.rng.uniform(0.8, 1.25)))

    def parameters(
        self, name: str, x: g.Tensor, y: g.Tensor, fan: tuple[int, ...]
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Weights, scales and biases of layer `name`, which give `y` about the spread of `x`."""
        import numpy as np

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
        from ...compiler import graph as g

        size, pad = -(-x.shape[2] // stride), kernel // 2
        y = self.tensor(f"{name}.y", (1, channels, size, size))
        before = pad if stride == 1 else 0  # as TensorFlow pads: what is over is behind
        parameters = self.parameters(name, x, y, (x.shape[1], kernel, kernel))
        facts = {"strides": (stride, stride), "pads": (before, before, pad, pad), "low": 0 if relu else -128}
        self.ops.append(g.QConv2d(name, (x,), y, *parameters, **facts))
        return y

    def total(self, name: str, x: g.Tensor, y: g.Tensor) -> g.Tensor:
        from ...compiler import graph as g

        self.ops.append(g.Add(name, (x, y), self.tensor(f"{name}.y", x.shape, 1.4), 0))
        return self.ops[-1].output

    def graph(self, image: g.Tensor, x: g.Tensor) -> g.Graph:
        """The graph, with a mean over the image and the classes behind `x`."""
        from ...compiler import graph as g

        mean = self.tensor("mean.y", (1, x.shape[1]))
        self.ops.append(g.Mean("mean", (x,), mean, (2, 3)))
        scores = self.tensor("scores", (1, _CLASSES))
        self.ops.append(g.QDense("last", (mean,), scores, *self.parameters("last", mean, scores, (x.shape[1],))))
        return g.Graph("resnet8", (image,), (scores,), tuple(self.ops))


def _last(count: int, ternary: int) -> dict[str, tuple[int, ...]]:
    first = count - ternary
    return {"gemm": tuple(range(first)), "ternary": tuple(range(first, count))}


def _print(rows: Sequence[dict[str, Any]], cfg: Config) -> None:
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
