"""tools/faults/cases.py: programs whose results depend on their memory alone."""

import json

import numpy as np

from tilewright.hw.config import PRESETS
from tilewright.hw.isa import Isa, Mem, Op
from tilewright.sim.model.device import ModelDevice
from tools.faults import compare as cases
from tools.faults.compare import random_program, recorded_cases, stored

TINY = PRESETS["tiny"]
STORE = {"op": Op.STORE, "mem": Mem.OUT, "dram_base": 512, "y_size": 2, "x_size": 3, "x_stride": 8}


def stores(machine, *before):
    """A machine with a program that stores accumulators; address and number of its instructions."""
    m = machine(TINY)
    ends = [STORE | {"push_prev": 1, "pop_prev": int(bool(before))}, {"op": Op.FINISH, "pop_next": 1}]
    return m, *m.put([*before, *ends], 8192)


def test_random_programs_end_with_what_the_model_computes(case):
    image = case.image.copy()
    ModelDevice(TINY).run_image(image, case.address, case.count)
    np.testing.assert_array_equal(image, case.expected)
    assert not np.array_equal(case.image, case.expected) and len(case.image) < 1 << 17
    assert case.name == random_program(TINY, 3).name != random_program(TINY, 4).name


def test_what_a_program_stores(machine, case):
    m, address, count = stores(machine)
    size = TINY.out_entry_bytes
    expected = [512 * size + row * 8 * size + k for row in range(2) for k in range(3 * size)]
    assert np.flatnonzero(stored(TINY, m.dram, address, count)).tolist() == expected
    changed = case.image != case.expected
    assert not (changed & ~stored(TINY, case.image, case.address, case.count)).any()


def test_a_program_that_reads_what_was_there_before_is_no_case(machine):
    m, address, count = stores(machine)
    assert cases._case("", TINY, m.dram, address, count) is None
    load = {"op": Op.LOAD, "mem": Mem.ACC, "y_size": 1, "x_size": 8, "x_stride": 8, "push_next": 1}
    m, address, count = stores(machine, load)
    assert cases._case("", TINY, m.dram, address, count) is not None


def test_recorded_cases(tmp_path, machine):
    load = {"op": Op.LOAD, "mem": Mem.ACC, "y_size": 1, "x_size": 8, "x_stride": 8, "push_next": 1}
    for name, before in (("free", [load]), ("bound", [])):
        m, address, count = stores(machine, *before)
        after = m.dram.copy()
        ModelDevice(TINY).run_image(after, address, count)
        meta = json.dumps({"config": "tiny", "insn_addr": address, "insn_count": count, "name": name})
        np.savez(tmp_path / f"{name}.npz", dram_in=m.dram, dram_out=after, meta=np.array(meta))
    (found,) = recorded_cases(tmp_path)
    assert (found.name, found.cfg, found.count) == ("free", TINY, 3)
    np.testing.assert_array_equal(found.expected, np.load(tmp_path / "free.npz")["dram_out"])
    assert Isa(TINY).decode(found.image[8192:8208].view("<u8").reshape(1, 2))[0]["mem"] == Mem.ACC.id
