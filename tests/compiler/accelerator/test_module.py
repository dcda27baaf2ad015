"""The accelerator as a module: what it refuses, its arena, what a launch brings and fetches."""

import re
from pathlib import Path

import numpy as np
import pytest

from tilewright.compiler import cost
from tilewright.compiler import graph as g
from tilewright.compiler.accelerator.module import Accelerator, LayerAccelerator
from tilewright.compiler.frontend import import_model
from tilewright.compiler.kernels.language import added
from tilewright.compiler.kernels.pool import max_pool_sorted
from tilewright.compiler.kernels.table import cycles, overlap, refusal
from tilewright.compiler.network import compile_for, compile_graph, launch_cycles
from tilewright.hw.config import PRESETS, Config

CFG, PLUS = PRESETS["pynq_z1"], PRESETS["pynq_z1_plus"]
DIGITS = Path(__file__).parents[3] / "examples" / "digits" / "digits.onnx"
X = g.Tensor("x", (1, 16, 6, 6), scale=0.1, zero_point=3)


def test_refusals_have_reasons(like, conv):
    windows = {"kernel": (2, 2), "pads": (1, 1, 1, 1)}
    refused = [
        (conv(1, pads=(16, 0, 0, 0)), r"padding \(16, 0, 0, 0\): at most 15"),
        (g.ExactAveragePool("op", (X,), like("y", 1, 16, 7, 7), **windows), "windows of different numbers"),
        (g.Mean("op", (X,), like("y", 1, 6, 6), (1,)), r"mean over axes \(1,\)"),
        (g.Concat("op", (X, X), like("y", 2, 16, 6, 6), 0), r"int8 \(2, 16, 6, 6\) along axis 0"),
        (g.Pad("op", (X,), like("y", 1, 16, 22, 6), ((0, 0), (0, 0), (16, 0), (0, 0)), 3), "padding"),
        (g.Reshape("op", (X,), like("y", 1, 576)), "it moves elements"),
        (g.Requantize("op", (like("a", 1, 16, 6),), like("y", 1, 16, 6)), "3 dimensions"),
        (g.NearestRequantize("op", (X,), g.Tensor("y", X.shape, scale=0.2)), "no store rounds its ties to even"),
    ]
    for op, why in refused:
        assert re.match(why, Accelerator(CFG).refusal(op)), op


def test_layers_with_ternary_channels_need_their_unit(like):
    weight, ones, two = np.ones((32, 16), np.int8), np.ones(32, np.float32), PRESETS["pynq_z1_two"]
    op = g.QDense("d", (like("a", 1, 16),), like("b", 1, 32), weight, ones, np.zeros(32, np.int32), ternary=16)
    assert Accelerator(CFG).refusal(op) == "16 ternary channels: pynq_z1 has units gemm, not ternary"
    assert LayerAccelerator(CFG).refusal(op) == "16 ternary channels: only whole networks run on unit ternary"
    accelerator = Accelerator(two)
    assert not accelerator.refusal(op) and accelerator.seconds((op,)) > 0
    assert [memory.name for memory in accelerator.memories] == ["inp", "wgt", "twgt", "acc", "DRAM"]


def test_more_work_and_more_bytes_take_longer(like, conv):
    accelerator, layers = Accelerator(CFG), LayerAccelerator(CFG)
    small, large = conv(1), conv(1, 64)
    for module in (accelerator, layers):
        assert 0 < module.seconds((small,)) < module.seconds((large,))
        assert 0 < module.transfer_seconds(X) < module.transfer_seconds(like("t", 1, 16, 60, 60))


def test_a_maximum_takes_as_long_as_its_tiles(like):
    op = g.MaxPool("op", (like("a", 1, 64, 56, 56),), like("b", 1, 64, 28, 28), (3, 3), (2, 2), (1, 1, 1, 1))
    found = added(max_pool_sorted, op, CFG)
    assert found < 12 * 4 * 28 * 28  # of four blocks of channels: window by window the ALU would take 18


def test_what_fits_no_scratchpad_runs_on_the_host(like, conv):
    cfg = Config("small", inp_bytes=64, wgt_bytes=1 << 12, acc_bytes=1 << 10, extensions=CFG.extensions)
    graph = g.Graph("g", (X,), (like("y"),), (conv(1),))
    executable = compile_graph(graph, cfg)
    assert not executable.launches


def test_layers_cannot_be_faster_than_their_weights_arrive(like):
    rng = np.random.default_rng(1)
    weight = rng.integers(-99, 99, (640, 128)).astype(np.int8)
    parameters = np.full(640, 0.002, np.float32), np.zeros(640, np.int32)
    op = g.QDense("dense", (like("a", 1, 128),), like("b", 1, 640), weight, *parameters)
    for module in (Accelerator(CFG), LayerAccelerator(CFG)):
        assert module.seconds((op,)) > weight.nbytes / 8 / 100e6  # 8 bytes per cycle at 100 MHz


@pytest.mark.parametrize("name", ["tiny", "pynq_z1", "pynq_z1_plus"])
def test_costs_of_operators_add_up_to_the_launch(name):
    """Each alone, less what it overlaps with the one before."""
    compiled = compile_for(import_model(DIGITS), PRESETS[name])
    mine = [choice for choice in compiled.assignment.choices if choice.module.name == "accelerator"]
    module, ops = mine[0].module, [op for choice in mine for op in choice.ops if op.viewed is None]
    seconds = module.seconds(ops) - sum(map(module.overlap_seconds, ops, ops[1:]))
    assert seconds * cost.CLOCK == pytest.approx(launch_cycles(compiled.executable), rel=0.02)


def test_operators_in_any_order_overlap():
    """One that reads a cache before it is written, and one that reads what the next one makes."""
    cache, row, at = g.Tensor("c", (1, 64, 64, 1)), g.Tensor("r", (1, 64)), g.Tensor("p", (1,), "int32")
    read = g.Requantize("read", (cache,), g.Tensor("y", cache.shape, scale=2.0))
    write = g.WriteRows("write", (cache, row, at), g.Tensor("next", cache.shape))
    again = g.Requantize("again", (read.output,), g.Tensor("z", cache.shape))
    for one, other in ((read, write), (write, read), (again, read), (read, again)):
        assert not refusal(one, PLUS) and overlap(one, other, PLUS, {}) < cycles(other, PLUS)
