"""Sums by chains of ALU operations, and changes of quantisation."""

import numpy as np
import pytest

from tilewright.compiler import graph as g
from tilewright.compiler.accelerator.module import Accelerator
from tilewright.compiler.graph import tables
from tilewright.hw.config import PRESETS
from tilewright.hw.isa import Isa


def tensors(*scales, shape=(1, 20, 5, 7)):
    return [g.Tensor(name, shape, scale=s, zero_point=z) for name, s, z in zip("xyz", scales, (5, -17, 40))]


def mnemonics(launch):
    isa = Isa(launch.cfg)
    return {isa.mnemonic(fields) for fields in isa.decode(launch.insn)}


@pytest.mark.parametrize("kind", [g.Add, g.Sub])
def test_scales_too_far_apart_for_weights_take_the_alu(exact, kind):
    x, y, z = tensors(0.5, 0.0000007, 0.000001)
    assert "ALU.RESCALE" in mnemonics(exact(kind("op", (x, y), z)))
    assert "ALU.RESCALE" in mnemonics(exact(kind("op", (y, x), z, low=-90, high=77)))


@pytest.mark.parametrize("name", ["pynq_z1", "tiny"])
def test_requantisation(exact, name):
    x, y, _ = tensors(0.05, 0.08, 1.0)
    exact(g.Requantize("op", (x,), y, low=-17), cfg=PRESETS[name])
    x, y, _ = tensors(0.08, 0.001, 1.0, shape=(3, 9))
    exact(g.Requantize("op", (x,), y), cfg=PRESETS[name])


@pytest.mark.parametrize("name, scale, by", [("pynq_z1", 0.11, "STORE.OUTQ"), ("pynq_z1_plus", 0.1, "ALU.LOOKUP")])
def test_requantisation_to_the_nearest(exact, name, scale, by):
    """A store where it rounds all values alike; with ties a table."""
    x, y, _ = tensors(0.05, scale, 1.0)
    assert by in mnemonics(exact(g.NearestRequantize("op", (x,), y), cfg=PRESETS[name], contract="single"))


def test_a_constant_operand_is_packed(exact):
    x, y, z = tensors(0.05, 0.08, 0.1)
    data = np.random.default_rng(0).integers(-128, 128, (1, 20, 1, 1)).astype(np.int8)
    constant = g.Tensor("c", data.shape, scale=0.08, zero_point=y.zero_point, data=data)
    exact(g.Add("op", (x, constant), z))


@pytest.mark.parametrize("name", ["pynq_z1", "tiny"])
def test_products(exact, name):
    x, y, z = tensors(0.05, 0.08, 0.02)
    exact(g.Mul("op", (x, y), z), cfg=PRESETS[name])
    exact(g.Mul("op", (x, x), z, low=-20, high=100), cfg=PRESETS[name])


@pytest.mark.parametrize("axis", [2, 3])
@pytest.mark.parametrize("name", ["pynq_z1", "tiny"])
def test_rows_and_columns_are_joined(exact, name, axis):
    sizes = (2, 1, 4)
    shapes = [tuple(n if k == axis else whole for k, whole in enumerate((1, 20, 3, 5))) for n in sizes]
    whole = tuple(sum(sizes) if k == axis else n for k, n in enumerate((1, 20, 3, 5)))
    parts = tuple(g.Tensor(f"x{k}", shape, scale=0.1, zero_point=3) for k, shape in enumerate(shapes))
    exact(g.Concat("op", parts, g.Tensor("y", whole, scale=0.1, zero_point=3), axis), cfg=PRESETS[name])


PARTS = [((0, 0, 2, 0), (1, 20, 3, 7)), ((0, 16, 0, 3), (1, 4, 5, 2)), ((0, 0, 1, 6), (1, 3, 1, 1))]


@pytest.mark.parametrize("begin, shape", PARTS)
def test_slices(exact, begin, shape):
    x = g.Tensor("x", (1, 20, 5, 7), scale=0.1, zero_point=3)
    exact(g.StridedSlice("op", (x,), g.Tensor("y", shape, scale=0.1, zero_point=3), begin, (1,) * 4))


