"""runtime/kernels/attention.py against real numbers, and against sums written out."""

import numpy as np
import pytest

from tilewright.hw.errors import InputError, ProgramError
from tilewright.hw.rounding import quantize_multiplier
from tilewright.runtime.hostops import HOST_OPS
from tilewright.runtime.hostshapes import Operand
from tilewright.runtime.kernels import attention

SEED = 7
HALF = {"multiplier": 1 << 30, "exponent": 0}


def at(place):
    return np.array([place], np.int32)


def int8(rng, *shape):
    return rng.integers(-128, 128, shape, np.int8)


@pytest.mark.parametrize("transposed", [False, True])
def test_products_are_sums_of_products(transposed):
    rng = np.random.default_rng(SEED)
    x, y = int8(rng, 2, 3, 4, 5), int8(rng, 3, 5, 6)
    given = y.swapaxes(1, 2).copy() if transposed else y
    found = attention.batch_matmul(
        x, given, zero_points=[3, -4, 5], multiplier=1 << 30, exponent=-6, transposed=transposed
    )
    sums = np.einsum("bhij,hjk->bhik", x.astype(int) - 3, y.astype(int) + 4)
    assert np.abs(found - np.clip(sums / 128 + 5, -128, 127)).max() <= 0.5 and found.dtype == np.int8  # ties: see R


def test_a_norm_is_the_real_one_to_a_step():
    rng = np.random.default_rng(SEED)
    x, gain = int8(rng, 40, 64), rng.integers(-32767, 32768, 64).astype(np.int16)
    scale = 0.02  # of the output, where the gains are Q0.15
    multiplier, exponent = quantize_multiplier(8 / scale / 2.0**30)  # sqrt(64) is 8
    real = x / np.sqrt((x.astype(float) ** 2).mean(1, keepdims=True)) * gain / 2.0**15 / scale
    found = attention.rms_norm(x, gain=gain, multiplier=multiplier, exponent=exponent)
    assert np.abs(found - np.clip(real, -128, 127)).max() < 0.52
    zeros = np.zeros((1, 64), np.int8)
    assert not attention.rms_norm(zeros, gain=gain, multiplier=multiplier, exponent=exponent).any()


def test_a_root_is_rounded_down():
    x = np.array([0, 1, 3, 4, 2**52 - 1, (2**26 - 1) ** 2, (2**26 - 1) ** 2 - 1], np.int64)
    assert attention._square_root(x).tolist() == [0, 1, 1, 2, 2**26 - 1, 2**26 - 1, 2**26 - 2]


def test_a_rotation_turns_pairs():
    angles = np.array([[0.0, 0.0], [np.pi / 2, np.pi]])
    tables = {"cosine": np.round(np.cos(angles) * 2**14), "sine": np.round(np.sin(angles) * 2**14)}
    tables = {key: value.astype(np.int16) for key, value in tables.items()}
    x = np.array([[[10, 20, -128, 5]]], np.int8)
    assert attention.rotate(x, at(0), **tables).tolist() == x.tolist()
    assert attention.rotate(x, at(1), **tables).tolist() == [[[-20, 10, 127, -5]]]
    with pytest.raises(InputError, match="position 2 is not in the tables of angles, which end at 1; reset the state"):
        attention.rotate(x, at(2), **tables)


def test_rows_are_written_at_the_position_alone():
    cache = np.arange(24, dtype=np.int8).reshape(2, 4, 3)
    found = attention.write_rows(cache, np.full((2, 1, 3), 99, np.int8), at(3))
    assert np.array_equal(found[:, :3], cache[:, :3]) and (found[:, 3] == 99).all() and cache.max() == 23
    for place in (-1, 4):
        with pytest.raises(InputError, match=f"position {place} is not in the cache"):
            attention.write_rows(cache, np.full((2, 1, 3), 99, np.int8), at(place))


def test_weights_and_means_are_those_of_attention():
    rng = np.random.default_rng(SEED)
    scores, values, scale = int8(rng, 2, 3, 16), int8(rng, 2, 16, 8), 0.05
    table = np.round(127 * np.exp(-np.arange(256) * scale)).astype(np.int8)
    weights = attention.exponentials(scores, at(9), table=table)
    assert not weights[..., 10:].any() and (weights.max(-1) == 127).all()
    multiplier, exponent = quantize_multiplier(2.0**-24)
    found = attention.weighted_mean(weights, values, multiplier=multiplier, exponent=exponent)
    real = np.exp(scores[..., :10] * scale)
    real = real / real.sum(-1, keepdims=True) @ values[:, :10]
    assert np.abs(found - real).max() < 3  # weights have seven bits
    assert not attention.weighted_mean(np.zeros_like(weights), values, multiplier=multiplier, exponent=exponent).any()


