"""Layers one by one, requantised by the host; whole networks of them are in test_network.py."""

import numpy as np
import pytest

from tilewright.compiler import graph as g
from tilewright.compiler.accelerator import layerwise
from tilewright.compiler.network import compile_graph
from tilewright.compiler.target.module import Refusal
from tilewright.compiler.target.steps import Steps
from tilewright.hw.config import PRESETS, Config, load_config
from tilewright.runtime.loader import run

X, Y = g.Tensor("x", (1, 8, 6, 6), zero_point=3), g.Tensor("y", (1, 8, 6, 6))


def conv(groups=1):
    weight = np.full((8, 8 // groups, 3, 3), -128, np.int8)
    parameters = np.ones(8, np.float32), np.zeros(8, np.int32)
    return g.QConv2d("conv", (X,), Y, weight, *parameters, pads=(1, 1, 1, 1), groups=groups)


def test_refusals():
    assert layerwise.refusal(conv(), PRESETS["vta"]) == ""
    assert layerwise.refusal(conv(8), PRESETS["vta"]) == "it has 8 groups"
    narrow = Config("w4", wgt_bits=4, wgt_bytes=1 << 16)
    assert layerwise.refusal(conv(), narrow) == "weights -128..-128: wgt_bits is 4, which holds -8..7"
    assert "inp_bits is 4" in layerwise.refusal(conv(), Config(inp_bits=4, inp_bytes=1 << 14))


@pytest.mark.parametrize(("name", "kinds"), [("vta", ["pad", "pack"]), ("pynq_z1", ["pack"])])
def test_steps_of_a_layer(name, kinds):
    steps = Steps(g.Graph("g", (X,), (Y,), (conv(),)), PRESETS[name])
    layerwise.generate(steps, steps.graph.of(g.Divisible))
    assert [getattr(s, "op", "launch") for s in steps.steps] == [*kinds, "launch", "accumulators", "requantise"]
    assert steps.executable().steps[len(kinds)].macs == conv().macs


def test_a_window_that_the_weights_memory_does_not_hold_stays_on_the_host():
    graph = g.Graph("g", (X,), (Y,), (conv(),))
    few = load_config("1x16_i8w8a32_15_15_11_17")  # 8 entries of weights
    with pytest.raises(Refusal, match="one output block needs 9 entries of input and 9 of weights; it has 2048 and 8"):
        layerwise.generate(Steps(graph, few), graph.of(g.Divisible))
    executable = compile_graph(graph, few)
    assert not executable.launches
    found = run(executable, {"x": np.full(X.shape, 4, np.int8)})[0]["y"]
    assert (found == -128).all()  # 32 to 72 products of -128 and 1
