"""runtime/uop.py: kernels in DRAM and on chip; pieces of kernels against the iterations of the whole, one by one."""

import itertools

import numpy as np
import pytest
from hypothesis import given, seed
from hypothesis import strategies as st

from tilewright.hw.config import PRESETS
from tilewright.hw.isa import AluOp, Isa, Op
from tilewright.runtime.program import Program
from tilewright.runtime.uop import (
    MAX_TRIPS,
    Kernel,
    UopCache,
    choose_loops,
    merge_loops,
    order_free,
    pieces,
)


def test_the_least_recently_used_kernel_goes():
    cache = UopCache(9)
    for k, key in enumerate((b"a", b"b", b"c")):
        assert cache.place(key, 3) == (3 * k, True)
    assert cache.place(b"a", 3) == (0, False)  # b is the oldest now
    assert cache.place(b"d", 2) == (3, True)
    assert cache.place(b"a", 3) == (0, False)
    assert cache.place(b"c", 3) == (6, False)
    assert cache.place(b"b", 3) == (3, True)  # one entry beside d is not enough: d goes, the oldest


def iterations(loops, uops):
    """The micro-ops in the order of loops around them."""
    found = []
    for trips in itertools.product(*(range(extent) for extent, *_ in loops)):
        shift = np.sum([np.multiply(t, steps) for t, (_, *steps) in zip(trips, loops)], axis=0) if loops else 0
        found += [tuple(map(int, uop)) for uop in np.asarray(uops) + shift]
    return found


@pytest.mark.parametrize("seed", range(30))
def test_folded_loops_issue_the_same_in_the_same_order(seed):
    rng = np.random.default_rng(seed)
    loops, steps = [], (1, 2)
    for _ in range(rng.integers(0, 6)):  # from the innermost out: often what continues the loop inside
        n = int(rng.integers(1, 4))
        loops.insert(0, (n, *steps))
        steps = tuple(n * s for s in steps) if rng.integers(0, 3) else tuple(rng.integers(0, 5, 2).tolist())
    for most in (1, 5, 1000):
        folded = merge_loops(loops, most)
        assert iterations(folded, [(0, 0)]) == iterations(loops, [(0, 0)])
        assert len(folded) <= sum(n > 1 for n, *_ in loops)
        assert all(n <= most for n, *_ in folded if n > 3)


def test_loops_that_continue_each_other_become_one():
    assert merge_loops([(4, 6, 12), (3, 2, 4), (2, 1, 2)], 100) == ((24, 1, 2),)
    assert merge_loops([(4, 6, 12), (3, 2, 4), (2, 1, 2)], 23) == ((4, 6, 12), (6, 1, 2))
    assert merge_loops([(4, 6, 13), (3, 2, 4), (2, 1, 2)], 100) == ((4, 6, 13), (6, 1, 2))
    assert merge_loops([(1, 9, 9), (5, 0, 0), (1, 7, 7)], 100) == ((5, 0, 0),)
    assert merge_loops([], 100) == merge_loops([(1, 1, 1)], 100) == ()


def rows_of(program):
    """(opcode, micro-ops that are loaded or executed) of each instruction."""
    launch = program.finish()
    decoded = Isa(launch.cfg).decode(launch.insn)
    names = {Op.LOAD: ("sram_base", "x_size"), Op.ALU: ("uop_bgn", "uop_end")}
    rows = [(Op(f["op"]), f) for f in decoded]
    return [(op.name, *(f[name] for name in names[op])) for op, f in rows if op in names]


def recorded(bases, uops_ahead, depth=256):
    cfg = PRESETS["tiny"]
    program = Program(cfg.replace(name="small", uop_bytes=4 * depth))
    program.uops_ahead = uops_ahead
    for base, count in bases:
        program.alu_uops("ADD", np.array([(base + 2 * k, 0) for k in range(count)]), imm=1)
    return program


