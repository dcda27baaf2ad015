"""Which images of float32 values the accelerator quantises itself, and what its programs look like."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tilewright.compiler.accelerator.first_images import quantised_images
from tilewright.compiler.graph.host_calls import host_calls
from tilewright.compiler.kernels.quantise import steps_of
from tilewright.compiler.kernels.table import refusal
from tilewright.compiler.network import compile_for, compile_graph
from tilewright.hw.config import PRESETS
from tilewright.hw.errors import InputError
from tilewright.runtime.executable import HostStep, LaunchStep
from tilewright.runtime.loader import run

CFG = PRESETS["pynq_z1"]


def kinds(graph, cfg=CFG):
    return [type(op).__name__ for op in quantised_images(graph, cfg).ops]


def test_image_layout_and_quantisation_are_one_operator(network):
    graph = network()
    found = quantised_images(graph, CFG)
    assert kinds(graph) == ["QuantizeImage", "QConv2d"] and found.ops[0].x is graph.inputs[0]
    assert [call.name for call in host_calls(found.ops[0], "double")] == ["transpose", "quantize"]


def test_other_images_stay(network):
    graph = network()
    same = ["Transpose", "Quantize", "QConv2d"]
    assert kinds(network(ties_away=False)) == same  # ONNX: ties to even
    assert kinds(network(w=15)) == same  # rows are no whole entries
    assert kinds(replace(graph, outputs=(graph.ops[1].output, *graph.outputs))) == same
    again = replace(graph.ops[2], name="again", output=replace(graph.ops[2].output, name="z"))
    assert kinds(replace(graph, ops=(*graph.ops, again), outputs=(*graph.outputs, again.output))) == [*same, "QConv2d"]
    assert kinds(graph, PRESETS["vta"]) == same


def test_refusals(network):
    op: Any = quantised_images(network(), CFG).ops[0]
    assert not refusal(op, CFG)
    assert refusal(op, PRESETS["vta"]) == "it needs the extensions overwrite, requant, rescale"
    assert "no integers are exact" in refusal(replace(op, output=replace(op.output, scale=2.0**-100)), CFG)
    odd = replace(op.output, shape=(1, 3, 5, 7)), (replace(op.x, shape=(1, 5, 7, 3)),)
    assert "whole blocks of 16" in refusal(replace(op, output=odd[0], inputs=odd[1]), CFG)
    assert steps_of(op.output.scale, op.output.zero_point) is not None


def test_the_operator_checks_its_shapes(network):
    op = quantised_images(network(), CFG).ops[0]
    with pytest.raises(InputError, match="the input's shape"):
        replace(op, inputs=(replace(op.x, shape=(1, 3, 12, 16)),)).check()


def test_the_launch_reads_the_image_as_it_is(network):
    steps = compile_graph(network(128, 160), CFG).steps
    (launch,) = (step for step in steps if isinstance(step, LaunchStep))
    assert "x" in launch.bind.values()
    assert [step.op for step in steps if isinstance(step, HostStep)] == ["expect_numbers", "unpack"]


def test_where_the_convolution_runs_elsewhere_so_does_the_quantisation(network):
    graph = network(128, 160)
    found = compile_for(graph, CFG, refused={"accelerator": {"conv": "the test wants the host"}}).executable
    assert not found.launches
    whole = compile_graph(graph, CFG)
    x = {"x": np.full((1, 128, 160, 3), 0.7, np.float32)}
    assert (run(found, x)[0]["y"] == run(whole, x)[0]["y"]).all()
