"""The accelerator as a module: what it refuses, its arena, what a launch brings and fetches."""

import numpy as np
import pytest

from tilewright.compiler import graph as g
from tilewright.compiler import reference
from tilewright.compiler.accelerator import Accelerator, LayerAccelerator, arena_plan, is_view
from tilewright.compiler.network import compile_for, compile_graph
from tilewright.hw.config import PRESETS, Config
from tilewright.runtime.device import open_device
from tilewright.runtime.executable import HostStep, LaunchStep
from tilewright.runtime.loader import Loaded

CFG = PRESETS["pynq_z1"]
X = g.Tensor("x", (1, 16, 6, 6), scale=0.1, zero_point=3)


def like(name, *shape):
    return g.Tensor(name, shape or X.shape, scale=0.1, zero_point=3)


def conv(groups, channels=16, pads=(1, 1, 1, 1), x=X, y=None, name="conv"):
    weight = np.random.default_rng(0).integers(-99, 99, (channels, 16 // groups, 3, 3)).astype(np.int8)
    y = y or like("y", 1, channels, *g.pooled(x.shape[2:], (3, 3), (1, 1), pads))
    parameters = np.full(channels, 0.002, np.float32), np.zeros(channels, np.int32)
    return g.QConv2d(name, (x,), y, weight, *parameters, pads=pads, groups=groups)


REFUSED = [
    (conv(1, pads=(16, 0, 0, 0)), r"padding \(16, 0, 0, 0\): at most 15"),
    (g.Add("op", (X, like("b", 1, 16, 1, 1)), like("y")), r"operand of shape \(1, 16, 1, 1\) is repeated"),
    (g.ExactAveragePool("op", (X,), like("y", 1, 16, 7, 7), (2, 2), pads=(1, 1, 1, 1)), "windows of different numbers"),
    (g.Mean("op", (X,), like("y", 1, 6, 6), (1,)), r"mean over axes \(1,\)"),
    (g.Reshape("op", (X,), like("y", 1, 576)), "it moves elements"),
]


@pytest.mark.parametrize(("op", "why"), REFUSED, ids=lambda value: type(value).__name__)
def test_refusals_have_reasons(op, why):
    import re

    assert re.match(why, Accelerator(CFG).refusal(op))


def test_views_are_reshapes_of_vectors():
    vector, flat = like("v", 1, 64, 1, 1), like("f", 1, 64)
    assert is_view(g.Reshape("op", (vector,), flat)) and is_view(g.Reshape("op", (flat,), vector))
    assert not is_view(g.Reshape("op", (X,), like("y", 1, 576)))
    assert not is_view(g.Reshape("op", (flat,), like("y", 2, 32)))


def test_more_work_and_more_bytes_take_longer():
    accelerator, layers = Accelerator(CFG), LayerAccelerator(CFG)
    small, large = conv(1), conv(1, 64)
    for module in (accelerator, layers):
        assert 0 < module.seconds((small,)) < module.seconds((large,))
        assert 0 < module.transfer_seconds(X) < module.transfer_seconds(like("t", 1, 16, 60, 60))


def test_the_arena_holds_what_stays_inside_and_sums_take_the_place_of_an_operand():
    a, b, c, y = (like(name) for name in "abcy")
    ops = (
        conv(1, y=a, name="one"),
        conv(1, x=a, y=b, name="two"),
        g.Add("sum", (a, b), c),
        conv(1, x=c, y=y, name="last"),
    )
    graph = g.Graph("g", (X,), (y,), ops)
    plan = arena_plan(graph, ops, CFG)
    assert sorted(plan.addresses) == ["a", "b", "c"]
    assert plan.nbytes == plan.bound == 2 * 36 * 16
    executable = compile_graph(graph, CFG)
    (step,) = (s for s in executable.steps if isinstance(s, LaunchStep))
    (arena,) = (buffer for buffer in step.launch.buffers if buffer.name == "arena")
    assert arena.nbytes == plan.nbytes
    x = np.random.default_rng(0).integers(-128, 128, X.shape).astype(np.int8)
    with Loaded(executable, open_device("model", CFG)) as loaded:
        for _ in range(2):  # the arena holds the last run's values
            assert np.array_equal(loaded.run({"x": x})["y"], reference.trace(graph, {"x": x})["y"])


def test_an_input_is_brought_in_every_form_that_is_read():
    image = g.Tensor("x", (1, 3, 8, 8), scale=0.1, zero_point=3)
    weight = np.ones((3, 3, 3, 3), np.int8)
    parameters = np.full(3, 0.01, np.float32), np.zeros(3, np.int32)
    a, y = like("a", *image.shape), like("y", *image.shape)
    ops = (
        g.QConv2d("conv", (image,), a, weight, *parameters, pads=(1, 1, 1, 1)),
        g.Add("sum", (image, a), y),
    )
    graph = g.Graph("g", (image,), (y,), ops)
    executable = compile_for(graph, CFG, refused={"host": {"sum": "the test wants the accelerator"}}).executable
    assert [s.op for s in executable.steps if isinstance(s, HostStep)] == ["fold_columns", "pack", "unpack"]
    x = np.random.default_rng(0).integers(-128, 128, image.shape).astype(np.int8)
    with Loaded(executable, open_device("model", CFG)) as loaded:
        assert np.array_equal(loaded.run({"x": x})["y"], reference.trace(graph, {"x": x})["y"])


def test_what_fits_no_scratchpad_runs_on_the_host():
    cfg = Config("small", inp_bytes=64, wgt_bytes=1 << 12, acc_bytes=1 << 10, extensions=CFG.extensions)
    graph = g.Graph("g", (X,), (like("y"),), (conv(1),))
    executable = compile_graph(graph, cfg)
    assert all(isinstance(step, HostStep) for step in executable.steps)
