"""Recurrent operators step by step: each against onnxruntime."""

import numpy as np
import pytest

from tilewright.compiler.frontend.onnx.recurrent import MOST_STEPS

GATES = {"GRU": 3, "LSTM": 4}


def recurrent(m, kind, outputs, first=0, steps=6, bias=True, **attrs):
    """An operator of 4 hidden values on (steps, 2, 8), in `ways` directions; `first` of its values are inputs."""
    ways = 2 if attrs.get("direction") == "bidirectional" else 1
    shapes = (ways, 4 * GATES[kind], 8), (ways, 4 * GATES[kind], 4), (ways, 8 * GATES[kind])
    w, r, b = (m.const(m.rng.normal(0, 0.5, shape).astype(np.float32)) for shape in shapes)
    given = [m.input(f"first{k}", [ways, 2, 4]) for k in range(first)]
    inputs = [m.input("x", [steps, 2, 8]), w, r, b if bias else "", "", *given]
    return m.nodes_of(kind, inputs, outputs, "memory", hidden_size=4, **attrs)


@pytest.mark.parametrize("kind, outputs", [("GRU", ["y"]), ("GRU", ["y", "h"]), ("LSTM", ["y", "h", "c"])])
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("given", [True, False])
def test_memories(m, compared, kind, outputs, direction, given):
    for y in recurrent(m, kind, outputs, (1 if kind == "GRU" else 2) * given, direction=direction):
        m.output(m.node("Neg", y))
    compared(m, 1e-5)


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("bias", [True, False])
def test_the_reset_gate_may_come_after_the_product(m, compared, first, bias):
    (y,) = recurrent(m, "GRU", ["y"], first, steps=3, bias=bias, linear_before_reset=1)
    m.output(m.node("Neg", y))
    compared(m, 1e-5)


def test_last_values_alone_of_one_step(m, compared):
    _, h, c = recurrent(m, "LSTM", ["", "h", "c"], 2, steps=1)
    m.output(m.node("Neg", h))
    m.output(m.node("Neg", c))
    compared(m, 1e-5)


def test_activations_may_be_named(m, compared):
    (y,) = recurrent(m, "GRU", ["y"], activations=["Sigmoid", "Tanh"])
    m.output(m.node("Neg", y))
    compared(m, 1e-5)


@pytest.mark.parametrize(
    "attrs", [{"clip": 3.0}, {"activations": ["Relu", "Tanh"]}, {"layout": 1}, {"steps": MOST_STEPS + 1}]
)
def test_other_memories(m, refusal, attrs):
    m.output(recurrent(m, "GRU", ["y"], **attrs)[0])
    assert "GRU 'memory' has inputs or attributes that are not supported" in refusal(m.save())