def test_micro_ops_of_one_step_that_are_loaded_ahead_come_in_one_load():
    bases = [(0, 2), (1, 3), (0, 2), (9, 1)]
    apart, ahead = (recorded(bases, uops_ahead) for uops_ahead in (False, True))
    issues = [("ALU", 0, 2), ("ALU", 2, 5), ("ALU", 0, 2), ("ALU", 5, 6)]
    assert rows_of(ahead) == [("LOAD", 0, 6), *issues]
    assert [row[0] for row in rows_of(apart)] == ["LOAD", "ALU", "LOAD", "ALU", "ALU", "LOAD", "ALU"]
    assert sorted(row for row in rows_of(apart) if row[0] == "ALU") == sorted(issues)


def test_micro_ops_that_take_the_place_of_others_are_loaded_in_their_turn():
    found = rows_of(recorded([(0, 12), (1, 4), (2, 8), (3, 1)], True, depth=16))
    # the last two steps find their micro-ops in the place of the first one's, which was issued by then
    replaced = [("LOAD", 0, 9), ("ALU", 12, 16), ("ALU", 0, 8), ("ALU", 8, 9)]
    assert found == [("LOAD", 0, 16), ("ALU", 0, 12), *replaced]


def test_long_lists_are_loaded_in_parts_of_256():
    rows = rows_of(recorded([(k, 50) for k in range(20)], True, depth=1024))
    assert [row for row in rows if row[0] == "LOAD"] == [("LOAD", k, 250) for k in range(0, 1000, 250)]


SMALL = PRESETS["tiny"].replace(uop_bytes=64)  # 16 micro-ops
GEMM, OVERWRITE = {"reset": 0}, {"reset": 0, "overwrite": 1}


def kernel(loops, uops=((0, 0, 0),), fields=GEMM, form="GEMM"):
    return Kernel(form, tuple(loops), np.array(uops), dict(fields))


step = st.integers(0, 3)
nests = st.lists(st.tuples(st.integers(1, 4), step, step, step), max_size=4)


@seed(7)
@given(nests, st.lists(st.tuples(step, step, step), min_size=1, max_size=5), st.booleans())
def test_pieces_do_what_the_whole_does(loops, uops, overwrite):
    whole = kernel(loops, uops, OVERWRITE if overwrite else GEMM)
    done = []
    for instruction, part in pieces(whole, SMALL):
        assert len(instruction) <= 2 and 0 < len(part) <= SMALL.uop_depth
        done.append(iterations(instruction, part))
    wanted, found = iterations(loops, uops), [each for part in done for each in part]
    assert sorted(found) == sorted(wanted)
    if not order_free(whole):
        assert found == wanted


ADDS, SHIFTS = ({"op": Op.ALU, "use_imm": 0, "alu_op": op} for op in (AluOp.ADD, AluOp.SHR))


@pytest.mark.parametrize(
    "loop, src, fields, form, free",
    [
        ((5, 0, 1, 1), 0, GEMM, "GEMM", True),  # sums
        ((5, 1, 1, 1), 0, OVERWRITE, "GEMM", True),  # each written once
        ((5, 0, 1, 1), 0, OVERWRITE, "GEMM", False),  # the last one counts
        ((5, 1, 1, 0), 0, {"use_imm": 1, "alu_op": AluOp.SHR}, "ALU", True),
        ((5, 1, 1, 0), 0, ADDS, "ALU", False),  # reads what it wrote
        ((5, 0, 1, 0), 8, ADDS, "ALU", True),
        ((5, 0, 1, 0), 8, SHIFTS, "ALU", False),  # does not commute
    ],
)
def test_what_may_run_in_any_order(loop, src, fields, form, free):
    assert order_free(kernel([loop], [(0, src, 0)], fields, form)) == free


def test_the_longest_loops_or_the_outermost_become_the_instructions():
    loops = ((2, 1, 0, 0), (7, 0, 1, 0), (3, 0, 0, 1))
    assert choose_loops(loops, True, SMALL) == (loops[1:], loops[:1])
    assert choose_loops(loops, False, SMALL) == (loops[:2], loops[2:])
    beyond = ((MAX_TRIPS + 1, 1, 0, 0), *loops[:1])
    assert choose_loops(beyond, True, SMALL) == (loops[:1], beyond[:1])
    assert choose_loops(beyond, False, SMALL) == ((), beyond)
