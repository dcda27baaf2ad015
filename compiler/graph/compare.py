"""Compares a run with the golden interpreter, and finds the first operator and element that differ."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from . import Graph, Operator, reference


@dataclass(frozen=True)
class Difference:
    """The first operator whose output differs: `count` of its `total` elements do, the first of them at `index`."""

    operator: str
    kind: str
    tensor: str
    index: tuple[int, ...]
    got: float
    expected: float
    count: int
    total: int

    def __str__(self) -> str:
        return (
            f"{self.kind} {self.operator!r}: {self.count:,} of {self.total:,} elements differ, the first at "
            f"{list(self.index)}: {self.got:g}, expected {self.expected:g}"
        )


@dataclass(frozen=True)
class Saturation:
    """How many of the `elements` of an operator's int8 output are the least value, and how many the largest.

    What a clamp cut off is among them. A least value that stands for 0, as behind a ReLU, loses nothing and is left
    out: `low` is 0 then.
    """

    operator: str
    elements: int
    low: int
    high: int

    @property
    def share(self) -> float:
        """Share of the elements at either end."""
        return (self.low + self.high) / self.elements


@dataclass(frozen=True)
class Comparison:
    """Numbers of operators and elements compared, the first difference, if any, and the values at the ends of int8."""

    operators: int
    elements: int
    difference: Difference | None
    saturation: tuple[Saturation, ...] = ()


def compare(
    graph: Graph,
    inputs: Mapping[str, np.ndarray],
    got: Mapping[str, np.ndarray],
    contract: str | None = None,
    state: dict[str, np.ndarray] | None = None,
) -> Comparison:
    """Compare the tensors `got` by name with those of the reference, bit for bit, in the order of the operators.

    Operators whose outputs are not in `got` are skipped. `contract` and `state`, what the run found, are as in
    `reference.run`.
    """
    expected = reference.trace(graph, inputs, contract, state)
    operators = elements = 0
    ends: list[Saturation] = []
    for op in graph.ops:
        name = op.output.name
        if name not in got:
            continue
        mine, theirs = np.asarray(got[name]), expected[name]
        operators, elements = operators + 1, elements + theirs.size
        differ = mine.view(f"u{mine.itemsize}") != theirs.view(f"u{theirs.itemsize}")
        if differ.any():
            index = tuple(int(i) for i in np.argwhere(differ)[0])
            values = float(mine[index]), float(theirs[index])
            found = Difference(op.name, type(op).__name__, name, index, *values, int(differ.sum()), theirs.size)
            return Comparison(operators, elements, found, tuple(ends))
        if theirs.dtype == np.int8 and theirs.size and not op.copies:
            ends.append(_saturation(op, theirs))
    return Comparison(operators, elements, None, tuple(ends))


def _saturation(op: Operator, values: np.ndarray) -> Saturation:
    low, high = (int(np.count_nonzero(values == end)) for end in (-128, 127))
    return Saturation(op.name, values.size, 0 if op.output.zero_point == -128 else low, high)
