"""Index arithmetic: functions of expressions, linear forms, boxes from predicates; parsed nests and whole entries."""

import pytest

from tilewright.compiler.tir import affine
from tilewright.compiler.tir.affine import Loop, LoopVariables, clip, closure, guards, linear_form
from tilewright.compiler.tir.scope import Context, parse, to_entries
from tilewright.compiler.tvm_compat import tirx
from tilewright.hw.config import PRESETS
from tilewright.hw.errors import ScheduleError

X, Y, P, Q = (tirx.Var(name, "int32") for name in "xypq")


def variables():
    out = LoopVariables()
    out.add(X)
    out.add(Y)
    return out


def loops():
    return [Loop(var, lambda env: 0, lambda env: 8) for var in (P, Q)]


STMT = tirx.Evaluate(tirx.IntImm("int32", 0))


@pytest.mark.parametrize(
    "expr, value",
    [
        (X * 3 - Y, 11),
        (tirx.floordiv(X, 2) + tirx.floormod(X, 2), 3),
        (tirx.Min(X, Y) + 10 * tirx.Max(X, Y), 54),
        (tirx.if_then_else(X > Y, X, Y), 5),
        (tirx.Select(tirx.And(X < Y, X != 3), X, Y), 4),
        (tirx.Cast("int32", tirx.Not(X <= Y)), 1),
        (tirx.likely(tirx.Or(X == Y, X >= 5)), 1),
    ],
)
def test_expressions_become_functions(expr, value):
    assert closure(expr, variables())([5, 4]) == value


def test_what_is_no_index_is_refused():
    with pytest.raises(ScheduleError, match="'p' is not a loop variable"):
        closure(X + P, variables())
    with pytest.raises(ScheduleError, match="index expression .* is not supported"):
        closure(tirx.LShift(X, Y), variables())


def test_linear_forms():
    form = linear_form(P * 16 + X * 3 + Q + 2, loops(), variables(), STMT)
    assert form.coefs == (16, 1) and form.base([5, 0]) == 17
    with pytest.raises(ScheduleError, match="is not an affine function of the instruction's loops"):
        linear_form(P * Q, loops(), variables(), STMT)


def box(condition, env):
    out = [[0, 8], [0, 8]]
    return out if clip(out, guards(condition, loops(), variables(), STMT), env) else None


@pytest.mark.parametrize(
    "condition, expected",
    [
        (P < 5, [[0, 5], [0, 8]]),
        (P * 3 < 10, [[0, 4], [0, 8]]),
        (X * 4 + Q <= 22, [[0, 8], [0, 3]]),
        (tirx.And(Q >= 2, 1 < P * 2), [[1, 8], [2, 8]]),
        (tirx.Not(P < 3), [[3, 8], [0, 8]]),
        (tirx.EQ(Q, 6), [[0, 8], [6, 7]]),
        (tirx.likely(X < 6), [[0, 8], [0, 8]]),
        (X < 5, None),
        (P >= 8, None),
        (tirx.const(False), None),
        (tirx.const(True), [[0, 8], [0, 8]]),
    ],
)
def test_predicates_become_boxes(condition, expected):
    assert box(condition, [5, 0]) == expected


def test_domains_that_are_no_box_are_refused():
    with pytest.raises(ScheduleError, match="depends on two loops"):
        box(P + Q < 5, [0, 0])
    with pytest.raises(ScheduleError, match="is not a conjunction of comparisons"):
        box(tirx.Or(P < 5, Q < 5), [0, 0])


def test_statements_are_named_in_one_line():
    text = affine.shorten(tirx.Evaluate(tirx.call_extern("int32", "f" * 300)))
    assert len(text) == 110 and text.endswith("...") and "\n" not in text


OUTER = tirx.Var("outer", "int32")
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


def test_an_unknown_tensor_is_named(ctx):
    with pytest.raises(ScheduleError, match="work.*: 'q' is neither a parameter nor allocated before"):
        ctx.location(Q, WORK)


@pytest.mark.parametrize(
    "dims, offsets, expected",
    [
        ([(3, 16, 32), (16, 1, 1)], [32, 0], ([(3, 1, 2)], [2, 0])),
        ([(2, 8, 8), (8, 1, 1), (1, 5, 7)], [0, 16], ([], [0, 1])),  # one entry in two loops
        ([(64, 1, 1)], [0, 0], ([(4, 1, 1)], [0, 0])),  # on over whole entries
        ([(16, 1, 2)], [0, 0], "the operands step differently within an entry of 16 elements"),
        *(
            ([dim], offsets, "must cover whole entries of 16 elements")
            for dim, offsets in [((8, 1, 1), [0, 0]), ((16, 1, 1), [4, 0]), ((24, 1, 1), [0, 0]), ((8, 2, 2), [0, 0])]
        ),
    ],
)
def test_elements_become_entries(dims, offsets, expected):
    if isinstance(expected, str):
        with pytest.raises(ScheduleError, match=f"work.*: {expected}"):
            to_entries(dims, offsets, 16, WORK)
    else:
        assert to_entries(dims, offsets, 16, WORK) == expected
