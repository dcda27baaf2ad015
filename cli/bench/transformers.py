"""`tilewright bench mobilebert-384` and others: dense layers of transformers, and `mobilebert-layer`, a whole layer.

Of the dense layers each shape is measured once. The whole layer is one launch with a row per kind of operator; it has
MobileBERT's shape: a bottleneck of 128 of 512 elements, 4 heads, 4 feed-forward networks. Its norms are a factor and an
offset per element, which are part of the weights beside them, as the factor of the scores is.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...compiler import graph as g
from ...compiler.network import compile_for
from ...sim.profile import profile
from ...sim.timing import predict
from .. import report
from .measure import Bench, Row, total

# shape of weights (inputs, outputs) -> layers
SHAPES = {
    "mobilebert": {(384, 512): 1, (512, 128): 168, (128, 128): 72, (128, 512): 120, (512, 2): 1},
    "albert": {(128, 768): 1, (768, 768): 48, (768, 3072): 12, (3072, 768): 12, (768, 2): 1},
}
LAYER_ROWS = 128
_WIDE, _NARROW, _HEADS, _NETWORKS = 512, 128, 4, 4
_SPREAD = 45  # of values, in steps: they fill int8
_KINDS = {"dense": g.Linear, "products of matrices": g.BatchMatMul, "softmax": g.Softmax, "sums": g.Add}
_REST = "the rest"


def run(bench: Bench, names: tuple[str, ...]) -> bool:
    """Measure and print; returns whether all results are exact."""
    network, _, size = bench.workload.rpartition("-")
    return _run_layer(bench) if size == "layer" else _run_dense(bench, names, SHAPES[network], int(size))


def _run_dense(bench: Bench, names: tuple[str, ...], shapes: dict[tuple[int, int], int], rows: int) -> bool:
    known = {"x".join(map(str, shape)): shape for shape in shapes}

    def measured(name: str) -> Row:
        graph = dense_layer(rows, known[name])
        host = {"host": {"dense": "it is the accelerator's work"}}
        executable = compile_for(graph, bench.cfg, refused=host, dram=bench.options.get("dram")).executable
        found = {"name": name, "op": "dense", "count": shapes[known[name]]}
        return found | bench.measured(name, graph, executable)[0]

    layers = list(bench.each(names, known, measured))
    whole: Row = {"count": sum(row["count"] for row in layers)} | total(layers)

    def show() -> None:
        report.records([_cells(row) for row in layers], _cells({"name": "total"} | whole))
        report.say(f"configuration {bench.cfg.name}, {rows} rows; cycles are of one layer, and in total of all")

    bench.finish(layers, show, {"rows": rows}, {"total": whole})
    return whole["exact"]


def _cells(row: Row) -> dict[str, object]:
    clocked = row["cycles"] is not None
    return {
        "weights": row["name"],
        "layers": row["count"],
        "MOP": 2 * row["macs"] / 1e6,
        "cycles": row["cycles"] if clocked else None,
        "ideal": round(row["ideal"]),
        "utilisation %": 100 * row["utilisation"] if clocked else None,
        "exact": row["exact"],
    }


def dense_layer(rows: int, shape: tuple[int, int]) -> g.Graph:
    """A dense layer on (1, `rows`, inputs), as .tflite files have it, with random weights whose sums fill int8."""
    inputs, outputs = shape
    rng = np.random.default_rng(inputs)
    x, y = g.Tensor("x", (1, rows, inputs), zero_point=-3), g.Tensor("y", (1, rows, outputs), zero_point=7)
    flat, sums = (g.Tensor(f"{t.name}.rows", t.shape[1:], zero_point=t.zero_point) for t in (x, y))
    weight = rng.integers(-127, 128, (outputs, inputs), np.int8)
    scale = np.full(outputs, 45 / (5000 * inputs**0.5), np.float32)
    bias = rng.integers(-(1 << 15), 1 << 15, outputs, np.int32)
    dense = g.QDense("dense", (flat,), sums, weight, scale, bias)
    ops = g.Reshape("rows", (x,), flat), dense, g.Reshape("back", (sums,), y)
    return g.Graph(f"dense{inputs}x{outputs}", (x,), (y,), ops)


def _run_layer(bench: Bench) -> bool:
    graph = transformer_layer(LAYER_ROWS)
    executable = compile_for(graph, bench.cfg, dram=bench.options.get("dram")).executable
    with report.progress("running"):
        whole, _ = bench.measured("", graph, executable)
    layers = _by_kind([step.launch for step in executable.launches], graph, bench)
    about = {"rows": LAYER_ROWS, "launches": len(executable.launches)}
    bench.finish(layers, lambda: _print(about, layers, whole, bench), about, {"total": whole})
    return whole["exact"]


def kind_of(op: g.Operator) -> str:
    """The row that an operator's cycles count in."""
    return next((name for name, kind in _KINDS.items() if isinstance(op, kind)), _REST)


def _by_kind(launches: list[Any], graph: g.Graph, bench: Bench) -> list[Row]:
    """A row per kind: cycles of the timing model and products; what belongs to no operator is the rest."""
    kinds = {op.name: kind_of(op) for op in graph.ops}
    found: dict[str, Row] = {}
    for launch in launches:
        timing = predict(launch, dram=bench.dram)
        for share in profile(launch, timing.timeline(), timing.cycles):
            row = found.setdefault(kinds.get(share.name, _REST), {"cycles": 0, "macs": 0})
            row["cycles"] += share.cycles
            row["macs"] += share.macs or 0
    rows = [{"name": name, "ideal": row["macs"] / bench.cfg.macs_per_cycle} | row for name, row in found.items()]
    return [row | {"utilisation": row["ideal"] / row["cycles"]} for row in rows]


