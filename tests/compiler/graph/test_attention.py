"""Operators of transformers: what they derive, and what they refuse."""

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


def test_a_norm_scales_by_element():
    op = g.RmsNorm("op", (X,), Y, np.array([0.5, 2.0, 1.0, 0.0]))
    assert op.factors.tolist() == [k * 2 / 2**20 / 0.1 for k in (0.5, 2.0, 1.0, 0.0)] and op.shift == 0
    x = np.tile(np.array([30, -40, 0, 5], np.int8), (2, 3, 1))
    assert reference.apply(op, x)[0, 0].tolist() == [6, -32, 0, 0]  # 2 * [0.3, -1.6] / 0.1
    assert not reference.apply(g.RmsNorm("op", (X,), Y, np.zeros(4)), x).any()
    wide = g.RmsNorm("op", (t("x", 1, 96),), t("y", 1, 96), np.ones(96))
    assert wide.shift == 1 and wide.factors[0] == pytest.approx(48**0.5 / 2**20 / 0.1)


def attention(shapes=((1, 8), (1, 4, 6, 1), (1, 6, 2, 1)), output=(1, 4), keys=(0, 1), values=(1, 0), head=2, seen=6):
    inputs = (t("q", *shapes[0], scale=0.2), t("k", *shapes[1], scale=0.3), t("v", *shapes[2], scale=0.4), POSITION)
    return g.Attention("op", inputs, t("y", *output), keys, values, head, seen)


def test_attention_of_real_numbers():
    rng = np.random.default_rng(5)
    op = attention()
    q, k, v = (rng.integers(-9, 10, each.shape, np.int8) for each in op.inputs[:3])
    found = reference.apply(op, q, k, v, np.array([4], np.int32)).reshape(2, 2) * 0.1
    halves, keys = (
        q.reshape(2, 2, 2) * 0.2,
        k.reshape(2, 2, 6)[..., :5] * 0.3,
    )
    for r, lane in np.ndindex(2, 2):
        group = 1 - lane
        weights = np.exp((halves[r, :, group] @ keys[:, group]) / 2**0.5)
        assert found[r, lane] == pytest.approx(weights / weights.sum() @ v[0, :5, lane, 0] * 0.4, abs=0.15)
    assert op.macs == 2 * 6 * (2 * 2 + 2) and op.factors[1] == pytest.approx(4 / 2**24)
    assert op.factors[0] == pytest.approx(0.06 / 2**0.5 * 40)


KEYS, VALUES = t("keys", 1, 4, 6, 1), t("values", 1, 6, 4, 1)
ROW, BLOCK = t("r", 1, 4), t("b", 1, 4, 3, 1)
FLAT, MANY = t("x", 1, 8), t("x", 6, 8)
WRONG = [
    (lambda: g.BatchMatMul("op", (X, t("y", 2, 5, 4)), t("z", 2, 3, 4)), "the number of rows of the second operand"),
    (lambda: g.BatchMatMul("op", (X, t("y", 3, 4, 2)), t("z", 2, 3, 2)), "do not broadcast"),
    (lambda: g.BatchMatMul("op", (X,), Y), "the number of operands is 1, expected 2"),
    (lambda: g.BatchMatMul("op", (t("x", 4), t("y", 4, 2)), t("z", 2)), "whether both operands are matrices"),
    (lambda: g.BatchMatMul("op", (X, Y), t("z", 2, 3, 3), True, images=True), "the images is"),
    (lambda: g.RmsNorm("op", (X,), Y, np.ones(3)), "the gains' shape"),
    (lambda: g.RmsNorm("op", (X,), Y, np.array([1.0, 1, -1, 1])), "whether the gains are at least 0"),
    (lambda: g.RmsNorm("op", (t("x", 2, 3, 4, zero_point=1),), Y, np.ones(4)), "the zero points"),
    (lambda: g.Rotate("op", (FLAT, POSITION), t("y", 1, 8, scale=0.2), ANGLES, ANGLES), "the scale is 0.2"),
    (lambda: g.Rotate("op", (FLAT, POSITION), FLAT, ANGLES, ANGLES[:3]), "the shape of the sines"),
    (lambda: g.Rotate("op", (FLAT, t("p", 2, dtype="int32")), FLAT, ANGLES, ANGLES), "the position is"),
    (lambda: g.Rotate("op", (X, POSITION), Y, ANGLES, ANGLES), "the dimensions is"),
    (lambda: g.Rotate("op", (ROW, POSITION), ROW, np.zeros((5, 3)), np.zeros((5, 3))), "what is left of chunks"),
    (lambda: g.WriteRows("op", (KEYS, t("r", 1, 7), POSITION), KEYS), "the rows is"),
    (lambda: g.WriteRows("op", (KEYS, t("r", 1, 4, scale=0.3), POSITION), KEYS), "the scales is"),
    (lambda: g.WriteRows("op", (t("c", 6, 4), ROW, POSITION), t("y", 6, 4)), "the dimensions of the cache is"),
    (lambda: g.WriteColumns("op", (KEYS, BLOCK, POSITION), KEYS), "the block is"),
    (lambda: g.WriteColumns("op", (VALUES, t("b", 1, 4, 4, 1), POSITION), VALUES), "what is left of blocks"),
    (lambda: attention(((1, 8), (1, 4, 6), (1, 6, 2, 1))), "the dimensions is"),
    (lambda: attention(((1, 8), (1, 4, 6, 1), (1, 7, 2, 1))), "the positions of the values"),
    (lambda: attention(((1, 8), (1, 4, 9000, 1), (1, 9000, 2, 1))), "whether there are at most 8192 positions"),
    (lambda: attention(seen=7), "whether as many positions as are read are there"),
    (lambda: attention(keys=(0, 1, 1)), "the lanes of half a key"),
    (lambda: attention(values=(0, 1, 1)), "the lanes of a value"),
    (lambda: attention(values=(0, 7)), "groups without keys"),
    (lambda: attention(values=(-1, -1)), "whether a lane of a value is of a group"),
    (lambda: attention(((8,), (1, 4, 6, 1), (1, 6, 2, 1))), "the dimensions of the queries"),
    (lambda: attention(((7, 8), (1, 4, 6, 1), (1, 6, 2, 1)), (7, 4)), "whether as many tokens are read"),
    (lambda: attention(((2, 8), (1, 4, 6, 1), (1, 6, 2, 1))), "the output's shape"),
    (lambda: g.Rotate("op", (MANY, POSITION), MANY, ANGLES, ANGLES), "whether there are angles for as many tokens"),
    (lambda: g.WriteRows("op", (KEYS, t("r", 7, 4), POSITION), KEYS), "whether the rows fit the cache"),
    (lambda: g.WriteColumns("op", (VALUES, BLOCK, POSITION), VALUES, 2), "what is left of a block's tokens"),
    (lambda: g.WriteColumns("op", (VALUES, BLOCK, POSITION), VALUES, 0), "whether there are tokens"),
    (lambda: attention(((1, 9), (1, 4, 6, 1), (1, 6, 2, 1))), "the queries is"),
    (lambda: attention(output=(1, 5)), "the output's shape"),
]


@pytest.mark.parametrize("make, text", WRONG, ids=[text for _, text in WRONG])
def test_what_does_not_fit_is_refused(make, text):
    with pytest.raises(InputError, match=text):
        make()
