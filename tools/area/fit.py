"""The fit of the model of areas: for each part of the core, costs of its features that are not negative."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tilewright.apps.explore.area import logic
from tilewright.apps.explore.features import PARTS, features_of, part_of
from tilewright.hw.config import Config

COUNTS = ("lut", "ff")


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
    from scipy.optimize import nnls

    found: dict[str, dict[str, dict[str, float]]] = {}
    for part in PARTS:
        features = [features_of(config)[part] for config in configs]
        names = list(features[0])
        rows = np.array([[one[name] for name in names] for one in features], float)
        found[part] = {}
        for k, count in enumerate(COUNTS):
            costs, _ = nnls(rows, np.array([one[part][k] for one in counted], float))
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
