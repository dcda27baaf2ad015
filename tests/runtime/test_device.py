"""Counts of a run, devices by name, and a launch as accesses to registers."""

import json
import subprocess
import sys
import types
from collections import Counter
from typing import Any

import numpy as np
import pytest

from tilewright.hw.config import ISA_VERSION, PRESETS
from tilewright.hw.errors import AccessError, CapacityError, DeadlockError, TokenError, UnsupportedError
from tilewright.hw.isa import Isa, Mem, Op
from tilewright.hw.metrics import counters
from tilewright.hw.regs import MAGIC, Error, registers
from tilewright.runtime import registry
from tilewright.runtime import session as session_module
from tilewright.runtime.device import Stats, check_fits, open_device, program_stats, without_addresses
from tilewright.runtime.registry import describe_devices, device_entry, device_names, is_server, register_device
from tilewright.runtime.session import Session
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
    found = total.to_dict()
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


def test_what_a_device_saw_of_one_launch_is_not_that_of_two():
    seen = Stats(observed=lambda: {"read_bursts": {"16": 1}})
    alone = seen + Stats()
    assert alone.observed is not None and alone.observed() == {"read_bursts": {"16": 1}}
    assert (seen + seen).observed is None


@pytest.mark.parametrize(
    "cfg, fields, uops, macs",
    [
        (ROWS, {"op": Op.DWGEMM, "extra_taps": 2, "uop_end": 2, "iter_out": 3, "iter_in": 5}, 30, 30 * 3 * 8),
        (TINY, {"op": Op.GEMM, "uop_bgn": 7, "uop_end": 2, "iter_out": 3, "iter_in": 3}, 0, 0),
        (TINY, {"op": Op.GEMM, "reset": 1, "uop_end": 2, "iter_out": 3, "iter_in": 3}, 18, 0),
    ],
)
def test_products_are_counted_by_trips_and_taps(cfg, fields, uops, macs):
    words = Isa(cfg).formats[fields["op"].name].encode(1, **fields)
    undecodable = Isa(cfg).formats["FINISH"].encode(1, op=7)
    found = program_stats(Isa(cfg), np.concatenate([words, undecodable]))
    assert (found.uops, found.macs, found.insns) == (uops, macs, {fields["op"].name: 1})


@pytest.mark.parametrize("seed", range(5))
def test_counts_equal_an_execution(seed):
    image, address, count = random_case(TINY, seed)
    words = image[address : address + 16 * count].copy().view(np.uint64).reshape(-1, 2)
    executed = ModelDevice(TINY).run_image(image, address, count)
    found = program_stats(Isa(TINY), words)
    assert (found.insns, found.uops, found.macs) == (executed.insns, executed.uops, executed.macs)
    assert (found.bytes_loaded, found.bytes_stored) == (executed.bytes_loaded, executed.bytes_stored)


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


def test_devices_are_opened_by_their_names(module):
    opened = open_device("model", TINY)
    assert isinstance(opened, ModelDevice) and opened.cfg is TINY
    before = describe_devices()
    assert before.startswith("`model` (the behavioural model: exact results, fast), `spec` (")
    assert before.endswith(" or `board` (a board with pynq)")
    for name, what in (("board", ""), ("model", ""), ("aboard", "one of my own")):
        register_device(name, module, "Recorder", what)  # the last one counts
        opened = open_device(name, TINY)
        assert isinstance(opened, Recorder) and opened.cfg is TINY
    assert describe_devices().endswith(" or `aboard` (one of my own)")
    assert device_names() == ["aboard", "board", "model", "rtl", "rtl_fast", "spec", "timing"]
    with pytest.raises(UnsupportedError) as caught:
        device_entry("nowhere")
    assert str(caught.value) == f"unknown device 'nowhere'; known are {', '.join(device_names())}"
    register_device("broken", "no_such_module_of_devices", "Device")  # imported when it is opened
    with pytest.raises(ModuleNotFoundError, match="no_such_module_of_devices"):
        open_device("broken", TINY)
    assert is_server("pynq:50177") and not is_server("pynq") and not is_server("timing")


def test_asking_for_names_loads_no_numpy():
    code = "import sys, tilewright.runtime.registry as r; r.describe_devices(); sys.exit('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_a_program_that_fills_the_memory_fits():
    regions: dict[str, Any] = {name: types.SimpleNamespace(nbytes=8) for name in "ab"}
    check_fits(regions, 16, "memory")
    with pytest.raises(CapacityError, match="needs 16 bytes of memory, but only 15 are free; its largest .*: a 8, b 8"):
        check_fits(regions, 15, "memory")


