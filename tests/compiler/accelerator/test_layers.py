"""Convolutions, depthwise ones and dense layers on the accelerator."""

from dataclasses import replace

import numpy as np
import pytest

from tilewright.compiler.conv_shape import output_size
from tilewright.compiler.graph import QConv2d, QDense, Tensor
from tilewright.compiler.kernels.conv import groups_per_part, whole_image
from tilewright.compiler.kernels.language import why_not
from tilewright.hw.config import PRESETS, Config
from tilewright.hw.isa import Isa, Op
from tilewright.sim.timing import predict


def linear(kind, x_shape, y_shape, weight_shape, seed=0, **geometry):
    rng = np.random.default_rng(seed)
    x = Tensor("x", x_shape, scale=0.02, zero_point=int(rng.integers(-128, 128)))
    y = Tensor("y", y_shape, scale=0.5, zero_point=int(rng.integers(-128, 128)))
    weight = rng.integers(-128, 128, weight_shape).astype(np.int8)
    scale = rng.uniform(0.001, 0.02, len(weight)).astype(np.float32)
    bias = rng.integers(-2000, 2000, len(weight)).astype(np.int32)
    return kind("op", (x,), y, weight, scale, bias, -100, 110, **geometry)


def convolution(n, c, size, o, kernel, strides=(1, 1), pads=(0, 0, 0, 0), dilations=(1, 1), groups=1, seed=0):
    spans = tuple((k - 1) * d + 1 for k, d in zip(kernel, dilations))
    shape = (n, o, *output_size(size, spans, strides, pads))
    geometry = {"strides": strides, "pads": pads, "dilations": dilations, "groups": groups}
    return linear(QConv2d, (n, c, *size), shape, (o, c // groups, *kernel), seed, **geometry)


@pytest.mark.parametrize("contract", ["double", "single"])
@pytest.mark.parametrize("name", ["pynq_z1", "tiny"])
def test_dense_layers(exact, name, contract):
    exact(linear(QDense, (3, 70), (3, 21), (21, 70)), cfg=PRESETS[name], contract=contract)
    exact(linear(QDense, (1, 40), (1, 33), (33, 40), float32_scale=True), cfg=PRESETS[name], contract=contract)


@pytest.mark.parametrize("kind", [QDense, QConv2d])
@pytest.mark.parametrize("name", ["pynq_z1", "tiny"])
def test_scales_of_all_channels_are_one_entry_of_parameters(exact, name, kind):
    """Without biases, and of zero point 0; one other scale, and every block of channels has its own."""
    cfg, image = PRESETS[name], (1, 1) if kind is QConv2d else ()
    op = linear(kind, (5, 70, *image), (5, 37, *image), (37, 70, *image))
    op = replace(op, inputs=(replace(op.x, zero_point=0),), bias=np.zeros(37, np.int32))
    for last, entries in ((0.01, 1), (0.011, -(-37 // cfg.block_out))):
        launch = exact(replace(op, weight_scale=np.array([0.01] * 36 + [last], np.float32)), cfg=cfg)
        decoded = [(Isa(cfg).mnemonic(f), f) for f in Isa(cfg).decode(launch.insn)]
        loaded = [f["y_size"] * f["x_size"] for mnemonic, f in decoded if mnemonic == "LOAD.PAR"]
        assert sum(loaded) == entries


@pytest.mark.parametrize("name", ["pynq_z1", "tiny"])
def test_convolutions(exact, name):
    cfg = PRESETS[name]
    exact(convolution(2, 20, (9, 7), 18, (3, 2), (2, 1), (1, 0, 2, 1), (1, 2)), cfg=cfg)
    exact(convolution(1, 33, (6, 6), 40, (1, 1), (2, 2)), cfg=cfg)


def test_depthwise_convolutions_use_their_instruction(exact):
    launch = exact(convolution(2, 20, (9, 7), 20, (3, 3), (2, 2), (0, 1, 1, 0), groups=20))
    names = {Isa(launch.cfg).mnemonic(fields) for fields in Isa(launch.cfg).decode(launch.insn)}
    assert "DWGEMM" in names


def test_depthwise_convolutions_take_several_taps(exact):
    plus = PRESETS["pynq_z1_plus"]
    for width, more in ((3, {2}), (5, {0, 3}), (4, {3})):
        launch = exact(convolution(2, 20, (9, 7), 20, (3, width), (2, 2), (0, 1, 1, 0), groups=20), cfg=plus)
        found = {fields["extra_taps"] for fields in Isa(plus).decode(launch.insn) if fields["op"] == Op.DWGEMM}
        assert found == more
    wide = convolution(1, 2200, (8, 8), 2200, (5, 5), groups=2200)
    assert groups_per_part(wide, plus) == 12 * 16
    wide = convolution(1, 2200, (8, 8), 2200, (4, 4), groups=2200)
    assert groups_per_part(wide, plus) == 128 * 16
    exact(wide, cfg=plus)


@pytest.mark.parametrize(("value", "sign"), [((1 << 30) - 1, 1), (1 << 30, -1)])
def test_dead_channels_with_huge_biases(exact, value, sign):
    op = linear(QDense, (1, 16), (1, 4), (4, 16))
    op.bias[:] = sign * value
    op.weight_scale[:] = 2.0**-40
    exact(op)


@pytest.mark.parametrize(
    ("channels", "o", "groups", "together"),
    [
        (64, 128, 4, 1),  # whole blocks: no zeros
        (64, 64, 16, 4),  # four groups fill a block
        (12, 18, 3, 3),  # zeros where channels do not meet
        (32, 64, 32, 16),  # depthwise with two outputs per channel
    ],
)
def test_groups(exact, channels, o, groups, together):
    op = convolution(1, channels, (7, 6), o, (3, 2), (1, 2), (1, 0, 1, 1), groups=groups)
    assert groups_per_part(op, PRESETS["pynq_z1"]) == together
    launch = exact(op)
    issues = 16 * -(-channels // 16) * -(-o // 16) // (groups // together)  # entries of weights
    loaded = [b.nbytes for b in launch.buffers if b.name.endswith(".w")]
    assert sum(loaded) == issues // 16 * 6 * 256


def test_groups_of_several_images_run_together(exact):
    op = convolution(2, 32, (5, 5), 32, (3, 3), groups=2)
    assert groups_per_part(op, PRESETS["pynq_z1"]) == 2
    exact(op)


def test_depthwise_without_the_extension_and_with_too_many_rows(exact):
    op = convolution(1, 40, (5, 5), 40, (3, 3), groups=40)
    pynq = PRESETS["pynq_z1"]
    exact(op, cfg=Config("less", wgt_bytes=1 << 17, uop_bytes=1 << 14, extensions=pynq.extensions - {"depthwise"}))
    wide = convolution(1, 600, (8, 8), 600, (4, 4), groups=600)
    assert groups_per_part(wide, pynq) == 512
    exact(wide)


FEATURES = [(1, 20000, 1), (1, 16 * 503, 10), (3, 8003, 33), (37, 1009, 5), (1, 4099, 1001)]


@pytest.mark.parametrize("n, features, outputs", FEATURES)
def test_dense_layers_of_any_size(exact, n, features, outputs):
    op = linear(QDense, (n, features), (n, outputs), (outputs, features))
    op.weight_scale[:] /= 10
    launch = exact(op)
    assert len(launch.insn) < 1200  # as few as if the blocks could be divided


def test_dense_layers_of_200_thousand_features(exact):
    launch = exact(linear(QDense, (1, 200_000), (1, 10), (10, 200_000)))
    weights = 200_000 // 16 * 256
    assert predict(launch).cycles < 1.15 * weights / 8  # their transfer


@pytest.mark.parametrize("n, c, size, o", [(1, 3, (118, 100), 10), (2, 20, (17, 16), 3), (1, 70, (46, 46), 33)])
def test_layers_of_whole_images_too_large_for_the_scratchpads(exact, n, c, size, o):
    op = convolution(n, c, size, o, size)
    assert not why_not(whole_image, op, PRESETS["pynq_z1"])
    padded = convolution(n, c, size, o, size, (1, 1), (1, 1, 1, 1))
    assert "several places" in why_not(whole_image, padded, PRESETS["pynq_z1"])
    exact(op)


def test_images_larger_than_the_scratchpads_of_a_small_configuration(exact):
    exact(convolution(2, 6, (14, 15), 7, (14, 15)), cfg=PRESETS["tiny"])
