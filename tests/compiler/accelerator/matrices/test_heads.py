"""Heads as images: in place where they are whole blocks of channels, else lanes that move."""

import pytest

from tilewright.compiler.accelerator.launch import is_view
from tilewright.compiler.accelerator.module import Accelerator
from tilewright.compiler.graph import Heads, Requantize, Tensor
from tilewright.compiler.kernels import table
from tilewright.hw.config import PRESETS

CFG = PRESETS["pynq_z1"]
SPLITS = [((1, 32, 1, 9), (4, 8, 1, 9)), ((1, 60, 1, 5), (3, 20, 1, 5)), ((2, 24, 1, 7), (6, 8, 1, 7))]


@pytest.mark.parametrize("name", ["pynq_z1", "tiny"])
@pytest.mark.parametrize("shapes", [pair[::step] for pair in SPLITS for step in (1, -1)])
def test_lanes_move(exact, name, shapes):
    x, y = (Tensor(t, shape, scale=0.1) for t, shape in zip("xy", shapes))
    op = Heads("heads", (x,), y, False)
    exact(op, cfg=PRESETS[name])
    assert not is_view(op)


@pytest.mark.parametrize("shapes", [((1, 64, 1, 9), (4, 16, 1, 9)), ((4, 32, 1, 9), (2, 64, 1, 9))])
def test_whole_blocks_stay_where_they_are(exact, shapes):
    x, y, z = (Tensor(t, shape, scale=0.1) for t, shape in zip("xyz", (shapes[0], *shapes)))
    w = Tensor("w", shapes[1], scale=0.2)
    op = Heads("heads", (y,), z, True)
    launch = exact(Requantize("a", (x,), y), op, Requantize("b", (z,), w))
    assert is_view(op) and {b.name for b in launch.buffers if b.kind == "temp"} == {"arena"}
    assert Accelerator(CFG).seconds((op,)) == 0


def test_what_is_refused():
    x, y = Tensor("x", (1, 32, 1, 9)), Tensor("y", (4, 8, 1, 9))
    op = Heads("heads", (x,), y, False)
    assert not table.refusal(op, CFG)
    assert table.refusal(op, PRESETS["vta"]) == "it needs the extension overwrite"