COUNTERS = list(counters(TINY))
PROGRAM = np.concatenate(
    [
        Isa(TINY).formats["GEMM"].encode(1, op=Op.GEMM, pop_prev=1, uop_end=1, iter_out=1, iter_in=1),
        Isa(TINY).formats["FINISH"].encode(1, op=Op.FINISH),
    ]
)
START = [("INSN_COUNT", 2), ("INSN_ADDR_LO", 0x20), ("INSN_ADDR_HI", 3), ("WATCHDOG", 77), ("CONTROL", 1)]


class File:
    """A file of registers that writes down its accesses; `busy` looks at CONTROL see it running."""

    def __init__(self, **values):
        self.values = dict.fromkeys(registers(TINY), 0) | values
        self.written, self.read_names, self.busy = [], [], 0

    def write(self, name, value):
        self.written.append((name, value))

    def read(self, name):
        self.read_names.append(name)
        if name == "CONTROL" and self.busy:
            self.busy -= 1
            return 1
        return self.values[name]


def run(file, status: int | BaseException = 2):
    """A run that ends with CONTROL = `status`."""
    waits = []

    def wait():
        assert not file.read_names and file.written == START  # all is written before, nothing is read
        waits.append(status)
        if isinstance(status, BaseException):
            raise status
        return status

    found = Session(TINY, file, watchdog=77).run(PROGRAM, 3 << 32 | 0x20, Stats(uops=5), wait)
    assert waits == [status]
    return found


def test_a_run_that_succeeds():
    file = File(CYCLES=99, **{name: k for k, name in enumerate(COUNTERS)})
    stats = run(file)
    assert file.read_names == [*COUNTERS, "CYCLES"]
    assert (stats.uops, stats.cycles) == (5, 99)
    assert dict(stats.counters) == {name: k for k, name in enumerate(COUNTERS)}


def test_a_run_that_fails_says_what_the_error_registers_mean():
    file = File(ERROR=Error.RANGE, ERROR_INSN=0, COMPUTE_INSNS=1)
    with pytest.raises(AccessError, match="instruction 0 .*: reaches beyond a scratchpad") as caught:
        run(file, status=6)
    assert caught.value.index == 0
    assert file.read_names == [*COUNTERS, "ERROR", "ERROR_INSN"]


def test_an_error_of_the_wait_is_passed_on():
    with pytest.raises(KeyboardInterrupt):
        run(File(), KeyboardInterrupt())


def test_a_deadlock_is_explained_by_the_counters():
    with pytest.raises(DeadlockError, match="COMPUTE waits for a token LOAD -> COMPUTE at instruction 0"):
        run(File(ERROR=Error.WATCHDOG), status=6)


def test_tokens_that_are_left_over_are_counted_by_the_counters():
    load = Isa(TINY).formats["LOAD"].encode(1, op=Op.LOAD, mem=Mem.INP, push_next=1)
    program = np.concatenate([load, load, PROGRAM])
    file = File(ERROR=Error.TOKENS_LEFT, LOAD_INSNS=2, COMPUTE_INSNS=2)
    with pytest.raises(
        TokenError, match="^1 tokens LOAD -> COMPUTE are left over; the last is pushed by instruction 1"
    ):
        Session(TINY, file, watchdog=77).run(program, 0, Stats(), lambda: 6)


def test_what_a_run_waits_for():
    text, index = Session(TINY, File(), watchdog=0).waiting(PROGRAM)
    assert "COMPUTE waits for a token LOAD -> COMPUTE" in text and index == 0


def test_identity():
    file = File(VERSION=MAGIC << 16 | ISA_VERSION, FINGERPRINT_LO=0x89ABCDEF, FINGERPRINT_HI=0x01234567)
    assert Session(TINY, file, watchdog=0).identity() == (MAGIC << 16 | ISA_VERSION, 0x0123456789ABCDEF)


@pytest.mark.parametrize("busy, answered", [(0, True), (3, True), (1000, False)])
def test_a_reset_waits_for_the_end(monkeypatch, busy, answered):
    monkeypatch.setattr(session_module.time, "sleep", lambda seconds: None)
    file = File()
    file.busy = busy
    assert Session(TINY, file, watchdog=0).reset() is answered
    assert file.written == [("CONTROL", 2)]
