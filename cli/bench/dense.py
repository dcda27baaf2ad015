"""`tilewright bench mobilebert-384` and others: the dense layers of transformers, a row per shape with its count."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .. import report
from . import rows as bench_rows

if TYPE_CHECKING:
    from ...compiler.graph import Graph

_SHAPES = {  # of weights (inputs, outputs) -> layers
    "mobilebert": {(384, 512): 1, (512, 128): 168, (128, 128): 72, (128, 512): 120, (512, 2): 1},
    "albert": {(128, 768): 1, (768, 768): 48, (768, 3072): 12, (3072, 768): 12, (768, 2): 1},
}
_ROWS = (384, 128)
WORKLOADS = {f"{name}-{rows}": (rows, shapes) for name, shapes in _SHAPES.items() for rows in _ROWS}


def shape_name(shape: tuple[int, int]) -> str:
    """The name of the layers with weights of this shape."""
    return "x".join(map(str, shape))


def run(workload: str, names: tuple[str, ...], bench: bench_rows.Bench, as_json: bool) -> int:
    """Measure and print; the exit status."""
    rows, shapes = WORKLOADS[workload]
    known = {shape_name(shape): shape for shape in shapes}
    bench_rows.check_names(names, known)
    found = bench.each(names or known, lambda name: _measure(name, rows, known[name], shapes[known[name]], bench))
    measured = list(found)
    total: dict[str, Any] = {"count": sum(row["count"] for row in measured)}
    total |= {key: sum(row["count"] * row[key] for row in measured) for key in bench_rows.SUMS}
    total["exact"] = all(row["exact"] for row in measured)
    clocked = measured[0]["cycles"] is not None
    total["cycles"] = sum(row["count"] * row["cycles"] for row in measured) if clocked else None
    total |= bench_rows.rates(total)
    facts = bench.facts(workload) | {"rows": rows}
    facts |= bench.profile.write(workload, facts | {"layers": measured})
    if as_json:
        bench_rows.emit(facts, measured, {"total": total})
    else:
        report.records([_cells(row) for row in measured], _cells({"name": "total"} | total))
        bench.say(facts)
        report.say(f"configuration {bench.cfg.name}, {rows} rows; cycles are of one layer, and in total of all")
    return int(not total["exact"])


def _cells(row: dict[str, Any]) -> dict[str, object]:
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


def _measure(name: str, rows: int, shape: tuple[int, int], count: int, bench: bench_rows.Bench) -> dict[str, Any]:
    """The row of one layer."""
    from ...compiler.network import compile_for

    graph = layer(rows, shape)
    host = {"host": {"dense": "it is the accelerator's work"}}
    executable = compile_for(graph, bench.cfg, refused=host, dram=bench.options.get("dram")).executable
    return {"name": name, "op": "dense", "count": count} | bench.measured(name, graph, executable)[0]


def layer(rows: int, shape: tuple[int, int]) -> Graph:
    """A dense layer on (1, `rows`, inputs), as .tflite files have it, with random weights whose sums fill int8."""
    import numpy as np

    from ...compiler import graph as g

    inputs, outputs = shape
    rng = np.random.default_rng(inputs)
    x, y = g.Tensor("x", (1, rows, inputs), zero_point=-3), g.Tensor("y", (1, rows, outputs), zero_point=7)
    flat, sums = (g.Tensor(f"{t.name}.rows", t.shape[1:], zero_point=t.zero_point) for t in (x, y))
    weight = rng.integers(-127, 128, (outputs, inputs), np.int8)
    scale = np.full(outputs, 45 / (5000 * inputs**0.5), np.float32)
    bias = rng.integers(-(1 << 15), 1 << 15, outputs, np.int32)
    dense = g.QDense("dense", (flat,), sums, weight, scale, bias)
    ops = g.Reshape("rows", (x,), flat), dense, g.Reshape("back", (sums,), y)
    return g.Graph(f"dense{shape_name(shape)}", (x,), (y,), ops)
