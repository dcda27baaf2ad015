"""Do the cost terms rank the splits of a layer as the timing model does? Spearman's correlation, layer by layer.

A search needs the order of splits, not their cycles. The terms are tables of each unit alone at a few numbers of
channels, interpolated, and the maximum of both; the timing model has the program in which both work together.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...hw.config import Config
from ...hw.errors import ExecutionError
from .. import jobs as engine
from ..jobs import content_key
from .jobs import VERSION, Layer, layer
from .mapping import allowed
from .measure import LayerShape, layer_cycles
from .tables import from_json

BLOCKS = 8  # of output channels, hence nine splits a layer
# (blocks of input channels, rows and columns, kernel, stride)
FORMS = (
    (1, 8, 1, 1),
    (4, 8, 1, 1),
    (8, 8, 1, 1),
    (2, 14, 1, 2),
    (1, 8, 3, 1),
    (2, 8, 3, 1),
    (4, 8, 3, 1),
    (1, 14, 3, 1),
    (2, 14, 3, 1),
    (2, 14, 3, 2),
    (1, 20, 3, 2),
    (1, 10, 5, 1),
)


@dataclass(frozen=True)
class Split:
    """One program: a layer with so many channels on each unit."""

    config: Config
    shape: LayerShape
    digital: int
    ternary: int

    @property
    def key(self) -> str:
        """Of all that the result depends on."""
        facts = self.shape.to_json(), self.digital, self.ternary
        return content_key("split", VERSION, self.config.fingerprint, *facts)


@dataclass(frozen=True)
class Rank:
    """A layer: its splits as channels on GEMM, what the terms and the timing model say, and their rank correlation."""

    shape: LayerShape
    digital: tuple[int, ...]
    terms: tuple[float, ...]
    cycles: tuple[int, ...]

    @property
    def spearman(self) -> float:
        """Of the terms and the cycles."""
        return spearman(self.terms, self.cycles)


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


def layers(cfg: Config) -> list[LayerShape]:
    """Twelve layers with `BLOCKS` blocks of output channels."""
    found = []
    for blocks, size, kernel, stride in FORMS:
        moves = (kernel, kernel), (stride, stride), (kernel // 2, kernel // 2)
        found.append(LayerShape((blocks * cfg.block_in, size, size), BLOCKS * cfg.block_out, *moves))
    return found


def split_cycles(job: Split) -> int:
    """Cycles of a split in the timing model."""
    return layer_cycles(job.config, job.shape, job.digital, job.ternary)


def ranked(
    cfg: Config, shapes: Sequence[LayerShape], store: engine.Store | None, workers: Executor | None
) -> list[Rank]:
    """The layers with all their splits. Raises `ExecutionError` with the first job's error that there is."""

    def values(function: Any, arguments: list[Any]) -> list[Any]:
        found = engine.run(function, arguments, key=lambda job: job.key, store=store, workers=workers)
        failed = next((one for one in found.values() if one.error), None)
        if failed is not None:
            raise ExecutionError(f"{function.__name__}: {failed.error[:250]}")
        return [found[job.key].value for job in arguments]

    tables = values(layer, [Layer(cfg, shape) for shape in shapes])
    splits = [[Split(cfg, s, n, s.channels - n) for n in allowed(s.channels, cfg.block_out)] for s in shapes]
    cycles = iter(values(split_cycles, [job for jobs in splits for job in jobs]))
    found = []
    for shape, table, jobs in zip(shapes, tables, splits):
        cost = from_json(table)["layer"]
        terms = tuple(cost.hard(job.digital, job.ternary) for job in jobs)
        found.append(Rank(shape, tuple(job.digital for job in jobs), terms, tuple(next(cycles) for _ in jobs)))
    return found
