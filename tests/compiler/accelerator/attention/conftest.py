"""Runs operators of one token as one launch, position by position; outputs and caches equal the reference's."""

import numpy as np
import pytest

from tilewright.compiler import graph as g
from tilewright.compiler.graph import reference
from tilewright.compiler.network import compile_for
from tilewright.hw.config import PRESETS
from tilewright.runtime import layout
from tilewright.runtime.device import open_device
from tilewright.runtime.loader import Loaded
from tilewright.runtime.verify import verify

PLUS, TINY = PRESETS["pynq_z1_plus"], PRESETS["tiny"]
SMALL = TINY.replace(name="small", tables=4, extensions=TINY.extensions | {"lookup", "lane_reduce"})


def values_of(t, rng):
    return rng.integers(-127, 128, t.shape).astype(np.int8)


def graph_of(ops, rng):
    """The graph of `ops`, whose last output it gives; caches are states, of random values before the first run."""
    caches = [op for op in ops if isinstance(op, g.Write)]
    known = {op.output.name for op in ops} | {op.x.name for op in caches}
    inputs = {t.name: t for op in ops for t in op.inputs if t.data is None and t.name not in known}
    states = tuple(g.State(op.x, values_of(op.x, rng), op.output) for op in caches)
    return g.Graph("g", tuple(inputs.values()), (ops[-1].output,), tuple(ops), states)


@pytest.fixture
def steps():
    """Runs `ops` with each of `symbols`, values of the inputs of one number, and returns the launch.

    The device `model` has the configuration pynq_z1_plus, any other a small one.
    """

    def run(*ops, symbols=({},), on="model", data=None):
        rng, cfg = np.random.default_rng(4), PLUS if on == "model" else SMALL
        graph = graph_of(ops, rng)
        host = {"host": {op.name: "the test wants the accelerator" for op in ops}}
        executable = compile_for(graph, cfg, "double", refused=host).executable
        (step,) = executable.launches
        verify(step.launch)
        state = {s.tensor.name: s.initial for s in graph.states}
        flat = g.Graph("flat", graph.inputs + tuple(s.tensor for s in graph.states), (ops[-1].output,), graph.ops)
        with Loaded(executable, open_device(on, cfg)) as loaded:
            for numbers in symbols:
                values = {name: np.array([n], np.int32) for name, n in numbers.items()}
                values |= {t.name: values_of(t, rng) for t in graph.inputs if t.name not in numbers} | (data or {})
                got = loaded.run(values)[ops[-1].output.name]
                expected = reference.trace(flat, values | state, "double")
                np.testing.assert_array_equal(got, expected[ops[-1].output.name])
                state = {s.tensor.name: expected[s.next.name] for s in graph.states}
                for name, kept in state.items():
                    packed = layout.pack_blocks(kept, cfg.batch, cfg.block_in)
                    np.testing.assert_array_equal(loaded.state[name], packed)
        return step.launch

    return run
