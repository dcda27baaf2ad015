"""Graphs that cannot be are refused, with the operator's name."""

import numpy as np
import pytest

from tilewright.compiler.graph import Add, Graph, QDense, Reshape, Tensor
from tilewright.hw.errors import InputError


def dense():
    x, y = Tensor("x", (1, 4), scale=0.25), Tensor("y", (1, 3))
    return QDense("layer", (x,), y, np.ones((3, 4), np.int8), np.full(3, 0.5, np.float32), np.zeros(3, np.int32))


def test_macs_and_layers():
    op = dense()
    graph = Graph("g", (op.x,), (op.output,), (op,))
    assert graph.macs == 12 and graph.layers == (op,)


def test_constants_need_no_producer_and_count_once():
    x, k = Tensor("x", (1, 4)), Tensor("k", (4,), data=np.ones(4, np.int8))
    first = Add("a", (x, k), Tensor("y", (1, 4)))
    second = Add("b", (first.output, k), Tensor("z", (1, 4)))
    assert Graph("g", (x,), (second.output,), (first, second)).constants == (k,)


def test_readers_are_there_once_per_operand():
    x, y = Tensor("x", (1, 4)), Tensor("y", (1, 4))
    twice = Add("a", (x, x), y)
    once = Add("b", (x, y), Tensor("z", (1, 4)))
    graph = Graph("g", (x,), (once.output,), (twice, once))
    assert graph.readers == {"x": [twice, twice, once], "y": [once]}


def test_impossible_graphs():
    op = dense()
    with pytest.raises(InputError, match="'layer' reads 'x' before an operator produces it"):
        Graph("g", (Tensor("other", (1, 4)),), (op.output,), (op,))
    with pytest.raises(InputError, match="no operator produces output 'z'"):
        Graph("g", (op.x,), (Tensor("z", (1, 3)),), (op,))
    with pytest.raises(InputError, match="two tensors are named 'y'"):
        Graph("g", (op.x,), (op.output,), (op, op))
    with pytest.raises(InputError, match="two operators have the same name"):
        Graph("g", (op.x,), (op.output,), (op, Reshape("layer", (op.output,), Tensor("z", (3, 1)))))