@pytest.mark.parametrize("name", ["pynq_z1", "tiny"])
@pytest.mark.parametrize("kind", [g.Maximum, g.Minimum])
def test_extremes(exact, name, kind):
    x, y, z = (g.Tensor(t, (1, 20, 5, 7), scale=0.1, zero_point=5) for t in "xyz")
    exact(kind("op", (x, y), z), cfg=PRESETS[name])
    data = np.random.default_rng(0).integers(-128, 128, (20, 1, 1)).astype(np.int8)
    exact(kind("op", (x, g.Tensor("c", data.shape, scale=0.1, zero_point=5, data=data)), z), cfg=PRESETS[name])


@pytest.mark.parametrize("name", ["pynq_z1", "tiny"])
@pytest.mark.parametrize("scales", [(0.05, 0.01, 0.06), (0.05, 0.08, 0.02)])
def test_rectifiers_with_slopes(exact, name, scales):
    x, _, z = tensors(*scales)
    data = np.random.default_rng(0).integers(-128, 128, (20, 1, 1)).astype(np.int8)
    alpha = g.Tensor("c", data.shape, scale=scales[1], zero_point=-9, data=data)
    exact(g.Prelu("op", (x, alpha), z), cfg=PRESETS[name])


@pytest.mark.parametrize("name", ["pynq_z1", "pynq_z1_plus", "tiny"])
def test_operators_between_others_read_what_these_left_in_the_arena(exact, name):
    shape, pixels = (1, 20, 5, 7), (1, 1, 5, 7)
    x, a, b, c, d, e, f = (g.Tensor(t, shape, scale=s, zero_point=-9) for t, s in zip("xabcdef", 7 * [0.09, 0.05]))
    y, gate = (g.Tensor(t, (1, 20, 1, 1), scale=0.02) for t in ("y", "gate"))
    p, q = (g.Tensor(t, pixels, scale=0.08) for t in "pq")
    data = np.random.default_rng(0).integers(-128, 128, (1, 20, 1, 1)).astype(np.int8)
    exact(
        g.Requantize("input", (x,), a),
        g.Requantize("gates", (y,), gate),
        g.Requantize("pixels", (p,), q),
        g.Mul("gated", (a, gate), b),
        g.Sub("centred", (b, q), c),
        g.Mul("scaled", (c, g.Tensor("k", data.shape, scale=0.01, zero_point=3, data=data)), d),
        g.Add("sum", (d, a), e),
        g.LeakyRelu("op", (e,), f, "leaky_relu", tables.leaky_relu(0.1, e, f), tables.slopes(0.1, e, f)),
        cfg=PRESETS[name],
    )


@pytest.mark.parametrize("name", ["pynq_z1", "tiny"])
@pytest.mark.parametrize("alpha", [0.0, 0.1, 0.99, 1.7])
def test_leaky_rectifiers(exact, name, alpha):
    for scales in ((0.05, 0.08), (0.08, 0.011)):
        x, y, _ = tensors(*scales, 1.0)
        facts = tables.leaky_relu(alpha, x, y), tables.slopes(alpha, x, y)
        exact(g.LeakyRelu("op", (x,), y, "leaky_relu", *facts), cfg=PRESETS[name])


def test_leaky_rectifiers_that_stay_on_the_host():
    x, y, _ = tensors(0.05, 0.08, 1.0)
    falling = g.LeakyRelu("op", (x,), y, "leaky_relu", tables.leaky_relu(-0.1, x, y), tables.slopes(-0.1, x, y))
    assert Accelerator(PRESETS["pynq_z1"]).refusal(falling) == "slope -0.0625: must not be negative"
    x, y = (g.Tensor(name, (2, 3, 4)) for name in "xy")
    flat = g.LeakyRelu("op", (x,), y, "leaky_relu", tables.leaky_relu(0.1, x, y), tables.slopes(0.1, x, y))
    assert Accelerator(PRESETS["pynq_z1"]).refusal(flat) == "3 dimensions"