def _print(about: Row, layers: list[Row], whole: Row, bench: Bench) -> None:
    cycles = whole["cycles"] or sum(row["cycles"] for row in layers)
    *table, last = (
        {
            "operators": row["name"],
            "MMAC": row["macs"] / 1e6,
            "cycles": row["cycles"],
            "ideal": round(row["ideal"]),
            "utilisation %": 100 * row["ideal"] / row["cycles"],
        }
        for row in [*layers, whole | {"name": "total", "cycles": cycles}]
    )
    report.records(table, last)
    exact = "exact" if whole["exact"] else "results differ from the reference"
    report.say(
        f"configuration {bench.cfg.name}, {about['rows']} rows, "
        f"{report.counted(about['launches'], 'launch', 'launches')}, {whole['macs'] / cycles:.1f} of "
        f"{bench.cfg.macs_per_cycle} MAC/cycle; {exact}; rows by the timing model"
    )


class _Layer:
    """A graph in the making, as .tflite files have it: rows of features, and images for heads."""

    def __init__(self, seed: int):
        self.rng, self.ops = np.random.default_rng(seed), list[Any]()

    def tensor(self, shape: tuple[int, ...], scale: float = 1 / 32, zero_point: int | None = None) -> g.Tensor:
        """A new tensor, whose scale varies a little and whose zero point does unless it is given."""
        zero = int(self.rng.integers(-20, 21)) if zero_point is None else zero_point
        scale *= float(self.rng.uniform(0.8, 1.25)) if zero_point is None else 1
        return g.Tensor(f"t{len(self.ops)}", shape, scale=scale, zero_point=zero)

    def append(self, kind: Any, inputs: tuple[g.Tensor, ...], y: g.Tensor, *args: Any) -> g.Tensor:
        """Append an operator; its output."""
        self.ops.append(kind(f"{kind.__name__.lower()}{len(self.ops)}", inputs, y, *args))
        return y

    def moved(self, kind: Any, x: g.Tensor, shape: tuple[int, ...], *args: Any) -> g.Tensor:
        """Append a movement, whose result has the quantisation of `x`."""
        y = g.Tensor(f"t{len(self.ops)}", shape, scale=x.scale, zero_point=x.zero_point)
        return self.append(kind, (x,), y, *args)

    def dense(self, x: g.Tensor, units: int, relu: bool = False) -> g.Tensor:
        """Append a dense layer with random weights."""
        _, rows, features = x.shape
        flat = self.moved(g.Reshape, x, (rows, features))
        y = self.tensor((rows, units))
        weight = self.rng.integers(-127, 128, (units, features)).astype(np.int8)
        scale = np.full(units, y.scale / x.scale * _SPREAD / (73 * _SPREAD * math.sqrt(features)), np.float32)
        bias = self.rng.integers(-(1 << 12), 1 << 12, units).astype(np.int32)
        self.append(g.QDense, (flat,), y, weight, scale, bias, y.zero_point if relu else -128, 127)
        return self.moved(g.Reshape, y, (1, rows, units))

    def heads(self, x: g.Tensor) -> g.Tensor:
        """(1, rows, features) as (heads, rows, features / heads)."""
        _, rows, features = x.shape
        split = self.moved(g.Reshape, x, (rows, _HEADS, features // _HEADS))
        return self.moved(g.Transpose, split, (_HEADS, rows, features // _HEADS), (1, 0, 2))

    def attention(self, shared: g.Tensor, x: g.Tensor) -> g.Tensor:
        """Append attention whose queries and keys are made of `shared`, and whose values of `x`."""
        _, rows, features = shared.shape
        q, k, v = (self.heads(self.dense(t, features)) for t in (shared, shared, x))
        spread = _SPREAD**2 * math.sqrt(features / _HEADS) * q.scale * k.scale
        scores = self.tensor((_HEADS, rows, rows), 2 * spread / _SPREAD)
        self.append(g.BatchMatMul, (q, k), scores, True)
        weights = self.tensor(scores.shape, 1 / 256, -128)
        self.append(g.Softmax, (scores,), weights, 2, 2 / (_SPREAD * scores.scale))
        y = self.tensor((_HEADS, rows, features // _HEADS), v.scale / 2)
        self.append(g.BatchMatMul, (weights, v), y)
        back = self.moved(g.Transpose, y, (rows, _HEADS, features // _HEADS), (1, 0, 2))
        return self.dense(self.moved(g.Reshape, back, (1, rows, features)), features)

    def sum(self, x: g.Tensor, y: g.Tensor) -> g.Tensor:
        """Append a sum."""
        return self.append(g.Add, (x, y), self.tensor(x.shape, 1 / 22))


def transformer_layer(rows: int, seed: int = 1) -> g.Graph:
    """A layer on (1, `rows`, 512), with random weights, scales and zero points."""
    made = _Layer(seed)
    x = g.Tensor("x", (1, rows, _WIDE), scale=1 / 32, zero_point=3)
    low, shared = made.dense(x, _NARROW), made.dense(x, _NARROW)
    y = made.sum(low, made.attention(shared, x))
    for _ in range(_NETWORKS):
        y = made.sum(y, made.dense(made.dense(y, _WIDE, relu=True), _NARROW))
    y = made.sum(x, made.dense(y, _WIDE))
    return g.Graph("mobilebert-layer", (x,), (y,), tuple(made.ops))
