"""Maxima and means over windows on the accelerator."""

from dataclasses import replace

import pytest

from tilewright.compiler.accelerator.rewrites import successive
from tilewright.compiler.conv_shape import output_size
from tilewright.compiler.graph import AveragePool, ExactAveragePool, Graph, MaxPool, Mean, Tensor
from tilewright.hw.config import PRESETS

CONFIGS = [PRESETS["pynq_z1"], PRESETS["tiny"]]


def images(kernel, strides, pads, y_scale=0.1, size=(9, 8)):
    x = Tensor("x", (2, 20, *size), scale=0.1, zero_point=-7)
    return x, Tensor("y", (2, 20, *output_size(size, kernel, strides, pads)), scale=y_scale, zero_point=-7)


@pytest.mark.parametrize("cfg", CONFIGS, ids=lambda cfg: cfg.name)
@pytest.mark.parametrize(
    ("kernel", "strides", "pads"), [((2, 2), (2, 2), (0, 0, 0, 0)), ((3, 2), (1, 2), (1, 1, 0, 1))]
)
def test_maxima(exact, cfg, kernel, strides, pads):
    x, y = images(kernel, strides, pads)
    exact(MaxPool("op", (x,), y, kernel, strides, pads), cfg=cfg)
    exact(MaxPool("op", (x,), y, kernel, strides, pads, -100, 50), cfg=cfg)


@pytest.mark.parametrize("cfg", CONFIGS, ids=lambda cfg: cfg.name)
@pytest.mark.parametrize("kernel", [(2, 2), (3, 3), (9, 8)])
def test_means(exact, cfg, kernel):
    x, y = images(kernel, (2, 2), (0, 0, 0, 0))
    exact(ExactAveragePool("op", (x,), y, kernel, (2, 2)), cfg=cfg)
    x, y = images(kernel, (1, 1), (0, 0, 0, 0), 0.037)
    exact(AveragePool("op", (x,), y, kernel, (1, 1)), cfg=cfg, contract="single")


@pytest.mark.parametrize("shape", [(2, 20), (2, 20, 1, 1)])
def test_means_of_images(exact, shape):
    x, _ = images((1, 1), (1, 1), (0, 0, 0, 0))
    exact(Mean("op", (x,), Tensor("y", shape, scale=0.04, zero_point=11), (2, 3)))


def test_means_over_columns_and_then_rows(exact):
    x, _ = images((1, 1), (1, 1), (0, 0, 0, 0))
    between, y = Tensor("t", (2, 20, 9), scale=0.07, zero_point=5), Tensor("y", (2, 20), scale=0.04, zero_point=11)
    ops = Mean("a", (x,), between, (3,)), Mean("b", (between,), y, (2,))
    exact(*ops)
    graph = Graph("g", (x,), (y, between), ops)
    assert successive(graph) is graph  # an output keeps its shape
    assert [op.x.shape for op in successive(replace(graph, outputs=(y,))).ops] == [x.shape, (2, 20, 9, 1)]
    kept = Mean("b", (between,), replace(y, shape=(2, 20, 1)), (2,))  # the rows stay as a dimension: not that of images
    graph = Graph("g", (x,), (kept.output,), (ops[0], kept))
    assert successive(graph) is graph
