"""tools/area/points.py: the list of configurations, which the seed alone decides."""

from tilewright.hw.circuit import check_buildable
from tilewright.hw.config import EXTENSIONS, PRESETS
from tools.area import SEED, TIMES_OFF, points


def test_each_extension_is_off_in_points_of_the_test():
    held = [point.config for point in points() if point.held]
    assert len(held) >= 8 and {config.block_in for config in held} == {4, 8}
    for name in EXTENSIONS:
        assert sum(name not in config.extensions for config in held) >= TIMES_OFF, name


def test_points_can_be_built_and_are_different():
    found = points()
    for point in found:
        check_buildable(point.config)
    assert len({point.name for point in found}) == len(found)
    assert len({str(point.config.replace(name="").to_dict()) for point in found}) == len(found)
    assert sum(not point.held for point in found) >= 12
    assert {PRESETS["tiny"], PRESETS["pynq_z1"]} <= {point.config for point in found if not point.held}


def test_the_seed_decides():
    assert points() == points(SEED) != points(SEED + 1)
