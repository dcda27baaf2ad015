"""Softmax along channels as one launch, bit by bit that of the kernel."""

from dataclasses import replace

import pytest

from tilewright.compiler.graph import Softmax, Tensor
from tilewright.compiler.kernels.softmax import take_turns
from tilewright.compiler.kernels.table import cycles, refusal
from tilewright.hw.config import PRESETS

PLUS = PRESETS["pynq_z1_plus"]
SMALL = replace(
    PRESETS["tiny"], name="small", extensions=PRESETS["tiny"].extensions | {"lookup"}, acc_bytes=8192, inp_bytes=2048
)


def softmax(shape, scale=0.1, beta=1.0, axis=1):
    x, y = Tensor("x", shape, scale=scale), Tensor("y", shape, scale=1 / 256, zero_point=-128)
    return Softmax("op", (x,), y, axis, beta)


@pytest.mark.parametrize("scale", [1e-6, 0.02, 0.1, 1.5])
@pytest.mark.parametrize("shape", [(1, 16, 1, 16), (2, 20, 1, 20), (1, 3, 4, 9), (4, 128, 1, 128), (1, 300, 1, 33)])
def test_every_row_is_that_of_the_kernel(exact, shape, scale):
    exact(softmax(shape, scale), cfg=PLUS)


@pytest.mark.parametrize("shape", [(1, 992, 1, 17), (3, 384, 1, 64), (1, 7, 20, 43)])
def test_rows_of_any_length_and_number(exact, shape):
    exact(softmax(shape, 0.03), cfg=PLUS)


def test_blocks_of_another_size(exact):
    exact(softmax((2, 10, 1, 9), 0.2), cfg=SMALL)


@pytest.mark.parametrize("shape", [(1, 16, 1, 16), (1, 40, 3, 5)])
def test_constants_do_not_take_the_place_of_one_another(exact, shape):
    exact(softmax(shape), cfg=replace(PLUS, name="few", inp_bytes=256 * 16, acc_bytes=256 * 64))


def test_what_is_refused():
    assert refusal(softmax((1, 16, 1, 16)), PLUS) == ""
    assert refusal(softmax((1, 16, 1, 16)), PRESETS["pynq_z1"]) == "it needs the extension lookup"
    assert "has 2" in refusal(softmax((1, 16, 1, 16)), replace(PLUS, tables=2))
    assert "blocks of one size" in refusal(softmax((2, 16, 1, 16)), replace(PLUS, batch=2, dsp_packing=False))
    assert refusal(softmax((1, 16, 4, 16), axis=3), PLUS) == (
        "along axis 3 of 4 dimensions: only along the channels of images"
    )
    assert refusal(softmax((1, 993, 1, 16)), PLUS) == "rows of 993 elements do not fit"
    assert refusal(softmax((1, 1024, 1, 16)), PLUS) == "rows of 1024 elements: sums have more than 29 bits"


def test_more_rows_take_longer():
    times = [cycles(softmax((n, 128, 1, 128)), PLUS) for n in (1, 2, 4, 8)]
    assert times == sorted(times) and times[3] < 2 * times[2]


def test_parts_take_turns():
    said = []

    def part(name, turns):
        for k in range(turns):
            said.append(f"{name}{k}")
            yield

    take_turns([part("a", 1), part("b", 3)])
    assert said == ["a0", "b0", "b1", "b2"]
