"""Sums of tensors of different channels in one launch, exact."""

from dataclasses import replace

import pytest

from tilewright.compiler import graph as g
from tilewright.compiler.accelerator.rewrites import absorb
from tilewright.compiler.kernels.stand_ins import AbsorbedPad
from tilewright.hw.config import PRESETS
from tilewright.hw.isa import Isa

CFG = PRESETS["pynq_z1"]


def network(narrow, wide, value, kind=g.Add, first=False):
    """A sum of an image of `wide` channels and one of `narrow`, padded with `value`, both made in the launch."""
    x, y = g.Tensor("x", (1, wide, 5, 7), scale=0.05, zero_point=-128), g.Tensor("y", (1, narrow, 5, 7), scale=0.08)
    a, b = replace(x, name="a", scale=0.06), replace(y, name="b", zero_point=9)
    c = replace(b, name="c", shape=x.shape)
    ops = (
        g.Requantize("one", (x,), a),
        g.Requantize("two", (y,), b),
        g.Pad("pad", (b,), c, ((0, 0), (0, wide - narrow), (0, 0), (0, 0)), value),
        kind("sum", (c, a) if first else (a, c), g.Tensor("z", x.shape, scale=0.09, zero_point=-17)),
    )
    return g.Graph("g", (x, y), (ops[-1].output,), ops)


@pytest.fixture
def run(exact_graph):
    """Compiles a graph, whose results are checked; the launches."""
    return lambda graph, cfg=CFG: [step.launch for step in exact_graph(graph, cfg, refused={}).executable.launches]


@pytest.mark.parametrize("narrow, wide", [(24, 28), (28, 32), (8, 48), (16, 64), (3, 4)])
@pytest.mark.parametrize("kind, first", [(g.Add, False), (g.Add, True), (g.Sub, False)])
def test_the_sum_makes_the_padding(narrow, wide, kind, first, run):
    (launch,) = run(network(narrow, wide, 9, kind, first))
    isa = Isa(CFG)
    assert "DWGEMM" in {isa.mnemonic(fields) for fields in isa.decode(launch.insn)}


def test_any_value_and_the_smallest_configuration(run):
    assert len(run(network(24, 28, -100))) == 1
    run(network(5, 11, 77), PRESETS["tiny"])


def test_what_others_read_is_padded_by_itself(run):
    graph = network(24, 28, 9)
    both = replace(graph, outputs=(*graph.outputs, graph.ops[2].output))
    assert not any(isinstance(op, AbsorbedPad) for op in absorb(both, CFG).ops)
    assert any(isinstance(op, AbsorbedPad) for op in absorb(graph, CFG).ops)
    run(both)


@pytest.mark.parametrize(
    "pads", [((0, 0), (4, 0), (0, 0), (0, 0)), ((0, 0), (0, 0), (1, 0), (0, 0)), ((0, 0), (0, 4), (0, 0), (0, 1))]
)
def test_other_paddings_stay(pads, run):
    x = g.Tensor("x", (1, 24, 5, 7), scale=0.05)
    y = g.Tensor("y", tuple(n + sum(pair) for n, pair in zip(x.shape, pads)), scale=0.05)
    other, z = replace(y, name="other"), replace(y, name="z", scale=0.09)
    graph = g.Graph("g", (x, other), (z,), (g.Pad("pad", (x,), y, pads, 0), g.Add("sum", (y, other), z)))
    assert not any(isinstance(op, AbsorbedPad) for op in absorb(graph, CFG).ops)
    run(graph)


def test_what_lacks_the_extension_pads_on_the_host(run):
    cfg = CFG.replace(extensions=CFG.extensions - {"depthwise"})
    graph = network(24, 28, 9)
    assert absorb(graph, cfg) is graph
    run(graph, cfg)


def test_one_padding_of_a_sum_is_absorbed(run):
    x, y = g.Tensor("x", (1, 24, 5, 7), scale=0.05), g.Tensor("y", (1, 20, 5, 7), scale=0.05)
    a, b = g.Tensor("a", (1, 40, 5, 7), scale=0.05), g.Tensor("b", (1, 40, 5, 7), scale=0.05)
    pads = [
        g.Pad(f"pad {t.name}", (t,), u, ((0, 0), (0, 40 - t.shape[1]), (0, 0), (0, 0)), 3) for t, u in ((x, a), (y, b))
    ]
    graph = g.Graph("g", (x, y), (z := g.Tensor("z", a.shape, scale=0.09),), (*pads, g.Add("sum", (a, b), z)))
    assert sum(isinstance(op, AbsorbedPad) for op in absorb(graph, CFG).ops) == 1
    run(graph)


def test_a_padding_whose_sum_runs_elsewhere_is_a_step_of_the_host(exact_graph):
    found = exact_graph(network(24, 28, 9), refused={"accelerator": {"sum": "the test refuses it"}})
    assert "pad" in {step.name for step in found.executable.steps}
