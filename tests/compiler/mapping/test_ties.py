"""compiler/mapping/ties.py: how operators treat orders of channels."""

import numpy as np
import pytest

from tilewright.compiler import graph as g
from tilewright.compiler.graph.regroup import Kind, derived, ties


def tied(net, x, y):
    found = ties(net.graph())
    return found.root(x.name) == found.root(y.name)


def last(net):
    return ties(net.graph()).of[net.ops[-1].name]


def test_sums_pools_and_depthwise_layers_share_the_order_of_what_they_read(net):
    made = net()
    x = made.conv(made.x, 4)
    y = made.total(x, made.depthwise(x))
    z = made.add(g.MaxPool, [y], (1, 4, 4, 4), (2, 2), (2, 2), scale_of=y)
    row = made.add(g.Reshape, [made.add(g.Mean, [z], (1, 4, 1, 1), (2, 3))], (1, 4), scale_of=made.ops[-1].output)
    assert all(tied(made, x, t) for t in (y, z, row))
    other = made.conv(z, 4)
    assert not tied(made, x, other) and not tied(made, made.x, x)
    made.total(z, made.conv(z, 4, stride=1))
    assert tied(made, x, made.ops[-2].output) and not tied(made, x, other)


@pytest.mark.parametrize(
    ("axes", "shape", "axis"), [((2, 3), (1, 4), 1), ((2,), (1, 4, 1, 8), 1), ((1,), (1, 8, 8), -1)]
)
def test_means(net, axes, shape, axis):
    made = net()
    made.add(g.Mean, [made.conv(made.x, 4)], shape, axes)
    assert last(made).axis == axis and (last(made).kind is Kind.SAME) == (axis >= 0)


def test_images_turned_to_rows(net):
    for nhwc, order in ((False, [2, 3, -1, -1, 0, 1]), (True, [1, -1, 0, 3, -1, 2])):
        made = net(shape=(1, 3, 1, 2))
        x = made.conv(made.x, 2, 1)
        made.flat(x, nhwc)
        tie = last(made)
        assert (tie.kind, tie.axis, tie.operands) == (Kind.DERIVED, 1, (3 if nhwc else 1,))
        assert derived(made.ops[-1], tie, [np.array([1, -1, 0])]).tolist() == order


def test_concatenations_follow_their_operands(net):
    made = net()
    x = made.conv(made.x, 4)
    made.add(g.Concat, [x, x], (1, 8, 8, 8), 1, scale_of=x)
    tie = last(made)
    assert tie.kind is Kind.DERIVED
    order = np.array([3, -1, 1, 0, 2])
    assert derived(made.ops[-1], tie, [order, order]).tolist() == [3, -1, 1, 0, 2, 7, -1, 5, 4, 6]
    made.add(g.Concat, [x, x], (1, 4, 16, 8), 2, scale_of=x)
    assert last(made).kind is Kind.SAME


@pytest.mark.parametrize(
    ("shape", "operand", "axis"),
    [((4, 1, 1), 0, 1), ((1, 4, 1, 1), 1, 1), ((1, 1, 8, 8), -1, 1), ((8,), -1, 1), ((4, 8, 8), 0, 1)],
)
def test_constants_follow_the_other_operand(net, shape, operand, axis):
    made = net()
    x, c = made.conv(made.x, 4), g.Tensor("c", shape, data=np.zeros(shape, np.int8))
    made.add(g.Mul, [c, x], x.shape)
    assert last(made).operands == (operand, 1) and last(made).axis == axis and last(made).kind is Kind.SAME


def test_what_wants_the_order_of_the_file(net):
    def kind(make):
        made = net()
        make(made, made.conv(made.x, 4))
        return last(made).kind

    assert kind(lambda m, x: m.add(g.ReduceMax, [x], (1, 1, 8, 8), (1,), scale_of=x)) is Kind.FIXED
    assert kind(lambda m, x: m.add(g.StridedSlice, [x], (1, 2, 8, 8), (0, 1, 0, 0), (1,) * 4, scale_of=x)) is Kind.FIXED
    assert kind(lambda m, x: m.add(g.StridedSlice, [x], (1, 4, 7, 8), (0, 0, 1, 0), (1,) * 4, scale_of=x)) is Kind.SAME
    assert kind(lambda m, x: m.add(g.Take, [x], x.shape, ((), (1, 0, 3, 2), (), ()), scale_of=x)) is Kind.FIXED
    assert kind(lambda m, x: m.add(g.Reshape, [x], (1, 2, 2, 8, 8), scale_of=x)) is Kind.FIXED
    assert kind(lambda m, x: m.add(g.Reshape, [x], (1, 4, 8, 1, 8), scale_of=x)) is Kind.SAME
    assert kind(lambda m, x: m.add(g.QConv2d, [x], x.shape, *m.parameters(4, (2, 1, 1)), groups=2)) is Kind.FIXED
    assert kind(lambda m, x: m.add(g.Add, [m.flat(x), m.flat(x, True)], (1, 256))) is Kind.SAME
    turned = (1, 8, 8, 4)
    assert kind(lambda m, x: m.add(g.Transpose, [x], turned, (0, 2, 3, 1), scale_of=x)) is Kind.SAME
