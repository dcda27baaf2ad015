"""Rows of a table, chosen by an input, as one launch against the reference."""

from dataclasses import replace

import numpy as np
import pytest

from tilewright.compiler.graph import Gather, Tensor
from tilewright.compiler.kernels.language import cycles, why_not
from tilewright.compiler.kernels.movement import gather as kernel
from tilewright.hw.config import PRESETS
from tilewright.sim.timing import predict

PLUS = PRESETS["pynq_z1_plus"]


def gather(words, width, tokens=1):
    data = np.random.default_rng(1).integers(-128, 128, (words, width)).astype(np.int8)
    inputs = Tensor("words", data.shape, scale=0.1, data=data), Tensor("token", (tokens,), "int32")
    return Gather("row", inputs, Tensor("y", (tokens, width), scale=0.1), 0)


@pytest.mark.parametrize(("words", "width"), [(512, 64), (7, 40), (1, 16)])
def test_rows(steps, words, width):
    launch = steps(gather(words, width), symbols=[{"token": k} for k in {0, words // 2, words - 1}])
    assert predict(launch).cycles == pytest.approx(cycles(kernel, gather(words, width), PLUS), rel=0.01)


def test_a_row_for_each_of_several_tokens(steps):
    op = gather(31, 40, 16)
    launch = steps(op, data={"token": np.arange(31, 15, -1, dtype=np.int32) - 1})
    assert [*launch.patches.limits] == [f"token[{k}]" for k in range(16)]
    assert cycles(kernel, gather(31, 40), PLUS) < cycles(kernel, op, PLUS) == predict(launch).cycles


@pytest.mark.parametrize("on", ["spec", "rtl"])
def test_devices(steps, on):
    steps(gather(9, 10), symbols=[{"token": 8}], on=on)


def refusal(op, cfg=PLUS):
    return why_not(kernel, op, cfg)


def test_refusals():
    op = gather(8, 16)
    _, token = op.inputs
    assert refusal(op) == "" and "extensions" in refusal(op, PRESETS["pynq_z1"])
    computed = replace(op, inputs=(Tensor("w", (8, 16), scale=0.1), token))
    assert refusal(computed) == "it is not a row of a constant int8 matrix"
    assert refusal(gather(8, 16, 16)) == ""
    assert refusal(gather(8, 16, 17)) == "it takes int32 (17,) of rows: must be an int32 input of at most 16"
    assert refusal(gather(8, 2080, 16)) == ("2080 entries of ACC: they do not fit those that are free in 0 to 2048")
    assert refusal(gather(1 << 21, 1)) == f"a table of {1 << 21} rows: at most {1 << 20}"
