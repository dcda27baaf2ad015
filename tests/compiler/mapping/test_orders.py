"""compiler/mapping/orders.py: one order for all layers that share a tensor's."""

import pytest

from tilewright.compiler.graph.regroup import Orders, ties
from tilewright.hw.errors import InputError


def orders(net, block=4, **ternary):
    graph = net.graph()
    return Orders(graph, ties(graph), {name: frozenset(found) for name, found in ternary.items()}, block)


def of(found, tensor):
    order = found.of(tensor.name)
    return None if order is None else order.tolist()


def natural(found, op):
    order = found.natural(op)
    return None if order is None else order.tolist()


def test_units_are_one_behind_the_other_with_dead_channels_between(net):
    made = net()
    x, y = made.conv(made.x, 6), made.conv(made.x, 6)
    found = orders(made, qconv2d0={1, 4})
    assert of(found, x) == [0, 2, 3, 5, 1, 4] and of(found, y) is None and of(found, made.x) is None
    found = orders(made, qconv2d0={0, 4, 5})
    assert of(found, x) == [1, 2, 3, -1, 0, 4, 5] and found.ternary == {"qconv2d0": 3}
    found = orders(made, qconv2d0=range(6))
    assert of(found, x) is None and found.ternary == {"qconv2d0": 6}


def test_nested_channels_are_the_last_of_each_layer(net):
    made = net()
    x, y, z = (made.conv(made.x, 9) for _ in range(3))
    total = made.total(made.total(x, y), z)
    found = orders(made, qconv2d0={0, 1, 8}, qconv2d1={8})
    assert of(found, x) == of(found, total) == of(found, z) == [2, 3, 4, 5, 6, 7, -1, -1, 0, 1, -1, -1, 8]
    assert found.ternary == {"qconv2d0": 5, "qconv2d1": 1}
    found = orders(made, qconv2d0={0, 1}, qconv2d2={0, 1})
    assert found.ternary == {"qconv2d0": 2, "qconv2d2": 2}


def test_channels_that_are_not_nested_are_refused(net):
    made = net()
    made.total(made.conv(made.x, 9), made.conv(made.x, 9))
    with pytest.raises(InputError) as caught:
        orders(made, qconv2d0={0, 1, 2, 3, 4, 5}, qconv2d1={7, 0})
    assert str(caught.value) == (
        "layers 'qconv2d0' and 'qconv2d1' share one order of channels, as a sum of them needs: the ternary channels of "
        "one must be among the other's; 1, 2, 3, 4, ... are in the first alone, 7 in the second; map them alike"
    )


def test_orders_that_follow_others(net):
    made = net(shape=(1, 3, 1, 2))
    x, y = made.conv(made.x, 2), made.conv(made.x, 3)
    row = made.flat(x)
    total = made.total(row, made.dense(row, 4))
    found = orders(made, block=2, qconv2d0={0})
    assert of(found, x) == [1, -1, 0] and of(found, y) is None
    assert of(found, total) == [2, 3, -1, -1, 0, 1]
    found = orders(made, block=2, qconv2d0={0}, qdense3={1})  # what is mapped decides
    assert of(found, total) == [0, 2, 3, -1, 1] and natural(found, made.ops[2]) == [2, 3, -1, -1, 0, 1]
