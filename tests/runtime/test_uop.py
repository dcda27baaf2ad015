"""runtime/uop.py: kernels in DRAM and on chip; pieces of kernels against the iterations of the whole, one by one."""

import itertools

import numpy as np
import pytest
from hypothesis import given, seed
from hypothesis import strategies as st

from tilewright.hw.config import PRESETS
from tilewright.hw.errors import CapacityError, ProgramError
from tilewright.hw.isa import AluOp, Isa, Op
from tilewright.runtime.program import Program
from tilewright.runtime.uop import (
    MAX_TRIPS,
    Kernel,
    UopCache,
    UopPool,
    choose_loops,
    encode_uops,
    encoded,
    grid,
    loop_fields,
    merge_loops,
    order_free,
    pieces,
    uop_array,
)


def test_the_pool_holds_every_kernel_once():
    pool = UopPool()
    assert pool.size == 0 and pool.data().tolist() == []
    one, two = np.array([1, 2, 3], np.uint32), np.array([0x80000001, 2], np.uint32)
    assert [pool.offset(k) for k in (one, two, one.copy(), two[:1], two)] == [0, 3, 0, 5, 3]
    assert pool.size == 6
    words = [1, 2, 3, 0x80000001, 2, 0x80000001]
    assert pool.data().tobytes() == b"".join(word.to_bytes(4, "little") for word in words)


def test_kernels_are_placed_one_behind_the_other_and_found_again():
    cache = UopCache(10)
    assert [cache.place(b"a", 4), cache.place(b"b", 6)] == [(0, True), (4, True)]
    assert [cache.place(b"b", 6), cache.place(b"a", 4)] == [(4, False), (0, False)]


def test_the_least_recently_used_kernel_goes():
    cache = UopCache(9)
    for k, key in enumerate((b"a", b"b", b"c")):
        assert cache.place(key, 3) == (3 * k, True)
    assert cache.place(b"a", 3) == (0, False)  # b is the oldest now
    assert cache.place(b"d", 2) == (3, True)
    assert cache.place(b"a", 3) == (0, False)
    assert cache.place(b"c", 3) == (6, False)
    assert cache.place(b"b", 3) == (3, True)  # one entry beside d is not enough: d goes, the oldest


def test_as_many_kernels_go_as_are_in_the_way():
    cache = UopCache(8)
    for key in (b"a", b"b", b"c", b"d"):
        cache.place(key, 2)
    cache.place(b"a", 2)
    assert cache.place(b"e", 6) == (2, True)  # b, c and d together
    assert cache.place(b"a", 2) == (0, False)
    assert cache.place(b"f", 8) == (0, True)
    assert cache.place(b"e", 6) == (0, True)


@pytest.mark.parametrize("seed", range(5))
def test_what_is_on_chip_is_what_was_placed_there_last(seed):
    rng = np.random.default_rng(seed)
    sizes = {bytes([k]): int(rng.integers(1, 17)) for k in range(12)}
    cache, loads = UopCache(16), 0
    chip: list[tuple[bytes, int]] = [(b"", 0)] * 16
    for k in rng.integers(0, 12, 300):
        key = bytes([k])
        start, load = cache.place(key, sizes[key])
        assert 0 <= start and start + sizes[key] <= 16
        if load:
            chip[start : start + sizes[key]] = [(key, i) for i in range(sizes[key])]
            loads += 1
        assert chip[start : start + sizes[key]] == [(key, i) for i in range(sizes[key])]
    assert 12 < loads < 300


def issued(loops, base=(0, 0)):
    """Index pairs in the order of nested for-loops."""
    for trips in itertools.product(*(range(n) for n, *_ in loops)):
        yield tuple(b + sum(t * loop[k + 1] for t, loop in zip(trips, loops)) for k, b in enumerate(base))


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
        assert list(issued(folded)) == list(issued(loops))
        assert len(folded) <= sum(n > 1 for n, *_ in loops)
        assert all(n <= most for n, *_ in folded if n > 3)


def test_loops_that_continue_each_other_become_one():
    assert merge_loops([(4, 6, 12), (3, 2, 4), (2, 1, 2)], 100) == ((24, 1, 2),)
    assert merge_loops([(4, 6, 12), (3, 2, 4), (2, 1, 2)], 23) == ((4, 6, 12), (6, 1, 2))
    assert merge_loops([(4, 6, 13), (3, 2, 4), (2, 1, 2)], 100) == ((4, 6, 13), (6, 1, 2))
    assert merge_loops([(1, 9, 9), (5, 0, 0), (1, 7, 7)], 100) == ((5, 0, 0),)
    assert merge_loops([], 100) == merge_loops([(1, 1, 1)], 100) == ()


