"""compiler/graph/integer_forms.py: integer chains that equal an operator's definition for every input."""

import numpy as np
import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st

from tilewright.compiler.graph.deeploy import ShiftAdd
from tilewright.compiler.graph.elementwise import Add, Sub
from tilewright.compiler.graph.integer_forms import Requant, mean_store, sum_form, weighted_form
from tilewright.compiler.graph.operators import Tensor

SCALES = st.floats(2**-12, 2**-2, allow_subnormal=False)
ZEROS = st.integers(-128, 127)


def multiplied(value, m, e):
    """Rounding contract double in Python's integers: twice the product's high half, then a power of two."""
    value <<= max(e, 0)
    high = (value * m + (1 << 30)) >> 31
    right = max(-e, 0)
    if not right:
        return high
    size, half = abs(high), 1 << right - 1
    return (size + half >> right) * (1 if high >= 0 else -1)


@settings(max_examples=20, deadline=None)
@given(st.sampled_from((Add, Sub)), SCALES, SCALES, SCALES, ZEROS, ZEROS, ZEROS, st.integers(-128, 0))
def test_sums_equal_their_definition_on_samples(kind, sx, sy, so, zx, zy, zo, low):
    tensors = [Tensor(name, (1, 4), "int8", s, z) for name, s, z in (("x", sx, zx), ("y", sy, zy), ("z", so, zo))]
    op = kind("op", tuple(tensors[:2]), tensors[2], low=low)
    form = sum_form(op)
    rng = np.random.default_rng(zx & 0xFF)
    for x, y in [*rng.integers(-128, 128, (200, 2)).tolist(), [-128, -128], [127, 127], [-128, 127]]:
        (mx, ex), (my, ey), (mo, eo) = op.multipliers
        total = multiplied((x - zx) << 20, mx, ex) + op.sign * multiplied((y - zy) << 20, my, ey)
        wanted = min(max(multiplied(total, mo, eo) + zo, low), 127)
        acc = form.x.apply(np.array([x])) + op.sign * form.y.apply(np.array([y]))
        assert int(form.store.apply(acc)[0]) == wanted
        assert abs(int(acc[0])) < 1 << 31


def test_the_larger_scale_needs_a_shift_alone():
    tensors = [Tensor(name, (1, 4), "int8", s, 3) for name, s in (("x", 0.05), ("y", 0.02), ("z", 0.06))]
    form = sum_form(Add("add", tuple(tensors[:2]), tensors[2]))
    assert (form.x.offset, form.x.shift, form.x.scale) == (0, 19, None)
    assert form.y.shift == 0 and form.y.scale is not None


@pytest.mark.parametrize("count", [*range(1, 66), 125, 128, 143, 2500, 65536])
def test_means_of_every_sum(count):
    sums = np.arange(-128 * count, 127 * count + 1, max(1, count // 500))
    size = (2 * np.abs(sums) + count) // (2 * count)
    store = mean_store(count)
    assert np.array_equal(store.apply(sums), np.where(sums < 0, -size, size))
    assert np.array_equal(mean_store(count, ties_up=True).apply(sums), (2 * sums + count) // (2 * count))
    assert 1 << 30 <= store.multiplier < 1 << 31


def test_a_store_wraps_its_bias():
    assert Requant((1 << 31) - 1, 1 << 30, 0, 0).apply(np.array([1])) == -128


@settings(max_examples=20, deadline=None)
@given(st.sampled_from((Add, Sub)), *[st.floats(2**-6, 2**-3)] * 3, ZEROS, ZEROS, ZEROS)
def test_weighted_sums_equal_their_definition_on_samples(kind, sx, sy, so, zx, zy, zo):
    tensors = [Tensor(name, (1, 4), "int8", s, z) for name, s, z in (("x", sx, zx), ("y", sy, zy), ("z", so, zo))]
    op = kind("op", tuple(tensors[:2]), tensors[2])
    form = weighted_form(op)
    if form is None:  # for few scales there are no weights, and `sum_form` has to do
        reject()
    assert len(form.x) == len(form.y) <= 3
    assert all(-128 <= digit <= 127 for digit in (*form.x, *form.y))
    a, b = (sum(digit << 8 * k for k, digit in enumerate(reversed(digits))) for digits in (form.x, form.y))
    rng = np.random.default_rng(zy & 0xFF)
    for x, y in [*rng.integers(-128, 128, (200, 2)).tolist(), [-128, -128], [127, 127], [-128, 127]]:
        (mx, ex), (my, ey), (mo, eo) = op.multipliers
        total = multiplied((x - zx) << 20, mx, ex) + op.sign * multiplied((y - zy) << 20, my, ey)
        wanted = min(max(multiplied(total, mo, eo) + zo, -128), 127)
        assert int(form.store.apply(np.array([a * x + b * y]))[0]) == wanted


def test_equal_scales_need_one_digit_and_sums_with_one_rounding_no_operations():
    x, y, z = (Tensor(name, (1, 4), "int8", 0.05, 3) for name in "xyz")
    exact = ShiftAdd("op", (x, y), z, ratio=78485 / 2.0**16)
    for op in (Add("add", (x, y), z), exact):
        form = weighted_form(op)
        assert form is not None and form.x == form.y and len(form.x) == 1
    assert sum_form(exact).x.cost == sum_form(exact).y.cost == 0


def test_scales_too_far_apart_have_no_weights():
    tensors = [Tensor(name, (1, 4), "int8", s) for name, s in (("x", 0.5), ("y", 0.0000007), ("z", 0.000001))]
    assert weighted_form(Add("add", tuple(tensors[:2]), tensors[2])) is None
