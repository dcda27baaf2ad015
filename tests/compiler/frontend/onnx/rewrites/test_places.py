"""Elements at known positions: each against onnxruntime, in float32 and quantised."""

import numpy as np
import pytest

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
