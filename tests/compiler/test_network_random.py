"""Random networks on the device give the golden interpreter's bytes."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tilewright.compiler.frontend.tflite.importer import import_tflite
from tilewright.compiler.graph import reference
from tilewright.compiler.graph.reference import compare
from tilewright.compiler.memory import graph_buffers, plan
from tilewright.compiler.network import compile_graph
from tilewright.hw.config import PRESETS
from tilewright.runtime.loader import run
from tilewright.runtime.verify import verify


def check_device(network, cfg, contract="double"):
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


@pytest.mark.parametrize(
    "seed, name, layers, contract",
    [
        *((seed, name, 6, "double") for seed in range(6) for name in ("pynq_z1", "tiny")),
        (100, "pynq_z1", 6, "single"),
        (101, "vta", 4, "double"),
        *(pytest.param(k, ("tiny", "pynq_z1")[k % 2], 10, "double", marks=pytest.mark.slow) for k in range(200, 240)),
    ],
)
def test_random_networks_are_exact(random_network, seed, name, layers, contract):
    check_device(random_network(seed, layers=layers), PRESETS[name], contract)


ANY_SEED = given(st.integers(0, 2**32 - 1))
# the function-scoped fixtures only name a folder
EXAMPLES = {"deadline": None, "derandomize": True, "suppress_health_check": [HealthCheck.function_scoped_fixture]}


def check(m, litert_outputs):
    m.graph.outputs = [t for t in m.shapes if t not in m.graph.inputs]  # every value
    path = m.save()
    graph = import_tflite(path)
    (name,) = (t.name for t in graph.inputs)
    for _ in range(2):
        x = m.rng.integers(-128, 128, graph.inputs[0].shape).astype(np.int8)
        mine, _ = reference.run(graph, {name: x})
        for t, expected in zip(graph.outputs, litert_outputs(path, x), strict=True):
            assert np.array_equal(mine[t.name], expected), t.name
    found = plan(graph_buffers(graph, in_place=True))
    assert found.bound <= found.nbytes <= found.greedy


@settings(max_examples=40, **EXAMPLES)
@ANY_SEED
def test_every_value_is_exact(random_network, litert_outputs, seed):
    check(random_network(seed, dense=False), litert_outputs)


@pytest.mark.slow
@settings(max_examples=600, **EXAMPLES)
@ANY_SEED
def test_every_value_is_exact_in_many(random_network, litert_outputs, seed):
    check(random_network(seed, layers=12, dense=False), litert_outputs)


def extreme_operator(m, kind):
    """One operator with scales anywhere in 2**-9 .. 2**3: shifts in both directions, saturation, narrow clamps."""
    rng = m.rng
    h, w, c = (int(n) for n in rng.integers(1, 7, 3))

    def quantisation():
        return float(np.float32(2 ** rng.uniform(-9, 3))), int(rng.integers(-128, 128))

    x, options = m.input((1, h, w, c), *quantisation()), {"fusedActivationFunction": int(rng.integers(0, 4))}
    if kind in ("ADD", "SUB", "MUL"):
        return m.op(kind, [x, m.input((1, h, w, c), *quantisation())], (1, h, w, c), *quantisation(), **options)
    if kind == "MEAN":
        return m.op(kind, [x, m.const(np.array([1, 2], np.int32))], (1, c), *quantisation())
    if kind in ("LOGISTIC", "TANH", "SOFTMAX"):
        scale = {"LOGISTIC": (1 / 256, -128), "TANH": (1 / 128, 0), "SOFTMAX": (1 / 256, -128)}[kind]
        return m.op(kind, [x], (1, h, w, c), *scale, **({"beta": 0.5} if kind == "SOFTMAX" else {}))
    if kind == "LEAKY_RELU":
        return m.op(kind, [x], (1, h, w, c), *quantisation(), alpha=float(rng.uniform(0, 1.5)))
    if kind.startswith(("RELU", "QUANTIZE")):
        return m.op(kind, [x], (1, h, w, c), *quantisation())
    depthwise, kernel = kind.startswith("DEPTHWISE"), (min(3, h), min(2, w))
    shape, axis = ((1, *kernel, 2 * c), 3) if depthwise else ((4, *kernel, c), 0)
    scale = (2 ** rng.uniform(-12, -2, shape[axis])).astype(np.float32)
    weights = m.const(rng.integers(-127, 128, shape).astype(np.int8), scale, 0, axis)
    unit = m.graph.tensors[x].quantization.scale[0] * scale
    bias = m.const(rng.integers(-3000, 3000, shape[axis]).astype(np.int32), unit)
    if kind == "TRANSPOSE_CONV":
        grown = (1, 2 * h, 2 * w, 4)
        inputs = [m.const(np.array(grown, np.int32)), weights, x, bias]
        return m.op(kind, inputs, grown, *quantisation(), strideH=2, strideW=2)
    options |= {"strideH": 1, "strideW": 1} | ({"depthMultiplier": 2} if depthwise else {})
    return m.op(kind, [x, weights, bias], (1, h, w, shape[axis]), *quantisation(), **options)


KINDS = ["ADD", "SUB", "MUL", "MEAN", "LOGISTIC", "TANH", "SOFTMAX", "LEAKY_RELU", "RELU", "RELU6", "RELU_N1_TO_1"]
KINDS += ["QUANTIZE", "CONV_2D", "DEPTHWISE_CONV_2D", "TRANSPOSE_CONV"]


@pytest.mark.parametrize("kind", KINDS)
def test_extreme_scales(tflite, litert_outputs, kind):
    for seed in range(15):
        m = tflite(seed=seed)
        m.output(extreme_operator(m, kind))
        path = m.save()
        graph = import_tflite(path)
        inputs = [m.rng.integers(-128, 128, t.shape).astype(np.int8) for t in graph.inputs]
        (mine,) = reference.run(graph, dict(zip((t.name for t in graph.inputs), inputs)))[0].values()
        (expected,) = litert_outputs(path, *inputs)
        assert np.array_equal(mine, expected), f"seed {seed}"
