"""apps/explore/energy.py"""

import pytest

from tilewright.apps.explore.evaluate import energy_uj


def test_each_part_adds_up():
    parts = [energy_uj(1e6, 0, 0, 0), energy_uj(0, 1e6, 0, 0), energy_uj(0, 0, 100, 0), energy_uj(0, 0, 0, 100)]
    assert all(part > 0 for part in parts)
    assert energy_uj(1e6, 1e6, 100, 100) == pytest.approx(sum(parts))
    assert parts[3] > parts[2], "the host works beside the logic at rest"
