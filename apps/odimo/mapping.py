"""Choices of a compute unit for each output channel of each layer: fixed ones, rounding to whole blocks, descent.

A `Choice` has, by layer name, bool (O,): True for a channel on the ternary unit, or of the second type. `Numbers` has
the number of channels on the first side.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ...hw.units import COMPUTE_UNITS

UNITS = tuple(COMPUTE_UNITS)
GEMM, TERNARY = range(2)
Choice = dict[str, np.ndarray]
Sizes = Mapping[str, int]  # numbers of output channels by layer
Numbers = dict[str, int]  # numbers of channels on GEMM by layer


def allowed(channels: int, block: int) -> list[int]:
    """Numbers of channels on GEMM that fill whole blocks: 0, block, 2 * block, ... and all of them."""
    return [*range(0, channels, block), channels]


def all_on(sizes: Sizes, unit: int) -> Choice:
    """Every channel of every layer on one unit."""
    return {name: np.full(count, unit == TERNARY) for name, count in sizes.items()}


def ends_on_gemm(sizes: Sizes) -> Choice:
    """First and last layer in int8, all between ternary."""
    names = list(sizes)
    return {name: np.full(count, name not in (names[0], names[-1])) for name, count in sizes.items()}


def around(
    preference: Mapping[str, np.ndarray], block: int, wanted: Mapping[str, float] | None = None
) -> dict[str, list[int]]:
    """The allowed numbers of channels on GEMM on both sides of `wanted`, ascending; one where that is allowed.

    Without `wanted` they are around the number of channels that prefer GEMM.
    """
    found, asked = {}, _asked(preference, wanted)
    for name, values in preference.items():
        count, numbers = asked[name], allowed(len(values), block)
        found[name] = sorted({max(n for n in numbers if n <= count), min(n for n in numbers if n >= count)})
    return found


def nearest(preference: Mapping[str, np.ndarray], block: int, wanted: Mapping[str, float] | None = None) -> Numbers:
    """The one of the numbers `around` that is next to `wanted`, of two the larger."""
    asked, options = _asked(preference, wanted), around(preference, block, wanted)
    return {name: min(numbers, key=lambda n: (abs(n - asked[name]), -n)) for name, numbers in options.items()}


def _asked(preference: Mapping[str, np.ndarray], wanted: Mapping[str, float] | None) -> dict[str, float]:
    """Channels on GEMM that are asked for in each layer."""
    if wanted is None:
        return {name: float((values <= 0).sum()) for name, values in preference.items()}
    return {name: min(max(wanted[name], 0), len(values)) for name, values in preference.items()}  # a sum is rounded


def preferred(
    preference: Mapping[str, np.ndarray], numbers: Mapping[str, int], ties: Sequence[Sequence[str]] = ()
) -> Choice:
    """The choice with `numbers` channels on GEMM: the channels of least `preference` (O,), which is > 0 for ternary.

    `ties` are groups of layers whose results are added: there the sum of the preferences orders the channels, so that
    of two layers one has the ternary channels of the other, as one order of channels needs.
    """
    groups = {name: group for group in ties for name in group}
    found: Choice = {}
    for name, values in preference.items():
        summed = np.sum([preference[other] for other in groups.get(name, [name])], axis=0)
        found[name] = np.ones(len(values), bool)
        found[name][np.argsort(summed, kind="stable")[: numbers[name]]] = False
    return found


def by_number(sizes: Sizes, numbers: Mapping[str, int]) -> Choice:
    """The choice with the first `numbers` channels of each layer on GEMM."""
    return {name: np.arange(size) >= numbers[name] for name, size in sizes.items()}


def descend(
    numbers: Mapping[str, int],
    options: Mapping[str, Sequence[int]],
    value: Callable[[Numbers], Any],
    pairs: bool = False,
) -> Numbers:
    """From `numbers`, which are among `options`, to the next option of one layer as long as `value` falls.

    Layers take turns, each as far as it goes, until no such neighbour has a smaller value. With `pairs` two layers, one
    behind the other in the order of `numbers`, move at once, too.
    """
    at = {name: list(options[name]).index(number) for name, number in numbers.items()}
    moves = [{name: step} for name in at for step in (1, -1)]
    if pairs:
        both = zip(list(at), list(at)[1:])
        moves += [{a: s, b: t} for a, b in both for s in (1, -1) for t in (1, -1)]
    known: dict[tuple[int, ...], Any] = {}

    def of(where: Mapping[str, int]) -> Any:
        key = tuple(where.values())
        if key not in known:
            known[key] = value({name: options[name][k] for name, k in where.items()})
        return known[key]

    def after(move: Mapping[str, int]) -> dict[str, int] | None:
        found = {name: k + move.get(name, 0) for name, k in at.items()}
        return found if all(0 <= found[name] < len(options[name]) for name in move) else None

    moved = True
    while moved:
        moved = False
        for move in moves:
            while (found := after(move)) is not None and of(found) < of(at):
                at, moved = found, True
    return {name: options[name][k] for name, k in at.items()}


def on_gemm(choice: Mapping[str, np.ndarray]) -> Numbers:
    """The numbers of channels on GEMM, by layer."""
    return {name: int((~chosen).sum()) for name, chosen in choice.items()}


def counts(choice: Mapping[str, np.ndarray]) -> dict[str, tuple[int, int]]:
    """The numbers of channels on the units, by layer."""
    return {name: (first, len(choice[name]) - first) for name, first in on_gemm(choice).items()}


def channels(choice: Mapping[str, np.ndarray], names: Sequence[str] = UNITS) -> dict[str, dict[str, list[int]]]:
    """The channels of each side by layer, as a file of a mapping has them; `names` are the sides."""
    return {
        name: {unit: np.flatnonzero(chosen == (k == TERNARY)).tolist() for k, unit in enumerate(names)}
        for name, chosen in choice.items()
    }


def share(choice: Mapping[str, np.ndarray]) -> float:
    """The share of channels on the ternary unit."""
    return float(np.concatenate(list(choice.values())).mean())
