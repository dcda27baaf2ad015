"""Float expressions of one tensor: an affine function per channel, or any function as a table."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from ....runtime.floats import functions
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


def _leaves(value: Value | None, shape: tuple[int, ...]) -> Iterator[Value]:
    """What an expression of element-wise functions is made of, scalar constants left out."""
    if isinstance(value, Expr) and value.shape == shape:
        if value.node.op == "Clip" and clip_bounds(value) is not None:
            yield from _leaves(value.args[0], shape)
            return
        if value.node.op != "Clip" and (value.node.op in functions.UNARY or value.node.op in functions.BINARY):
            for arg in value.args:
                yield from _leaves(arg, shape)
            return
    known = constant(value)
    if value is not None and (known is None or known.size != 1):
        yield value


def single_view(value: Expr) -> View | None:
    """The one int8 tensor that an element-wise expression depends on; None if there are others, or constants per
    channel."""
    leaves = list(_leaves(value, value.shape))
    first = leaves[0] if leaves else None
    if not isinstance(first, View) or first.shape != value.shape:
        return None
    same = all(isinstance(leaf, View) and leaf.tensor.name == first.tensor.name for leaf in leaves)
    return first if same else None


def evaluated(value: Value | None, x: np.ndarray) -> np.ndarray:
    """float32: the values of an element-wise expression whose int8 tensor has the real values `x`."""
    if isinstance(value, View):
        return x
    known = constant(value)
    if known is not None:
        return known.reshape(-1)[0].astype(np.float32)
    assert isinstance(value, Expr)
    if value.node.op in functions.UNARY:
        return functions.unary(evaluated(value.args[0], x), *parameters(value))
    first, second = (evaluated(arg, x) for arg in value.args[:2])
    return functions.binary(np.asarray(first), np.asarray(second), value.node.op)
