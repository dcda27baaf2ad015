"""compiler/tir/scope.py: parsed nests, the points they reach, and whole entries."""

import pytest

from tilewright.compiler.tir.affine import LinearForm
from tilewright.compiler.tir.placement import Location
from tilewright.compiler.tir.scope import Context, Operand, parse, to_entries
from tilewright.compiler.tvm_compat import tirx
from tilewright.hw.config import PRESETS
from tilewright.hw.errors import ScheduleError
from tilewright.hw.isa import Mem

P, Q, OUTER = (tirx.Var(name, "int32") for name in ("p", "q", "outer"))
WORK = tirx.Evaluate(tirx.call_extern("int32", "work", P, Q))


def loop(var, body, extent=8, first=0):
    return tirx.For(var, first, extent, tirx.ForKind.SERIAL, body)


@pytest.fixture
def ctx():
    found = Context(PRESETS["tiny"])
    found.variables.add(OUTER)
    return found


def test_a_nest_reaches_what_its_conditions_leave(ctx):
    nest = loop(P, tirx.IfThenElse(P + OUTER < 5, loop(Q, WORK, 3, 2), None))
    scope = parse(nest, ctx)
    assert scope.stmt.same_as(WORK)
    assert scope.box([0]) == [[0, 5], [2, 5]]
    assert scope.box([4]) == [[0, 1], [2, 5]]
    assert scope.box([5]) is None


def test_a_nest_of_two_statements_is_refused(ctx):
    with pytest.raises(ScheduleError, match="an instruction is a perfect loop nest around one statement"):
        parse(loop(P, tirx.SeqStmt([WORK, WORK])), ctx)


def test_an_unknown_tensor_is_named(ctx):
    with pytest.raises(ScheduleError, match="work.*: 'q' is neither a parameter nor allocated before"):
        ctx.location(Q, WORK)


def test_operands_start_at_the_corner_of_the_box():
    operand = Operand(Location("x", "int8", 100), LinearForm((10, 1), lambda env: 7 + env[0]))
    assert operand.at([[2, 4], [3, 9]], [100]) == 107 + 20 + 3


def test_operands_note_when_they_are_read(ctx):
    location = ctx.locations[Q] = Location("x", "int8", 100)
    ctx.time = 3
    operand = ctx.operand(Q, [P * 4 + 1], parse(loop(P, WORK), ctx))
    assert operand.location is location and operand.index.coefs == (4,) and location.accesses == [(3, ())]
    with pytest.raises(ScheduleError, match="was not flattened"):
        ctx.operand(Q, [P, P], parse(loop(P, WORK), ctx))


def test_entries_of_the_configuration(ctx):
    assert [ctx.entry(mem) for mem in (Mem.INP, Mem.WGT, Mem.ACC)] == [4, 16, 4]


@pytest.mark.parametrize(
    "dims, offsets, expected",
    [
        ([(3, 16, 32), (16, 1, 1)], [32, 0], ([(3, 1, 2)], [2, 0])),
        ([(2, 8, 8), (8, 1, 1), (1, 5, 7)], [0, 16], ([], [0, 1])),  # one entry in two loops
        ([(64, 1, 1)], [0, 0], ([(4, 1, 1)], [0, 0])),  # on over whole entries
    ],
)
def test_elements_become_entries(dims, offsets, expected):
    assert to_entries(dims, offsets, 16, WORK) == expected


@pytest.mark.parametrize(
    "dims, offsets, text",
    [
        ([(16, 1, 2)], [0, 0], "the operands step differently within an entry of 16 elements"),
        ([(8, 1, 1)], [0, 0], "must cover whole entries of 16 elements"),
        ([(16, 1, 1)], [4, 0], "must cover whole entries of 16 elements"),
        ([(24, 1, 1)], [0, 0], "must cover whole entries of 16 elements"),
        ([(8, 2, 2)], [0, 0], "must cover whole entries of 16 elements"),
    ],
)
def test_parts_of_entries_are_refused(dims, offsets, text):
    with pytest.raises(ScheduleError, match=f"work.*: {text}"):
        to_entries(dims, offsets, 16, WORK)
