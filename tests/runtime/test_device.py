"""runtime/device.py: statistics, and devices opened by name."""

import json
from collections import Counter

import pytest

from tilewright.hw.config import PRESETS
from tilewright.hw.errors import UnsupportedError
from tilewright.runtime.device import Stats, open_device
from tilewright.sim.model.device import ModelDevice

TINY = PRESETS["tiny"]


def test_statistics_add_up():
    first = Stats(Counter({"GEMM": 2}), 10, 160, Counter({"INP": 64}), Counter({"OUT": 4}))
    second = Stats(Counter({"GEMM": 1, "FINISH": 1}), 5, 80, Counter({"WGT": 16}), Counter({"OUT": 8}))
    total = first + second
    assert total == Stats(
        Counter({"GEMM": 3, "FINISH": 1}), 15, 240, Counter({"INP": 64, "WGT": 16}), Counter({"OUT": 12})
    )
    assert first == Stats(Counter({"GEMM": 2}), 10, 160, Counter({"INP": 64}), Counter({"OUT": 4}))
    assert Stats() + first == first


def test_statistics_are_json_with_totals():
    stats = Stats(Counter({"GEMM": 3, "FINISH": 1}), 15, 240, Counter({"INP": 64, "WGT": 16}), Counter({"OUT": 12}))
    found = stats.to_dict()
    assert json.loads(json.dumps(found)) == found
    assert found == {
        "instructions": 4,
        "micro_ops": 15,
        "macs": 240,
        "bytes_loaded": 80,
        "bytes_stored": 12,
        "by_instruction": {"GEMM": 3, "FINISH": 1},
        "loaded_by_memory": {"INP": 64, "WGT": 16},
        "stored_by_memory": {"OUT": 12},
    }


def test_a_device_is_opened_by_its_name():
    opened = open_device("model", TINY)
    assert isinstance(opened, ModelDevice) and opened.cfg is TINY
    with pytest.raises(UnsupportedError, match="unknown device 'nowhere'; known are board, model, rtl, spec, timing"):
        open_device("nowhere", TINY)
