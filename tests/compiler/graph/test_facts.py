"""What operators say of themselves, against what their kernels do."""

import numpy as np
import pytest

from tests.compiler.graph.test_host_calls import OPERATORS
from tilewright.compiler import graph as g
from tilewright.compiler.graph import reference
from tilewright.hw.errors import UnsupportedError

SEED = 20261127


def arrays(op):
    print("seed", SEED)
    rng = np.random.default_rng(SEED)
    found = []
    for t in op.inputs:
        few = t.dtype in ("int32", "int64", "bool")  # positions among them
        values = rng.integers(0, 2, t.shape) if few else rng.integers(-100, 100, t.shape)
        found.append(values.astype(t.dtype) if t.data is None else t.data)
    return found


def carried():
    return [(op, axis) for op in OPERATORS for axis in range(len(op.x.shape)) if op.carried(axis) >= 0]


@pytest.mark.parametrize("op, axis", carried(), ids=lambda v: v if isinstance(v, int) else type(v).__name__)
def test_parts_that_an_operator_carries_over_may_be_in_any_order(op, axis):
    given, size = arrays(op), op.x.shape[axis]
    order = np.random.default_rng(SEED).permutation(size)
    moved = [a if t.data is not None else a.take(order, axis) for t, a in zip(op.inputs, given)]
    places = [a.shape[axis] for t, a in zip(op.inputs, given) if t.data is None]
    assert set(places) == {size} and op.output.shape[op.carried(axis)] == size
    expected = reference.apply(op, *given).take(order, op.carried(axis))
    np.testing.assert_array_equal(reference.apply(op, *moved), expected)


def test_what_carries_parts_over_is_what_is_known_to():
    kinds = {type(op).__name__ for op, _ in carried()}
    assert {"Add", "Concat", "MaxPool", "Mean", "Pad", "QConv2d", "Reshape", "Softmax", "Take", "Transpose"} <= kinds
    assert not kinds & {"Gather", "BatchMatMul", "Attention", "IntegerNorm", "Lstm"}


@pytest.mark.parametrize("op", [op for op in OPERATORS if op.rearranges], ids=lambda op: type(op).__name__)
def test_rearrangements_are_those_of_their_kernels(op):
    x = np.arange(np.prod(op.x.shape)).reshape(op.x.shape).astype(op.x.dtype)
    assert np.array_equal(op.moved(x), reference.apply(op, x))


def test_other_operators_do_more_than_to_rearrange():
    x = g.Tensor("x", (1, 4))
    with pytest.raises(UnsupportedError, match="Recode 'op': does more"):
        g.Recode("op", (g.Tensor("x", (1, 4), "uint8", zero_point=128),), x).moved(np.zeros((1, 4)))


@pytest.mark.parametrize("op", [op for op in OPERATORS if op.parts], ids=lambda op: type(op).__name__)
def test_parts_are_channels_of_the_output(op):
    given = arrays(op)
    y = reference.apply(op, *given)
    for (t, start), array in zip(op.parts, given, strict=True):
        assert np.array_equal(y[:, start : start + t.shape[1]], array)


def turned(t):
    return g.Tensor(f"{t.name}.t", t.shape[::-1], t.dtype, t.scale, t.zero_point, None if t.data is None else t.data.T)


def permutable():
    alike = [op for op in OPERATORS if {len(t.shape) for t in op.inputs} == {len(op.output.shape)}]
    return [op for op in alike if op.elementwise or isinstance(op, g.Concat)]


@pytest.mark.parametrize("op", permutable(), ids=lambda op: type(op).__name__)
def test_permuted_operators_compute_the_same(op):
    axes, given = tuple(reversed(range(len(op.output.shape)))), arrays(op)
    found = op.permuted(tuple(map(turned, op.inputs)), turned(op.output), axes)
    assert found is not None
    np.testing.assert_array_equal(reference.apply(found, *(a.T for a in given)), reference.apply(op, *given).T)
