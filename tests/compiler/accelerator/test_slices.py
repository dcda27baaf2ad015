"""Depthwise convolutions of a part of the channels, read and written where they lie, exact."""

from dataclasses import replace

import numpy as np
import pytest

from tilewright.compiler import graph as g
from tilewright.compiler.accelerator.rewrites import absorb
from tilewright.compiler.kernels.stand_ins import AbsorbedSlice
from tilewright.hw.config import PRESETS

TINY = PRESETS["tiny"]
RNG = np.random.default_rng(5)


def convolution(name, x, y, groups=1):
    """A 3x3 convolution of padding 1."""
    weight = RNG.integers(-127, 128, (y.shape[1], x.shape[1] // groups, 3, 3)).astype(np.int8)
    scale, bias = np.full(y.shape[1], 2.0**-9, np.float32), RNG.integers(-500, 500, y.shape[1]).astype(np.int32)
    return g.QConv2d(name, (x,), y, weight, scale, bias, pads=(1, 1, 1, 1), groups=groups)


def network(channels, begin, count, block=8):
    """A convolution, then one of its results beside a depthwise one of `count` channels from `begin` on, joined."""
    x = g.Tensor("x", (1, 4, 6, 5), scale=0.05)
    tensors = {
        name: g.Tensor(name, (1, n, 6, 5), scale=0.06, zero_point=-128)
        for name, n in (("a", channels), ("b", block), ("c", count), ("d", count), ("y", block + count))
    }
    a, b, c, d, y = tensors.values()
    ops = (
        convolution("first", x, a),
        convolution("standard", a, b),
        g.StridedSlice("cut", (a,), c, (0, begin, 0, 0), (1, 1, 1, 1)),
        convolution("depthwise", c, d, count),
        g.Concat("join", (b, d), y, 1),
    )
    return g.Graph("g", (x,), (y,), ops)


@pytest.fixture
def run(exact_graph):
    """Compiles a graph, whose results are checked; the launches. Layers are not the host's unless `refused`."""

    def checked(graph, cfg=TINY, refused=None):
        none_on_host = {"host": {op.name: "the test refuses it" for op in graph.layers}}
        return [step.launch for step in exact_graph(graph, cfg, refused=refused or none_on_host).executable.launches]

    return checked


def absorbed(graph, cfg=TINY):
    return any(isinstance(op, AbsorbedSlice) for op in absorb(graph, cfg).ops)


@pytest.mark.parametrize(("channels", "begin", "count"), [(12, 8, 4), (12, 0, 4), (12, 4, 4), (14, 8, 6), (16, 4, 12)])
def test_nothing_is_copied(channels, begin, count, run):
    graph = network(channels, begin, count)
    assert absorbed(graph)
    (launch,) = run(graph)
    assert launch.origins is not None
    names = {name for k in launch.origins.of for name in launch.origins.paths[k][:1]}
    assert names == {"first", "standard", "depthwise"}


def test_other_configurations(run):
    run(network(32, 16, 16, 16), PRESETS["pynq_z1"])
    run(network(40, 16, 24, 32), PRESETS["pynq_z1_plus"])


@pytest.mark.parametrize(("channels", "begin", "count"), [(12, 2, 4), (12, 4, 3)])
def test_parts_of_blocks_are_copied(channels, begin, count, run):
    graph = network(channels, begin, count)
    assert not absorbed(graph)
    run(graph)


def test_what_others_read_is_copied(run):
    graph = network(12, 8, 4)
    both = replace(graph, outputs=(*graph.outputs, graph.ops[2].output))
    assert not absorbed(both)
    run(both)


def test_without_depthwise_products_it_is_copied(run):
    cfg = TINY.replace(extensions=TINY.extensions - {"depthwise"})
    graph = network(12, 8, 4)
    assert not absorbed(graph, cfg)
    run(graph, cfg)


def test_a_slice_whose_reader_runs_elsewhere(run):
    run(network(12, 8, 4), refused={"accelerator": {"depthwise": "the test refuses it"}})
