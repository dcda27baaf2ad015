"""Index arithmetic of lowered TIR: expressions as Python functions, affine forms, loop bounds from predicates.

Outer loops run while a program is recorded: `Env` holds the values of their variables. The loops of an instruction
scope stay symbolic, as coefficients.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ...hw.errors import ScheduleError
from ..tvm_compat import ir, structural_walk, sym, tirx

Env = list[int]
Value = Callable[[Env], int]
_LONGEST = 160  # characters of a statement's name


class LoopVariables:
    """The position in an `Env` of every loop variable."""

    def __init__(self) -> None:
        self._index: dict = {}

    def add(self, var) -> int:
        """The position of `var`, assigned on first use."""
        return self._index.setdefault(var, len(self._index))

    def find(self, var) -> int | None:
        """The position of `var`, None for other variables."""
        return self._index.get(var)

    def __len__(self) -> int:
        return len(self._index)


_BINARY: dict[type, Callable[[int, int], int]] = {
    tirx.Add: lambda a, b: a + b,
    tirx.Sub: lambda a, b: a - b,
    tirx.Mul: lambda a, b: a * b,
    tirx.FloorDiv: lambda a, b: a // b,
    tirx.FloorMod: lambda a, b: a % b,
    tirx.Min: min,
    tirx.Max: max,
    tirx.LT: lambda a, b: int(a < b),
    tirx.LE: lambda a, b: int(a <= b),
    tirx.GT: lambda a, b: int(a > b),
    tirx.GE: lambda a, b: int(a >= b),
    tirx.EQ: lambda a, b: int(a == b),
    tirx.NE: lambda a, b: int(a != b),
    tirx.And: lambda a, b: int(bool(a and b)),
    tirx.Or: lambda a, b: int(bool(a or b)),
}


def constant(expr) -> int | None:
    """The value of an integer literal, else None."""
    if isinstance(expr, tirx.Cast):
        return constant(expr.value)
    return int(expr.value) if isinstance(expr, tirx.IntImm) else None


def closure(expr, variables: LoopVariables) -> Value:
    """`expr` of loop variables as a function of their values. Raises `ScheduleError` for other expressions."""
    number = constant(expr)
    if number is not None:
        return lambda env: number
    if isinstance(expr, ir.Var):
        position = variables.find(expr)
        if position is None:
            raise ScheduleError(f"{expr.name!r} is not a loop variable; shapes and scalars must be constants")
        return lambda env: env[position]
    op = _BINARY.get(type(expr))
    if op is not None:
        a, b = closure(expr.a, variables), closure(expr.b, variables)
        return lambda env: op(a(env), b(env))
    if isinstance(expr, tirx.Cast):
        return closure(expr.value, variables)
    if isinstance(expr, tirx.Not):
        inner = closure(expr.a, variables)
        return lambda env: int(not inner(env))
    choice = selection(expr)
    if choice is not None:
        test, yes, no = (closure(e, variables) for e in choice)
        return lambda env: yes(env) if test(env) else no(env)
    if isinstance(expr, ir.Call) and expr.op.name.endswith("likely"):
        return closure(expr.args[0], variables)
    raise ScheduleError(f"index expression {shorten(expr)} is not supported; use loop variables and constants")


def selection(expr) -> tuple | None:
    """(condition, value, other value) of an `if_then_else` or `Select`, else None."""
    if isinstance(expr, tirx.Select):
        return expr.condition, expr.true_value, expr.false_value
    if isinstance(expr, ir.Call) and expr.op.name.endswith("if_then_else"):
        return tuple(expr.args)
    return None


def called(expr) -> tuple[str, list] | None:
    """(name, arguments) of a call of an external function, else None."""
    if isinstance(expr, ir.Call) and expr.op.name.endswith("extern"):
        return str(expr.args[0].value), list(expr.args[1:])
    return None


def shorten(node, limit: int = 110) -> str:
    """One line of text for a TIR expression or statement."""
    text = re.sub(r"_local[._](inp|wgt|acc|par)", "", _text(node))  # TVM appends the scope to a tensor's name
    return text if len(text) <= limit else text[: limit - 3] + "..."


def _text(node) -> str:
    if isinstance(node, tirx.BufferStore):
        text = f"{node.buffer.name}[{', '.join(map(str, node.indices))}] = {node.value}"
    else:
        text = str(node.value if isinstance(node, tirx.Evaluate) else node)
    return " ".join(line.strip() for line in text.splitlines() if not line.startswith("#"))


def statement_name(node) -> str:
    """The name of the statement of an instruction scope, with the scratchpads of its tensors: `wgt.w[0] = w[0]`."""
    call = called(node.value) if isinstance(node, tirx.Evaluate) else None
    if call is None:
        text = _text(node)
    else:
        tensors = ", ".join(str(pointer.args[1]).removesuffix(".data") for pointer in call[1])
        text = f"{call[0].removeprefix('tilewright_')}({tensors})"
    return re.sub(r"(\w+?)_local[._](inp|wgt|acc|par)", r"\2.\1", text)[:_LONGEST]


@dataclass(frozen=True)
class Loop:
    """A loop of an instruction scope: `extent` trips from `first` on."""

    var: object
    first: Value
    extent: Value


@dataclass(frozen=True)
class LinearForm:
    """`sum(coefs[k] * loop k) + base(env)`."""

    coefs: tuple[int, ...]
    base: Value


def linear_form(expr, loops: Sequence[Loop], variables: LoopVariables, stmt) -> LinearForm:
    """`expr` as a linear form of `loops`. Raises `ScheduleError` naming `stmt` if it is not linear."""
    if not loops:
        return LinearForm((), closure(expr, variables))
    form = list(sym.detect_linear_equation(expr, [loop.var for loop in loops]))
    coefs = [constant(c) for c in form[:-1]]
    if len(form) != len(loops) + 1 or None in coefs:
        raise ScheduleError(
            f"{shorten(stmt)}: {shorten(expr, 60)} is not an affine function of the instruction's loops; "
            f"{_linear(expr)}"
        )
    return LinearForm(tuple(c for c in coefs if c is not None), closure(form[-1], variables))


def _linear(expr) -> str:
    """What to do about an index that is not linear."""
    divisors: list = []
    structural_walk(expr, [((tirx.FloorMod, tirx.FloorDiv), lambda op: divisors.append(constant(op.b)))])
    if not divisors or divisors[0] is None:
        return "index by sums of loop variables times constants"
    return f"split its loop by {divisors[0]}: sch.split(loop, [None, {divisors[0]}])"


@dataclass(frozen=True)
class Guard:
    """A bound on one loop (or on none): `coef * loop + base(env) < 0`."""

    loop: int | None
    coef: int
    base: Value


def guards(condition, loops: Sequence[Loop], variables: LoopVariables, stmt) -> list[Guard]:
    """Bounds whose conjunction is `condition`.

    Raises `ScheduleError` naming `stmt` for a condition that is not a conjunction of comparisons, or if one
    comparison depends on two loops: such a domain is not a box, so no instruction covers it.
    """
    if isinstance(condition, ir.Call) and condition.op.name.endswith("likely"):
        return guards(condition.args[0], loops, variables, stmt)
    if isinstance(condition, tirx.And):
        return guards(condition.a, loops, variables, stmt) + guards(condition.b, loops, variables, stmt)
    if isinstance(condition, tirx.Not):
        opposite = {tirx.LT: tirx.GE, tirx.LE: tirx.GT, tirx.GT: tirx.LE, tirx.GE: tirx.LT}.get(type(condition.a))
        if opposite is not None:
            return guards(opposite(condition.a.a, condition.a.b), loops, variables, stmt)
    if isinstance(condition, tirx.EQ):
        pair = (tirx.LE(condition.a, condition.b), tirx.GE(condition.a, condition.b))
        return [g for side in pair for g in guards(side, loops, variables, stmt)]
    value = constant(condition)
    if value is not None:
        return [] if value else [Guard(None, 0, lambda env: 0)]
    if not isinstance(condition, (tirx.LT, tirx.LE, tirx.GT, tirx.GE)):
        raise ScheduleError(
            f"{shorten(stmt)}: the condition {shorten(condition, 60)} is not a conjunction of comparisons; write one "
            "stage for each case"
        )
    low, high = (condition.a, condition.b)
    if isinstance(condition, (tirx.GT, tirx.GE)):
        low, high = high, low
    form = linear_form(low - high, loops, variables, stmt)
    used = [k for k, c in enumerate(form.coefs) if c]
    if len(used) > 1:
        raise ScheduleError(f"{shorten(stmt)}: the condition {shorten(condition, 60)} depends on two loops")
    base = _below(form.base) if isinstance(condition, (tirx.LE, tirx.GE)) else form.base
    return [Guard(used[0], form.coefs[used[0]], base) if used else Guard(None, 0, base)]


def _below(value: Value) -> Value:
    return lambda env: value(env) - 1


def clip(box: list[list[int]], bounds: Sequence[Guard], env: Env) -> bool:
    """Narrow `box` [[first, end), ...] to the points at which `bounds` hold; False if it becomes empty."""
    for bound in bounds:
        base = bound.base(env)
        if bound.loop is None:
            if base >= 0:
                return False
        elif bound.coef > 0:
            box[bound.loop][1] = min(box[bound.loop][1], (-base - 1) // bound.coef + 1)
        else:
            box[bound.loop][0] = max(box[bound.loop][0], base // -bound.coef + 1)
    return all(first < end for first, end in box)
