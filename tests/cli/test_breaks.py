"""Why a network is several launches, as `assign` and the report say it."""

from dataclasses import replace

import numpy as np
import pytest

from tests.compiler.kernels.operators import SAME, conv
from tilewright.cli.breaks import BREAK_COLUMNS, breaks
from tilewright.compiler import graph as g
from tilewright.compiler.graph import reference
from tilewright.compiler.network import compile_for
from tilewright.hw.config import PRESETS
from tilewright.runtime.loader import run

CFG = PRESETS["pynq_z1"]


def network(table):
    """Two convolutions with a function of one value between."""
    layers = [replace(conv(32, (9, 9), 32, pads=SAME), name=name) for name in ("first", "second")]
    x = replace(layers[0].x, name="x")
    y, z, out = (replace(layers[0].output, name=name) for name in ("y", "z", "out"))
    ends = ("first", x, y), ("second", z, out)
    first, second = (replace(layer, inputs=(t,), output=u) for layer, (_, t, u) in zip(layers, ends))
    return g.Graph("net", (x,), (out,), (first, g.Lookup("between", (y,), z, "f", table), second))


EVERY = np.arange(-128, 128).astype(np.int8)


def test_the_operator_between_two_launches():
    found = breaks(compile_for(network(EVERY[::-1].copy()), CFG))
    cells = "first to first", "between", "Lookup", "it needs the extension lookup", "--config pynq_z1_plus"
    assert found == [dict(zip(BREAK_COLUMNS, cells))]


@pytest.mark.parametrize("table, cfg", [(EVERY, CFG), (EVERY[::-1].copy(), PRESETS["pynq_z1_plus"])])
def test_one_launch_has_no_breaks(table, cfg):
    graph = network(table)
    compiled = compile_for(graph, cfg)
    assert breaks(compiled) == [] and len(compiled.executable.launches) == 1


def test_a_table_that_changes_nothing_is_no_work():
    graph = network(EVERY)
    x = {"x": np.random.default_rng(2).integers(-128, 128, graph.inputs[0].shape).astype(np.int8)}
    assert np.array_equal(run(compile_for(graph, CFG).executable, x)[0]["out"], reference.run(graph, x)[0]["out"])


def test_reasons_of_operators_that_other_modules_must_run():
    graph = network(EVERY[::-1].copy())
    refused = {"accelerator": {"between": "the test wants the host"}}
    rows = [breaks(compile_for(graph, PRESETS[name], refused=refused)) for name in ("pynq_z1_plus", "pynq_z1")]
    known = ["first to first", "between", "Lookup", "the test wants the host"]
    # the configuration in use is no remedy
    remedies = "a kernel of this operator (docs/kernels.md)", "--config pynq_z1_plus"
    assert rows == [[dict(zip(BREAK_COLUMNS, [*known, remedy]))] for remedy in remedies]
