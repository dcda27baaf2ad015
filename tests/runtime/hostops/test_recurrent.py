"""runtime/hostops/recurrent.py against real functions; tests/compiler/frontend/tflite/test_recurrent.py has LiteRT."""

import numpy as np
import pytest

from tilewright.hw.errors import ProgramError
from tilewright.runtime.hostops import HOST_OPS, Operand
from tilewright.runtime.hostops.recurrent import (
    logistic,
    lstm,
    lstm_step,
    tanh,
)

from tilewright.runtime.hostops.layers import dense_int16, filter_int16
from tilewright.runtime.hostops.elementwise import narrow, rescale_integers

ALL = np.arange(-(1 << 15), 1 << 15).astype(np.int16)
HALF = (1 << 30, 0)  # multiplier and exponent


@pytest.mark.parametrize("integer_bits", [0, 2, 3, 5, 6])
def test_functions_are_close_to_the_real_ones_and_odd(integer_bits):
    x = ALL / 2.0 ** (15 - integer_bits)
    for mine, real in ((logistic, 1 / (1 + np.exp(-x))), (tanh, np.tanh(x))):
        found = mine(ALL, integer_bits)
        assert np.abs(found / 2.0**15 - real).max() < 8e-4
        assert found.min() >= -(1 << 15) and found.max() < 1 << 15
    assert tanh(ALL)[1 << 15] == 0 and logistic(ALL)[1 << 15] == 1 << 14
    np.testing.assert_array_equal(tanh(ALL)[1:], -tanh(-ALL[1:]))


def test_a_filter_sums_its_ranks_and_wraps():
    window = np.full((1, 2, 3), 1 << 14, np.int16)

    def filtered(window, weight, exponent):
        bias = np.array([5], np.int32)
        found = filter_int16(window, weight=weight, bias=bias, multiplier=1 << 30, exponent=exponent, zero_point=3)
        return found.tolist()

    assert filtered(window, np.full((2, 3), 1, np.int16), -8) == [[127]]
    weight = np.full((2, 6), 1 << 14, np.int16)
    assert filtered(window, weight[:, :3], -25) == [[3 + 24]]  # 6 * 2**28 + 5 is below 2**31
    assert filtered(np.tile(window, (1, 1, 2)), weight, -25) == [[3 - 16]]  # 12 * 2**28 is not


def test_narrow_and_rescale_clamp():
    assert narrow(np.array([-300, -5, 127, 128], np.int16)).tolist() == [-128, -5, 127, 127]
    facts = {"x_zero_point": 4, "zero_point": -1, "multiplier": 1 << 30, "exponent": 0}
    assert rescale_integers(np.array([4, 14, 5000], np.int16), **facts, dtype="int8").tolist() == [-1, 4, 127]
    assert rescale_integers(np.array([4, 14, 5000], np.int16), **facts, dtype="int32").tolist() == [-1, 4, 2497]


def steps(**changes):
    """Attributes of an LSTM of 2 cells on gates (1, 3, 8)."""
    rows = np.ones(8, np.int32)
    attrs = {"weight": np.ones((8, 2), np.int8), "bias": rows, "gate_multiplier": rows, "gate_exponent": rows}
    attrs |= {"zero_point": 0, "cell_bits": 3, "clip": 0, "multiplier": 1, "exponent": 0}
    return attrs | changes


GATES = [Operand((1, 3, 8), "int16"), Operand((1, 2), "int8"), Operand((1, 2), "int16")]


def test_what_an_lstm_gives():
    assert HOST_OPS["lstm"].result(GATES, steps())[:2] == ((1, 4, 2), "int16")


@pytest.mark.parametrize(
    "inputs, changes, text",
    [
        (GATES[:2], {}, "2 inputs: must be 3"),
        ([GATES[0], GATES[2], GATES[2]], {}, "must be int16, int8, int16"),
        ([Operand((1, 8), "int16"), *GATES[1:]], {}, "gates .1, 8.: must have 3 dimensions"),
        ([Operand((1, 3, 7), "int16"), *GATES[1:]], {}, "7 do not divide into 4 gates"),
        ([GATES[0], Operand((1, 3), "int8"), GATES[2]], {}, "hidden values .1, 3.: gates .1, 3, 8. need .1, 2."),
        ([*GATES[:2], Operand((2, 2), "int16")], {}, "cells .2, 2.: gates"),
        (GATES, {"weight": np.ones((8, 3), np.int8)}, "weight .8, 3.: gates .1, 3, 8. need .8, 2."),
        (GATES, {"bias": np.ones(7, np.int32)}, "bias .7,.: gates"),
        (GATES, {"cell_bits": 7}, "cell_bits = 7: must be an integer from 0 to 6"),
        (GATES, {"coupled": True}, "8 do not divide into 3 gates"),
    ],
)
def test_an_lstm_that_cannot_be(inputs, changes, text):
    with pytest.raises(ProgramError, match=text):
        HOST_OPS["lstm"].result(inputs, steps(**changes))


