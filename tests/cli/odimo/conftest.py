"""A front of three points that nobody trained."""

import pytest

from tilewright.apps.odimo.front import Front, Plan, Point
from tilewright.apps.odimo.task import Task
from tilewright.hw.config import load_config


@pytest.fixture
def front():
    points = [
        Point(name, seed, accuracy + seed, accuracy, cycles, 1.0, 0.5, 10, 10, f"{name}.tw", {})
        for name, accuracy, cycles in (("all-8bit", 98.0, 1000), ("lambda 0.2", 97.0, 600), ("min-cost", 90.0, 590))
        for seed in (0, 1)
    ]
    return Front(Plan(Task(), load_config("tiny_two"), (0.2,), (0, 1)), tuple(points), {})
