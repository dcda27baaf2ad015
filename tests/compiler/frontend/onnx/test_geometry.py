"""Explicit padding from every way to write it."""

from typing import Any

import pytest

from tilewright.compiler.frontend.core import Node, Problem
from tilewright.compiler.frontend.onnx import geometry


class Output:
    """Stands for the importer: one output."""

    def __init__(self, *shape):
        self.found = shape

    def shape(self, node, tensor):
        return self.found


def having(*shape) -> Any:
    return Output(*shape)


def node(**attrs):
    return Node("Conv", "it", ["x"], ["y"], attrs)


@pytest.mark.parametrize(
    "auto, pads", [("SAME_UPPER", (0, 1, 1, 1)), ("SAME_LOWER", (1, 1, 0, 1)), ("VALID", (0,) * 4)]
)
def test_automatic_padding(auto, pads):
    found = geometry.convolution(having(), node(auto_pad=auto.encode(), strides=[2, 1]), (1, 2, 8, 5), (3, 2, 3, 3))
    assert found == ((2, 1), pads, (1, 1), 1)


def test_rows():
    found = geometry.convolution(having(), node(pads=[1, 2], strides=[3], dilations=[2]), (1, 2, 8), (3, 2, 3))
    assert found == ((1, 3), (0, 1, 0, 2), (1, 2), 1)


def test_windows_that_reach_over_the_end():
    attrs = {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1}
    assert geometry.window(having(1, 1, 4, 3), node(**attrs), (1, 1, 8, 7)) == ((3, 3), (2, 2), (0, 0, 1, 0))


def test_transposed_convolutions():
    found = geometry.transposed(
        having(1, 1, 8, 8), node(strides=[2, 2], output_shape=[8, 8]), (1, 1, 4, 4), (1, 1, 3, 3)
    )
    assert found.pads == (1, 1, 0, 0)
    with pytest.raises(Problem, match="an output_shape larger than"):
        geometry.transposed(having(1, 1, 99, 8), node(strides=[2, 2], output_shape=[99, 8]), (1, 1, 4, 4), (1, 1, 3, 3))


@pytest.mark.parametrize("rank", [2, 5])
def test_other_ranks_are_refused(rank):
    with pytest.raises(Problem, match=f"has {rank - 2} spatial dimensions; only 1 and 2 are supported"):
        geometry.window(having(), node(kernel_shape=[1]), (1,) * rank)