def test_other_operators_that_cannot_be():
    rows = np.ones(4, np.int32)
    facts = {"weight": np.ones((4, 3), np.int8), "bias": rows, "multiplier": rows, "exponent": rows, "x_zero_point": 0}
    dense = HOST_OPS["dense_int16"]
    assert dense.result([Operand((2, 3), "int8")], facts)[:2] == ((2, 4), "int16")
    with pytest.raises(ProgramError, match="multiplier .3,.: weight .4, 3. needs one per row"):
        dense.result([Operand((2, 3), "int8")], facts | {"multiplier": rows[:3]})
    window = HOST_OPS["filter_int16"]
    facts = {"weight": np.ones((4, 3), np.int16), "bias": rows[:2], "multiplier": 1, "exponent": 0, "zero_point": 0}
    assert window.result([Operand((5, 4, 3), "int16")], facts)[:2] == ((5, 2), "int8")
    with pytest.raises(ProgramError, match="weight .4, 3. needs windows of its shape"):
        window.result([Operand((5, 4, 2), "int16")], facts)
    with pytest.raises(ProgramError, match="bias of 3 units: the 4 filters do not divide"):
        window.result([Operand((5, 4, 3), "int16")], facts | {"bias": rows[:3]})


@pytest.mark.parametrize("coupled", [False, True])
def test_a_step_of_sums_that_are_there_is_one_of_the_layer(coupled):
    rng, kinds = np.random.default_rng(3), 3 if coupled else 4
    gates = rng.integers(-(1 << 15), 1 << 15, (2, 1, kinds * 6)).astype(np.int16)
    hidden, cells = rng.integers(-128, 128, (2, 6)).astype(np.int8), rng.integers(-9000, 9000, (2, 6)).astype(np.int16)
    weight = rng.integers(-128, 128, (kinds * 6, 6)).astype(np.int8)
    rows = {"weight": weight, "bias": rng.integers(-9000, 9000, kinds * 6).astype(np.int32)}
    scale = np.full(kinds * 6, 1 << 30), np.full(kinds * 6, 2)
    after = {"zero_point": 3, "cell_bits": 3, "clip": 8000, "multiplier": 1 << 30, "exponent": -20, "coupled": coupled}
    whole = lstm(gates, hidden, cells, **rows, gate_multiplier=scale[0], gate_exponent=scale[1], **after)
    own = dense_int16(hidden, **rows, multiplier=scale[0], exponent=scale[1], x_zero_point=0, dtype="int32")
    assert own.dtype == np.int32 and np.abs(own).max() > 1 << 15
    found = lstm_step(gates, own, cells, **after)
    assert found.dtype == np.int16 and np.array_equal(found, whole)


STEP = [Operand((1, 1, 8), "int16"), Operand((1, 8), "int32"), Operand((1, 2), "int16")]


@pytest.mark.parametrize(
    "inputs, text",
    [
        ([STEP[1], STEP[1], STEP[2]], "gates and cells are .*: must be int16"),
        ([Operand((1, 2, 8), "int16"), *STEP[1:]], "gates .1, 2, 8.: must have 3 dimensions, of one step"),
        ([Operand((1, 1, 7), "int16"), *STEP[1:]], "7 do not divide into 4 gates"),
        ([STEP[0], Operand((1, 7), "int32"), STEP[2]], "own sums .1, 7.: gates .1, 1, 8. need .1, 8."),
        ([*STEP[:2], Operand((1, 3), "int16")], "cells .1, 3.: gates"),
    ],
)
def test_a_step_that_cannot_be(inputs, text):
    attrs = {"zero_point": 0, "cell_bits": 3, "clip": 0, "multiplier": 1, "exponent": 0}
    assert HOST_OPS["lstm_step"].result(STEP, attrs)[:2] == ((1, 2, 2), "int16")
    with pytest.raises(ProgramError, match=text):
        HOST_OPS["lstm_step"].result(inputs, attrs)
