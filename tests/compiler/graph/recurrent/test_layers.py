"""Recurrent operators: what fits together, and what they take from the scales."""

from dataclasses import replace

import numpy as np
import pytest

from tilewright.compiler import graph as g
from tilewright.compiler.graph.ranges import problem
from tilewright.compiler.graph.recurrent import product_scale
from tilewright.hw.errors import InputError

GATES, HIDDEN = g.Tensor("g", (1, 3, 8), "int16", 2.0**-12), g.Tensor("h", (1, 2), scale=0.01, zero_point=5)
CELLS, WIDE = g.Tensor("c", (1, 2), "int16", 2.0**-11), g.Tensor("w", (1, 4, 2), "int16", 0.01, 5)
LSTM = g.Lstm(
    "lstm", (GATES, HIDDEN, CELLS), WIDE, np.ones((8, 2), np.int8), np.zeros(8, np.int32), np.full(8, 0.5), 0.25
)


def test_an_lstm_counts_its_work():
    assert (LSTM.macs, LSTM.functions, LSTM.cell_bits) == (48, 30, 4)
    (gates, exponents), hidden = LSTM.multipliers
    assert set(gates.tolist()) == {1 << 30} and set(exponents.tolist()) == {0} and hidden == (1 << 30, -1)


@pytest.mark.parametrize(
    "changes, text",
    [
        ({"inputs": (GATES, HIDDEN)}, "the number of inputs is 2, expected 3"),
        ({"inputs": (HIDDEN, HIDDEN, CELLS)}, "the conversion is"),
        ({"inputs": (GATES, HIDDEN, replace(CELLS, scale=0.3))}, "the cells' scale is 0.6, expected 0.5"),
        (
            {"inputs": (GATES, HIDDEN, replace(CELLS, scale=0.5))},
            "the number of integer bits of the cells, from 0 to 6",
        ),
        ({"output": replace(WIDE, shape=(1, 3, 2))}, "the output's shape is"),
        ({"factor": float("nan")}, "scales sums by nan; it must be at least 0"),
        ({"coupled": True}, "the gates' shape is"),
    ],
)
def test_impossible_lstms(changes, text):
    with pytest.raises(InputError, match=text):
        replace(LSTM, **changes)


@pytest.mark.parametrize(
    "changes, text",
    [
        ({"inputs": (GATES, HIDDEN)}, "the number of inputs is 2, expected 3"),
        ({"output": HIDDEN}, "the conversion is"),
        ({"inputs": (GATES, g.Tensor("o", (1, 8), "int32"), CELLS)}, "the shapes of gates and sums is"),
        ({"output": WIDE}, "the output's shape is"),
        ({"factor": 2.0**30}, "whether R is by less than 2"),
    ],
)
def test_impossible_steps(changes, text):
    gates, own = replace(GATES, shape=(1, 1, 8)), g.Tensor("o", (1, 8), "int32")
    step = g.LstmStep("step", (gates, own, CELLS), replace(WIDE, shape=(1, 2, 2)), 0.25)
    assert (step.macs, step.functions, step.cell_bits, step.multipliers) == (0, 10, 4, (1 << 30, -1))
    with pytest.raises(InputError, match=text):
        replace(step, **changes)


def test_parts_of_its_result():
    y = g.Tensor("y", (1, 3, 2), scale=0.01, zero_point=5)
    g.LstmOutputs("o", (WIDE,), y)
    with pytest.raises(InputError, match="the output's shape, scale and zero point"):
        g.LstmOutputs("o", (WIDE,), replace(y, zero_point=4))
    with pytest.raises(InputError, match=r"the output's shape is \(1, 2\), expected \(1, 1, 2\)"):
        g.LstmCells("o", (WIDE,), CELLS)


def test_dense_and_filter():
    x, y = g.Tensor("x", (2, 3), scale=0.5), g.Tensor("y", (2, 4), "int16")
    op = g.Dense16("d", (x,), y, np.ones((4, 3), np.int8), np.zeros(4, np.int32), np.full(4, 0.5))
    assert op.macs == 24 and not problem(op)
    with pytest.raises(InputError, match="whether the output is int16 or int32 is False"):
        replace(op, output=replace(y, dtype="float32"))
    huge = replace(op, bias=np.full(4, (1 << 31) - 1, np.int32))
    assert "outside -2147483648..2147483647, where they wrap" in problem(huge)
    with pytest.raises(InputError, match="the output's zero point is 3, expected 0"):
        replace(op, output=replace(y, zero_point=3))
    window, out = g.Tensor("w", (2, 4, 3), "int16"), g.Tensor("z", (2, 2))
    op = g.Filter16("f", (window,), out, np.ones((4, 3), np.int16), np.zeros(2, np.int32), 0.5)
    assert op.macs == 24 and op.multipliers == (1 << 30, 0)
    with pytest.raises(InputError, match="the filters modulo the units is 1"):
        replace(op, bias=np.zeros(3, np.int32))
    with pytest.raises(InputError, match="whether R is by less than 2"):
        replace(op, factor=2.0**31)


def test_wide_ends():
    x = g.Tensor("x", (2,), "int16", 0.5)
    assert g.Rescale("r", (x,), g.Tensor("y", (2,), scale=0.25)).multipliers == (1 << 30, 2)
    with pytest.raises(InputError, match="whether R leaves 32 bits"):
        g.Rescale("r", (x,), g.Tensor("y", (2,), "int32", scale=0.5 / (1 << 17)))
    with pytest.raises(InputError, match="whether the types are int8, int16 or int32"):
        g.Rescale("r", (x,), g.Tensor("y", (2,), "float32"))
    z = g.Tensor("z", (2,), "int16", 1 / 65535, -(1 << 15))
    assert g.Softmax16("s", (g.Tensor("x", (2,)),), z, 0).output is z
    with pytest.raises(InputError, match="the output's scale in units of"):
        g.Softmax16("s", (g.Tensor("x", (2,)),), replace(z, scale=1 / 256), 0)


def test_products_of_scales_are_float32():
    assert product_scale(0.1, 0.3, over=0.7) == float(np.float32(np.float32(0.1) * np.float32(0.3)) / np.float32(0.7))
    assert product_scale(1e38, 1e38) == float("inf")
