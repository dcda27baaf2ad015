"""compiler/mapping/check.py: mappings that do not fit, each refused in one line."""

from dataclasses import replace

import numpy as np
import pytest

from tilewright.compiler import graph as g
from tilewright.compiler.mapping import ChannelMapping, ternary_channels
from tilewright.hw.config import PRESETS
from tilewright.hw.errors import InputError, TilewrightError, UnsupportedError

TWO = PRESETS["tiny_two"]


@pytest.fixture
def graph(net):
    made = net()
    made.add(g.MaxPool, [made.depthwise(made.conv(made.x, 4))], (1, 4, 8, 8), (1, 1), scale_of=made.ops[-1].output)
    return made.graph()


def refused(graph, layers, cfg=TWO, error: type[TilewrightError] = InputError):
    with pytest.raises(error) as caught:
        ternary_channels(graph, ChannelMapping(layers), cfg)
    text = str(caught.value)
    assert "\n" not in text and len(text) <= 300
    return text


def test_the_ternary_channels_of_each_layer(graph):
    mapping = ChannelMapping({"qconv2d0": {"gemm": (0, 2), "ternary": (3, 1)}, "qconv2d1": {"gemm": (0, 1, 2, 3)}})
    assert ternary_channels(graph, mapping, TWO) == {"qconv2d0": {1, 3}}
    whole = ChannelMapping({"qconv2d0": {"gemm": (0, 1, 2, 3), "ternary": ()}})
    assert ternary_channels(graph, whole, PRESETS["tiny"]) == {}


def test_unknown_layers(graph):
    text = refused(graph, {"conv2d0": {"gemm": (0,)}})
    assert text == "the mapping names layer 'conv2d0', which the network lacks; nearest are qconv2d0, qconv2d1"
    assert "its layers are qconv2d0, qconv2d1" in refused(graph, {"###": {}})
    assert "has no layers with weights" in refused(g.Graph("g", graph.inputs, graph.inputs, ()), {"a": {}})
    assert "is a MaxPool, without weights" in refused(graph, {"maxpool2": {"gemm": (0,)}})


def test_long_names_are_cut(net):
    made = net()
    made.conv(made.x, 4)
    (op,) = made.ops
    ops = tuple(replace(op, name=f"{'a/' * 99}{k}", output=replace(op.output, name=f"y{k}")) for k in range(4))
    text = refused(g.Graph("g", (made.x,), (ops[0].output,), ops), {"a/" * 90: {}})
    assert text.count("a/a/a/a/a/...a/a/a/a/a/") == 1 and text.count("...") == 5


def test_channels(graph):
    name = "qconv2d0"
    assert refused(graph, {name: {"gemm": (0, 1, 2), "ternary": (2, 3)}}) == (
        f"layer '{name}': channel 2 is mapped more than once; give each channel one unit"
    )
    assert "channel 1 is mapped more than once" in refused(graph, {name: {"gemm": (0, 1, 1, 2, 3)}})
    assert "channels 4, 5 are unknown; its 4 channels are 0 to 3" in refused(graph, {name: {"gemm": range(6)}})
    assert "channels 0, 2, 3 are not mapped; give each of its 4 channels a unit" in refused(
        graph, {name: {"gemm": (1,)}}
    )


def test_units(graph):
    assert "unknown unit 'analog'; units are gemm, ternary" in refused(graph, {"qconv2d0": {"analog": (0,)}})
    layers = {"qconv2d0": {"gemm": (0, 1, 2), "ternary": (3,)}}
    text = refused(graph, layers, PRESETS["pynq_z1"], UnsupportedError)
    assert "is mapped to unit ternary, which configuration pynq_z1 lacks: it has gemm alone" in text
    assert "unknown unit 'GEMM'" in refused(graph, {"qconv2d0": {"GEMM": (0,)}})
    refused(graph, {"qconv2d0": {"x" * 999: (0,)}})


def test_channels_of_any_size(graph):
    assert "channels 1000000 are unknown" not in (text := refused(graph, {"qconv2d0": {"gemm": (10**6,)}}))
    assert "channel 1000000 is unknown" in text
    refused(graph, {"qconv2d0": {"gemm": tuple(10**400 + k for k in range(9))}})
    assert "channels 0, 1, 2, 3 are not mapped" in refused(graph, {"qconv2d0": {}})
    assert "channels 0, 1, 2, 3 are not mapped" in refused(graph, {"qconv2d0": {"gemm": (), "ternary": ()}})


def test_layers_that_cannot_be_split(graph, net):
    split = {"gemm": (0, 1), "ternary": (2, 3)}
    assert "cannot be split over units: a depthwise convolution" in refused(graph, {"qconv2d1": split})
    made = net(shape=(1, 4, 3, 3))
    facts = made.parameters(4, (2, 1, 1))
    made.add(g.QConv2d, [made.x], (1, 4, 3, 3), *facts, groups=2)
    made.add(g.QConvTranspose2d, [made.x], (1, 4, 3, 3), *made.parameters(4, (4, 1, 1)))
    wide = made.parameters(4, (4, 1, 1))
    made.add(g.QConv2d, [made.x], (1, 4, 3, 3), wide[0].astype(np.int16), *wide[1:])
    assert "a convolution of 2 groups" in refused(made.graph(), {"qconv2d0": split})
    assert "a QConvTranspose2d" in refused(made.graph(), {"qconvtranspose2d1": split})
    assert "beyond int8" in refused(made.graph(), {"qconv2d2": split})
