"""Do the cost terms rank the splits of a layer as the timing model does? Spearman's correlation, layer by layer.

A search needs the order of splits, not their cycles. Each layer has three estimates: the term of the search, which
has gradients; the tables behind it, which know the timing model's cycles of some splits and interpolate; and the
formula of compiler/mapping/cost.py, which runs no program. The timing model has the program of every split. Splits
over types of layers have no formula; there the sum of both tables, without the excess, takes its place.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...hw.config import Config
from ...hw.errors import ExecutionError
from .. import jobs as engine
from ..graph import Divisible
from ..jobs import content_key
from ..mapping import Costs
from .alternatives import TYPE, UNIT
from .jobs import VERSION, Layer, layer
from .layer_types import check, typed_cycles
from .mapping import allowed
from .measure import LayerShape, layer_cycles, layer_graph
from .tables import NO_EXCESS, LayerCost, from_json

# (blocks of input channels, blocks of output channels, rows and columns, kernel, stride); 0 rows: a dense layer
FORMS = (
    (16, 10, 0, 1, 1),
    (40, 16, 0, 1, 1),
    (1, 16, 8, 1, 1),
    (8, 16, 8, 1, 1),
    (2, 12, 14, 1, 2),
    (1, 16, 8, 3, 1),
    (2, 16, 8, 3, 1),
    (4, 16, 8, 3, 1),
    (1, 10, 14, 3, 1),
    (2, 16, 14, 3, 1),
    (2, 16, 14, 3, 2),
    (1, 12, 20, 3, 2),
    (1, 16, 10, 5, 1),
    (4, 8, 4, 3, 1),
)
# of layers with as many inputs as outputs: (blocks of channels, rows and columns, kernel, stride)
TYPE_FORMS = (
    (8, 4, 3, 1),
    (12, 4, 3, 2),
    (8, 8, 3, 1),
    (12, 8, 3, 1),
    (16, 8, 3, 1),
    (12, 8, 3, 2),
    (8, 14, 3, 1),
    (12, 14, 3, 1),
    (12, 14, 3, 2),
    (8, 20, 3, 2),
    (8, 8, 5, 1),
    (8, 14, 5, 2),
)
ESTIMATES = ("term", "tables", "formula")


@dataclass(frozen=True)
class Split:
    """One program: a layer with so many channels on each unit, or of each type."""

    config: Config
    shape: LayerShape
    digital: int
    ternary: int
    choice: str = UNIT

    @property
    def key(self) -> str:
        """Of all that the result depends on."""
        facts = self.shape.to_json(), self.digital, self.ternary, self.choice
        return content_key("split", VERSION, self.config.fingerprint, *facts)


@dataclass(frozen=True)
class Rank:
    """A layer: its splits as channels on GEMM, the cycles of each by `ESTIMATES` and in the timing model.

    `known` of the splits are entries of the tables. Of types, `digital` are the standard channels.
    """

    shape: LayerShape
    digital: tuple[int, ...]
    known: int
    term: tuple[float, ...]
    tables: tuple[float, ...]
    formula: tuple[float, ...]
    cycles: tuple[int, ...]

    def spearman(self, estimate: str = "term") -> float:
        """The rank correlation of an estimate and the cycles."""
        return spearman(getattr(self, estimate), self.cycles)


def spearman(first: Sequence[float], second: Sequence[float]) -> float:
    """Pearson's correlation of the ranks; equal values share the mean of theirs. 1 where neither varies."""
    a, b = (_ranks(np.asarray(values, float)) for values in (first, second))
    a, b = a - a.mean(), b - b.mean()
    size = float(np.sqrt((a**2).sum() * (b**2).sum()))
    return float((a * b).sum() / size) if size else float(not a.any() and not b.any())


def _ranks(values: np.ndarray) -> np.ndarray:
    """Positions in ascending order, of equal values their mean."""
    below = (values[None] < values[:, None]).sum(1)
    return below + ((values[None] == values[:, None]).sum(1) - 1) / 2


def layers(cfg: Config, choice: str = UNIT) -> list[LayerShape]:
    """Convolutions, and of units dense layers, with 8 to 16 blocks of output channels, hence 9 to 17 splits each."""
    if choice == TYPE:
        return [
            LayerShape((n * cfg.block_in, size, size), n * cfg.block_out, (k, k), (step, step), (k // 2, k // 2))
            for n, size, k, step in TYPE_FORMS
        ]
    found = []
    for inputs, outputs, size, kernel, stride in FORMS:
        sizes = (inputs * cfg.block_in, size, size) if size else (inputs * cfg.block_in,)
        moves = (kernel, kernel), (stride, stride), (kernel // 2, kernel // 2)
        found.append(LayerShape(sizes, outputs * cfg.block_out, *moves))
    return found


def split_cycles(job: Split) -> int:
    """Cycles of a split in the timing model."""
    if job.choice == TYPE:
        return typed_cycles(job.config, job.shape, job.ternary)
    return layer_cycles(job.config, job.shape, job.digital, job.ternary)


def ranked(
    cfg: Config,
    shapes: Sequence[LayerShape],
    store: engine.Store | None,
    workers: Executor | None,
    choice: str = UNIT,
) -> list[Rank]:
    """The layers with all their splits; needs torch for the terms of the search.

    Raises `ExecutionError` with the first job's error that there is, `UnsupportedError` as `explore`.
    """
    if choice == TYPE:
        check(cfg)

    def values(function: Any, arguments: list[Any]) -> list[Any]:
        found = engine.run(function, arguments, key=lambda job: job.key, store=store, workers=workers)
        failed = next((one for one in found.values() if one.error), None)
        if failed is not None:
            raise ExecutionError(f"{function.__name__}: {failed.error[:250]}")
        return [found[job.key].value for job in arguments]

    tables = values(layer, [Layer(cfg, shape, choice) for shape in shapes])
    splits = [[Split(cfg, s, n, s.channels - n, choice) for n in allowed(s.channels, cfg.block_out)] for s in shapes]
    cycles = iter(values(split_cycles, [job for jobs in splits for job in jobs]))
    return [
        _rank(shape, from_json(table)["layer"], jobs, tuple(next(cycles) for _ in jobs))
        for shape, table, jobs in zip(shapes, tables, splits)
    ]


def _rank(shape: LayerShape, cost: LayerCost, splits: list[Split], cycles: tuple[int, ...]) -> Rank:
    from .learning.costs import value

    cfg, pairs = splits[0].config, [(one.digital, one.ternary) for one in splits]
    if splits[0].choice == TYPE:
        formula = tuple(replace(cost, excess=NO_EXCESS).hard(*pair) for pair in pairs)
    else:
        costs = Costs(graph := layer_graph(shape, 0), cfg)
        (op,) = graph.layers
        assert isinstance(op, Divisible)
        formula = tuple(costs(op, ternary) for _, ternary in pairs)
    return Rank(
        shape=shape,
        digital=tuple(digital for digital, _ in pairs),
        known=sum(ternary in (*cost.excess.counts, shape.channels) for _, ternary in pairs),
        term=tuple(value(cost, pair) for pair in pairs),
        tables=tuple(cost.hard(*pair) for pair in pairs),
        formula=formula,
        cycles=cycles,
    )
