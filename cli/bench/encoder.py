"""`tilewright bench mobilebert-layer`: one layer of a transformer as one launch, a row per kind of operator.

The layer has MobileBERT's shape: a bottleneck of 128 of 512 elements, 4 heads, 4 feed-forward networks. Its norms are a
factor and an offset per element, which are part of the weights beside them, as the factor of the scores is.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from .. import report
from . import rows as bench_rows

if TYPE_CHECKING:
    import numpy as np

    from ...compiler import graph as g
    from ...hw.config import Config

WORKLOADS = {"mobilebert-layer": 128}  # rows
_WIDE, _NARROW, _HEADS, _NETWORKS = 512, 128, 4, 4
_SPREAD = 45  # of values, in steps: they fill int8
_REST = "the rest"


def run(workload: str, bench: bench_rows.Bench, as_json: bool) -> int:
    """Measure and print; the exit status."""
    from ...compiler.network import compile_for

    graph, cfg = layer(WORKLOADS[workload]), bench.cfg
    executable = compile_for(graph, cfg, dram=bench.options.get("dram")).executable
    with report.progress("running"):
        total, _ = bench.measured("", graph, executable)
    launches = [step.launch for step in executable.launches]
    kinds = {op.name: kind_of(op) for op in graph.ops}
    layers = _by_kind(launches, kinds, bench.dram, cfg)
    facts = bench.facts(workload) | {"rows": WORKLOADS[workload], "launches": len(launches)}
    facts |= bench.profile.write(workload, facts | {"layers": layers})
    if as_json:
        bench_rows.emit(facts, layers, {"total": total})
    else:
        bench.say(facts)
        _print(facts, layers, total, cfg)
    return int(not total["exact"])


def kind_of(op: g.Operator) -> str:
    """The row that an operator's cycles count in."""
    from ...compiler import graph as g

    kinds = {"dense": g.Linear, "products of matrices": g.BatchMatMul, "softmax": g.Softmax, "sums": g.Add}
    return next((name for name, kind in kinds.items() if isinstance(op, kind)), _REST)


def _by_kind(launches: list[Any], kinds: dict[str, str], dram: Any, cfg: Config) -> list[dict[str, Any]]:
    """A row per kind: cycles of the timing model and products; what belongs to no operator is the rest."""
    from ...sim.profile import profile
    from ...sim.timing import predict

    found: dict[str, dict[str, Any]] = {}
    for launch in launches:
        timing = predict(launch, dram=dram)
        for share in profile(launch, timing.timeline(), timing.cycles):
            row = found.setdefault(kinds.get(share.name, _REST), {"cycles": 0, "macs": 0})
            row["cycles"] += share.cycles
            row["macs"] += share.macs or 0
    rows = [{"name": name, "ideal": row["macs"] / cfg.macs_per_cycle} | row for name, row in found.items()]
    return [row | {"utilisation": row["ideal"] / row["cycles"]} for row in rows]


def _print(facts: dict[str, Any], layers: list[dict[str, Any]], total: dict[str, Any], cfg: Config) -> None:
    predicted = sum(row["cycles"] for row in layers)
    whole = {"name": "total", "ideal": total["ideal"], "macs": total["macs"], "cycles": total["cycles"] or predicted}
    *table, last = (
        {
            "operators": row["name"],
            "MMAC": row["macs"] / 1e6,
            "cycles": row["cycles"],
            "ideal": round(row["ideal"]),
            "utilisation %": 100 * row["ideal"] / row["cycles"],
        }
        for row in [*layers, whole]
    )
    report.records(table, last)
    exact = "exact" if total["exact"] else "results differ from the reference"
    report.say(
        f"configuration {cfg.name}, {facts['rows']} rows, {report.counted(facts['launches'], 'launch', 'launches')}, "
        f"{whole['macs'] / whole['cycles']:.1f} of {cfg.macs_per_cycle} MAC/cycle; {exact}; rows by the timing model"
    )


class _Layer:
    """A graph in the making, as .tflite files have it: rows of features, and images for heads."""

    def __init__(self, rng: np.random.Generator):
        self.rng, self.ops = rng, list[Any]()

    def tensor(self, shape: tuple[int, ...], scale: float = 1 / 32, zero_point: int | None = None) -> g.Tensor:
        """A new tensor, whose scale varies a little and whose zero point does unless it is given."""
        from ...compiler import graph as g

        zero = int(self.rng.integers(-20, 21)) if zero_point is None else zero_point
        scale *= float(self.rng.uniform(0.8, 1.25)) if zero_point is None else 1
        return g.Tensor(f"t{len(self.ops)}", shape, scale=scale, zero_point=zero)

    def append(self, kind: Any, inputs: tuple[g.Tensor, ...], y: g.Tensor, *args: Any, **facts: Any) -> g.Tensor:
        """Append an operator; its output."""
        self.ops.append(kind(f"{kind.__name__.lower()}{len(self.ops)}", inputs, y, *args, **facts))
        return y

    def moved(self, kind: Any, x: g.Tensor, shape: tuple[int, ...], *args: Any) -> g.Tensor:
        """Append a movement."""
        return self.append(kind, (x,), self.tensor_like(x, shape), *args)

    def tensor_like(self, x: g.Tensor, shape: tuple[int, ...]) -> g.Tensor:
        """A new tensor of the quantisation of `x`."""
        from ...compiler import graph as g

        return g.Tensor(f"t{len(self.ops)}", shape, scale=x.scale, zero_point=x.zero_point)

    def dense(self, x: g.Tensor, units: int, relu: bool = False) -> g.Tensor:
        """Append a dense layer with random weights."""
        import numpy as np

        from ...compiler import graph as g

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
        from ...compiler import graph as g

        _, rows, features = x.shape
        split = self.moved(g.Reshape, x, (rows, _HEADS, features // _HEADS))
        return self.moved(g.Transpose, split, (_HEADS, rows, features // _HEADS), (1, 0, 2))

    def attention(self, shared: g.Tensor, x: g.Tensor) -> g.Tensor:
        """Append attention whose queries and keys are made of `shared`, and whose values of `x`."""
        from ...compiler import graph as g

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
        from ...compiler import graph as g

        return self.append(g.Add, (x, y), self.tensor(x.shape, 1 / 22))


def layer(rows: int, seed: int = 1) -> g.Graph:
    """The layer on (1, `rows`, 512), with random weights, scales and zero points."""
    import numpy as np

    from ...compiler import graph as g

    made = _Layer(np.random.default_rng(seed))
    x = g.Tensor("x", (1, rows, _WIDE), scale=1 / 32, zero_point=3)
    low, shared = made.dense(x, _NARROW), made.dense(x, _NARROW)
    y = made.sum(low, made.attention(shared, x))
    for _ in range(_NETWORKS):
        y = made.sum(y, made.dense(made.dense(y, _WIDE, relu=True), _NARROW))
    y = made.sum(x, made.dense(y, _WIDE))
    return g.Graph("mobilebert-layer", (x,), (y,), tuple(made.ops))