@pytest.mark.parametrize("value", [-128, 100, 127])
@pytest.mark.parametrize("count", [1, 3, 3890, 4096, 1 << 16])
def test_the_mean_of_equal_values_is_the_value_for_any_context(value, count):
    multiplier, exponent = quantize_multiplier(2.0**-24)
    weights, values = np.full((1, 1, count), 127, np.int8), np.full((1, count, 2), value, np.int8)
    found = attention.weighted_mean(weights, values, multiplier=multiplier, exponent=exponent)
    assert (found == value).all()


@pytest.mark.parametrize("width", [1, 2, 4096, 1 << 16])
def test_a_norm_of_equal_elements_is_one_for_any_width(width):
    gain, scale = np.full(width, 32767, np.int16), 0.05
    multiplier, exponent = quantize_multiplier(width**0.5 / scale / 2.0**30)
    for x in (1, -3, 127, -128):
        found = attention.rms_norm(np.full((1, width), x, np.int8), gain=gain, multiplier=multiplier, exponent=exponent)
        assert (found == np.sign(x) * 20).all(), x


POSITION = Operand((1,), "int32")
TABLE = {"table": np.zeros(256, np.int8)}
ANGLES = np.zeros((5, 4), np.int16)
WRONG = [
    ("batch_matmul", [(2, 3), (4, 5)], HALF | {"zero_points": [0] * 3}, "cannot be multiplied: 3 is not 4"),
    (
        "batch_matmul",
        [(2, 3, 4), (2, 3, 5)],
        HALF | {"zero_points": [0] * 3, "images": True},
        "are not images of one row",
    ),
    ("batch_matmul", [(3,), (3, 5)], HALF | {"zero_points": [0] * 3}, "are not matrices"),
    ("batch_matmul", [(2, 2, 3), (3, 3, 5)], HALF | {"zero_points": [0] * 3}, "do not broadcast"),
    ("rms_norm", [(1, 3)], HALF | {"gain": np.zeros(4, np.int16)}, r"gain \(4,\): its input is \(1, 3\)"),
    ("rotate", [(1, 6), POSITION], {"cosine": ANGLES, "sine": ANGLES}, "with other pairs"),
    ("rotate", [(1, 8), POSITION], {"cosine": ANGLES, "sine": ANGLES[:, :3]}, "differ in shape"),
    ("rotate", [(1, 8), (1,)], {"cosine": ANGLES, "sine": ANGLES}, r"the position is int8 \(1,\): must be int32"),
    ("write_rows", [(2, 4, 3), (2, 5, 3), POSITION], {}, r"rows \(2, 5, 3\) do not fit"),
    ("write_rows", [(2, 4, 3), (4, 3), POSITION], {}, "must have 3 dimensions"),
    ("write_rows", [POSITION, (2, 4, 3), POSITION], {}, "an input is .*int32.*: must be int8"),
    ("exponentials", [(1, 4), POSITION], {"table": np.zeros(9, np.int8)}, "must have 256 entries"),
    ("weighted_mean", [(2, 3, 4), (2, 5, 6)], HALF, "do not fit weights"),
]


@pytest.mark.parametrize("name, inputs, attrs, text", WRONG, ids=[f"{row[0]}-{k}" for k, row in enumerate(WRONG)])
def test_steps_that_do_not_fit_are_refused(name, inputs, attrs, text):
    inputs = [x if isinstance(x, Operand) else Operand(x, "int8") for x in inputs]
    with pytest.raises(ProgramError, match=text):
        HOST_OPS[name].result(inputs, attrs)


def test_results_have_the_stated_shapes():
    rng = np.random.default_rng(SEED)
    runs = [
        (
            "batch_matmul",
            [int8(rng, 2, 4, 1, 3), int8(rng, 1, 5, 1, 4)],
            HALF | {"zero_points": [0] * 3, "images": True},
        ),
        ("batch_matmul", [int8(rng, 2, 1, 3), int8(rng, 5, 3)], HALF | {"zero_points": [0] * 3, "transposed": True}),
        ("rms_norm", [int8(rng, 2, 3)], HALF | {"gain": np.ones(3, np.int16)}),
        ("rotate", [int8(rng, 2, 8), at(1)], {"cosine": ANGLES, "sine": ANGLES}),
        ("write_rows", [int8(rng, 2, 4, 3), int8(rng, 2, 1, 3), at(0)], {}),
        ("exponentials", [int8(rng, 2, 8), at(7)], TABLE),
        ("weighted_mean", [int8(rng, 2, 3, 4) & 127, int8(rng, 2, 4, 6)], HALF),
    ]
    for name, arrays, attrs in runs:
        (found,) = HOST_OPS[name](arrays, attrs)
        stated = HOST_OPS[name].result([Operand(x.shape, str(x.dtype)) for x in arrays], attrs)
        assert (found.shape, str(found.dtype)) == (stated.shape, stated.dtype), name
