"""runtime/loops.py: pieces of kernels against the iterations of the whole, one by one."""

import itertools

import numpy as np
import pytest
from hypothesis import given, seed
from hypothesis import strategies as st

from tilewright.hw.config import PRESETS
from tilewright.hw.errors import CapacityError, ProgramError
from tilewright.hw.isa import AluOp, Isa, Op
from tilewright.runtime.uop import (
    MAX_TRIPS,
    Kernel,
    choose_loops,
    encoded,
    loop_fields,
    order_free,
    pieces,
    uop_array,
)

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
    assert choose_loops(loops, True, SMALL) == (loops[1:], [loops[0]])
    assert choose_loops(loops, False, SMALL) == (loops[:2], [loops[2]])
    beyond = ((MAX_TRIPS + 1, 1, 0, 0), *loops[:1])
    assert choose_loops(beyond, True, SMALL) == (loops[:1], [beyond[0]])
    assert choose_loops(beyond, False, SMALL) == ((), list(beyond))


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
