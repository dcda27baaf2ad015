"""Random small networks, every operator of them: exact on the model, whatever runs where."""

import numpy as np
import pytest

from tilewright.compiler.frontend.tflite.importer import import_tflite
from tilewright.compiler.graph.reference import compare
from tilewright.compiler.network import compile_graph
from tilewright.hw.config import PRESETS
from tilewright.runtime.loader import run
from tilewright.runtime.verify import verify


def check(network, cfg, contract="double"):
    """The network's executable, and the one with every value, give the reference's bytes."""
    graph = import_tflite(network.save())
    rng = np.random.default_rng(0)
    inputs = {t.name: rng.integers(-128, 128, t.shape).astype(np.int8) for t in graph.inputs}
    for every in (False, True):
        executable = compile_graph(graph, cfg, contract, every_value=every)
        for step in executable.launches:
            verify(step.launch)
        found = compare(graph, inputs, run(executable, inputs)[0], contract)
        assert found.difference is None, str(found.difference)
    assert found.operators == len(graph.ops)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("name", ["pynq_z1", "tiny"])
def test_random_networks_are_exact(random_network, seed, name):
    check(random_network(seed), PRESETS[name])


def test_random_networks_in_contract_single_and_on_vta(random_network):
    check(random_network(100), PRESETS["pynq_z1"], "single")
    check(random_network(101, layers=4), PRESETS["vta"])


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(200, 240))
def test_many_random_networks(random_network, seed):
    check(random_network(seed, layers=10), PRESETS["pynq_z1" if seed % 2 else "tiny"])
