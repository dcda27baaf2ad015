"""Orders, sizes and elements of images and tensors: each against onnxruntime."""

import numpy as np
import pytest


@pytest.mark.parametrize("kind", ["GlobalMaxPool", "GlobalAveragePool"])
def test_global_pools(m, compared, kind):
    m.output(m.quantise(m.node(kind, m.quantise(m.input("x", [1, 3, 5, 4])))))
    compared(m, 1.001, 0.3, 0.05)


@pytest.mark.parametrize(
    "mode, scales", [("linear", [1, 1, 2, 2]), ("linear", [1, 1, 1.5, 0.5]), ("cubic", [1, 1, 2, 2])]
)
@pytest.mark.parametrize("where", ["half_pixel", "align_corners", "asymmetric"])
def test_resizes(m, compared, mode, scales, where):
    attrs = {"mode": mode, "coordinate_transformation_mode": where}
    m.output(m.node("Resize", m.input("x", [1, 2, 6, 4]), "", m.const(np.array(scales, np.float32)), **attrs))
    compared(m, 1e-4)


def test_a_size_that_is_there_already(m, compared):
    x = m.node("Resize", m.input("x", [1, 2, 3, 4]), "", m.const(np.ones(4, np.float32)))
    m.output(m.node("Tile", m.node("Expand", x, m.const(np.array([2, 2, 3, 4]))), m.const(np.ones(4, np.int64))))
    compared(m)


@pytest.mark.parametrize("size", [5, 6, 7])
@pytest.mark.parametrize("quantised", [False, True])
def test_windows_behind_padding_that_counts(m, compared, size, quantised):
    x = m.input("x", [1, 3, size, size + 1])
    attrs = {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1], "ceil_mode": 1, "count_include_pad": 1}
    y = m.node("AveragePool", m.quantise(x) if quantised else x, **attrs)
    m.output(m.quantise(y) if quantised else y)
    compared(m, 1.001 if quantised else 1e-4, scale=0.05 if quantised else 1)


SHAPE = [2, 3, 4, 5]


@pytest.fixture(params=[False, True], ids=["float", "int8"])
def ends(request, qdq):
    """A model, its input and what ends it: both quantised or not."""
    m = qdq()
    x = m.input("x", SHAPE)
    return m, (m.quantise(x, 0.1) if request.param else x), (lambda y: m.quantise(y, 0.1) if request.param else y)


def places(m, shape, size):
    return m.const(m.rng.integers(-size, size, shape))


@pytest.mark.parametrize("count", [1, 2, 4])
def test_parts_are_gathered(ends, compared, count):
    m, x, end = ends
    indices = np.stack([m.rng.integers(-n, n, (3, 2)) for n in SHAPE[:count]], -1)
    m.output(end(m.node("GatherND", x, m.const(indices))))
    compared(m, 1e-4)


@pytest.mark.parametrize("axis", [0, 2, -1])
def test_elements_are_gathered(ends, compared, axis):
    m, x, end = ends
    m.output(end(m.node("GatherElements", x, places(m, [2, 2, 3, 5], SHAPE[axis]), axis=axis)))
    compared(m, 1e-4)


@pytest.mark.parametrize("indices", [[[0, 1], [1, -1]], [[0, 2, 1]]])
def test_parts_are_replaced(ends, compared, indices):
    m, x, end = ends
    part = m.const(m.rng.normal(0, 1, (len(indices), *SHAPE[len(indices[0]) :])).astype(np.float32))
    m.output(end(m.node("ScatterND", x, m.const(np.array(indices)), part)))
    compared(m, 1e-4 if "quantizelinear" not in x else 0.101, share=0.05)


def test_elements_are_replaced(ends, compared):
    m, x, end = ends
    part = m.node("Mul", m.input("u", [1, 1, 2, 5]), m.const(np.float32(2)))
    where = np.array([3, 0]).reshape(1, 1, 2, 1) * np.ones((1, 1, 1, 5), np.int64)
    m.output(end(m.node("ScatterElements", x, m.const(where), part, axis=-2)))
    compared(m, 1e-4 if "quantizelinear" not in x else 0.101, share=0.05)


@pytest.mark.parametrize("kind", ["GatherND", "ScatterND"])
def test_computed_positions_are_refused(m, refusal, kind):
    x, where = m.input("x", [4, 3]), m.input("i", [2, 1], "INT64")
    more = [m.input("u", [2, 3])] if kind == "ScatterND" else []
    m.output(m.node(kind, x, where, *more, name="bad"))
    assert f"{kind} 'bad' has inputs or attributes that are not supported" in refusal(m.save())
