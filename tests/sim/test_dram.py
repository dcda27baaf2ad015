"""sim/dram.py: memories by preset, file and fields."""

import json
import re

import pytest

from tilewright.hw.config import PRESETS as CONFIGS
from tilewright.hw.errors import ConfigError, FileError
from tilewright.sim.dram import MEANINGS, PRESETS, ZYNQ_HP, Dram, load_dram, pynq_z1_ddr, shared_bytes, unshared

TINY = CONFIGS["tiny"]


def test_the_default():
    assert load_dram(None) is ZYNQ_HP


@pytest.mark.parametrize("name", list(PRESETS))
def test_presets_by_name(name):
    assert load_dram(name) is PRESETS[name] and load_dram(name).name == name and MEANINGS[name]


def test_fields_change_a_preset():
    found = load_dram("zynq_hp4,latency=80,port_bytes=4")
    assert found == PRESETS["zynq_hp4"].replace(name="zynq_hp4,latency=80,port_bytes=4", latency=80, port_bytes=4)


def test_a_file_of_fields(tmp_path):
    path = tmp_path / "slow.json"
    path.write_text(json.dumps({"latency": 100}))
    assert load_dram(str(path)) == ZYNQ_HP.replace(name="slow", latency=100)
    assert load_dram(f"{path},response=3").response == 3


def test_values_and_memories_are_taken_as_they_are():
    assert load_dram(ZYNQ_HP) is ZYNQ_HP
    assert load_dram({"total_bytes": 64}) == ZYNQ_HP.replace(name="custom", total_bytes=64)


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        ("ddr", f"unknown memory 'ddr'; known are {', '.join(PRESETS)}, or give a .json file of fields"),
        ("zynq_hp,latency", "memory 'zynq_hp,latency': 'latency' must be FIELD=NUMBER, as in zynq_hp,latency=80"),
        ("zynq_hp,latency=x", "'latency=x' must be FIELD=NUMBER"),
        ("zynq_hp,speed=3", "Dram has no field 'speed'; it has name, latency,"),
        ("zynq_hp,latency=0", "Dram.latency = 0: must be an integer from 1 to 1048576"),
        ("zynq_hp,latency=-5", "Dram.latency = -5: must be an integer from 1 to 1048576"),
        ({"seed": -1}, "Dram.seed = -1: must be an integer from 0 on, or null for no stalls"),
        ({"name": 3}, "Dram.name = 3: must be a printable text"),
    ],
)
def test_unknown_memories(spec, text):
    with pytest.raises(ConfigError) as caught:
        load_dram(spec)
    assert text in str(caught.value)


@pytest.mark.parametrize(
    ("content", "error", "text"),
    [
        (
            None,
            FileError,
            "no such file; give a preset (zynq_hp, zynq_hp4, pynq_z1_ddr, wide, ideal) or a .json file",
        ),
        ("{", FileError, "cannot be read as JSON"),
        ("[1]", ConfigError, "a memory is a JSON object of fields, not a list"),
        ('{"port_bytes": 128}', ConfigError, "Dram.port_bytes = 128: must be an integer from 1 to 64"),
    ],
)
def test_files_that_are_no_memory(tmp_path, content, error, text):
    path = tmp_path / "memory.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(error) as caught:
        load_dram(str(path))
    assert text in str(caught.value)


def test_what_all_ports_can_move():
    assert shared_bytes(TINY, ZYNQ_HP) == 16 and unshared(TINY) == ZYNQ_HP
    two = TINY.replace(load_ports=2)
    assert shared_bytes(two, ZYNQ_HP) == 24 and unshared(two) == Dram(total_bytes=24)
    assert shared_bytes(TINY.replace(axi_bits=32), ZYNQ_HP) == 8, "a beat is less than the memory can move"


def test_a_faster_clock_leaves_fewer_bytes_for_each_cycle():
    assert [pynq_z1_ddr(mhz).total_bytes for mhz in (100, 125, 150)] == [21, 16, 14]
    assert load_dram("pynq_z1_ddr") == pynq_z1_ddr(100) == ZYNQ_HP.replace(name="pynq_z1_ddr", total_bytes=21)
    assert load_dram("pynq_z1_ddr,total_bytes=14").replace(name="pynq_z1_ddr") == pynq_z1_ddr(150)


@pytest.mark.parametrize("spec", [3, ["zynq_hp"]])
def test_what_names_no_memory(spec):
    with pytest.raises(ConfigError, match=f"memory {re.escape(repr(spec))}: must be .*a .json file"):
        load_dram(spec)
