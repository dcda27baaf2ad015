"""apps/explore/features.py: parts and features of configurations."""

import pytest

from tilewright.apps.explore.area import PARTS, features_of, part_of
from tilewright.hw.config import PRESETS


@pytest.mark.parametrize(
    ("path", "part"),
    [
        ("", "control"),
        ("counters", "control"),
        ("engine", "engine"),
        ("engine.tokens_store_compute", "engine"),
        ("engine.queue_load", "queues"),
        ("engine.read_port_1.splitter_3", "ports"),
        ("engine.load.mover.planner.commands", "load"),
        ("engine.compute.execute.dot", "dot"),
        ("engine.compute.execute", "pipeline"),
        ("engine.store.loads.mover", "parameters"),
    ],
)
def test_the_longest_path_decides(path, part):
    assert part_of(path) == part


@pytest.mark.parametrize("name", sorted(PRESETS))
def test_every_part_has_features_that_are_not_negative(name):
    found = features_of(PRESETS[name])
    assert found.keys() == PARTS.keys()
    assert all(value >= 0 for part in found.values() for value in part.values())


def test_features_follow_the_configuration():
    one = features_of(PRESETS["pynq_z1"])
    small = {"block_in": 8, "block_out": 8, "inp_bytes": 1 << 13, "wgt_bytes": 1 << 15}
    two = features_of(PRESETS["pynq_z1"].replace(**small, extensions=[]))
    assert one["dot"]["macs"] == 4 * two["dot"]["macs"] and one["alu"]["bits"] == 2 * two["alu"]["bits"]
    assert one["multiplier"]["requant"] and not two["multiplier"]["requant"]
