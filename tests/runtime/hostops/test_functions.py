"""Functions in fixed point against real ones, and the order of sums."""

import numpy as np
import pytest

from tilewright.hw.rounding import quantize_multiplier
from tilewright.runtime.hostops import attention, fixed_point, floats
from tilewright.runtime.hostops.detection import detections
from tilewright.runtime.hostops.recurrent import logistic, tanh
from tilewright.runtime.hostops.resize import nearest, resize_bilinear
from tilewright.runtime.hostops.roots import HIGH, LOW, THREE, inverse_root

RNG = np.random.default_rng(2)
ALL, WORDS = np.arange((1 << 20) + 1), np.arange(-(1 << 15), 1 << 15).astype(np.int16)


@pytest.mark.parametrize("context", [16, 512, 513, 1024, 2048, 4096, 8192])
def test_reciprocals_of_all_sums_stay_in_int32(context):
    sums = np.arange(127, 127 * context + 1)
    left, down, right = attention.reciprocal_shifts(context)
    root = inverse_root(sums << left) >> down
    found = attention.reciprocal(sums, context)
    assert (sums << left).max() <= 2**20 and (root * root).max() < 2**31 and min(left, down, right) >= 0
    assert np.array_equal(found, (root * root) >> right) and (127 * sums * found).max() < 2**31
    errors = found * sums / 2**24 - 1
    assert errors.max() < 0.0005 and errors.min() > -(0.0015 + context / 2**17)


def test_no_value_on_the_way_to_a_root_leaves_int32():
    """The definition, written out again with every intermediate value checked."""

    def within(x):
        assert np.abs(x).max() < 2**31
        return x

    r = np.array([HIGH[min(s >> 12, 255)] for s in ALL], np.int64) + LOW[np.clip(ALL >> 6, 0, 255)]
    for _ in range(2):
        t = within(within(within(ALL * r) >> 10) * r)
        r = within(r * (3 * 2**11 - (t >> 19))) >> 12
    assert np.array_equal(inverse_root(ALL), r) and (r > 0).all()


def test_roots_are_close_to_the_real_ones():
    real, found = 2**20 / np.sqrt(np.maximum(ALL, 1)), inverse_root(ALL)
    errors = np.abs(found / real - 1)
    assert errors[128:].max() < 0.001 and errors[64:].max() < 0.0033 and (found <= real)[:32].all()
    assert inverse_root(np.array(0)) == found.max()


def test_the_tables_of_roots_are_as_the_accelerator_reads_them():
    assert HIGH.shape == LOW.shape == (256,) and HIGH.dtype == LOW.dtype == np.int32
    assert set(HIGH[:4]) == {round(2**20 / (2**14 - 32) ** 0.5)} and LOW[255] == 0 and THREE == 3 * 2**11
    assert HIGH[100] == round(2**20 / (100.5 * 4096) ** 0.5) and LOW[9] + HIGH[0] == round(2**20 / (9.5 * 64) ** 0.5)


def test_exponentials_and_quotients():
    a = -np.concatenate([np.arange(0, 1 << 20, 997), np.arange(1 << 20, 31 << 26, 3_333_333)])
    assert np.abs(fixed_point.exp(a) / 2.0**31 - np.exp(a / 2.0**26)).max() < 3e-7
    assert fixed_point.exp(np.array([0]))[0] == (1 << 31) - 1
    x = np.arange(0, 1 << 31, 9_999_991)
    assert np.abs(fixed_point.reciprocal(x) / 2.0**31 - 1 / (1 + x / 2.0**31)).max() < 2e-8


def test_the_tables_hold_the_exponential_of_every_difference():
    for scale in (1e-3, 0.07, 0.9, 30.0):
        multiplier, exponent = quantize_multiplier(scale * 2**26)
        known, summands = fixed_point.exponentials(multiplier, exponent)
        for d in range(256):
            counts = -d >= -((31 << 26) >> exponent)
            scaled = fixed_point.high_product(np.array([-d << exponent]), multiplier)
            e = int(fixed_point.exp(scaled)[0]) if counts else -1
            assert known[d] == e and summands[d] == (e + (1 << 11) >> 12 if counts else 0)
        assert fixed_point.exponentials(multiplier, exponent)[0] is known and not known.flags.writeable


def test_inverse_roots_with_an_exponent():
    x = np.concatenate([np.arange(2, 3000), RNG.integers(2, 1 << 31, 1000)])
    multiplier, exponent = fixed_point.inverse_root(x)
    assert np.allclose(multiplier * 2.0 ** (exponent - 31) * np.sqrt(x), 1, rtol=1e-5)
    assert [int(v[0]) for v in fixed_point.inverse_root(np.array([1]))] == [(1 << 31) - 1, 0]


@pytest.mark.parametrize("integer_bits", [0, 2, 3, 5, 6])
def test_gates_are_close_to_the_real_functions_and_odd(integer_bits):
    x = WORDS / 2.0 ** (15 - integer_bits)
    for mine, real in ((logistic, 1 / (1 + np.exp(-x))), (tanh, np.tanh(x))):
        found = mine(WORDS, integer_bits)
        assert np.abs(found / 2.0**15 - real).max() < 8e-4
        assert found.min() >= -(1 << 15) and found.max() < 1 << 15
    assert tanh(WORDS)[1 << 15] == 0 and logistic(WORDS)[1 << 15] == 1 << 14
    np.testing.assert_array_equal(tanh(WORDS)[1:], -tanh(-WORDS[1:]))


