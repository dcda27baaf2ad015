"""Networks from files with mappings: the golden interpreter's values, and those of the device."""

from dataclasses import replace

import numpy as np
import pytest

from tilewright.compiler import graph as g
from tilewright.compiler.frontend.tflite.importer import import_tflite
from tilewright.compiler.graph import reference
from tilewright.compiler.graph.reference import compare
from tilewright.compiler.graph.regroup import ties
from tilewright.compiler.mapping import ChannelMapping, refusal, regroup
from tilewright.compiler.network import compile_graph, compile_model
from tilewright.hw.config import PRESETS
from tilewright.hw.errors import InputError, UnsupportedError
from tilewright.runtime.loader import run
from tilewright.runtime.verify import verify

TINY = PRESETS["tiny_two"]


def ternary_network(network, seed):
    """(The graph of a .tflite network with ternary weights instead of its own, a random mapping)."""
    graph, rng = import_tflite(network.save()), np.random.default_rng(seed)
    ops, layers, orders, tied = [], {}, {}, ties(graph)
    for op in graph.ops:
        if isinstance(op, g.Divisible) and not refusal(op):
            weight = rng.integers(-1, 2, op.weight.shape).astype(np.int8)
            op = replace(op, weight=weight, weight_scale=(op.weight_scale * 50).astype(np.float32))
            order = orders.setdefault(tied.root(op.output.name), rng.permutation(len(weight)).tolist())
            first = int(rng.integers(0, len(weight) + 1))
            layers[op.name] = {"gemm": order[:first], "ternary": order[first:]}
        ops.append(op)
    return replace(graph, ops=tuple(ops)), ChannelMapping(layers)


def inputs_of(graph, seed):
    rng = np.random.default_rng(seed)
    return {t.name: rng.integers(-128, 128, t.shape).astype(np.int8) for t in graph.inputs}


@pytest.mark.parametrize("seed", range(40))
def test_random_networks_compute_what_they_did(random_network, seed):
    graph, mapping = ternary_network(random_network(seed, layers=8), seed)
    x, new = inputs_of(graph, seed), regroup(graph, mapping, TINY)
    before, after = (reference.run(each, x)[0] for each in (graph, new))
    assert before.keys() == after.keys()
    for name, value in before.items():
        assert np.array_equal(value, after[name]), name
    split = {op.name: len(op.weight) - op.ternary for op in new.layers if isinstance(op, g.Divisible) and op.ternary}
    assert split.keys() == {name for name, units in mapping.layers.items() if units["ternary"]}
    assert not any(gemm % TINY.block_out for gemm in split.values())


def check(network, seed, cfg):
    """The mapped network's executable, and the one with every value, give the golden interpreter's bytes."""
    graph, mapping = ternary_network(network, seed)
    x = inputs_of(graph, seed)
    for every in (False, True):
        executable = compile_graph(graph, cfg, mapping=mapping, every_value=every)
        for step in executable.launches:
            verify(step.launch)
        found = compare(graph, x, run(executable, x, "model" if seed else "spec")[0])
        assert found.difference is None, str(found.difference)
    assert found.operators == len(graph.ops)


@pytest.mark.parametrize(("seed", "name"), [(0, "tiny_two"), (1, "pynq_z1_two"), (2, "tiny_two"), (3, "pynq_z1_two")])
def test_random_networks_on_the_device(random_network, seed, name):
    check(random_network(seed, layers=4), seed, PRESETS[name])


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(200, 240))
def test_many_random_networks_on_the_device(random_network, seed):
    check(random_network(seed, layers=8), seed, PRESETS["pynq_z1_two" if seed % 2 else "tiny_two"])


def convolution(tflite, weight):
    m = tflite()
    scale = np.full(len(weight), 0.02, np.float32)
    parameters = [m.const(weight.astype(np.int8), scale), m.const(np.zeros(len(weight), np.int32), 0.05 * scale)]
    shape = 1, 6, 6, len(weight)
    m.output(
        m.op("CONV_2D", [m.input((1, 6, 6, weight.shape[3])), *parameters], shape, padding=0, strideH=1, strideW=1)
    )
    return m.save()


def test_a_file_whose_weights_happen_to_be_ternary(tflite):
    rng = np.random.default_rng(0)
    weight = rng.integers(-127, 128, (8, 3, 3, 4))
    weight[[1, 4, 6]] = rng.integers(-1, 2, (3, 3, 3, 4))
    path = convolution(tflite, weight)
    graph = import_tflite(path)
    (name,) = (op.name for op in graph.layers)
    mapping = {"version": 1, "layers": {name: {"gemm": [0, 2, 3, 5, 7], "ternary": [1, 4, 6]}}}
    x = inputs_of(graph, 0)
    expected = reference.run(graph, x)[0]
    executable = compile_model(path, "tiny_two", mapping=mapping)
    found = run(executable, x, "spec")[0]
    assert all(np.array_equal(found[key], value) for key, value in expected.items())
    mapping["layers"][name] = {"gemm": [1, 2, 3, 4, 5, 6, 7], "ternary": [0]}
    with pytest.raises(InputError, match="channel 0 cannot be ternary: it has weights of size"):
        compile_model(path, "tiny_two", mapping=mapping)


def test_accumulators_are_not_mapped(tflite):
    graph = import_tflite(convolution(tflite, np.ones((8, 3, 3, 4), int)))
    with pytest.raises(UnsupportedError, match="give accumulators or mapping, not both"):
        compile_graph(graph, TINY, accumulators=True, mapping=ChannelMapping({}))
