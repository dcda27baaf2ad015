"""Networks on the behavioural model: accumulators and outputs equal the reference, whatever the configuration."""

from pathlib import Path

import numpy as np
import pytest

from tilewright.compiler import graph as g
from tilewright.compiler.frontend import import_model
from tilewright.compiler.graph import reference
from tilewright.compiler.graph.reference import compare
from tilewright.compiler.network import compile_for, compile_graph, compile_model, launch_cycles
from tilewright.compiler.target.host import HostModel
from tilewright.hw.config import PRESETS, Config
from tilewright.hw.errors import InputError
from tilewright.runtime.device import open_device
from tilewright.runtime.executable import HostStep
from tilewright.runtime.loader import Loaded, run
from tilewright.runtime.verify import verify
from tilewright.sim.dram import ZYNQ_HP

ODD = {
    "batch2": Config("batch2", 2, 8, 4, wgt_bytes=1 << 12, acc_bytes=1 << 12, inp_bytes=1 << 12),
    "wide": Config("wide", 1, 4, 16, wgt_bytes=1 << 13, acc_bytes=1 << 13, extensions=frozenset({"pad_value"})),
    "w4": Config("w4", 1, 8, 8, wgt_bits=4, wgt_bytes=1 << 12, acc_bytes=1 << 12, inp_bytes=1 << 12),
}
CONFIGS = {**PRESETS, **ODD}
PYNQ = PRESETS["pynq_z1"]
DIGITS = Path(__file__).parents[2] / "examples" / "digits" / "digits.onnx"


def linear(cls, name, x, y, weight, seed=0, low=-128, **geometry):
    rng = np.random.default_rng(seed)
    channels = len(weight)
    scales = rng.uniform(0.001, 0.01, channels).astype(np.float32)
    bias = rng.integers(-3000, 3000, channels).astype(np.int32)
    return cls(name, (x,), y, weight, scales, bias, low, 127, **geometry)


def network(weight_limit=128, n=1, seed=0):
    """float -> conv (odd padding, stride, dilation) -> max pool -> 1x1 conv -> average pool -> dense -> float."""
    rng = np.random.default_rng(seed)

    def weights(*shape):
        return rng.integers(-weight_limit, weight_limit, shape).astype(np.int8)

    image = g.Tensor("image", (n, 3, 11, 8), "float32")
    q = g.Tensor("q", image.shape, scale=0.02, zero_point=-9)
    a = g.Tensor("a", (n, 18, 6, 7), scale=0.1, zero_point=-128)
    b = g.Tensor("b", (n, 18, 3, 5), scale=0.1, zero_point=-128)
    c = g.Tensor("c", (n, 7, 3, 5), scale=0.2, zero_point=5)
    d = g.Tensor("d", (n, 7, 1, 3), scale=0.15, zero_point=-2)
    e = g.Tensor("e", (n, 21), scale=0.15, zero_point=-2)
    f = g.Tensor("f", (n, 10), scale=0.5, zero_point=1)
    geometry = {"strides": (2, 1), "pads": (2, 0, 1, 3), "dilations": (1, 2)}
    ops: tuple[g.Operator, ...] = (
        g.Quantize("quantize", (image,), q),
        linear(g.QConv2d, "first", q, a, weights(18, 3, 3, 3), 1, low=-128, **geometry),
        g.MaxPool("max", (a,), b, (2, 3), (2, 1)),
        linear(g.QConv2d, "pointwise", b, c, weights(7, 18, 1, 1), 2),
        g.AveragePool("mean", (c,), d, (3, 3), (1, 1)),
        g.Reshape("flatten", (d,), e),
        linear(g.QDense, "dense", e, f, weights(10, 21), 3),
        g.Dequantize("dequantize", (f,), g.Tensor("logits", f.shape, "float32")),
    )
    return g.Graph("net", (image,), (ops[-1].output,), ops)


def check(graph, cfg, contract="double", runs=2):
    """Run on the model; every accumulator and output byte equals the reference."""
    executable = compile_graph(graph, cfg, contract, accumulators=True)
    rng = np.random.default_rng(7)
    with Loaded(executable, open_device("model", cfg)) as loaded:
        for _ in range(runs):
            x = rng.normal(0, 1, graph.inputs[0].shape).astype(np.float32)
            outputs = loaded.run({graph.inputs[0].name: x})
            expected, accumulators = reference.run(graph, {graph.inputs[0].name: x}, contract)
            for name, acc in accumulators.items():
                assert np.array_equal(outputs[f"{name}.acc"], acc), name
            for name, value in expected.items():
                assert outputs[name].dtype == value.dtype and outputs[name].tobytes() == value.tobytes()
    return executable


@pytest.mark.parametrize("name", CONFIGS)
def test_a_network_is_exact_on_every_configuration(name):
    cfg = CONFIGS[name]
    executable = check(network(8 if cfg.wgt_bits == 4 else 128), cfg)
    launches = executable.launches
    assert [step.name for step in launches] == ["first", "pointwise", "dense"]
    for step in launches:
        verify(step.launch)


def test_the_single_contract_and_larger_batches():
    check(network(n=3), CONFIGS["batch2"], "single", runs=1)
    check(network(n=2), PRESETS["pynq_z1"], runs=1)


@pytest.mark.parametrize("name, pads", [("pynq_z1", []), ("vta", ["first.pad"])])
def test_padding_is_on_the_device_where_it_can_be(name, pads):
    steps = compile_graph(network(), PRESETS[name]).steps
    assert [step.name for step in steps if isinstance(step, HostStep) and step.op == "pad"] == pads


