"""Runs operators as one launch on random values; every output equals the reference's."""

from dataclasses import replace

import numpy as np
import pytest

from tilewright.compiler import graph as g
from tilewright.compiler.graph import reference
from tilewright.compiler.network import compile_for
from tilewright.hw.config import PRESETS
from tilewright.runtime.device import open_device
from tilewright.runtime.executable import LaunchStep
from tilewright.runtime.loader import Loaded
from tilewright.runtime.verify import verify
from tilewright.sim.timing import predict


@pytest.fixture
def launch():
    """Runs `ops` on the accelerator alone and returns the launch; `data` are the values of inputs by name."""

    def run(*ops, cfg=PRESETS["pynq_z1_plus"], on="model", data=None):
        rng = np.random.default_rng(4)
        made = {op.output.name for op in ops}
        inputs = {t.name: t for op in ops for t in op.inputs if t.data is None and t.name not in made}
        graph = g.Graph("g", tuple(inputs.values()), (ops[-1].output,), ops)
        host = {"host": {op.name: "the test wants the accelerator" for op in ops}}
        executable = compile_for(graph, cfg, "double", refused=host).executable
        (step,) = (step for step in executable.steps if isinstance(step, LaunchStep))
        verify(step.launch, memory=True)
        values = {t.name: rng.integers(-128, 128, t.shape).astype(np.int8) for t in graph.inputs} | (data or {})
        with Loaded(executable, open_device(on, cfg)) as loaded:
            got = loaded.run(values)[ops[-1].output.name]
        np.testing.assert_array_equal(got, reference.trace(graph, values, "double")[ops[-1].output.name])
        return step.launch

    return run


@pytest.fixture
def added(launch):
    """The cycles that a second operator of the kind of `op`, which reads the first's output, adds to a launch."""

    def run(op, **options):
        first = replace(op, name="first", output=replace(op.output, name="first"))
        second = replace(op, inputs=(first.output, *op.inputs[1:]))
        return predict(launch(first, second, **options)).cycles - predict(launch(first, **options)).cycles

    return run
