"""`tilewright bench mobilebert-384` and others: the dense layers of transformers, a row per shape with its count."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .. import report
from . import rows as bench_rows

if TYPE_CHECKING:
    import numpy as np

    from ...compiler.graph import Graph

_SHAPES = {  # of weights (inputs, outputs) -> layers
    "mobilebert": {(384, 512): 1, (512, 128): 168, (128, 128): 72, (128, 512): 120, (512, 2): 1},
    "albert": {(128, 768): 1, (768, 768): 48, (768, 3072): 12, (3072, 768): 12, (768, 2): 1},
}
_ROWS = (384, 128)
WORKLOADS = {f"{name}-{rows}": (rows, shapes) for name, shapes in _SHAPES.items() for rows in _ROWS}
_SUMS = ("gemm_busy", "other_busy", "load_bytes", "store_bytes", "ideal", "macs", "instructions")


def shape_name(shape: tuple[int, int]) -> str:
    """The name of the layers with weights of this shape."""
    return "x".join(map(str, shape))


def run(workload: str, names: tuple[str, ...], bench: bench_rows.Bench, as_json: bool) -> int:
    """Measure and print; the exit status."""
    from ...hw.errors import UnsupportedError

    rows, shapes = WORKLOADS[workload]
    known = {shape_name(shape): shape for shape in shapes}
    for name in names:
        if name not in known:
            raise UnsupportedError(f"unknown layer {name!r}; must be one of {', '.join(known)}")
    chosen, measured = names or tuple(known), []
    with report.progress("compiling and running", len(chosen)) as advance:
        for name in chosen:
            advance(0, name)
            measured.append(_measure(name, rows, known[name], shapes[known[name]], bench))
            advance()
    total: dict[str, Any] = {key: sum(row["count"] * row[key] for row in measured) for key in ("count", *_SUMS)}
    total["count"], total["exact"] = sum(row["count"] for row in measured), all(row["exact"] for row in measured)
    clocked = measured[0]["cycles"] is not None
    total["cycles"] = sum(row["count"] * row["cycles"] for row in measured) if clocked else None
    total |= bench_rows.rates(total)
    facts = bench.facts(workload) | {"rows": rows}
    facts |= bench.profile.write(workload, facts | {"layers": measured})
    if as_json:
        bench_rows.emit(facts, measured, {"total": total})
    else:
        table = [_cells(row) for row in [*measured, {"name": "total"} | total]]
        report.table(list(table[0]), [list(row.values()) for row in table[:-1]], list(table[-1].values()))
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
    import numpy as np

    from ...compiler.graph import reference
    from ...compiler.network import compile_for

    graph = layer(rows, shape)
    host = {"host": {"dense": "it is the accelerator's work"}}
    executable = compile_for(graph, bench.cfg, refused=host, dram=bench.options.get("dram")).executable
    x = np.random.default_rng(rows).integers(-128, 128, graph.inputs[0].shape, np.int8)
    outputs, stats = bench.run(name, executable, {"x": x})
    expected: np.ndarray = reference.trace(graph, {"x": x})["y"]
    launches = [step.launch for step in executable.launches]
    instructions, exact = sum(len(launch.insn) for launch in launches), bool(np.array_equal(outputs["y"], expected))
    row = bench_rows.row(bench.cfg, stats, macs=graph.macs, instructions=instructions, exact=exact)
    return {"name": name, "op": "dense", "count": count} | row


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
