"""Operators of Deeploy's dialect: one rounding, ties up, in every contract; and what is refused."""

import numpy as np
import pytest

from tilewright.compiler import graph as g
from tilewright.compiler.graph import ranges, reference
from tilewright.compiler.graph.integer_forms import sum_form, weighted_form
from tilewright.hw.errors import InputError
from tilewright.hw.rounding import CONTRACTS

EVERY = np.arange(-128, 128)
RATIO = 7349 / 2.0**16


def t(name, *shape, dtype="int8", zero_point=0):
    return g.Tensor(name, shape, dtype, 1.0, zero_point)


def shifted(x, mul=7349, low=-128, high=127):
    return np.clip((np.asarray(x, np.int64) * mul + (1 << 15)) >> 16, low, high).tolist()


@pytest.mark.parametrize("contract", CONTRACTS)
@pytest.mark.parametrize("mul", [1, 47, 7349, 65535, 65536, 78485, 4171896])
def test_a_value_is_rounded_once(contract, mul):
    op = g.ShiftRequantize("op", (t("x", 1, 256),), t("y", 1, 256), ratio=mul / 2.0**16)
    assert reference.apply(op, EVERY[None].astype(np.int8), contract=contract).tolist() == [shifted(EVERY, mul)]
    assert not ranges.problem(op)


@pytest.mark.parametrize("contract", CONTRACTS)
def test_unsigned_results_are_stored_less_128(contract):
    x, y = t("x", 1, 256, zero_point=-128), t("y", 1, 256, zero_point=-128)
    op = g.ShiftRequantize("op", (x,), y, ratio=1.5)
    assert reference.apply(op, EVERY[None].astype(np.int8), contract=contract)[0].tolist() == [
        min(255, (3 * v + 1) // 2) - 128 for v in range(256)
    ]


@pytest.mark.parametrize("contract", CONTRACTS)
def test_sums_and_products_of_all_pairs(contract):
    shape = 256, 256
    a, b = (x.astype(np.int8) for x in np.meshgrid(EVERY, EVERY))
    inputs = t("x", *shape), t("y", *shape)
    total = g.ShiftAdd("op", inputs, t("z", *shape), ratio=RATIO)
    assert reference.apply(total, a, b, contract=contract).tolist() == shifted(a.astype(int) + b)
    product = g.ShiftMul("op", inputs, t("z", *shape), ratio=RATIO)
    assert reference.apply(product, a, b, contract=contract).tolist() == shifted(a.astype(int) * b)
    assert not ranges.problem(total) and not ranges.problem(product)


def test_the_accelerator_has_short_forms_of_sums():
    x, y, z = (t(name, 1, 16) for name in "xyz")
    op = g.ShiftAdd("op", (x, y), z, ratio=78485 / 2.0**16)
    assert sum_form(op).x.cost == sum_form(op).y.cost == 0
    form = weighted_form(op)
    assert form is not None and len(form.x) == 1 and form.x == form.y


@pytest.mark.parametrize("contract", CONTRACTS)
def test_layers_and_products_of_matrices(contract):
    rng = np.random.default_rng(2)
    a, b = rng.integers(-128, 128, (3, 5), np.int8), rng.integers(-128, 128, (7, 5), np.int8)
    sums = a.astype(int) @ b.T.astype(int)
    product = g.ShiftMatMul("op", (t("x", 3, 5), t("y", 7, 5)), t("z", 3, 7), transposed=True, ratio=RATIO)
    assert reference.apply(product, a, b, contract=contract).tolist() == shifted(sums)
    zeros, scale = np.zeros(7, np.int32), np.full(7, RATIO)
    layer = g.QDense("op", (t("x", 3, 5),), t("z", 3, 7), b, scale, zeros, exact=True)
    assert reference.apply(layer, a, contract=contract).tolist() == shifted(sums)
    assert layer.scaling == {"float32_scale": False, "exact": True, "contract": None}


def test_wide_integers():
    rng = np.random.default_rng(2)
    x, y = rng.integers(-128, 128, (3, 5), np.int8), rng.integers(-(2**20), 2**20, (5, 2), np.int32)
    op = g.IntegerMatMul("op", (t("x", 3, 5), t("y", 5, 2, dtype="int32")), t("z", 3, 2, dtype="int32"))
    assert op.macs == 30 and reference.apply(op, x, y).tolist() == (x.astype(int) @ y.astype(int)).tolist()
    factor, offset = (t(name, 2, dtype="int32") for name in ("f", "o"))
    shift = g.RequantShift("op", (t("x", 3, 2, dtype="int32"), factor, offset), t("z", 3, 2), 3, -128, 127)
    given = rng.integers(-99, 99, (3, 2)), np.array([3, -2]), np.array([5, 7])
    found = reference.apply(shift, *(array.astype(np.int32) for array in given))
    assert found.tolist() == np.clip((given[0] * given[1] + given[2] + 4) >> 3, -128, 127).tolist()


def softmax(zero_point=0, **facts):
    numbers = {"quadratic": 1, "linear": 25, "constant": 331, "period": 19, "levels": 256}
    return g.IntegerSoftmax("op", (t("x", 2, 4),), t("y", 2, 4, zero_point=zero_point), **{**numbers, **facts})


def test_softmax_and_norms():
    x = np.array([[-128, 0, 5, 127]] * 2, np.int8)
    shares = reference.apply(softmax(zero_point=-128), x).astype(int) + 128
    assert shares.max() > 127
    assert reference.apply(softmax(ratio=0.5), x).tolist() == np.minimum((shares + 1) // 2, 127).tolist()
    norm = g.IntegerNorm("op", (t("x", 2, 4), t("w", 4, dtype="int32")), t("y", 2, 4), 16)
    assert reference.apply(norm, x, np.full(4, 1 << 22, np.int32)).shape == (2, 4)
    assert ranges.problem(softmax(levels=1 << 20, ratio=2.0**14))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: softmax(period=0), "period and levels"),
        (lambda: g.IntegerNorm("op", (t("x", 2, 4), t("w", 3, dtype="int32")), t("y", 2, 4), 16), "the weights"),
        (lambda: g.IntegerNorm("op", (t("x", 2, 4), t("w", 4, dtype="int32")), t("y", 2, 4), 32), "the shift"),
        (lambda: g.RequantShift("op", (t("x", 2),) * 3, t("y", 2), 3, 0, 1), "the inputs' types"),
        (lambda: g.RequantShift("op", (t("x", 2, dtype="int32"),) * 3, t("y", 2), 32, 0, 1), "the shift"),
        (lambda: g.IntegerMatMul("op", (t("x", 2, 3), t("y", 2, 3)), t("z", 2, 3, dtype="int32")), "number of rows"),
    ],
)
def test_what_is_refused(make, message):
    with pytest.raises(InputError, match=message):
        make()
