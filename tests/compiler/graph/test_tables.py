"""Tables of int8 functions against the functions in double precision."""

import math

import numpy as np
import pytest

from tilewright.compiler.graph.operators import Tensor
from tilewright.compiler.graph.tables import (
    absolute,
    hard_swish,
    inverse_square_root,
    leaky_relu,
    negative,
    round_away,
    table,
)
from tilewright.hw.errors import InputError

REAL = {"logistic": lambda x: 1 / (1 + math.exp(-x)), "tanh": math.tanh}
OTHERS = {
    "gelu": lambda x: x * (1 + math.erf(x / math.sqrt(2))) / 2,
    "gelu_tanh": lambda x: x * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))) / 2,
    "elu": lambda x: x if x > 0 else math.expm1(x),
    "exp": math.exp,
    "log": lambda x: math.log(x) if x > 0 else -1e9,
    "rsqrt": lambda x: 1 / math.sqrt(x) if x > 0 else 1e9 * (x == 0),
}


def test_ties_go_away_from_zero():
    values = np.array([0.5, -0.5, 1.5, -1.5, 2.4, -2.6, 0])
    assert list(round_away(values)) == [1, -1, 2, -2, 2, -3, 0]


def nearest(table, real, y, error=0.5001):
    """Whether every entry is a nearest step to the real value, up to float32's resolution."""
    steps = np.clip(np.array(real) / y.scale + y.zero_point, -128, 127)
    return (np.abs(table - steps) <= error).all()


@pytest.mark.parametrize("function", REAL)
@pytest.mark.parametrize("scale", [0.002, 0.1, 5.0])
def test_functions(function, scale):
    x, y = Tensor("x", (1,), scale=scale, zero_point=11), Tensor("y", (1,), scale=1 / 256, zero_point=-128)
    found = table(function, x, y)
    assert (found.dtype, found.shape) == (np.int8, (256,))
    assert nearest(
        found, [REAL[function](scale * (q - 11)) if scale * (q - 11) > -700 else 0.0 for q in range(-128, 128)], y
    )


@pytest.mark.parametrize("function", OTHERS)
def test_functions_without_a_fixed_output(function):
    x, y = Tensor("x", (1,), scale=0.03, zero_point=-20), Tensor("y", (1,), scale=0.021, zero_point=-60)
    found = table(function, x, y)
    real = [OTHERS[function](0.03 * (q + 20)) for q in range(-128, 128)]
    assert nearest(found, real, y, 0.501)


def test_an_inverse_root_has_twenty_bits_behind_the_point():
    x, y = Tensor("x", (1,), scale=0.03, zero_point=-20), Tensor("y", (1,), scale=0.021, zero_point=-60)
    real = [OTHERS["rsqrt"](0.03 * (q + 20)) for q in range(-128, 128)]
    assert nearest(inverse_square_root(x, y), real, y, 0.501)
    x, y = Tensor("x", (1,), scale=0.0323105230, zero_point=-128), Tensor("y", (1,), scale=0.00349807087)
    steps = 1 / math.sqrt(0.0323105230 * 223) / 0.00349807087
    assert 0 < 106.5 - steps < 0.001  # where the last bits decide
    assert (table("rsqrt", x, y)[223], inverse_square_root(x, y)[223]) == (106, 107)


def test_hard_swish_is_near_the_real_function():
    x, y = Tensor("x", (1,), scale=0.05, zero_point=11), Tensor("y", (1,), scale=0.04, zero_point=-100)
    real = [v * min(max(v + 3, 0), 6) / 6 for v in (0.05 * (q - 11) for q in range(-128, 128))]
    assert nearest(hard_swish(x, y), real, y, 1.0)
    with pytest.raises(InputError, match="hard_swish of input scale 1 to output scale 0.001: too small"):
        hard_swish(Tensor("x", (1,), scale=1.0), Tensor("y", (1,), scale=0.001))


def test_sizes_and_opposites():
    x, y = Tensor("x", (1,), scale=0.05, zero_point=11), Tensor("y", (1,), scale=0.04, zero_point=-100)
    assert nearest(absolute(x, y), [abs(0.05 * (q - 11)) for q in range(-128, 128)], y, 0.76)
    assert absolute(x, x)[[0, 138, 139, 140]].tolist() == [127, 12, 11, 12]
    centred = Tensor("x", (1,))
    assert negative(centred, centred)[[0, 1, 128, 255]].tolist() == [-128, 127, 0, -127]
    with pytest.raises(InputError, match="the kernel negates the bytes"):
        negative(x, x)


def test_leaky_relu():
    x, y = Tensor("x", (1,), scale=0.1, zero_point=5), Tensor("y", (1,), scale=0.07, zero_point=-30)
    real = [0.1 * (q - 5) * (1 if q >= 5 else 0.2) for q in range(-128, 128)]
    found = leaky_relu(0.2, x, y)
    assert found.dtype == np.int8 and nearest(found, real, y, 0.76)  # two roundings


@pytest.mark.parametrize("alpha, scale", [(1e20, 1.0), (float("nan"), 1.0), (float("inf"), 1.0), (0.1, 1e30)])
def test_slopes_beyond_int32(alpha, scale):
    x, y = Tensor("x", (1,), scale=scale), Tensor("y", (1,))
    with pytest.raises(InputError, match="a slope of .* output steps per input step; its size must be below 8388608"):
        leaky_relu(alpha, x, y)


def test_the_steepest_slope_saturates():
    found = leaky_relu(0.0, Tensor("x", (1,), scale=2.0**23 - 1, zero_point=-128), Tensor("y", (1,)))
    assert found[0] == 0 and (found[1:] == 127).all()
