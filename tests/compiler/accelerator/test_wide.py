"""Convolutions with weights beyond int8, as one launch against the reference."""

from dataclasses import replace

import numpy as np
import pytest

from tilewright.compiler.accelerator.rewrites import WideConv, split_weights
from tilewright.compiler.conv_shape import output_size
from tilewright.compiler.graph import Graph, QConv2d, QDense, Reshape, Take, Tensor, reference
from tilewright.compiler.kernels import table
from tilewright.compiler.network import compile_graph
from tilewright.hw.config import PRESETS

CFG = PRESETS["pynq_z1"]


def wide(kernel=(3, 3), groups=1, strides=(1, 1), pads=(1, 1, 1, 1), dilations=(1, 1), low=-100):
    rng = np.random.default_rng(1)
    x = Tensor("x", (1, 32, 9, 8), scale=0.05, zero_point=-7)
    weight = rng.integers(-255, 255, (32, 32 // groups, *kernel)).astype(np.int16)
    reach = tuple((k - 1) * d + 1 for k, d in zip(kernel, dilations))
    y = Tensor("y", (1, 32, *output_size(x.shape[2:], reach, strides, pads)), scale=3.0 / groups, zero_point=9)
    parameters = np.full(32, 0.01, np.float32), rng.integers(-3000, 3000, 32).astype(np.int32)
    facts = {"strides": strides, "pads": pads, "dilations": dilations, "groups": groups, "float32_scale": True}
    return QConv2d("conv", (x,), y, weight, *parameters, low=low, **facts)


@pytest.mark.parametrize("kernel, pads", [((3, 3), (1, 1, 1, 1)), ((1, 1), (0, 0, 0, 0)), ((3, 2), (0, 0, 2, 1))])
@pytest.mark.parametrize("strides", [(1, 1), (2, 2)])
@pytest.mark.parametrize("groups", [1, 32])
def test_both_parts_of_every_weight_count(exact, kernel, pads, strides, groups):
    exact(wide(kernel, groups, strides, pads))


def dense():
    rng = np.random.default_rng(1)
    x, y = Tensor("x", (1, 40), scale=0.05, zero_point=-7), Tensor("y", (1, 33), scale=3.0, zero_point=9)
    weight = rng.integers(-255, 255, (33, 40)).astype(np.int16)
    return QDense("fc", (x,), y, weight, np.full(33, 0.01, np.float32), np.arange(33, dtype=np.int32))


def test_dense_layers_are_convolutions_of_one_pixel(exact):
    op = dense()
    ops = split_weights(Graph("g", op.inputs, (op.output,), (op,)), CFG).ops
    assert [type(each) for each in ops] == [Reshape, Take, WideConv, Reshape]
    x = np.random.default_rng(2).integers(-128, 128, (1, 40)).astype(np.int8)
    values = {"x": x}
    for each in ops:
        values[each.output.name] = reference.apply(each, *(values[t.name] for t in each.inputs))
    assert np.array_equal(values["y"], reference.apply(op, x))
    executable = compile_graph(Graph("g", op.inputs, (op.output,), (op,)), CFG)
    assert np.array_equal(executable.run({"x": x})[0]["y"], values["y"])


def test_work_is_that_of_the_original():
    op = wide()
    graph = Graph("g", op.inputs, (op.output,), (op,))
    take, conv = split_weights(graph, CFG).ops
    assert isinstance(take, Take) and isinstance(conv, WideConv) and conv.macs == op.macs
    assert conv.weight.dtype == np.int8 and np.array_equal(conv.scales, op.scales)
    assert np.array_equal(conv.weight.reshape(32, 32, 3, 2, 3).sum(3, dtype=np.int16), op.weight)


def test_what_stays_as_it_is():
    largest = wide()
    largest.weight[0, 0, 0, 0] = 255  # which two int8 numbers do not make
    for op, cfg in ((largest, CFG), (wide(dilations=(2, 1), pads=(2, 1, 2, 1)), CFG), (wide(pads=(9, 1, 9, 1)), CFG)):
        graph = Graph("g", op.inputs, (op.output,), (op,))
        assert split_weights(graph, cfg).ops == (op,)


def test_layers_of_equal_shapes_have_refusals_of_their_own():
    largest = wide(low=-101)  # which no other test has
    largest.weight[0, 0, 0, 0] = 255
    narrow = replace(largest, weight=np.clip(largest.weight, -128, 127).astype(np.int8))
    assert table.refusal(largest, CFG).endswith("not within int8")
    assert table.refusal(narrow, CFG) == ""
    assert table.refusal(replace(largest, name="other"), CFG).endswith("not within int8")
