"""LiteRT's int8 functions of one value by LOOKUP: byte-exact on the definition and on the model."""

import numpy as np
import pytest

from tilewright.compiler.graph import tables
from tilewright.compiler.graph.operators import Tensor
from tilewright.hw.config import PRESETS
from tilewright.hw.isa import AluOp, Mem
from tilewright.runtime.device import open_device
from tilewright.runtime.layout import pack_table
from tilewright.runtime.loader import run
from tilewright.runtime.program import Program

PLUS = PRESETS["pynq_z1_plus"]
BLOCK = PLUS.block_out
EVERY = np.arange(-128, 128, dtype=np.int8)


def with_tables(*values):
    """A program that has loaded tables of `values`."""
    p = Program(PLUS)
    for k, table in enumerate(values):
        data = pack_table(table, PLUS)
        source = p.buffer(f"table_{k}", data.shape, 32, kind="constant", data=data.view(np.uint8).reshape(-1))
        p.load(Mem.PAR, PLUS.par_entries + k * PLUS.table_entries, source, 0, x_size=PLUS.table_entries)
    return p


def of(scale, zero):
    return Tensor("t", (1, 256), "int8", scale, zero)


@pytest.mark.parametrize("on", ["spec", "model"])
def test_functions_of_one_value_are_a_table(on):
    """All 256 inputs of four tables."""
    x = of(0.05, 3)
    made = [
        tables.table("logistic", x, of(1 / 256, -128)),
        tables.table("tanh", x, of(1 / 128, 0)),
        tables.hard_swish(x, of(0.04, -60)),
        tables.leaky_relu(0.1, x, of(0.03, 11)),
    ]
    p = with_tables(*made)
    source, out = p.buffer("x", (16, BLOCK)), p.buffer("y", (4 * 16, BLOCK), kind="output")
    for k in range(4):
        p.load(Mem.ACC8, 16 * k, source, 0, x_size=16)
        p.alu(AluOp.LOOKUP, [(16, 1, 0)], 16 * k, imm=k)
    p.store(0, out, 0, x_size=64)
    outputs, _ = run(p.finish(), {"x": EVERY.reshape(16, BLOCK)}, open_device(on, PLUS))
    np.testing.assert_array_equal(outputs["y"].reshape(4, 256), np.stack(made))
