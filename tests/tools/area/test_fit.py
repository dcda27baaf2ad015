"""tools/area/fit.py: costs that are not negative, found again from sums of known ones."""

import pytest

from tilewright.apps.explore.area import PARTS, features_of
from tools import area as fit
from tools.area import points

pytest.importorskip("scipy")


def made(point):
    """A point as counted, whose parts cost 10 LUTs and 3 flip-flops of each feature."""
    sums = {part: sum(features.values()) for part, features in features_of(point.config).items()}
    parts = {paths[0]: [10 * sums[part], 3 * sums[part]] for part, paths in PARTS.items()}
    lut, ff = (sum(own[k] for own in parts.values()) for k in (0, 1))
    return {"name": point.name, "held": point.held, "config": point.config.to_dict(), "lut": lut, "ff": ff} | {
        "parts": parts
    }


def test_areas_that_the_features_explain_are_estimated_exactly():
    found = [made(point) for point in points()]
    costs = fit.fitted([one for one in found if not one["held"]])
    for one in found:
        one["estimate"] = fit.estimated(one, costs)
        assert abs(fit.error(one, "lut")) < 0.02 and abs(fit.error(one, "ff")) < 0.02, one["name"]


def test_parts_add_up():
    parts = {"": [5, 1], "engine.load.mover.writer": [7, 2], "engine.load": [1, 1], "engine.queue_load": [3, 0]}
    found = fit.by_part({"parts": parts})
    assert found["control"] == [5, 1] and found["load"] == [8, 3] and found["queues"] == [3, 0]


def test_ranges_are_of_numbers():
    found = fit.ranges([{"config": point.config.to_dict()} for point in points()])
    assert found["block_in"] == [4, 16] and "dsp_packing" not in found and "name" not in found
