"""Which channels of which layer run on which unit: choices, their rounding to whole blocks, and fixed mappings.

A `Choice` is, by layer name, bool (O,): True for a channel on the ternary unit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ...hw.units import COMPUTE_UNITS
from .tables import Costs

UNITS = tuple(COMPUTE_UNITS)
GEMM, TERNARY = range(2)
Choice = dict[str, np.ndarray]
Sizes = Mapping[str, int]  # numbers of output channels by layer


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


def cheapest(sizes: Sizes, costs: Costs, block: int) -> Choice:
    """The split of least cost in each layer, whatever it does to the accuracy; ties go to more int8 channels."""
    found: Choice = {}
    for name, count in sizes.items():
        _, least = min((costs[name].hard(n, count - n), -n) for n in allowed(count, block))
        found[name] = np.arange(count) >= -least
    return found


def rounded(preference: Mapping[str, np.ndarray], block: int, ties: Sequence[Sequence[str]] = ()) -> Choice:
    """The choice that `preference` (O,) asks for, > 0 for the ternary unit, with whole blocks of channels on GEMM.

    The number on GEMM goes to the nearest allowed one, of two to the larger; the channels that move are those whose
    preference is weakest. `ties` are groups of layers whose results are added: there the sum of the preferences orders
    the channels, so that of two layers one has the ternary channels of the other, as one order of channels needs.
    """
    groups = {name: group for group in ties for name in group}
    found: Choice = {}
    for name, values in preference.items():
        wanted = int((values <= 0).sum())
        digital = min(allowed(len(values), block), key=lambda n: (abs(n - wanted), -n))
        together = np.sum([preference[other] for other in groups.get(name, [name])], axis=0)
        found[name] = np.ones(len(values), bool)
        found[name][np.argsort(together, kind="stable")[:digital]] = False
    return found


def counts(choice: Mapping[str, np.ndarray]) -> dict[str, tuple[int, int]]:
    """The numbers of channels on the units, by layer."""
    return {name: (int((~chosen).sum()), int(chosen.sum())) for name, chosen in choice.items()}


def channels(choice: Mapping[str, np.ndarray], names: Sequence[str] = UNITS) -> dict[str, dict[str, list[int]]]:
    """The channels of each unit by layer, as a file of a mapping has them; `names` may be those of other sides."""
    return {
        name: {unit: np.flatnonzero(chosen == (k == TERNARY)).tolist() for k, unit in enumerate(names)}
        for name, chosen in choice.items()
    }


def share(choice: Mapping[str, np.ndarray]) -> float:
    """The share of channels on the ternary unit."""
    return float(np.concatenate(list(choice.values())).mean())
