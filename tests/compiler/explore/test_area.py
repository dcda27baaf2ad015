"""compiler/explore/area.py: the rule against what synthesis counted."""

import json
from pathlib import Path

import pytest

from tilewright.cli import bench
from tilewright.compiler.explore.area import area_of, ram_blocks
from tilewright.hw.config import PRESETS

COUNTED = json.loads((Path(bench.__file__).parent / "synth.json").read_text())


@pytest.mark.parametrize("name", sorted(COUNTED))
def test_presets_as_synthesis_counts_them(name):
    area = area_of(PRESETS[name])
    assert (area.bram, area.dsp) == (COUNTED[name]["bram"], COUNTED[name]["dsp"])


@pytest.mark.parametrize(
    ("depth", "width", "blocks"),
    [
        (64, 512, 0),
        (512, 32, 0.5),
        (512, 33, 1),
        (1024, 512, 16),
        (2048, 128, 8),
        (4096, 32, 4),
        (16384, 8, 4),
        (128, 768, 12),
    ],
)
def test_memories(depth, width, blocks):
    assert ram_blocks(depth, width) == blocks