def test_a_grid_is_what_nested_loops_issue():
    loops = [(3, 10, 0), (2, -1, 4), (2, 0, 7)]
    assert list(map(tuple, grid(loops, (5, 6)).tolist())) == list(issued(loops, (5, 6)))
    assert grid([], (5, 6, 7)).tolist() == [[5, 6, 7]]
    assert grid([(0, 1, 1)], (5, 6)).shape == (0, 2)


def test_words_hold_dst_src_and_wgt_from_the_lowest_bit():
    """VTA: 2048 accumulators, 2048 inputs, 1024 weights."""
    indices = np.array([[2047, 0, 1023], [1, 2, 3]])
    words = encode_uops(Isa(PRESETS["vta"]).uop, indices)
    assert words.dtype == np.uint32
    assert words.tolist() == [2047 | 1023 << 22, 1 | 2 << 11 | 3 << 22]


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


def iterations(loops, uops):
    """The micro-ops in the order of loops around them."""
    found = []
    for trips in itertools.product(*(range(extent) for extent, *_ in loops)):
        shift = np.sum([np.multiply(t, steps) for t, (_, *steps) in zip(trips, loops)], axis=0) if loops else 0
        found += [tuple(map(int, uop)) for uop in np.asarray(uops) + shift]
    return found


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


@pytest.mark.parametrize(
    "loops, fields, form, free",
    [
        ([(5, 0, 1, 1)], GEMM, "GEMM", True),  # sums
        ([(5, 1, 1, 1)], OVERWRITE, "GEMM", True),  # each written once
        ([(5, 0, 1, 1)], OVERWRITE, "GEMM", False),  # the last one counts
        ([(5, 1, 1, 0)], {"use_imm": 1, "alu_op": AluOp.SHR}, "ALU", True),
        ([(5, 1, 1, 0)], {"op": Op.ALU, "use_imm": 0, "alu_op": AluOp.ADD}, "ALU", False),  # reads what it wrote
    ],
)
def test_what_may_run_in_any_order(loops, fields, form, free):
    assert order_free(kernel(loops, fields=fields, form=form)) == free


def test_a_chain_that_reads_elsewhere_is_free_unless_it_does_not_commute():
    apart = kernel([(5, 0, 1, 0)], [(0, 8, 0)], {"op": Op.ALU, "use_imm": 0, "alu_op": AluOp.ADD}, "ALU")
    assert order_free(apart)
    shifts = kernel([(5, 0, 1, 0)], [(0, 8, 0)], {"op": Op.ALU, "use_imm": 0, "alu_op": AluOp.SHR}, "ALU")
    assert not order_free(shifts)


def test_the_longest_loops_or_the_outermost_become_the_instructions():
    loops = ((2, 1, 0, 0), (7, 0, 1, 0), (3, 0, 0, 1))
    assert choose_loops(loops, True, SMALL) == (loops[1:], loops[:1])
    assert choose_loops(loops, False, SMALL) == (loops[:2], loops[2:])
    beyond = ((MAX_TRIPS + 1, 1, 0, 0), *loops[:1])
    assert choose_loops(beyond, True, SMALL) == (loops[:1], beyond[:1])
    assert choose_loops(beyond, False, SMALL) == ((), beyond)


def test_fields_of_loops():
    found = loop_fields(kernel([]), ((4, 1, 2, 3),))
    assert found == GEMM | {"iter_out": 1, "iter_in": 4} | dict(dst_out=0, src_out=0, wgt_out=0) | dict(
        dst_in=1, src_in=2, wgt_in=3
    )
    assert "wgt_in" not in loop_fields(kernel([], form="ALU"), ())


@pytest.mark.parametrize("loops, uops", [([(0, 1, 1, 1)], [(0, 0, 0)]), ([], np.zeros((0, 3), int))])
def test_kernels_that_do_nothing_are_refused(loops, uops):
    with pytest.raises(ProgramError, match="gemm: loops and micro-ops must run at least once"):
        list(pieces(kernel(loops, uops), SMALL))


def test_indices_beyond_the_configuration_are_named():
    isa = Isa(SMALL)
    assert encoded(kernel([]), isa, np.array([(1, 2, 3)])).dtype == np.uint32
    with pytest.raises(CapacityError, match="gemm reaches beyond a scratchpad of tiny"):
        encoded(kernel([]), isa, np.array([(SMALL.acc_depth, 0, 0)]))
    rows = f"dwgemm reaches beyond the {SMALL.wgt_depth} weight rows"
    with pytest.raises(CapacityError, match=rows):
        encoded(kernel([], form="DWGEMM"), isa, np.array([(0, 0, SMALL.wgt_depth)]))


@pytest.mark.parametrize("uops", [[1, 2, 3], [[1, 2]], [[1.0, 2.0, 3.0]]])
def test_micro_ops_are_rows_of_integers(uops):
    with pytest.raises(ProgramError, match=r"micro-ops must be integers of shape \(n, 3\)"):
        uop_array(np.array(uops), 3)
