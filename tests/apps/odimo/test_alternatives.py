"""apps/odimo/alternatives.py: what channels choose between."""

from tilewright.apps.odimo.task import ALTERNATIVES, MIN_COST, TYPE, UNIT
from tilewright.hw.units import COMPUTE_UNITS


def test_sides_and_baselines():
    assert ALTERNATIVES[UNIT].names == tuple(COMPUTE_UNITS) and ALTERNATIVES[TYPE].names == ("conv", "depthwise")
    assert all(one.baselines[0].startswith("all-") and MIN_COST in one.baselines for one in ALTERNATIVES.values())
    every = [kind for one in ALTERNATIVES.values() for kind in one.baselines[:2]]
    assert len(set(every)) == 4  # a baseline's name says the choice
