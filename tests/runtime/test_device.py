"""Statistics and the registry of devices."""

import json
import sys
import types
from collections import Counter

import pytest

from tilewright.hw.config import PRESETS
from tilewright.hw.errors import UnsupportedError
from tilewright.runtime import device
from tilewright.runtime.device import Stats, check_device, device_names, open_device, register_device
from tilewright.sim.device import ModelDevice

TINY = PRESETS["tiny"]


class Recorder:
    def __init__(self, cfg):
        self.cfg = cfg


@pytest.fixture
def registry(monkeypatch):
    """Registrations that are undone after the test, and a module to register from."""
    monkeypatch.setattr(device, "_DEVICES", dict(device._DEVICES))
    module = types.ModuleType("a_module_of_devices")
    module.__dict__["Recorder"] = Recorder
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return module.__name__


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


def test_the_model_is_known_from_the_start():
    check_device("model")
    assert "model" in device_names()
    opened = open_device("model", TINY)
    assert isinstance(opened, ModelDevice) and opened.cfg is TINY


def test_a_registered_device_is_opened_by_its_name(registry):
    register_device("board", registry, "Recorder")
    assert device_names() == sorted(device_names()) and "board" in device_names()
    opened = open_device("board", TINY)
    assert isinstance(opened, Recorder) and opened.cfg is TINY
    register_device("model", registry, "Recorder")  # the last one counts
    assert isinstance(open_device("model", TINY), Recorder)


def test_a_module_is_imported_only_when_its_device_is_opened(registry):
    register_device("broken", "no_such_module_of_devices", "Device")
    check_device("broken")
    assert "broken" in device_names()
    with pytest.raises(ModuleNotFoundError, match="no_such_module_of_devices"):
        open_device("broken", TINY)


def test_an_unknown_device_is_named_with_the_known_ones(registry):
    register_device("aboard", registry, "Recorder")
    for attempt in (check_device, lambda name: open_device(name, TINY)):
        with pytest.raises(UnsupportedError) as caught:
            attempt("nowhere")
        assert str(caught.value) == f"unknown device 'nowhere'; known are {', '.join(device_names())}"
        assert "aboard, " in str(caught.value)
