"""Runs operators and graphs on the accelerator and compares them with the reference."""

from dataclasses import dataclass

import numpy as np
import pytest

from tests.compiler.kernels.networks import FloatNetwork
from tilewright.compiler import cost
from tilewright.compiler import graph as g
from tilewright.compiler.accelerator.module import Accelerator
from tilewright.compiler.frontend.tflite.importer import import_tflite
from tilewright.compiler.graph import reference
from tilewright.compiler.graph.reference import compare
from tilewright.compiler.kernels import table
from tilewright.compiler.network import compile_for, compile_graph
from tilewright.hw.config import PRESETS
from tilewright.runtime import layout
from tilewright.runtime.device import open_device
from tilewright.runtime.loader import Loaded
from tilewright.runtime.verify import verify
from tilewright.sim.timing import predict

PLUS, TINY = PRESETS["pynq_z1_plus"], PRESETS["tiny"]
SMALL = TINY.replace(name="small", tables=4, extensions=TINY.extensions | {"lookup", "lane_reduce"})


@pytest.fixture(scope="session")
def exact_graph():
    """Compile a graph for the accelerator alone, unless `refused` says else: its outputs equal the reference's.

    Returns what `compile_for` does; its launches are verified. Where the graph is one launch of the accelerator, what
    it costs is that launch's time; on the circuit that takes as many cycles, too. `data` are values of inputs by name,
    others are random.
    """

    def run(graph, cfg=PRESETS["pynq_z1"], *, contract="double", on="model", data=None, refused=None):
        host = {"host": {op.name: "the test wants the accelerator" for op in graph.ops}}
        compiled = compile_for(graph, cfg, contract, refused=host if refused is None else refused)
        launches = compiled.executable.launches
        for step in launches:
            verify(step.launch, memory=True)
        rng = np.random.default_rng(5)
        values = {t.name: rng.integers(-128, 128, t.shape).astype(np.int8) for t in graph.inputs} | (data or {})
        with Loaded(compiled.executable, open_device(on, cfg)) as loaded:
            got, stats = loaded.run(values), loaded.stats
        expected = reference.trace(graph, values, contract)
        for t in graph.outputs:
            np.testing.assert_array_equal(got[t.name], expected[t.name])
        choice, *others = compiled.assignment.choices
        if not others and choice.module.name == "accelerator" and launches:
            cycles = predict(launches[0].launch).cycles
            assert choice.module.seconds(choice.ops) * cost.CLOCK == pytest.approx(cycles, rel=0.02)
            if on == "rtl":
                assert stats.cycles == pytest.approx(cycles, rel=0.02)
        return compiled

    return run


@pytest.fixture(scope="session")
def exact(exact_graph):
    """Compile operators for the accelerator alone; their launch, whose results equal the reference's."""

    def run(*ops, **options):
        produced = {op.output.name for op in ops}
        inputs = {t.name: t for op in ops for t in op.inputs if t.data is None and t.name not in produced}
        compiled = exact_graph(g.Graph("g", tuple(inputs.values()), (ops[-1].output,), ops), **options)
        (step,) = compiled.executable.launches
        return step.launch

    return run


@pytest.fixture
def anywhere(exact_graph):
    """Compile a graph for all of the target, whose results are checked; its launches."""

    def run(graph, cfg=PRESETS["pynq_z1"], refused=None):
        return [step.launch for step in exact_graph(graph, cfg, refused=refused or {}).executable.launches]

    return run


@pytest.fixture
def only(monkeypatch):
    """Let one kernel alone compute the operators of a class, in this test, whichever the table would choose."""
    return lambda kind, record: monkeypatch.setitem(table.KERNELS, kind, (record,))


def values_of(t, rng):
    return rng.integers(-127, 128, t.shape).astype(np.int8)


