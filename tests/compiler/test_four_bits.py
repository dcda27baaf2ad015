"""Networks whose weights have a form of 4 bits, where the configuration loads it."""

import numpy as np
import pytest

from tilewright.apps.explore.trial import on_accelerator
from tilewright.compiler import graph as g
from tilewright.compiler.graph.reference import compare
from tilewright.hw.config import PRESETS
from tilewright.hw.isa import known_isa
from tilewright.runtime.device import open_device
from tilewright.runtime.loader import Loaded
from tilewright.runtime.verify import verify
from tilewright.sim.timing import predict

PYNQ = PRESETS["pynq_z1"]
FOUR = PYNQ.replace(name="four", extensions=PYNQ.extensions | {"wgt4"})


def network(rng, inputs=512, outputs=512, kernel=0):
    """A layer whose groups of 16 weights of an output are integers from -8 to 7, times a scale from 0 to 15."""
    values = rng.integers(-8, 8, (outputs, *([kernel] * 2 if kernel else []), inputs // 16, 16))
    weight = (values * rng.integers(0, 16, values.shape[:-1])[..., None]).reshape(*values.shape[:-2], inputs)
    weight = np.moveaxis(weight, -1, 1).astype(np.int8)
    scales, bias = rng.uniform(0.001, 0.01, outputs).astype(np.float32), rng.integers(-40000, 40000, outputs)
    image = (6, 6) if kernel else ()
    x, y = g.Tensor("x", (1, inputs, *image), scale=0.02, zero_point=-9), g.Tensor("y", (1, outputs, *image), scale=0.3)
    layer = weight, scales, bias.astype(np.int32)
    if kernel:
        op = g.QConv2d("layer", (x,), y, *layer, pads=(1, 1, 1, 1))
    else:
        op = g.QDense("layer", (x,), y, *layer)
    return g.Graph("layer", (x,), (y,), (op,))


def found(graph, cfg, rng):
    """(instructions of the launches, cycles) of the network on `cfg`; results are compared with the reference."""
    executable = on_accelerator(graph, cfg)
    inputs = {t.name: rng.integers(-128, 128, t.shape).astype(np.int8) for t in graph.inputs}
    with Loaded(executable, open_device("model", cfg)) as loaded:
        assert compare(graph, inputs, loaded.run(inputs)).difference is None
    isa, names = known_isa(cfg), set[str]()
    for step in executable.launches:
        verify(step.launch)
        names |= {isa.mnemonic(f) for f in isa.decode(step.launch.insn)}
    return names, sum(predict(step.launch).cycles for step in executable.launches)


@pytest.mark.parametrize("kernel", [0, 3], ids=["dense", "convolution"])
def test_weights_of_a_layer_are_loaded_as_4_bits(kernel):
    rng = np.random.default_rng(kernel)
    graph = network(rng, kernel=kernel, **({"inputs": 64, "outputs": 32} if kernel else {}))
    plain, before = found(graph, PYNQ, rng)
    few, after = found(graph, FOUR, rng)
    print(f"{before} cycles with 8 bits, {after} with 4")
    assert "LOAD.WGT" in plain and "LOADP.WGT4" in few and "LOAD.WGT" not in few
    assert after < (before if kernel else 0.57 * before)


def test_weights_without_that_form_stay():
    rng = np.random.default_rng(1)
    graph = network(rng, 64, 64)
    (layer,) = graph.ops
    assert isinstance(layer, g.QDense)
    layer.weight[5, 7] = 127
    names, _ = found(graph, FOUR, rng)
    assert "LOAD.WGT" in names and "LOADP.WGT4" not in names
