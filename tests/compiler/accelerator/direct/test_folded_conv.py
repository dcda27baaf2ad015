"""Convolutions of few channels with parts of the window folded into channels: exact, and with fewer micro-ops."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.compiler import reference
from tilewright.compiler.accelerator.direct.fold import FoldTiles, best_fold
from tilewright.compiler.conv_shape import output_size
from tilewright.compiler.graph import Graph, QConv2d, Tensor
from tilewright.compiler.network import compile_graph
from tilewright.hw.config import PRESETS, Config
from tilewright.runtime.device import open_device
from tilewright.runtime.executable import HostStep, LaunchStep
from tilewright.runtime.loader import Loaded
from tilewright.runtime.verify import verify
from tilewright.sim.timing import predict

PYNQ = PRESETS["pynq_z1"]


def convolution(n, c, size, o, kernel, strides, pads, dilations, seed):
    rng = np.random.default_rng(seed)
    spans = tuple((k - 1) * d + 1 for k, d in zip(kernel, dilations))
    x = Tensor("x", (n, c, *size), scale=0.02, zero_point=int(rng.integers(-128, 128)))
    y = Tensor("y", (n, o, *output_size(size, spans, strides, pads)), scale=0.7, zero_point=-3)
    weight = rng.integers(-128, 128, (o, c, *kernel)).astype(np.int8)
    scale, bias = rng.uniform(0.001, 0.01, o).astype(np.float32), rng.integers(-500, 500, o).astype(np.int32)
    return QConv2d("conv", (x,), y, weight, scale, bias, strides=strides, pads=pads, dilations=dilations)


def run(op, cfg):
    """The executable; its result equals the reference on random input."""
    graph = Graph("g", (op.x,), (op.output,), (op,))
    executable = compile_graph(graph, cfg)
    x = np.random.default_rng(1).integers(-128, 128, op.x.shape).astype(np.int8)
    with Loaded(executable, open_device("model", cfg)) as loaded:
        got = loaded.run({"x": x})["y"]
    assert np.array_equal(got, reference.trace(graph, {"x": x})["y"])
    for step in executable.steps:
        if isinstance(step, LaunchStep):
            verify(step.launch)
    return executable


def test_micro_ops_and_host_steps():
    executable = run(convolution(2, 3, (16, 16), 20, (3, 3), (1, 1), (1, 1, 1, 1), (1, 1), 5), PYNQ)
    assert [s.op for s in executable.steps if isinstance(s, HostStep)] == ["fold_windows", "unpack"]
    (launch,) = (s.launch for s in executable.steps if isinstance(s, LaunchStep))
    assert len(launch.uops) <= 2 * 2 * 3 * 3  # slots, blocks, phases, entries of a window


def test_images_larger_than_the_scratchpads():
    cfg = Config(
        "small", wgt_bytes=1 << 14, inp_bytes=1 << 12, acc_bytes=1 << 14, extensions=PYNQ.extensions, uop_bytes=1 << 12
    )
    op = convolution(1, 3, (40, 40), 40, (5, 5), (2, 2), (2, 2, 2, 2), (1, 1), 3)
    assert best_fold(op, cfg) is not None
    run(op, cfg)


NARROW = PYNQ.replace(name="narrow", inp_bytes=1 << 11, acc_bytes=1 << 12)


def test_rows_that_fit_no_scratchpad_are_cut():
    op = convolution(2, 3, (9, 151), 40, (3, 3), (2, 1), (1, 1, 1, 1), (1, 1), 4)
    fold = best_fold(op, NARROW)
    assert fold is not None
    tiles = FoldTiles(op.shape, fold, NARROW)
    assert 0 < 151 % tiles.columns < tiles.columns < 151  # the last part is narrower
    run(op, NARROW)


def test_a_long_signal_takes_few_products():
    op = convolution(1, 1, (1, 8000), 64, (1, 80), (1, 4), (0, 0, 0, 0), (1, 1), 6)
    (launch,) = (s.launch for s in run(op, PYNQ).steps if isinstance(s, LaunchStep))
    issues = 5 * 4 * 1981  # 80 taps are five entries; four blocks of outputs
    assert issues < predict(launch).cycles < 1.15 * issues


@pytest.mark.parametrize("outputs", [16, 20])
def test_blocks_further_apart_than_a_stride_can_say(outputs):
    executable = run(convolution(1, 3, (520, 520), outputs, (2, 2), (2, 2), (0, 0, 0, 0), (1, 1), 7), PYNQ)
    assert any(isinstance(s, LaunchStep) for s in executable.steps)  # 67,600 entries to a block


@settings(max_examples=20, deadline=None)
@given(st.data())
def test_random_convolutions_are_exact(data):
    c = data.draw(st.integers(1, 5), "channels")
    kernel = data.draw(st.tuples(st.integers(1, 5), st.integers(2, 7)), "kernel")
    dilations = data.draw(st.tuples(st.integers(1, 2), st.integers(1, 2)), "dilations")
    strides = data.draw(st.tuples(st.integers(1, 3), st.integers(1, 3)), "strides")
    pads = data.draw(st.tuples(*[st.integers(0, 3)] * 4), "pads")
    more = data.draw(st.tuples(st.integers(0, 12), st.integers(0, 60)), "pixels")
    size = tuple((k - 1) * d + 1 + n for k, d, n in zip(kernel, dilations, more))
    op = convolution(1, c, size, data.draw(st.integers(1, 33)), kernel, strides, pads, dilations, c)
    run(op, data.draw(st.sampled_from([PYNQ, NARROW]), "configuration"))
