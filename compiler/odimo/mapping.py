"""Which channels of which layer run on which unit: choices, their rounding to whole blocks, and fixed mappings.

A `Mapping` is, by layer name, bool (O,): True for a channel on the ternary unit.
"""

from __future__ import annotations

from collections.abc import Mapping as Named

import numpy as np

from .tables import Costs

UNITS = ("gemm", "ternary")
GEMM, TERNARY = range(2)
Mapping = dict[str, np.ndarray]


def allowed(channels: int, block: int) -> list[int]:
    """Numbers of channels on GEMM that fill whole blocks: 0, block, 2 * block, ... and all of them."""
    return [*range(0, channels, block), channels]


def all_on(sizes: Named[str, int], unit: int) -> Mapping:
    """Every channel of every layer on one unit; `sizes` are the numbers of channels by layer."""
    return {name: np.full(count, unit == TERNARY) for name, count in sizes.items()}


def ends_on_gemm(sizes: Named[str, int]) -> Mapping:
    """First and last layer in int8, all between ternary."""
    names = list(sizes)
    return {name: np.full(count, name not in (names[0], names[-1])) for name, count in sizes.items()}


def cheapest(sizes: Named[str, int], costs: Costs, block: int) -> Mapping:
    """The split of least cost in each layer, whatever it does to the accuracy; ties go to more int8 channels."""
    found: Mapping = {}
    for name, count in sizes.items():
        _, digital = min((costs[name].hard(n, count - n), -n) for n in allowed(count, block))
        found[name] = np.arange(count) >= -digital
    return found


def rounded(preference: Named[str, np.ndarray], block: int) -> Mapping:
    """The choice that `preference` (O,) asks for, > 0 for the ternary unit, with whole blocks of channels on GEMM.

    The number on GEMM goes to the nearest allowed one, of two to the larger; the channels that move are those whose
    preference is weakest.
    """
    found: Mapping = {}
    for name, values in preference.items():
        wanted = int((values <= 0).sum())
        digital = min(allowed(len(values), block), key=lambda n: (abs(n - wanted), -n))
        order = np.argsort(values, kind="stable")
        found[name] = np.ones(len(values), bool)
        found[name][order[:digital]] = False
    return found


def channels(mapping: Named[str, np.ndarray]) -> dict[str, dict[str, list[int]]]:
    """The mapping as its file has it: {layer: {unit: [channels]}}."""
    return {
        name: {unit: np.flatnonzero(chosen == (k == TERNARY)).tolist() for k, unit in enumerate(UNITS)}
        for name, chosen in mapping.items()
    }


def share(mapping: Named[str, np.ndarray]) -> float:
    """The share of channels on the ternary unit."""
    return float(np.concatenate(list(mapping.values())).mean())
