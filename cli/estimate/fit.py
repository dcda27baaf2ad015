"""The fit of the model of areas: for each part of the core, costs of its features that are not negative."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...compiler.explore.area import logic
from ...compiler.explore.features import PARTS, features_of, part_of
from ...hw.config import Config

COUNTS = ("lut", "ff")
_ENOUGH = 1e-9


def nnls(rows: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """The x >= 0 with the least |rows x - wanted|, by Lawson and Hanson's active sets.

    >>> nnls(np.array([[1.0, 1.0], [1.0, 2.0], [1.0, 3.0]]), np.array([5.0, 7.0, 9.0])).round(6).tolist()
    [3.0, 2.0]
    """
    size = np.maximum(np.linalg.norm(rows, axis=0), _ENOUGH)
    rows = rows / size
    x, inside = np.zeros(rows.shape[1]), np.zeros(rows.shape[1], bool)
    for _ in range(3 * len(x)):
        slope = rows.T @ (wanted - rows @ x)
        slope[inside] = 0
        if slope.max(initial=0) <= _ENOUGH * (1 + np.abs(wanted).max()):
            break
        inside[slope.argmax()] = True
        while True:
            best = np.zeros_like(x)
            best[inside] = np.linalg.lstsq(rows[:, inside], wanted, rcond=None)[0]
            if best[inside].min() > 0:
                x = best
                break
            below = inside & (best <= 0)
            step = (x[below] / np.maximum(x[below] - best[below], _ENOUGH)).min()
            x = x + step * (best - x)
            inside &= x > _ENOUGH
            x[~inside] = 0
            if not inside.any():
                break
    return x / size


def by_part(point: Mapping[str, Any]) -> dict[str, list[int]]:
    """LUTs and flip-flops of the parts of the model, from those of a point's blocks."""
    found = {name: [0, 0] for name in PARTS}
    for path, (lut, ff) in point["parts"].items():
        own = found[part_of(path)]
        own[0] += lut
        own[1] += ff
    return found


def fitted(points: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, dict[str, float]]]:
    """Per part and count, the costs of its features."""
    configs = [Config.from_dict(dict(point["config"])) for point in points]
    counted = [by_part(point) for point in points]
    found: dict[str, dict[str, dict[str, float]]] = {}
    for part in PARTS:
        features = [features_of(config)[part] for config in configs]
        names = list(features[0])
        rows = np.array([[one[name] for name in names] for one in features], float)
        found[part] = {}
        for k, count in enumerate(COUNTS):
            costs = nnls(rows, np.array([one[part][k] for one in counted], float))
            found[part][count] = {name: round(float(c), 4) for name, c in zip(names, costs) if c > 0}
    return found


def estimated(point: Mapping[str, Any], costs: Mapping[str, Any]) -> dict[str, int]:
    """What `costs` say of the configuration of a point."""
    return dict(zip(COUNTS, logic(Config.from_dict(dict(point["config"])), costs)))


def error(point: Mapping[str, Any], count: str) -> float:
    """The relative error of a point's `estimate`."""
    return point["estimate"][count] / point[count] - 1


def ranges(points: Sequence[Mapping[str, Any]]) -> dict[str, list[int]]:
    """The least and the largest number of each field, over the configurations of `points`."""
    fields = [field for field, value in points[0]["config"].items() if type(value) is int]
    found = {field: [point["config"].get(field) for point in points] for field in fields}
    return {field: [min(values), max(values)] for field, values in found.items()}
