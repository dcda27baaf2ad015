"""tools/faults/compare.py: programs whose results depend on their memory alone, and reasons to end differently."""

import json

import numpy as np
import pytest

from tests.sim.conftest import Machine
from tilewright.hw.config import PRESETS
from tilewright.hw.isa import AluOp, Isa, Mem, Op
from tilewright.sim.model.device import ModelDevice
from tilewright.sim.rtl import RtlDevice
from tools.faults import compare
from tools.faults.compare import (
    SAME,
    UNEXPLAINED,
    Result,
    difference,
    random_program,
    recorded_cases,
    result_of,
    stored,
)

TINY = PRESETS["tiny"]
BLOCK = {"op": Op.STORE, "mem": Mem.OUT, "dram_base": 512, "y_size": 2, "x_size": 3, "x_stride": 8}


def stores(*before):
    """A machine with a program that stores accumulators; address and number of its instructions."""
    m = Machine(TINY)
    ends = [BLOCK | {"push_prev": 1, "pop_prev": int(bool(before))}, {"op": Op.FINISH, "pop_next": 1}]
    return m, *m.put([*before, *ends], 8192)


def test_random_programs_end_with_what_the_model_computes(case):
    image = case.image.copy()
    ModelDevice(TINY).run_image(image, case.address, case.count)
    np.testing.assert_array_equal(image, case.expected)
    assert not np.array_equal(case.image, case.expected) and len(case.image) < 1 << 17
    assert case.name == random_program(TINY, 3).name != random_program(TINY, 4).name


def test_what_a_program_stores(case):
    load = {"op": Op.LOAD, "mem": Mem.ACC, "dram_base": 300, "y_size": 1, "x_size": 8, "x_stride": 8, "push_next": 1}
    m, address, count = stores(load)
    size = TINY.out_entry_bytes
    expected = [512 * size + row * 8 * size + k for row in range(2) for k in range(3 * size)]
    assert np.flatnonzero(stored(TINY, m.dram, address, count)).tolist() == expected
    changed = case.image != case.expected
    assert not (changed & ~stored(TINY, case.image, case.address, case.count)).any()


def test_recorded_cases(tmp_path):
    load = {"op": Op.LOAD, "mem": Mem.ACC, "y_size": 1, "x_size": 8, "x_stride": 8, "push_next": 1}
    for name, before in (("free", [load]), ("bound", [])):
        m, address, count = stores(*before)
        after = m.dram.copy()
        ModelDevice(TINY).run_image(after, address, count)
        meta = json.dumps({"config": "tiny", "insn_addr": address, "insn_count": count, "name": name})
        np.savez(tmp_path / f"{name}.npz", dram_in=m.dram, dram_out=after, meta=np.array(meta))
    (found,) = recorded_cases(tmp_path)
    assert (found.name, found.cfg, found.count) == ("free", TINY, 3)
    np.testing.assert_array_equal(found.expected, np.load(tmp_path / "free.npz")["dram_out"])
    assert Isa(TINY).decode(found.image[8192:8208].view("<u8").reshape(1, 2))[0]["mem"] == Mem.ACC.id


MANY = TINY.token_depth + 1
ADD = {"op": Op.ALU, "alu_op": AluOp.ADD, "use_imm": 1, "imm": 1, "uop_end": 1, "iter_out": 1, "iter_in": 1}
LOAD = {"op": Op.LOAD, "mem": Mem.INP, "y_size": 1, "x_size": 2, "x_stride": 2}
STORE = {"op": Op.STORE, "mem": Mem.OUT, "dram_base": 1024, "y_size": 1, "x_size": 1, "x_stride": 1}
FAR = LOAD | {"dram_base": 1 << 24}
NOTHING = {"op": Op.STORE, "mem": Mem.OUT}
FINISH = {"op": Op.FINISH}
FULL = [ADD | {"pop_prev": 1}, *[ADD] * (TINY.queue_depth + 10), LOAD | {"push_next": 1}]
CASES = {
    "right": ([ADD, FINISH], SAME, SAME),
    "an access, then a deadlock": (
        [FAR, ADD | {"pop_prev": 1}, FINISH],
        "DeadlockError / AccessError",
        compare.FIRST,
    ),
    "a token left over, and an access": (
        [LOAD | {"push_next": 1}, FAR, FINISH],
        "TokenError / AccessError",
        compare.FIRST,
    ),
    "a deadlock before an instruction that is none": (
        [*FULL[:-1], LOAD | {"mem": Mem.OUT.id}, FINISH],
        "ExecutionError / DeadlockError",
        compare.FIRST,
    ),
    "after FINISH": (
        [STORE | {"pop_prev": 1}, FINISH | {"push_next": 1}],
        "ExecutionError / no error",
        compare.AFTER_FINISH,
    ),
    "a full channel": (
        [*[LOAD | {"push_next": 1}] * MANY, *[ADD | {"pop_prev": 1}] * MANY, FINISH],
        "TokenError / no error",
        compare.FULL_CHANNEL,
    ),
    "a full queue": ([*FULL, FINISH], "no error / DeadlockError", compare.FULL_QUEUE),
}


@pytest.mark.circuit
@pytest.mark.parametrize("insns, what, reason", CASES.values(), ids=CASES)
def test_each_difference_has_its_reason(insns, what, reason):
    m = Machine(TINY)
    address, count = m.put(insns, 8192)
    found = result_of(RtlDevice(TINY, watchdog=2000), m.dram, address, count)
    assert difference(TINY, m.dram, address, count, found) == (what, reason)


WRONG = [FAR | {"push_next": 1}, ADD, FINISH | {"pop_prev": 1}]
RACE = [STORE, NOTHING | {"push_prev": 1}, ADD, FINISH | {"pop_next": 1}]


def test_a_race_has_any_of_its_results():
    m = Machine(TINY)
    address, count = m.put(RACE, 8192)
    orders = [ModelDevice(TINY, rng=np.random.default_rng(seed)) for seed in range(8)]
    results = {result_of(device, m.dram, address, count).memory for device in orders}
    assert len(results) == 2
    found = {difference(TINY, m.dram, address, count, Result("", None, memory)) for memory in results}
    assert found == {(SAME, SAME), ("no error / no error, other memory", compare.RACE)}


@pytest.mark.parametrize(
    "insns, found, what",
    [
        ([ADD, FINISH], Result("", None, b"other"), "no error / no error, other memory"),
        ([ADD, FINISH], Result("AccessError", 0, b""), "no error / AccessError"),
        (WRONG, Result("", None, b""), "AccessError / no error"),
        (WRONG, Result("AccessError", 1, b""), "AccessError / AccessError, another instruction"),
        (WRONG, Result("ExecutionError", 1, b""), "AccessError / ExecutionError"),
        (WRONG, Result("DeadlockError", 1, b""), "AccessError / DeadlockError"),
        (WRONG, Result("TokenError", 1, b""), "AccessError / TokenError"),
    ],
)
def test_what_has_no_reason_is_a_defect(insns, found, what):
    m = Machine(TINY)
    address, count = m.put(insns, 8192)
    assert difference(TINY, m.dram, address, count, found) == (what, UNEXPLAINED)