def test_a_norm_of_equal_elements_is_one_for_any_width():
    for width in (64, 96, 4096):
        shift = max(0, int(np.ceil(np.log2(width))) - 6)
        pair = quantize_multiplier(width**0.5 / 2**20 / 2 ** (shift / 2) / 0.05)
        multiplier, exponent = (np.full(width, part) for part in pair)
        for x in (100, -3, 127, -128):
            found = attention.rms_norm(np.full((1, width), x, np.int8), multiplier=multiplier, exponent=exponent)
            assert (found == np.sign(x) * 20).all(), (width, x)


def test_sums_in_order():
    """Products of 1e8, 1 and -1e8 make 0, because 1 is lost; numpy may add them in another order."""
    x, ones, bias = np.array([1e8, 1, -1e8], np.float32), np.ones((1, 3, 1, 1), np.float32), np.zeros(1, np.float32)
    image, layer = x.reshape(1, 3, 1, 1), {"bias": bias, "strides": [1, 1], "pads": [0] * 4, "dilations": [1, 1]}
    layer |= {"groups": 1, "ordered": True}
    assert floats.float_conv2d(image, weight=ones, **layer).item() == 0
    assert floats.float_conv_transpose2d(image, weight=ones.reshape(3, 1, 1, 1), **layer).item() == 0
    assert floats.float_matmul(x[None], np.ones((3, 1), np.float32), ordered=True).item() == 0


@pytest.mark.parametrize(
    "size, out, align_corners, half_pixel_centers, expected",
    [
        (4, 8, False, False, [0, 0, 1, 1, 2, 2, 3, 3]),
        (4, 8, True, False, [0, 0, 1, 1, 2, 2, 3, 3]),
        (5, 3, True, False, [0, 2, 4]),
        (4, 2, False, True, [1, 3]),
        (3, 1, True, True, [2]),
    ],
)
def test_nearest_neighbours(size, out, align_corners, half_pixel_centers, expected):
    assert nearest(size, out, align_corners, half_pixel_centers) == expected


@pytest.mark.parametrize("flags", [{}, {"align_corners": True}, {"half_pixel_centers": True}])
@pytest.mark.parametrize("offset, tie", [(None, -2), (128, -1)])
def test_resized_images_keep_one_colour_and_round_ties_away_from_zero_or_up(offset, tie, flags):
    x = RNG.integers(-128, 128, (2, 3, 5, 4)).astype(np.int8)
    assert np.array_equal(resize_bilinear(x, size=[5, 4], offset=offset, **flags), x)
    flat = np.full((1, 1, 3, 3), -77, np.int8)
    assert (resize_bilinear(flat, size=[7, 2], offset=offset, **flags) == -77).all()
    assert resize_bilinear(np.array([[[[-3, 0]]]], np.int8), size=[1, 4], offset=offset)[0, 0, 0, 1] == tie


# y, x, h, w of the anchors: the second lies on the first but for a tenth, the third has no part in them
ANCHORS = np.array([[0.5, 0.5, 1, 1], [0.6, 0.5, 1, 1], [5, 5, 2, 2]], np.float32)
SCORES = np.array([[[0, 0.9, 0.2], [0, 0.8, 0.85], [0, 0.1, 0.4]]], np.float32)
FACTS = {"anchors": ANCHORS, "scales": [10, 10, 5, 5], "classes": 2, "per_class": 9, "score": 0.3, "overlap": 0.5}
FIRST, SECOND, LAST = (0.0, 0, 0.9), (0.1, 1, 0.85), (4.0, 1, 0.4)  # (ymin, class, score)


@pytest.mark.parametrize(
    "changes, expected",
    [
        ({}, [FIRST, LAST]),
        ({"most": 1}, [FIRST]),
        ({"overlap": 0.95}, [FIRST, SECOND, LAST]),
        ({"score": 0.5}, [FIRST]),
        ({"classes_per_box": 2}, [FIRST, (0.0, 1, 0.2), LAST, (4.0, 0, 0.1)]),
        ({"each_class": True}, [FIRST, SECOND, LAST]),
        ({"each_class": True, "per_class": 1}, [FIRST, SECOND]),
        ({"each_class": True, "most": 1}, [FIRST]),
    ],
    ids=str,
)
def test_detections_of_boxes_with_known_overlaps(changes, expected):
    facts = FACTS | {"most": 3, "classes_per_box": 1, "each_class": False} | changes
    result = detections(np.zeros((1, 3, 4), np.float32), SCORES, **facts)[0]
    count = int(result[-1, 0]) * (1 if facts["each_class"] else facts["classes_per_box"])
    assert not result[count:-1].any()
    assert [(round(float(row[0]), 3), int(row[4]), round(float(row[5]), 3)) for row in result[:count]] == expected


def test_boxes_are_offsets_from_anchors():
    boxes = np.array([[[10, -20, 5 * np.log(3), 0]] * 3], np.float32)
    row = detections(boxes, SCORES, **FACTS, most=1, classes_per_box=1, each_class=False)[0, 0]
    assert np.allclose(row[:4], [1.5 - 1.5, -1.5 - 0.5, 1.5 + 1.5, -1.5 + 0.5], atol=1e-6)
