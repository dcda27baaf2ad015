"""Transposed convolutions on the accelerator."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tilewright.compiler.graph import Graph, QConvTranspose2d, Tensor
from tilewright.compiler.kernels.language import why_not
from tilewright.compiler.kernels.transposed_conv import Phases, conv_transpose
from tilewright.compiler.network import compile_graph
from tilewright.hw.config import PRESETS
from tilewright.hw.errors import UnsupportedError


def transposed(n, c, size, o, kernel, strides, pads, seed=0):
    rng = np.random.default_rng(seed)
    grown = [(size[k] - 1) * strides[k] + kernel[k] - pads[k] - pads[k + 2] for k in (0, 1)]
    x = Tensor("x", (n, c, *size), scale=0.02, zero_point=int(rng.integers(-128, 128)))
    y = Tensor("y", (n, o, *grown), scale=0.5, zero_point=4)
    weight = rng.integers(-128, 128, (o, c, *kernel)).astype(np.int8)
    scale, bias = rng.uniform(0.001, 0.01, o).astype(np.float32), rng.integers(-999, 999, o).astype(np.int32)
    return QConvTranspose2d("op", (x,), y, weight, scale, bias, -110, 100, strides=strides, pads=pads)


def test_taps_of_each_phase():
    op = transposed(1, 1, (3, 3), 1, (4, 3), (2, 3), (1, 0, 1, 0))
    assert Phases.of(op, 0) == Phases(-1, 3, (((1, 1), (3, 0)), ((0, 2), (2, 1))))
    assert Phases.of(op, 1) == Phases(0, 1, (((0, 0),), ((1, 0),), ((2, 0),)))


@pytest.mark.parametrize("name", ["pynq_z1", "tiny"])
def test_upsampling_by_two(exact, name):
    exact(transposed(1, 3, (4, 4), 5, (3, 3), (2, 2), (0, 0, 1, 1)), cfg=PRESETS[name])
    exact(transposed(2, 8, (6, 5), 7, (4, 4), (2, 2), (1, 1, 1, 1)), cfg=PRESETS[name])


def test_weights_beyond_int8_are_the_hosts():
    op = transposed(1, 3, (4, 4), 5, (3, 3), (2, 2), (0, 0, 1, 1))
    wide = replace(op, weight=2 * op.weight.clip(-127, 127).astype(np.int16))
    assert why_not(conv_transpose, wide, PRESETS["tiny"]).endswith("not within int8")
    graph = Graph("g", (wide.x,), (wide.output,), (wide,))
    assert not compile_graph(graph, PRESETS["tiny"]).launches


def test_a_layer_of_a_generator(exact):
    launch = exact(transposed(1, 128, (8, 8), 64, (4, 4), (2, 2), (1, 1, 1, 1)))
    assert len(launch.insn) < 400


@settings(max_examples=20, deadline=None)
@given(st.data())
def test_random_ones_are_exact_wherever_they_run(exact_graph, data):
    draw = data.draw
    kernel, strides = draw(st.tuples(*[st.integers(1, 5)] * 2)), draw(st.tuples(*[st.integers(1, 4)] * 2))
    size, pads = draw(st.tuples(*[st.integers(1, 7)] * 2)), draw(st.tuples(*[st.integers(0, 2)] * 4))
    assume(all((size[k] - 1) * strides[k] + kernel[k] - pads[k] - pads[k + 2] > 0 for k in (0, 1)))
    op = transposed(
        draw(st.integers(1, 2)), draw(st.integers(1, 33)), size, draw(st.integers(1, 20)), kernel, strides, pads
    )
    graph = Graph("g", (op.x,), (op.output,), (op,))
    try:
        exact_graph(graph)
    except UnsupportedError:
        exact_graph(graph, refused={})


def sized(stride, kernel, size=(4, 3)):
    pads = max(0, kernel - stride) // 2
    return transposed(1, 19, size, 7, (kernel, kernel), (stride, stride), (pads, pads, 0, 0))


@pytest.mark.parametrize("stride", [1, 2, 3, 4])
@pytest.mark.parametrize("kernel", [2, 3, 4, 5])
def test_kernels_and_strides(exact, stride, kernel):
    exact(sized(stride, kernel))


@pytest.mark.parametrize("stride", [1, 2, 4])
def test_small_images(exact, stride):
    exact(sized(stride, 5, (1, 1)))
    exact(sized(stride, 3, (1, 6)), cfg=PRESETS["tiny"])


@pytest.mark.parametrize(
    ("c", "size", "kernel", "strides"),
    [(256, (7, 7), 5, (1, 1)), (201, (5, 4), 5, (2, 2)), (600, (3, 3), 4, (3, 2)), (530, (20, 20), 3, (4, 4))],
)
def test_weights_of_one_block_in_parts(exact, c, size, kernel, strides):
    op = transposed(1, c, size, 21, (kernel, kernel), strides, (1, 1, 0, 0))
    cfg = PRESETS["pynq_z1"]
    assert 2 * -(-c // cfg.block_in) * kernel**2 > cfg.wgt_depth
    exact(op)


def test_wide_images_are_cut_into_columns(exact):
    op = transposed(1, 17, (2, 300), 3, (4, 4), (4, 4), (0, 0, 0, 0))
    assert op.output.shape[3] > PRESETS["pynq_z1"].acc_depth // 2  # accumulators of a bank
    exact(op)
    exact(transposed(2, 9, (3, 40), 5, (3, 2), (2, 2), (1, 0, 0, 1)), cfg=PRESETS["tiny"])


def test_what_does_not_fit_says_so():
    op = transposed(1, 16, (4, 4), 16, (17, 17), (2, 2), (0, 0, 0, 0))
    assert why_not(conv_transpose, op, PRESETS["pynq_z1"]) == (
        "2x2 pixels of the output, and twice the weights (17, 17) of one block, do not fit pynq_z1"
    )
    executable = compile_graph(Graph("g", (op.x,), (op.output,), (op,)), PRESETS["pynq_z1"])
    assert not executable.launches
