"""runtime/session.py on a file of registers: which are accessed, in which order, and what becomes of their values."""

import numpy as np
import pytest

from tilewright.hw.config import ISA_VERSION, PRESETS
from tilewright.hw.errors import AccessError, DeadlockError
from tilewright.hw.isa import Isa, Op
from tilewright.hw.metrics import counters
from tilewright.hw.regs import MAGIC, Error, registers
from tilewright.runtime import session as module
from tilewright.runtime.device import Stats
from tilewright.runtime.session import Session

TINY = PRESETS["tiny"]
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


def run(file, status=2):
    """A run that ends with CONTROL = `status`."""
    waits = []

    def wait():
        assert not file.read_names and file.written == START  # all is written before, nothing is read
        waits.append(status)
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


def test_a_deadlock_is_explained_by_the_counters():
    with pytest.raises(DeadlockError, match="COMPUTE waits for a token LOAD -> COMPUTE at instruction 0"):
        run(File(ERROR=Error.WATCHDOG), status=6)


def test_what_a_run_waits_for():
    text, index = Session(TINY, File(), watchdog=0).waiting(PROGRAM)
    assert "COMPUTE waits for a token LOAD -> COMPUTE" in text and index == 0


def test_an_error_of_the_wait_is_passed_on():
    def wait():
        raise KeyboardInterrupt

    file = File()
    with pytest.raises(KeyboardInterrupt):
        Session(TINY, file, watchdog=77).run(PROGRAM, 3 << 32 | 0x20, Stats(), wait)
    assert file.written == START and not file.read_names


def test_identity():
    file = File(VERSION=MAGIC << 16 | ISA_VERSION, FINGERPRINT_LO=0x89ABCDEF, FINGERPRINT_HI=0x01234567)
    assert Session(TINY, file, watchdog=0).identity() == (MAGIC << 16 | ISA_VERSION, 0x0123456789ABCDEF)


@pytest.mark.parametrize("busy, answered", [(0, True), (3, True), (1000, False)])
def test_a_reset_waits_for_the_end(monkeypatch, busy, answered):
    monkeypatch.setattr(module.time, "sleep", lambda seconds: None)
    file = File()
    file.busy = busy
    assert Session(TINY, file, watchdog=0).reset() is answered
    assert file.written == [("CONTROL", 2)]
