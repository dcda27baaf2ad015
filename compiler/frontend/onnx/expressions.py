"""Float expressions of one tensor: an affine function per channel, or any function as a table."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from ....runtime.hostops import floats as functions
from .values import Expr, Value, View, constant

AFFINE = ("Add", "Div", "Mul", "Neg", "Sub")


class Affine(NamedTuple):
    """`factor * core + offset`; both are float64 and broadcast to the core's shape."""

    core: Value
    factor: np.ndarray
    offset: np.ndarray


def affine(value: Value) -> Affine:
    """`value` as an affine function of what cannot be taken apart further."""
    factor, offset = np.float64(1) * np.ones(()), np.zeros(())
    while isinstance(value, Expr) and value.node.op in AFFINE:
        op = value.node.op
        known = [constant(arg) for arg in value.args]
        if op == "Neg" and value.args[0] is not None:
            factor, value = -factor, value.args[0]
            continue
        place = next((k for k, c in enumerate(known) if c is not None), None)
        if place is None or len(known) != 2:
            break
        other, c = value.args[1 - place], np.asarray(known[place], np.float64)
        if other is None or known[1 - place] is not None or np.broadcast_shapes(other.shape, c.shape) != other.shape:
            break
        if op == "Mul":
            factor = factor * c
        elif op == "Div" and place == 1 and c.all():
            factor = factor / c
        elif op == "Add" or (op == "Sub" and place == 1):
            offset = offset + factor * (c if op == "Add" else -c)
        elif op == "Sub":
            factor, offset = -factor, offset + factor * c
        else:
            break
        value = other
    return Affine(value, factor, offset)


def clip_bounds(value: Expr) -> tuple[float, float] | None:
    """The bounds of a Relu or Clip; None of other operators, and of bounds that are not constant."""
    if value.node.op == "Relu":
        return 0.0, np.inf
    if value.node.op != "Clip":
        return None
    bounds = [-np.inf, np.inf]
    for k, key in enumerate(("min", "max")):
        arg = value.args[1 + k] if len(value.args) > 1 + k else None
        known = constant(arg)
        if arg is not None and (known is None or known.size != 1):
            return None
        if known is not None:
            bounds[k] = float(known.reshape(-1)[0])
        elif key in value.node.attrs:
            bounds[k] = float(value.node.attrs[key])
    return bounds[0], bounds[1]


def parameters(value: Expr) -> tuple[str, float, float]:
    """(function, alpha, beta) of a unary operator, of Clip the bounds, in float32's range."""
    node = value.node
    if node.op == "Clip":
        most = float(np.finfo(np.float32).max)
        low, high = clip_bounds(value) or (-most, most)
        return "Clip", max(low, -most), min(high, most)
    alpha, beta = functions.DEFAULTS.get(node.op, (0.0, 0.0))
    name = "GeluTanh" if node.op == "Gelu" and node.attrs.get("approximate", b"none") == b"tanh" else node.op
    return name, float(node.attrs.get("alpha", alpha)), float(node.attrs.get("beta", node.attrs.get("gamma", beta)))


def operands_first(value: Value, operands: Callable[[Expr], Sequence[Value | None]]) -> Iterator[Expr]:
    """The expressions that `value` is made of, each once and after its `operands`, `value` itself last.

    The order is that of a depth-first search, without recursion: expressions are as deep as files make them.
    """
    seen: set[int] = set()
    pending: list[tuple[Value | None, bool]] = [(value, False)]
    while pending:
        top, complete = pending.pop()
        if not isinstance(top, Expr):
            continue
        if complete:
            yield top
        elif id(top) not in seen:
            seen.add(id(top))
            pending.append((top, True))
            pending += [(arg, False) for arg in reversed(operands(top))]


def _elementwise(value: Value | None, shape: tuple[int, ...]) -> tuple[Value | None, ...]:
    """The operands of an element-wise function whose result has the shape, without the bounds of Clip; else none."""
    if not isinstance(value, Expr) or value.shape != shape:
        return ()
    if value.node.op == "Clip":
        return value.args[:1] if clip_bounds(value) is not None else ()
    return value.args if value.node.op in functions.UNARY or value.node.op in functions.BINARY else ()


def single_view(value: Expr) -> View | None:
    """The one int8 tensor that an element-wise expression depends on; None if there are others, or constants per
    channel."""
    found: View | None = None
    shape = value.shape
    for part in operands_first(value, lambda part: _elementwise(part, shape)):
        for leaf in _elementwise(part, shape) or (part,):
            known = constant(leaf)
            if leaf is None or _elementwise(leaf, shape) or (known is not None and known.size == 1):
                continue
            if not isinstance(leaf, View) or leaf.tensor.name != (found or leaf).tensor.name:
                return None
            found = found or leaf
    return found if found is not None and found.shape == shape else None


def evaluated(value: Expr, x: np.ndarray) -> np.ndarray:
    """float32: the values of an element-wise expression whose int8 tensor has the real values `x`."""
    known: dict[int, np.ndarray] = {}

    def operand(arg: Value | None) -> np.ndarray:
        scalar = constant(arg)
        return known.get(id(arg), x) if scalar is None else scalar.reshape(-1)[0].astype(np.float32)

    for part in operands_first(value, lambda part: _elementwise(part, value.shape)):
        if part.node.op in functions.UNARY:
            known[id(part)] = functions.unary(operand(part.args[0]), *parameters(part))
        else:
            first, second = (np.asarray(operand(arg)) for arg in part.args[:2])
            known[id(part)] = functions.binary(first, second, part.node.op)
    return known[id(value)]
