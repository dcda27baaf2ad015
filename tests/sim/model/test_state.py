"""sim/model/state.py: memories, caches, and sums that are not in the accumulators yet."""

import numpy as np
import pytest

from tilewright.hw.config import PRESETS
from tilewright.hw.errors import AccessError
from tilewright.hw.isa import Mem, Op
from tilewright.sim.model.state import State, Sums, loop_action, nothing

TINY = PRESETS["tiny"]  # 256 micro-ops, 256 inputs, 128 weights, 128 accumulators


@pytest.fixture
def state():
    return State(TINY, np.zeros(64, np.uint8))


def put(state, place, rows):
    """Micro-ops (dst, src, wgt) at `place`, as LOAD UOP puts them there."""
    words = [d | s << 7 | w << 15 for d, s, w in rows]
    state.uop[place : place + len(rows)] = words
    state.kernels[Mem.UOP].changed()


def test_a_row_is_a_vector_that_a_product_reads():
    """One input entry is `batch` vectors, one weight entry `block_out`."""
    cfg = TINY.replace(batch=2, block_in=8, block_out=2, inp_bytes=2048, extensions=())
    state = State(cfg, np.zeros(1, np.uint8))
    shapes = {"inp": (128 * 2, 8), "wgt": (128 * 2, 8), "acc": (128, 4), "uop": (256,)}
    assert {name: getattr(state, name).shape for name in shapes} == shapes
    assert [getattr(state, name).dtype for name in shapes] == [np.int8, np.int8, np.int32, np.uint32]
    assert not any(getattr(state, name).any() for name in shapes)


def test_memory_ids_name_scratchpads(state):
    memories = {Mem.INP: state.inp, Mem.WGT: state.wgt}
    memories |= dict.fromkeys((Mem.ACC, Mem.ACC8, Mem.OUT), state.acc)
    for mem, array in memories.items():
        assert state.array(mem) is array


def test_entries_outside_are_named(state):
    state.check(Mem.INP, 0, 255)
    state.check(Mem.ACC8, 127, 127)
    for low, high in ((-1, 3), (200, 256)):
        with pytest.raises(AccessError, match=rf"^INP entries {low}\.\.{high} are outside 0\.\.255$"):
            state.check(Mem.INP, low, high)
    with pytest.raises(AccessError, match=r"^OUT entries 0\.\.128 are outside 0\.\.127$"):
        state.check(Mem.OUT, 0, 128)


def test_equal_micro_ops_are_one_kernel_wherever_they_stand(state):
    rows = [(0, 1, 2), (3, 1, 2)]
    put(state, 10, rows)
    put(state, 50, rows)
    kernel = state.kernels[Mem.UOP].kernel(10, 12)
    assert kernel.base == (0, 1, 2) and [(a.n, a.step) for a in kernel.axes] == [(2, (3, 0, 0))]
    assert state.kernels[Mem.UOP].kernel(10, 12) is kernel is state.kernels[Mem.UOP].kernel(50, 52)
    assert state.kernels[Mem.UOP].kernel(10, 11) is not kernel


def test_a_place_holds_what_was_loaded_there_last(state):
    put(state, 10, [(0, 1, 2)])
    first = state.kernels[Mem.UOP].kernel(10, 11)
    put(state, 10, [(4, 5, 6)])
    assert state.kernels[Mem.UOP].kernel(10, 11).base == (4, 5, 6)
    put(state, 10, [(0, 1, 2)])
    assert state.kernels[Mem.UOP].kernel(10, 11) is first


def loop(begin, end, **fields):
    steps = {f"{name}_{which}": 0 for name in ("dst", "src", "wgt") for which in ("out", "in")}
    return {"op": Op.GEMM, "uop_bgn": begin, "uop_end": end, "iter_out": 1, "iter_in": 1, **steps, **fields}


def prepared(log):
    """A `prepare` that logs the nests it is asked for (capitals) and what is executed."""

    def prepare(nest):
        log.append(("PREPARE", nest.base, [(a.n, a.step) for a in nest.axes]))
        yield lambda: log.append("first")
        yield lambda: log.append("second")

    return prepare


