"""runtime/device.py and registry.py: counts of a run, and devices by name."""

import json
import subprocess
import sys
import types
from collections import Counter
from typing import Any

import numpy as np
import pytest

from tilewright.hw.config import PRESETS
from tilewright.hw.errors import CapacityError, UnsupportedError
from tilewright.hw.isa import Isa, Op
from tilewright.runtime import registry
from tilewright.runtime.device import Stats, check_fits, open_device, program_stats, without_addresses
from tilewright.runtime.registry import describe_devices, device_entry, device_names, is_server, register_device
from tilewright.sim.model.device import ModelDevice
from tilewright.sim.random_programs import ROWS, random_case

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


def test_what_a_device_saw_of_one_launch_is_not_that_of_two():
    seen = Stats(observed=lambda: {"read_bursts": {"16": 1}})
    alone = seen + Stats()
    assert alone.observed is not None and alone.observed() == {"read_bursts": {"16": 1}}
    assert (seen + seen).observed is None


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
    known = "board, model, rtl, rtl_fast, spec, timing"
    with pytest.raises(UnsupportedError, match=f"unknown device 'nowhere'; known are {known}"):
        open_device("nowhere", TINY)


def test_every_tap_counts():
    words = Isa(ROWS).formats["DWGEMM"].encode(1, op=Op.DWGEMM, extra_taps=2, uop_end=2, iter_out=3, iter_in=5)
    found = program_stats(Isa(ROWS), words)
    assert (found.uops, found.macs) == (30, 30 * 3 * 8)


@pytest.mark.parametrize("seed", range(5))
def test_counts_equal_an_execution(seed):
    image, address, count = random_case(TINY, seed)
    words = image[address : address + 16 * count].copy().view(np.uint64).reshape(-1, 2)
    executed = ModelDevice(TINY).run_image(image, address, count)
    found = program_stats(Isa(TINY), words)
    assert (found.insns, found.uops, found.macs) == (executed.insns, executed.uops, executed.macs)
    assert (found.bytes_loaded, found.bytes_stored) == (executed.bytes_loaded, executed.bytes_stored)


def test_micro_ops_that_end_before_they_begin_are_none():
    words = Isa(TINY).formats["GEMM"].encode(1, op=Op.GEMM, uop_bgn=7, uop_end=2, iter_out=3, iter_in=3)
    found = program_stats(Isa(TINY), words)
    assert (found.uops, found.macs) == (0, 0)


def test_what_cannot_be_decoded_is_not_counted():
    words = Isa(TINY).formats["FINISH"].encode(2, op=np.array([7, 3]))
    assert program_stats(Isa(TINY), words).insns == {"FINISH": 1}


def test_counts_do_not_depend_on_addresses(cache):
    launch = cache().launch
    isa = Isa(launch.cfg)
    near, far = (launch.relocate([1 << n] * len(launch.buffers), {"position": n}) for n in (6, 12))
    assert not np.array_equal(near, far)
    text = without_addresses(isa, far)
    np.testing.assert_array_equal(without_addresses(isa, near), text)
    assert program_stats(isa, text).to_dict() == program_stats(isa, far).to_dict()
    assert [f.get("dram_base", 0) for f in isa.decode(text)] == [0] * len(text)
    rest = [{**f, "dram_base": 0} for f in isa.decode(far)]
    assert [{**f, "dram_base": 0} for f in isa.decode(text)] == rest


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


def test_a_program_that_fills_the_memory_fits():
    regions: dict[str, Any] = {name: types.SimpleNamespace(nbytes=8) for name in "ab"}
    check_fits(regions, 16, "memory")
    with pytest.raises(CapacityError, match="needs 16 bytes of memory, but only 15 are free; its largest .*: a 8, b 8"):
        check_fits(regions, 15, "memory")
