"""Means over rows, columns or both, and over channels, as one launch against the reference."""

from dataclasses import replace

import numpy as np
import pytest

from tilewright.compiler.conv_shape import output_size
from tilewright.compiler.graph import AveragePool, ExactAveragePool, Mean, Sum, Tensor
from tilewright.compiler.kernels.language import cycles, why_not
from tilewright.compiler.kernels.pool import mean_of_channels, mean_of_pixels
from tilewright.hw.config import PRESETS
from tilewright.sim.timing import predict

CFG = PRESETS["pynq_z1"]


def mean(shape, axes=(2, 3), keep=False, scale=0.04):
    kept = tuple(1 if k in axes else n for k, n in enumerate(shape))
    reduced = kept if keep else tuple(n for k, n in enumerate(shape) if k not in axes)
    x = Tensor("x", shape, scale=0.1, zero_point=-7)
    return Mean("op", (x,), Tensor("y", reduced, scale=scale, zero_point=11), axes)


@pytest.mark.parametrize("name", ["pynq_z1", "tiny"])
@pytest.mark.parametrize("axes", [(2, 3), (2,), (3,)])
def test_axes(exact, name, axes):
    exact(mean((2, 20, 9, 8), axes, keep=True), cfg=PRESETS[name])
    exact(mean((1, 5, 1, 13), axes, keep=True), cfg=PRESETS[name])


@pytest.mark.parametrize("shape", [(1, 1280, 7, 7), (1, 1040, 4, 4), (2, 1283, 3, 3), (1, 4000, 1, 1)])
def test_more_channels_than_parameters_fit(exact, shape):
    op = mean(shape)
    launch = exact(op)
    found = predict(launch).cycles
    assert found < 2.4 * shape[0] * -(-shape[1] // 16) * shape[2] * shape[3] + 1500
    assert cycles(mean_of_pixels, op, CFG) == pytest.approx(found, rel=0.01, abs=10)


@pytest.mark.parametrize("axes", [(2, 3), (2,), (3,)])
def test_images_larger_than_the_scratchpads(exact, axes):
    exact(mean((1, 20, 100, 70), axes, keep=True))
    exact(mean((1, 3, 1500, 2), axes, keep=True))
    exact(mean((1, 5, 40, 11), axes, keep=True), cfg=PRESETS["tiny"])


def test_sums(exact):
    op = mean((2, 20, 9, 8), scale=1.5)
    exact(Sum("op", op.inputs, op.output, op.axes))


def pool(kind, kernel, pads=(0, 0, 0, 0), size=(9, 8)):
    x = Tensor("x", (2, 20, *size), scale=0.1, zero_point=-7)
    shape = 2, 20, *output_size(size, kernel, (1, 1), pads)
    return kind("op", (x,), Tensor("y", shape, scale=0.1, zero_point=-7), kernel, pads=pads)


@pytest.mark.parametrize("kind", [AveragePool, ExactAveragePool])
@pytest.mark.parametrize("name", ["pynq_z1", "tiny"])
def test_a_window_as_large_as_the_image(exact, kind, name):
    """Where it is smaller, or padded, the ALU adds up."""
    launch = exact(pool(kind, (9, 8)), cfg=PRESETS[name])
    assert predict(launch, skip=["alu"]).cycles == predict(launch).cycles
    alone = exact(pool(kind, (9, 7)), cfg=PRESETS[name])
    assert predict(alone, skip=["alu"]).cycles < predict(alone).cycles
    assert why_not(mean_of_pixels, pool(kind, (9, 7)), CFG)
    assert why_not(mean_of_pixels, pool(ExactAveragePool, (9, 8), (1, 0, 0, 0)), CFG)


def test_twice_the_accumulators_are_never_slower(exact):
    """With more of these than inputs both operands of the ALU would lie in one bank."""
    few = CFG.replace(inp_bytes=CFG.inp_bytes // 4, acc_bytes=CFG.acc_bytes // 4)
    found = [
        predict(exact(pool(AveragePool, (25, 5), size=(25, 5)), cfg=cfg)).cycles
        for cfg in (few, few.replace(acc_bytes=2 * few.acc_bytes))
    ]
    assert found[1] <= 1.01 * found[0]


def test_refusals():
    assert why_not(mean_of_pixels, mean((1, 16, 4, 4)), CFG) == ""
    for op in (mean((1, 16, 4, 4), (1,)), mean((1, 16, 4, 4), (1, 2, 3), keep=True), mean((1, 16, 4), (2,))):
        assert why_not(mean_of_pixels, op, CFG).startswith(f"mean over axes {op.axes} of {len(op.x.shape)} dimensions")
    assert "do not fit" in why_not(mean_of_pixels, mean((1, 16, 4, 2000), (2,), keep=True), CFG)


@pytest.mark.parametrize("zero_point", [0, -128, 77])
@pytest.mark.parametrize("shape", [(1, 16, 1, 16), (2, 20, 1, 20), (1, 3, 40, 9), (1, 128, 1, 128), (3, 600, 1, 7)])
def test_means_of_channels(exact, shape, zero_point):
    op = mean(shape, (1,), keep=True, scale=0.02)
    exact(replace(op, inputs=(replace(op.x, zero_point=zero_point),)))


def test_what_means_of_channels_are():
    assert not why_not(mean_of_channels, mean((1, 16, 4, 4), (1,), keep=True), CFG)
    assert "overwrite" in why_not(mean_of_channels, mean((1, 16, 4, 4), (1,), keep=True), PRESETS["vta"])
    for op in (mean((1, 16, 4, 4), keep=True), mean((1, 16, 4), (1,), keep=True)):
        assert "only over channels" in why_not(mean_of_channels, op, CFG)


def test_a_mean_of_a_constant_is_refused_by_its_shape():
    op = mean((1, 32, 4, 4))
    constant = replace(op.x, data=np.zeros(op.x.shape, np.int8))
    assert "a constant of shape (1, 32, 4, 4)" in why_not(mean_of_pixels, replace(op, inputs=(constant,)), CFG)
