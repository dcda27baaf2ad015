"""apps/explore/space.py: files of spaces, points, mistakes."""

import json

import pytest

from tilewright.apps.explore.study import Space, default_space, read_space
from tilewright.hw.config import PRESETS
from tilewright.hw.errors import ConfigError, FileError
from tilewright.sim.dram import PRESETS as MEMORIES

TINY, MEMORY = PRESETS["tiny"], MEMORIES["zynq_hp4"]


def space(**choices):
    return Space(TINY, MEMORY, choices)


def test_a_point_is_the_base_with_the_chosen_values():
    every = space(block=(2, 4), acc_bytes=(1024, 2048), **{"dram.latency": (10, 40)})
    assert every.size == 8
    found = every.choose(lambda key, values: values[-1], "one")
    assert found == {"name": "one", "block": 4, "acc_bytes": 2048, "dram.latency": 40}
    point = every.point({**found, "block": 2})
    assert point.config == TINY.replace(name="one", block_in=2, block_out=2, acc_bytes=2048)
    assert point.dram == MEMORY.replace(latency=40)


def test_lists_of_names_can_be_chosen():
    every = space(extensions=([], sorted(TINY.extensions)))
    chosen = every.choose(lambda key, values: values[0], "plain")
    assert every.point(chosen).config.extensions == frozenset()


def test_a_wider_bus_has_a_wider_memory_port_unless_that_is_chosen():
    assert space(axi_bits=(64, 128)).point({"axi_bits": 128}).dram.port_bytes == 2 * MEMORY.port_bytes
    both = space(axi_bits=(64, 128), **{"dram.port_bytes": (8,)})
    assert both.point({"axi_bits": 128, "dram.port_bytes": 8}).dram.port_bytes == 8


def test_the_base_is_among_the_points_of_the_default_space():
    for name, base in PRESETS.items():
        every = default_space(base, MEMORY)
        first = every.first()
        assert every.has(first), name
        assert every.point(first).config == base, name


def test_files(tmp_path):
    path = tmp_path / "space.json"
    path.write_text(json.dumps({"base": "tiny", "dram": "ideal", "queue_depth": [8, 64]}))
    found = read_space(path, PRESETS["vta"], MEMORY)
    assert (found.base, found.dram.name, found.choices) == (TINY, "ideal", {"queue_depth": (8, 64)})


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("{", FileError, "cannot be read as JSON"),
        ("[1]", ConfigError, "a space is a JSON object"),
        ('{"queue_depth": 8}', ConfigError, "queue_depth = 8: must be a list of values"),
        ('{"queue_deph": [8]}', ConfigError, "'queue_deph' is no field; choose among block, "),
        ('{"queue_depth": [8, 8]}', ConfigError, "the values of queue_depth must be different ones"),
        ('{"queue_depth": []}', ConfigError, "the values of queue_depth must be different ones, at least 1"),
        ('{"base": "huge"}', ConfigError, "huge"),
    ],
)
def test_mistakes(tmp_path, text, error, message):
    path = tmp_path / "space.json"
    path.write_text(text)
    with pytest.raises(error, match=message):
        read_space(path, TINY, MEMORY)


def test_a_missing_file(tmp_path):
    with pytest.raises(FileError, match="none.json: no such file; give a space"):
        read_space(tmp_path / "none.json", TINY, MEMORY)