@pytest.fixture
def steps():
    """Runs `ops` as one launch with each of `symbols`, values of inputs of one number: outputs and caches are exact.

    Returns the launch. The device `model` has the configuration pynq_z1_plus, any other a small one.
    """

    def run(*ops, symbols=({},), on="model", data=None):
        rng, cfg, y = np.random.default_rng(4), PLUS if on == "model" else SMALL, ops[-1].output
        caches = [op for op in ops if isinstance(op, g.Write)]
        known = {op.output.name for op in ops} | {op.x.name for op in caches}
        inputs = {t.name: t for op in ops for t in op.inputs if t.data is None and t.name not in known}
        states = tuple(g.State(op.x, values_of(op.x, rng), op.output) for op in caches)
        graph = g.Graph("g", tuple(inputs.values()), (y,), ops, states)
        host = {"host": {op.name: "the test wants the accelerator" for op in ops}}
        executable = compile_for(graph, cfg, "double", refused=host).executable
        (step,) = executable.launches
        verify(step.launch)
        state = {s.tensor.name: s.initial for s in states}
        flat = g.Graph("flat", graph.inputs + tuple(s.tensor for s in states), (y,), ops)
        with Loaded(executable, open_device(on, cfg)) as loaded:
            for numbers in symbols:
                values = {name: np.array([n], np.int32) for name, n in numbers.items()}
                values |= {t.name: values_of(t, rng) for t in graph.inputs if t.name not in numbers} | (data or {})
                got = loaded.run(values)[y.name]
                expected = reference.trace(flat, values | state, "double")
                np.testing.assert_array_equal(got, expected[y.name])
                state = {s.tensor.name: expected[s.next.name] for s in states}
                for name, kept in state.items():
                    packed = layout.pack_blocks(kept, cfg.batch, cfg.block_in)
                    np.testing.assert_array_equal(loaded.state[name], packed)
        return step.launch

    return run


VIEWS = {"Reshape", "Transpose"}  # many of which move no byte


@dataclass(frozen=True)
class Shares:
    """What a compiled network runs where: launches, the part of its MACs in them, kinds of operators on the host."""

    launches: int
    macs: float
    host: set[str]


@pytest.fixture
def samples():
    """Random inputs of the file at a path, in its order."""

    def make(path, count=3):
        rng, inputs = np.random.default_rng(11), import_tflite(path).inputs
        return [[rng.integers(-128, 128, t.shape).astype(np.int8) for t in inputs] for _ in range(count)]

    return make


@pytest.fixture
def assert_equal():
    """Asserts the same bytes in every output of every run, and outputs that depend on the inputs."""

    def check(found, expected):
        for column, wanted in zip(zip(*found), zip(*expected), strict=True):
            assert len(np.unique(np.stack(wanted))) > 2
            np.testing.assert_array_equal(np.stack(column), np.stack(wanted))

    return check


@pytest.fixture
def on_device():
    """Runs a network on the model, operator by operator, exactly as the golden interpreter; gives its `Shares`."""

    def run(path, given, config="pynq_z1", contract="double"):
        graph, cfg = import_tflite(path), PRESETS[config]
        compiled = compile_for(graph, cfg, contract)
        for executable in (compiled.executable, compile_graph(graph, cfg, contract, every_value=True)):
            state = reference.initial_state(graph)
            with Loaded(executable, open_device("model", cfg)) as loaded:
                for x in given:
                    inputs = {t.name: value for t, value in zip(graph.inputs, x)}
                    found = compare(graph, inputs, loaded.run(inputs), contract, state)
                    assert found.difference is None, str(found.difference)
        assert found.operators == len(graph.ops)
        launches = compiled.executable.launches
        alone = [choice for choice in compiled.assignment.choices if not isinstance(choice.module, Accelerator)]
        host = {type(op).__name__ for choice in alone for op in choice.ops} - VIEWS
        for step in launches:
            verify(step.launch)
        return Shares(len(launches), sum(step.macs for step in launches) / graph.macs, host)

    return run


@pytest.fixture
def network(tflite):
    """A maker of `FloatNetwork`s that are saved in the test's folder."""
    return lambda *args, **kwargs: FloatNetwork(tflite(*args, **kwargs))
