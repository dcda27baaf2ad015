"""Whole networks where stores write more channels than an entry of inputs has: layers read the entries side by side."""

import numpy as np
import pytest

from tilewright.compiler import graph as g
from tilewright.compiler.conv_shape import output_size
from tilewright.compiler.kernels import table
from tilewright.hw.config import PRESETS

# blocks of 4 x 8 and 2 x 8
HALVES = PRESETS["tiny"].replace(
    name="halves",
    block_out=8,
    inp_bytes=1 << 11,
    wgt_bytes=1 << 13,
    acc_bytes=1 << 13,
    extensions=PRESETS["tiny"].extensions - {"depthwise"},
)
QUARTERS = HALVES.replace(name="quarters", block_in=2)


def layer(x, channels, name="y", kernel=(3, 3), strides=(1, 1), pads=(1, 1, 1, 1), dilations=(1, 1), groups=1, zero=3):
    rng = np.random.default_rng(channels)
    weight = rng.integers(-128, 128, (channels, x.shape[1] // groups, *kernel)).astype(np.int8)
    span = tuple((k - 1) * d + 1 for k, d in zip(kernel, dilations))
    y = g.Tensor(name, (x.shape[0], channels, *output_size(x.shape[2:], span, strides, pads)), scale=1.0, zero_point=-2)
    bias = rng.integers(-500, 500, channels).astype(np.int32)
    scales = rng.uniform(0.001, 0.004, channels).astype(np.float32)
    facts = {"strides": strides, "pads": pads, "dilations": dilations, "groups": groups}
    return g.QConv2d(f"{name}_op", (x,), y, weight, scales, bias, **facts)


def image(channels, h=9, w=7, name="x"):
    return g.Tensor(name, (1, channels, h, w), scale=1.0, zero_point=3)


@pytest.mark.parametrize("cfg", [HALVES, QUARTERS], ids=lambda cfg: cfg.name)
@pytest.mark.parametrize("channels", [4, 8, 12, 20])
def test_convolutions(exact, cfg, channels):
    exact(layer(image(channels), 12), cfg=cfg)


@pytest.mark.parametrize(
    "facts",
    [
        {"strides": (2, 2)},
        {"dilations": (2, 2), "pads": (2, 2, 2, 2)},
        {"kernel": (1, 1), "pads": (0, 0, 0, 0), "strides": (2, 2)},
        {"kernel": (1, 5), "pads": (0, 4, 0, 1)},
        {"kernel": (9, 7), "pads": (0, 0, 0, 0)},
        {"groups": 2},
    ],
    ids=str,
)
def test_windows(exact, facts):
    exact(layer(image(20), 12, **facts), cfg=HALVES)


def test_a_network_is_one_launch(exact):
    x = image(12, 8, 8)
    first = layer(x, 16, "first")
    second = layer(first.output, 16, "second")
    total = g.Add("add", (first.output, second.output), g.Tensor("total", first.output.shape, scale=1.7, zero_point=1))
    pooled = g.MaxPool(
        "pool", (total.output,), g.Tensor("pooled", (1, 16, 4, 4), scale=1.7, zero_point=1), (2, 2), (2, 2)
    )
    last = layer(pooled.output, 10, "last", (4, 4), pads=(0, 0, 0, 0))
    exact(first, second, total, pooled, last, cfg=HALVES)


@pytest.mark.parametrize("features", [4, 6, 13, 40])
def test_dense_layers(exact, features):
    rng, x = np.random.default_rng(features), g.Tensor("x", (3, features), scale=1.0, zero_point=-5)
    y = g.Tensor("y", (3, 11), scale=1.0, zero_point=0)
    weight = rng.integers(-128, 128, (11, features)).astype(np.int8)
    facts = rng.uniform(0.001, 0.004, 11).astype(np.float32), rng.integers(-500, 500, 11).astype(np.int32)
    exact(g.QDense("dense", (x,), y, weight, *facts), cfg=HALVES)


@pytest.mark.parametrize("channels", [1, 3])
def test_images_of_few_channels_are_folded(exact, channels):
    exact(layer(image(channels, 16, 16), 12), cfg=HALVES)


@pytest.mark.parametrize("axes", [(2, 3), (2,), (3,)])
def test_a_mean_of_pixels_is_summed_by_the_alu(exact, axes):
    x = image(20)
    y = g.Tensor("y", tuple(1 if k in axes else n for k, n in enumerate(x.shape)), scale=0.7, zero_point=2)
    exact(g.Mean("mean", (x,), y, axes=axes), cfg=HALVES)


def test_products_of_kernels_need_blocks_of_one_size():
    x, y = image(20), g.Tensor("y", (1, 1, 9, 7), scale=0.7, zero_point=2)
    assert "it needs blocks of one size" in table.refusal(g.Mean("mean", (x,), y, axes=(1,)), HALVES)
