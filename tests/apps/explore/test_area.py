"""apps/explore/area.py: the rule against what synthesis counted, parts and features."""

import json

import pytest

from tilewright.apps.explore.area import (
    PARTS,
    area_of,
    clock_of,
    features_of,
    model,
    outside,
    part_of,
    ram_blocks,
)
from tilewright.hw.config import PRESETS, Config
from tools.synth import RECORD

COUNTED = json.loads(RECORD.read_text())


@pytest.mark.parametrize("name", sorted(COUNTED))
def test_presets_as_synthesis_counts_them(name):
    area = area_of(PRESETS[name])
    assert (area.bram, area.dsp) == (COUNTED[name]["bram"], COUNTED[name]["dsp"])


@pytest.mark.parametrize(
    ("depth", "width", "lane", "blocks"),
    [
        (64, 512, 64, 0),
        (256, 32, 32, 0.5),
        (256, 64, 64, 1),
        (256, 128, 128, 2),
        (256, 512, 128, 7.5),
        (512, 2048, 64, 32),
        (1024, 512, 64, 16),
        (2048, 128, 64, 8),
        (2048, 256, 128, 15),  # the ninth bits hold some, as lanes of 128 bits are 15 bytes
        (4096, 32, 32, 4),
        (4096, 128, 128, 15),
        (16384, 8, 8, 4),
        (128, 768, 64, 12),
    ],
)
def test_memories(depth, width, lane, blocks):
    assert ram_blocks(depth, width, lane) == blocks


@pytest.mark.parametrize("point", model()["points"], ids=lambda point: point["name"])
def test_points_as_synthesis_counted_them(point):
    """Block RAMs and DSPs exactly, LUTs and flip-flops within the error that the file states for points held out."""
    cfg = Config.from_dict(point["config"])
    area = area_of(cfg)
    assert (area.bram, area.dsp) == (point["bram"], point["dsp"])
    assert {"lut": area.lut, "ff": area.ff} == point["estimate"]
    if point["held"]:
        for count, most in model()["error"].items():
            assert abs(point["estimate"][count] / point[count] - 1) <= most + 1e-4


def test_the_fit_is_worth_something():
    held = [point for point in model()["points"] if point["held"]]
    assert len(held) >= 8 and len(model()["points"]) - len(held) >= 6
    assert max(model()["error"].values()) <= 0.05


def test_a_clock_on_record_is_returned_as_it_is():
    assert clock_of(PRESETS["tiny"]) == (COUNTED["tiny"]["fmax_estimate_mhz"], 0)
    assert clock_of(PRESETS["tiny"].replace(name="other")) == clock_of(PRESETS["tiny"])
    mhz, error = clock_of(PRESETS["tiny"].replace(queue_depth=8))
    assert 100 < mhz - error < mhz + error < 200


def test_what_lies_beyond_the_points_is_named():
    assert outside(PRESETS["tiny"]) == []
    assert "block_in 32 (4 to " in outside(PRESETS["vta"].replace(block_in=32))[0]
    assert outside(PRESETS["tiny_two"])[-1] == "unit ternary"


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