def test_calls_of_several_operators_are_dispatched_once():
    free = dict.fromkeys(
        ("mac", "depthwise_mac", "byte", "moved_byte", "softmax_byte", "float_mac", "float_value"), 0.0
    )
    compiled = compile_for(network(), PRESETS["pynq_z1"])
    assert compiled.host_seconds(HostModel(clock=1.0, dispatch=1.0, **free)) == 2  # before the launch and behind it


def test_tensors_of_the_graph_may_have_names_of_the_steps_between():
    x, y = g.Tensor("x", (1, 4)), g.Tensor("fc.pack", (1, 3))
    z = g.Tensor("fc.acc", (3, 1))
    ops = (linear(g.QDense, "fc", x, y, np.eye(3, 4, dtype=np.int8)), g.Reshape("turn", (y,), z))
    executable = compile_graph(g.Graph("net", (x,), (z,), ops), PRESETS["pynq_z1"])
    q = np.array([[1, -2, 3, 4]], np.int8)
    expected, _ = reference.run(g.Graph("net", (x,), (z,), ops), {"x": q})
    assert np.array_equal(run(executable, {"x": q})[0]["fc.acc"], expected["fc.acc"])


def test_wrong_input_shapes_are_named():
    cfg = PRESETS["pynq_z1"]
    with Loaded(compile_graph(network(), cfg), open_device("model", cfg)) as loaded:
        with pytest.raises(InputError, match=r"input 'image': shape \(3, 11, 8\) given, \(1, 3, 11, 8\) expected"):
            loaded.run({"image": np.zeros((3, 11, 8), np.float32)})
        with pytest.raises(InputError, match="holds NaN"):
            loaded.run({"image": np.full((1, 3, 11, 8), np.nan, np.float32)})


def test_what_a_configuration_cannot_hold_runs_on_the_host():
    cfg = ODD["w4"]
    found = compile_for(network(), cfg)
    assert not found.executable.launches
    (refusals,) = (c.refusals for c in found.assignment.choices if c.ops[0].name == "dense")
    assert refusals["accelerator, layer by layer"].endswith("wgt_bits is 4, which holds -8..7")
    with pytest.raises(InputError, match="contract 'triple': must be one of double, single"):
        compile_graph(network(), PRESETS["vta"], "triple")


@pytest.mark.parametrize("name", ["tiny", "pynq_z1"])
@pytest.mark.parametrize("contract", ["double", "single"])
def test_a_network_is_one_launch_and_exact(name, contract):
    graph, cfg = network(), PRESETS[name]
    executable = compile_graph(graph, cfg, contract)
    (step,) = executable.launches
    verify(step.launch)
    assert step.macs == graph.macs and [t.name for t in executable.inputs + executable.outputs] == ["image", "logits"]
    bring = "fold_windows" if name == "pynq_z1" else "pack"
    host = [[name for name, _ in s.attrs["stages"]] for s in executable.steps if isinstance(s, HostStep)]
    assert host == [["quantize", bring], ["unpack", "dequantize"]]
    x = np.random.default_rng(3).normal(0, 1, graph.inputs[0].shape).astype(np.float32)
    every = compile_graph(graph, cfg, contract, every_value=True)
    for program in (executable, every):
        found = compare(graph, {"image": x}, run(program, {"image": x})[0], contract)
        assert found.difference is None, str(found.difference)
    assert found.operators == len(graph.ops)


@pytest.mark.circuit
def test_shallow_token_channels_change_cycles_not_results():
    """The committed network, on the timing model, which computes the outputs too."""
    outputs, cycles = {}, {}
    for depth in (1, 2, 3, PYNQ.token_depth):
        cfg = PYNQ.replace(token_depth=depth)
        executable = compile_model(DIGITS, cfg, "double")
        for step in executable.launches:
            assert max(verify(step.launch).in_flight.values()) <= depth
        (tensor,) = executable.inputs
        x = np.random.default_rng(0).integers(0, 17, tensor.shape).astype(tensor.dtype)
        outputs[depth], stats = run(executable, {tensor.name: x}, "timing")
        cycles[depth] = stats.cycles
    for found in outputs.values():
        for name, array in outputs[PYNQ.token_depth].items():
            np.testing.assert_array_equal(found[name], array)
    assert cycles[1] > cycles[2] >= cycles[3] == cycles[PYNQ.token_depth]


@pytest.mark.parametrize(
    "config, changes",
    [("tiny", {"port_bytes": 1}), ("tiny", {"port_bytes": 2, "latency": 100}), ("pynq_z1", {"port_bytes": 1})],
)
def test_a_program_for_a_slow_memory_is_no_slower_there(config, changes):
    cfg, slow, graph = PRESETS[config], ZYNQ_HP.replace(**changes), import_model(DIGITS)
    plain, own = compile_for(graph, cfg), compile_for(graph, cfg, dram=slow)
    programs = [b"".join(step.launch.insn.tobytes() for step in one.executable.launches) for one in (plain, own)]
    taken = [
        launch_cycles(one.executable, slow) / 100 + 1e6 * one.host_seconds(HostModel()) for one in (plain, own)
    ]  # us at 100 MHz
    assert taken[1] <= taken[0] and plain.seconds(slow) > plain.seconds()
    if changes == {"port_bytes": 1}:
        assert taken[1] < taken[0] and programs[0] != programs[1]
    image = {"image": np.random.default_rng(5).uniform(-1, 1, (1, 1, 8, 8)).astype(np.float32)}
    for one in (plain, own):
        assert np.array_equal(run(one.executable, image)[0]["logits"], reference.run(graph, image)[0]["logits"])
