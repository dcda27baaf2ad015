"""Runs single operators as one launch and compares them with the reference."""

import numpy as np
import pytest

from tilewright.compiler.graph import Graph, reference
from tilewright.compiler.network import compile_for
from tilewright.hw.config import PRESETS
from tilewright.runtime.device import open_device
from tilewright.runtime.executable import LaunchStep
from tilewright.runtime.loader import Loaded
from tilewright.runtime.verify import verify


@pytest.fixture
def exact():
    """Compile operators for the accelerator alone; their launch, whose results equal the reference's."""

    def run(*ops, cfg=PRESETS["pynq_z1"], contract="double"):
        produced = {op.output.name for op in ops}
        inputs = {t.name: t for op in ops for t in op.inputs if t.data is None and t.name not in produced}
        graph = Graph("g", tuple(inputs.values()), (ops[-1].output,), ops)
        host = {"host": {op.name: "the test wants the accelerator" for op in ops}}
        executable = compile_for(graph, cfg, contract, refused=host).executable
        (launch,) = (step.launch for step in executable.steps if isinstance(step, LaunchStep))
        verify(launch)
        rng = np.random.default_rng(5)
        values = {name: rng.integers(-128, 128, t.shape).astype(np.int8) for name, t in inputs.items()}
        with Loaded(executable, open_device("model", cfg)) as loaded:
            got = loaded.run(values)[ops[-1].output.name]
        assert np.array_equal(got, reference.trace(graph, values, contract)[ops[-1].output.name])
        return launch

    return run
