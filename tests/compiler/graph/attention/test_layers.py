"""compiler/graph/attention/layers.py: what the operators derive, and what they refuse."""

import numpy as np
import pytest

from tilewright.compiler import graph as g
from tilewright.compiler.graph import ranges, reference
from tilewright.hw.errors import InputError


def t(name, *shape, dtype="int8", scale=0.1, zero_point=0):
    return g.Tensor(name, shape, dtype, scale, zero_point)


POSITION = t("p", 1, dtype="int32", scale=1.0)
X, Y = t("x", 2, 3, 4), t("y", 2, 3, 4)
ANGLES = np.zeros((5, 2), np.int16)


def test_products_of_real_numbers():
    rng = np.random.default_rng(3)
    x, y = t("x", 3, 5, zero_point=4), t("y", 7, 5, scale=0.2, zero_point=-6)
    op = g.BatchMatMul("op", (x, y), t("z", 3, 7, scale=4.0, zero_point=1), transposed=True)
    a, b = (rng.integers(-128, 128, each.shape, np.int8) for each in (x, y))
    real = (a - 4.0) * 0.1 @ ((b + 6.0) * 0.2).T
    assert np.abs(reference.apply(op, a, b) - np.clip(real / 4.0 + 1, -128, 127)).max() <= 0.5 + 1e-6
    assert op.macs == 3 * 7 * 5 and not ranges.problem(op)
    assert "wrap" in ranges.problem(g.BatchMatMul("op", (t("x", 1, 1 << 18), t("y", 1 << 18, 1)), t("z", 1, 1)))


@pytest.mark.parametrize("transposed", [False, True])
def test_matrices_as_images(transposed):
    rng = np.random.default_rng(4)
    x, y = t("x", 2, 3, 5, zero_point=4), t("y", 2, *((7, 5) if transposed else (5, 7)), zero_point=-6)
    op = g.BatchMatMul("op", (x, y), t("z", 2, 3, 7, scale=2.0), transposed)
    a, b = (rng.integers(-128, 128, each.shape, np.int8) for each in (x, y))
    images = [v.swapaxes(1, 2)[:, :, None] for v in (a, b)]
    inputs = tuple(t(name, *v.shape, zero_point=z) for name, v, z in zip("xy", images, (4, -6)))
    same = g.BatchMatMul("op", inputs, t("z", 2, 7, 1, 3, scale=2.0), transposed, images=True)
    assert np.array_equal(reference.apply(same, *images)[:, :, 0].swapaxes(1, 2), reference.apply(op, a, b))
    assert same.macs == op.macs and same.inner == op.inner == 5 and not ranges.problem(same)


def test_gains_use_the_whole_of_int16():
    op = g.RmsNorm("op", (X,), Y, np.array([0.5, -2.0, 1.0, 0.0]))
    assert op.integers.tolist() == [8192, -32767, 16384, 0] and op.integers.dtype == np.int16
    x = np.tile(np.array([3, 4, 0, 0], np.int8), (2, 3, 1))
    assert reference.apply(op, x)[0, 0].tolist() == [6, -32, 0, 0]  # 2 * [0.3, -1.6] / 0.1
    assert not reference.apply(g.RmsNorm("op", (X,), Y, np.zeros(4)), x).any()


def test_the_largest_score_weighs_most():
    op = g.Exponentials("op", (X, POSITION), t("y", 2, 3, 4, scale=1 / 127))
    assert op.table[[0, 10, 255]].tolist() == [127, 47, 0]  # 127 / e


CACHE, ROWS = t("cache", 2, 6, 4), t("rows", 2, 1, 4)
WRONG = [
    (lambda: g.BatchMatMul("op", (X, t("y", 2, 5, 4)), t("z", 2, 3, 4)), "the number of rows of the second operand"),
    (lambda: g.BatchMatMul("op", (X, t("y", 3, 4, 2)), t("z", 2, 3, 2)), "do not broadcast"),
    (lambda: g.BatchMatMul("op", (X,), Y), "the number of operands is 1, expected 2"),
    (lambda: g.BatchMatMul("op", (t("x", 4), t("y", 4, 2)), t("z", 2)), "whether both operands are matrices"),
    (lambda: g.BatchMatMul("op", (X, Y), t("z", 2, 3, 3), True, images=True), "the images is"),
    (lambda: g.RmsNorm("op", (X,), Y, np.ones(3)), "the gains' shape"),
    (lambda: g.RmsNorm("op", (t("x", 2, 3, 4, zero_point=1),), Y, np.ones(4)), "the zero points"),
    (lambda: g.Rotate("op", (X, POSITION), t("y", 2, 3, 4, scale=0.2), ANGLES, ANGLES), "the scale is 0.2"),
    (lambda: g.Rotate("op", (X, POSITION), Y, ANGLES, ANGLES[:3]), "the shape of the sines"),
    (lambda: g.Rotate("op", (X, t("p", 2, dtype="int32")), Y, ANGLES, ANGLES), "the position is"),
    (lambda: g.WriteRows("op", (CACHE, t("r", 2, 7, 4), POSITION), t("y", 2, 6, 4)), "the rows is"),
    (lambda: g.WriteRows("op", (CACHE, t("r", 2, 1, 4, scale=0.3), POSITION), t("y", 2, 6, 4)), "the scales is"),
    (lambda: g.WriteRows("op", (t("c", 6, 4), t("r", 1, 4), POSITION), t("y", 6, 4)), "the dimensions is"),
    (lambda: g.WeightedMean("op", (t("w", 6), CACHE), t("y", 4)), "the dimensions is"),
    (lambda: g.Exponentials("op", (X, POSITION), Y), "the output's scale is 0.1"),
    (lambda: g.WeightedMean("op", (X, CACHE), t("y", 2, 3, 4)), "the values' shape"),
]


@pytest.mark.parametrize("make, text", WRONG, ids=[text for _, text in WRONG])
def test_what_does_not_fit_is_refused(make, text):
    with pytest.raises(InputError, match=text):
        make()