def test_an_instruction_is_its_loops_around_its_micro_ops_prepared_once(state):
    log = []
    action = loop_action(state, loop(8, 9, iter_out=2, iter_in=3, dst_out=7, src_in=1, wgt_in=5), prepared(log))
    put(state, 8, [(1, 2, 3)])  # before it executes, behind its making
    action()
    action()
    assert log == [("PREPARE", (1, 2, 3), [(2, (7, 0, 0)), (3, (0, 1, 5))]), *["first", "second"] * 2]
    put(state, 8, [(9, 9, 9)])
    action()
    assert [entry[1] for entry in log if entry[0] == "PREPARE"] == [(1, 2, 3), (9, 9, 9)]


def test_other_micro_ops_elsewhere_change_nothing(state):
    log = []
    put(state, 8, [(1, 2, 3)])
    action = loop_action(state, loop(8, 9), prepared(log))
    action()
    put(state, 20, [(4, 4, 4)])
    action()
    assert log == [("PREPARE", (1, 2, 3), []), *["first", "second"] * 2]


def test_instructions_of_many_pieces_are_cut_again_and_lose_none(state):
    done, cuts = [], []

    def prepare(nest):
        cuts.append(nest)
        for k in range(1000):
            yield lambda k=k: done.append(k)

    action = loop_action(state, loop(0, 1), prepare)
    action()
    action()
    assert done == [*range(1000)] * 2
    assert len(cuts) == 2


@pytest.mark.parametrize("fields", [loop(3, 3), loop(3, 4, iter_out=0), loop(3, 4, iter_in=0), loop(256, 256)])
def test_loops_that_do_not_run_do_nothing(state, fields):
    assert loop_action(state, fields, prepared([])) is nothing


def test_micro_ops_that_do_not_exist_are_named(state):
    loop_action(state, loop(255, 256), prepared([]))
    with pytest.raises(AccessError, match=r"^micro-ops 255\.\.256 are outside 0\.\.255$"):
        loop_action(state, loop(255, 257), prepared([]))
    with pytest.raises(AccessError, match="^micro-ops end at 4, before they begin at 5$"):
        loop_action(state, loop(5, 4), prepared([]))


MOST = 8


class Accumulators:
    """Sums for 16 accumulators, and the puts so far."""

    def __init__(self):
        self.acc, self.sums, self.puts = np.zeros(16, np.int32), Sums(), []

    def add(self, low, high, value, depth=2):
        def put(result):
            self.puts.append((low, high))
            self.acc[low : high + 1] += result.astype(np.int32)

        result = np.full(high - low + 1, value, np.float32)
        self.sums.add((low, high), (low, high), put, result, depth=depth, most=MOST)


@pytest.fixture
def some():
    return Accumulators()


def test_results_for_the_same_accumulators_are_put_together_and_late(some):
    for value in (1, 2, 3):
        some.add(5, 6, value)
    some.sums.settle(0, 4)
    some.sums.settle(7, 15)
    assert not some.puts
    some.sums.settle(6, 6)
    some.sums.settle_all()
    assert some.puts == [(5, 6)] and some.acc.tolist() == [0] * 5 + [6, 6] + [0] * 9


def test_a_sum_ends_before_it_could_round(some):
    for _ in range(MOST // 2 + 1):
        some.add(0, 3, 1)
    assert some.puts == [(0, 3)]
    some.sums.settle_all()
    assert (some.acc[:4] == MOST // 2 + 1).all() and len(some.puts) == 2


def test_sums_that_share_accumulators_are_put_in_their_order(some):
    some.add(0, 3, 1)
    some.add(8, 9, 1)
    some.add(3, 4, 10)
    assert some.puts == [(0, 3)]
    some.add(0, 3, 100)
    assert some.puts == [(0, 3), (3, 4)]
    some.sums.settle_all()
    assert some.acc[:5].tolist() == [101, 101, 101, 111, 10] and len(some.puts) == 4


def test_a_sum_that_starts_ends_the_one_before_it(some):
    def overwrite(result):
        some.puts.append("overwrite")
        some.acc[0:4] = result.astype(np.int32)

    some.add(0, 3, 7)
    some.sums.add((0, 3), (0, 3), overwrite, np.full(4, 1, np.float32), depth=2, most=MOST, starts=True)
    some.add(0, 3, 10)
    some.sums.settle_all()
    assert some.acc[:4].tolist() == [11] * 4 and some.puts == [(0, 3), "overwrite"]
