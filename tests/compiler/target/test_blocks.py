"""compiler/target/blocks.py: blocks of tokens give what the same tokens give one after the other."""

from dataclasses import replace

import numpy as np
import pytest

from tests.compiler.frontend.llama.conftest import llama_bytes
from tilewright.compiler import graph as g
from tilewright.compiler.frontend import import_model
from tilewright.compiler.frontend.llama.measure import Steps
from tilewright.compiler.graph import reference
from tilewright.compiler.kernels import table
from tilewright.compiler.kernels.cache import write_rows
from tilewright.compiler.network import compile_graph
from tilewright.compiler.target.variants import in_blocks
from tilewright.hw.config import PRESETS
from tilewright.hw.errors import Unfit
from tilewright.runtime import layout
from tilewright.runtime.device import open_device
from tilewright.runtime.executable import HostStep
from tilewright.runtime.loader import Loaded

CONTEXT, LONGEST = 80, 40
TOKENS = [1, *np.random.default_rng(5).integers(2, 40, CONTEXT - 1).tolist()]


def number(value):
    return np.array([value], np.int32)


@pytest.fixture(scope="module")
def graph(tmp_path_factory):
    path = tmp_path_factory.mktemp("llama") / "small.bin"
    path.write_bytes(llama_bytes(width=32, hidden=32, heads=4, kv_heads=2, context=CONTEXT))
    return import_model(path)


@pytest.fixture(scope="module")
def expected(graph):
    """(logits, states) after each number of tokens, one after the other."""
    steps, found = Steps(graph), []
    for token in TOKENS:
        logits = steps.logits(token)
        found.append((logits.tobytes(), {name: values.copy() for name, values in steps.state.items()}))
    return found


def test_every_length_leaves_the_same(graph, expected):
    """The graph itself: whole blocks of 1 to 40 tokens, then the rest."""
    rows = in_blocks(graph, 16)
    assert rows is not None
    assert [(t.name, t.shape, t.dtype) for t in rows.inputs] == [("tokens", (16,), "int32"), ("block", (1,), "int32")]
    assert rows.outputs[0].shape == (1, 40) and [s.tensor for s in rows.states] == [s.tensor for s in graph.states]
    for blocks in range(3):
        state = reference.initial_state(graph)
        for k in range(blocks):
            reference.run(rows, inputs_of(16 * k, 16), state=state)
        for place in range(16 * blocks, min(16 * blocks + 15, LONGEST)):
            outputs, _ = reference.run(graph, inputs_of(place, 1), state=state)
            logits, caches = expected[place]
            assert outputs["logits"].tobytes() == logits, place
            assert all(np.array_equal(state[name], values) for name, values in caches.items()), place
    state = {name: values.copy() for name, values in expected[63][1].items()}
    outputs, _ = reference.run(rows, inputs_of(64, 16), state=state)
    logits, caches = expected[79]
    assert outputs["logits"].tobytes() == logits
    assert all(np.array_equal(state[name], values) for name, values in caches.items())


def inputs_of(place, count):
    """The inputs of a run of `count` tokens from `place` on."""
    if count == 1:
        return {"token": number(TOKENS[place]), "position": number(place)}
    return {"tokens": np.array(TOKENS[place : place + count], np.int32), "block": number(place // count)}


def expect(loaded, outputs, wanted):
    logits, caches = wanted
    assert outputs["logits"].tobytes() == logits
    for name, values in loaded.state.items():
        assert values.tobytes() == layout.pack_blocks(caches[name], 1, 16).tobytes()


def test_the_device_leaves_the_same(graph, expected):
    """All lengths behind each number of blocks; the launch of the last one reads 80 positions, the others 64."""
    executable = compile_graph(graph, PRESETS["pynq_z1_plus"])
    launches = executable.launches
    assert [step.when for step in launches] == [
        ("position", 0, 64),
        ("position", 64, 80),
        ("block", 0, 4),
        ("block", 4, 5),
    ]
    assert [step.op for step in executable.steps if isinstance(step, HostStep) and step.when == ("block", 0, 4)] == [
        "chain"
    ]
    alone = executable.first_entry()
    assert alone.steps == executable.steps[: len(executable.steps) // 2] and alone.first_entry() is alone
    assert [t.name for t in alone.inputs] == ["token", "position"]
    assert len(alone.tensors) < len(executable.tensors) and alone.states == executable.states
    with Loaded(executable, open_device("model", executable.cfg)) as loaded:
        for blocks in (0, 1, 2):
            loaded.reset()
            for k in range(blocks):
                expect(loaded, loaded.run(inputs_of(16 * k, 16)), expected[16 * k + 15])
            for place in range(16 * blocks, min(16 * blocks + 15, LONGEST)):
                expect(loaded, loaded.run(inputs_of(place, 1)), expected[place])
        loaded.run(inputs_of(32, 16))
        for place in range(48, 64):
            loaded.run(inputs_of(place, 1))
        expect(loaded, loaded.run(inputs_of(64, 16)), expected[79])


def test_a_program_whose_caches_would_be_elsewhere_has_no_blocks(graph, monkeypatch):
    def one(k, op):
        if op.inputs[1].shape[0] == 16:
            raise Unfit("many")
        write_rows(k, op)

    monkeypatch.setitem(table.KERNELS, g.WriteRows, (one,))
    executable = compile_graph(graph, PRESETS["pynq_z1_plus"])
    assert [t.name for t in executable.inputs] == ["token", "position"] and len(executable.entries) == 1


def test_networks_that_are_no_such_step(graph):
    x, y = g.Tensor("x", (1, 4)), g.Tensor("y", (4, 1))
    assert in_blocks(g.Graph("net", (x,), (y,), (g.Reshape("r", (x,), y),)), 16) is None
    assert in_blocks(graph, 32) is None  # of 16 latest values
    embedding = graph.ops[0].output
    taken = g.Add("block", (embedding,) * 2, replace(embedding, name="block"))
    assert in_blocks(replace(graph, ops=(*graph.ops, taken)), 16) is None
    assert in_blocks(replace(graph, inputs=(*graph.inputs, x)), 16) is None
    both = g.Add("sum", (embedding,) * 2, replace(embedding, name="sum"))
    rows = in_blocks(replace(graph, ops=(*graph.ops, both), outputs=(*graph.outputs, both.output)), 16)
    assert rows is not None and [t.shape for t in rows.outputs] == [(16, 40), (16, 32)]
