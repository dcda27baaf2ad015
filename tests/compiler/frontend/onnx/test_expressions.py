"""Float expressions: what they are made of."""

import numpy as np
import pytest

from tilewright.compiler.frontend.core import Node
from tilewright.compiler.frontend.values import (
    Expr,
    Fixed,
    View,
    affine,
    clip_bounds,
    evaluated,
    parameters,
    single_view,
)
from tilewright.compiler.graph import Tensor

X = View((1, 3, 2, 2), Tensor("x", (1, 3, 2, 2)))
OTHER = View((1, 3, 2, 2), Tensor("other", (1, 3, 2, 2)))


def expr(op, *args, shape=(1, 3, 2, 2), **attrs):
    return Expr(shape, Node(op, op, [], [], attrs), args)


def fixed(*values):
    array = np.array(values[0] if len(values) == 1 else values, np.float32)
    return Fixed(array.shape, array.reshape(-1, 1, 1) if array.ndim else array)


def test_affine_functions():
    y = expr("Div", expr("Sub", fixed(1.0), expr("Add", expr("Mul", X, fixed(1, 2, 3)), fixed(0.5))), fixed(2.0))
    core, factor, offset = affine(expr("Neg", y))
    assert core is X
    assert factor.reshape(-1).tolist() == [0.5, 1, 1.5] and np.unique(offset).tolist() == [-0.25]


@pytest.mark.parametrize("y", [expr("Mul", X, OTHER), expr("Div", fixed(1.0), X), expr("Div", X, fixed(0.0))])
def test_what_is_not_affine(y):
    assert affine(y).core is y


def test_bounds():
    assert clip_bounds(expr("Relu", X)) == (0, np.inf)
    assert clip_bounds(expr("Clip", X, None, fixed(6.0))) == (-np.inf, 6)
    assert clip_bounds(expr("Clip", X, min=-1.0)) == (-1, np.inf)
    assert clip_bounds(expr("Clip", X, X)) is None and clip_bounds(expr("Exp", X)) is None


def test_parameters_and_their_defaults():
    assert parameters(expr("Elu", X)) == ("Elu", 1.0, 0.0)
    assert parameters(expr("Gelu", X, approximate=b"tanh"))[0] == "GeluTanh"
    assert parameters(expr("Clip", X))[1] < -3e38 < 3e38 < parameters(expr("Clip", X))[2]


def test_a_function_of_one_tensor():
    y = expr("Mul", X, expr("Clip", expr("Add", X, fixed(3.0)), fixed(0.0), fixed(6.0)))
    assert single_view(y) is X
    assert single_view(expr("Mul", X, OTHER)) is None and single_view(expr("Add", X, fixed(1, 2, 3))) is None
    assert evaluated(y, np.array([-4, 1, 9], np.float32)).tolist() == [0, 4, 54]
