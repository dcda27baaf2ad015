"""Runs operators and graphs on the accelerator and compares them with the reference."""

import numpy as np
import pytest

from tilewright.compiler import cost
from tilewright.compiler.graph import Graph, reference
from tilewright.compiler.kernels import table
from tilewright.compiler.network import compile_for
from tilewright.hw.config import PRESETS
from tilewright.runtime.device import open_device
from tilewright.runtime.loader import Loaded
from tilewright.runtime.verify import verify
from tilewright.sim.timing import predict


@pytest.fixture(scope="session")
def exact_graph():
    """Compile a graph for the accelerator alone, unless `refused` says else: its outputs equal the reference's.

    Returns what `compile_for` does; its launches are verified. `data` are values of inputs by name, others are random.
    """

    def run(graph, cfg=PRESETS["pynq_z1"], *, contract="double", on="model", data=None, refused=None):
        host = {"host": {op.name: "the test wants the accelerator" for op in graph.ops}}
        compiled = compile_for(graph, cfg, contract, refused=host if refused is None else refused)
        for step in compiled.executable.launches:
            verify(step.launch, memory=True)
        rng = np.random.default_rng(5)
        values = {t.name: rng.integers(-128, 128, t.shape).astype(np.int8) for t in graph.inputs} | (data or {})
        with Loaded(compiled.executable, open_device(on, cfg)) as loaded:
            got = loaded.run(values)
        expected = reference.trace(graph, values, contract)
        for t in graph.outputs:
            np.testing.assert_array_equal(got[t.name], expected[t.name])
        choice, *others = compiled.assignment.choices
        if not others and choice.module.name == "accelerator" and (launches := compiled.executable.launches):
            # what an operator costs is its launch
            cycles = choice.module.seconds(choice.ops) * cost.CLOCK
            assert cycles == pytest.approx(predict(launches[0].launch).cycles, rel=0.02)
        return compiled

    return run


@pytest.fixture(scope="session")
def exact(exact_graph):
    """Compile operators for the accelerator alone; their launch, whose results equal the reference's."""

    def run(*ops, **options):
        produced = {op.output.name for op in ops}
        inputs = {t.name: t for op in ops for t in op.inputs if t.data is None and t.name not in produced}
        compiled = exact_graph(Graph("g", tuple(inputs.values()), (ops[-1].output,), ops), **options)
        (step,) = compiled.executable.launches
        return step.launch

    return run


@pytest.fixture
def only(monkeypatch):
    """Let one kernel alone compute the operators of a class, in this test, whichever the table would choose."""
    return lambda kind, record: monkeypatch.setitem(table.KERNELS, kind, (record,))
