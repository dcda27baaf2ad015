"""Operators on windows of images, in C."""

import numpy as np
import pytest

RNG = np.random.default_rng(7)
SCALES = [(1 << 30, -3), ((1 << 31) - 1, 0), (1518500250, -32), (1095936512, -7), (0, 0)]


def int8(*shape):
    return RNG.integers(-128, 128, shape).astype(np.int8)


def windows():
    """(image, kernel, strides, pads)"""
    for _ in range(25):
        kernel, strides = RNG.integers(1, 5, 2).tolist(), RNG.integers(1, 4, 2).tolist()
        pads = [int(RNG.integers(0, kernel[k % 2])) for k in range(4)]
        yield int8(2, 3, *(k + int(n) for k, n in zip(kernel, RNG.integers(0, 6, 2)))), kernel, strides, pads


def test_pools(same):
    for x, kernel, strides, pads in windows():
        facts = {"kernel": kernel, "strides": strides, "low": -100, "high": 90}
        same("max_pool", x, **facts, pads=pads)
        same("max_pool", x, **facts, pads=[7, 0, 0, 7])
        same("exact_average_pool", x, **facts, pads=pads)
        same("exact_average_pool", x, **facts, pads=pads, ties_up=True)
        for multiplier, exponent in SCALES:
            scale = {"multiplier": multiplier, "exponent": exponent, "x_zero_point": -7, "zero_point": 5}
            for contract in ("double", "single"):
                same("average_pool", x, **facts, **scale, contract=contract)


def test_one_pixel(same):
    for value in (-128, 127):
        x = np.full((1, 1, 1, 1), value, np.int8)
        same("max_pool", x, kernel=[1, 1], strides=[1, 1], pads=[0] * 4)
        same("exact_average_pool", x, kernel=[3, 3], strides=[1, 1], pads=[1] * 4)


def test_means(same):
    for multiplier, exponent in SCALES:
        scale = {"multiplier": multiplier, "exponent": exponent, "x_zero_point": -7, "zero_point": 5}
        for axes, shape in (([2, 3], [2, 3]), ([1], [2, 1, 4, 5]), ([0, 1, 2, 3], []), ([], [2, 3, 4, 5])):
            same("mean", int8(2, 3, 4, 5), axes=axes, shape=shape, **scale)


@pytest.mark.parametrize("align_corners, half_pixel_centers", [(False, False), (True, False), (False, True)])
def test_images_of_another_size(same, align_corners, half_pixel_centers):
    how = {"align_corners": align_corners, "half_pixel_centers": half_pixel_centers}
    for shape, size in (
        ((2, 3, 6, 7), [13, 3]),
        ((1, 1, 1, 1), [2, 3]),
        ((1, 2, 5, 5), [5, 5]),
        ((1, 1, 9, 8), [1, 1]),
    ):
        x = int8(*shape)
        same("resize_bilinear", x, size=size, **how)
        same("resize_bilinear", x, size=size, **how, offset=128)
        same("resize_bilinear", RNG.normal(size=shape).astype(np.float32), size=size, **how)
