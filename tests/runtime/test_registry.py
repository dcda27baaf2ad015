"""runtime/registry.py: devices by name."""

import subprocess
import sys
import types

import pytest

from tilewright.hw.config import PRESETS
from tilewright.hw.errors import UnsupportedError
from tilewright.runtime import registry
from tilewright.runtime.device import open_device
from tilewright.runtime.registry import describe_devices, device_entry, device_names, is_server, register_device

TINY = PRESETS["tiny"]


class Recorder:
    def __init__(self, cfg):
        self.cfg = cfg


@pytest.fixture
def module(monkeypatch):
    """A module to register from; registrations are undone after the test."""
    monkeypatch.setattr(registry, "_DEVICES", dict(registry._DEVICES))
    module = types.ModuleType("a_module_of_devices")
    module.__dict__["Recorder"] = Recorder
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return module.__name__


def test_a_registered_device_is_opened_by_its_name(module):
    register_device("board", module, "Recorder")
    assert device_names() == sorted(device_names()) and "board" in device_names()
    opened = open_device("board", TINY)
    assert isinstance(opened, Recorder) and opened.cfg is TINY
    register_device("model", module, "Recorder")  # the last one counts
    assert isinstance(open_device("model", TINY), Recorder)


def test_a_module_is_imported_only_when_its_device_is_opened(module):
    register_device("broken", "no_such_module_of_devices", "Device")
    assert device_entry("broken").module == "no_such_module_of_devices"
    assert "broken" in device_names()
    with pytest.raises(ModuleNotFoundError, match="no_such_module_of_devices"):
        open_device("broken", TINY)


def test_an_unknown_device_is_named_with_the_known_ones(module):
    register_device("aboard", module, "Recorder")
    with pytest.raises(UnsupportedError) as caught:
        device_entry("nowhere")
    assert str(caught.value) == "unknown device 'nowhere'; known are aboard, board, model, rtl, rtl_fast, spec, timing"


def test_every_device_is_described(module):
    before = describe_devices()
    assert before.startswith("`model` (the behavioural model: exact results, fast), `spec` (") and before.endswith(
        " or `board` (a PYNQ-Z1)"
    )
    register_device("mine", module, "Recorder", "one of my own")
    register_device("other", module, "Recorder")
    assert describe_devices() == before.replace(" or ", ", ") + ", `mine` (one of my own) or `other`"


def test_asking_for_names_loads_no_numpy():
    code = "import sys, tilewright.runtime.registry as r; r.describe_devices(); sys.exit('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_a_server_is_a_name_with_a_port():
    assert is_server("pynq:50177") and not is_server("pynq") and not is_server("timing")
