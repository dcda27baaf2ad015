"""LiteRT's int8 functions by LOOKUP, REDUCE and requantising stores: byte-exact on the definition and on the model.

Functions of one value are a table each. Softmax is two tables of Q0.31 values, a maximum and a sum over lanes, and a
requantising store; between them the reciprocal of each row's sum, which is not an instruction: the host computes it.
"""

import numpy as np
import pytest

from tilewright.compiler.graph import tables
from tilewright.compiler.graph.operators import Tensor
from tilewright.hw.config import PRESETS
from tilewright.hw.isa import AluOp, Mem
from tilewright.hw.rounding import divide_by_power, quantize_multiplier
from tilewright.runtime.device import open_device
from tilewright.runtime.hostops.fixed_point import exp, high_product, reciprocal
from tilewright.runtime.hostops.reductions import softmax
from tilewright.runtime.layout import pack_par, pack_table
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


def exponentials(multiplier, exponent):
    """The tables of exp in Q0.31 and of its contribution to the sum, by difference + 127; 0 where it counts nothing."""
    difference = np.arange(-255, 1)
    counts = difference >= -((31 << 26) >> exponent)
    e = np.where(counts, exp(high_product(np.where(counts, difference, 0) << exponent, multiplier)), 0)
    return e, divide_by_power(e, 12)


def sums(x, both, on):
    """The sum of each row's contributions, by the device: bytes 0 to 3, as its lanes store them."""
    rows, entries = x.shape[0], x.shape[1] // BLOCK
    p = with_tables(*both)
    source, out = p.buffer("x", (rows * entries, BLOCK)), p.buffer("total", (4 * rows, BLOCK), kind="output")
    for row in range(rows):
        differences(p, source, row, entries)
        p.alu(AluOp.LOOKUP, [(entries, 1, 0)], 0, imm=1)
        p.alu(AluOp.ADD, [(entries - 1, 0, 1)], 0, 1)
        p.alu(AluOp.REDUCE, [], 0, imm=0)
        for byte in range(4):
            p.store(0, out, 4 * row + byte, x_size=1)
            p.alu(AluOp.SHR, [], 0, imm=8)
    outputs, _ = run(p.finish(), {"x": x.reshape(-1, BLOCK)}, open_device(on, PLUS))
    held = outputs["total"].reshape(rows, 4, BLOCK)
    assert (held == held[:, :, :1]).all()
    return np.ascontiguousarray(held[:, :, 0]).view("<i4")[:, 0].astype(np.int64)


def differences(p, source, row, entries):
    """x - max + 127 of `row` in the first accumulators; the maximum is in those behind them."""
    for base in (0, 64):
        p.load(Mem.ACC8, base, source, row * entries, x_size=entries)
    p.alu(AluOp.MAX, [(entries - 1, 0, 1)], 64, 65)
    p.alu(AluOp.REDUCE, [], 64, imm=1)
    p.alu(AluOp.MUL, [], 64, imm=-1)
    p.alu(AluOp.ADD, [(entries, 1, 0)], 0, 64)
    p.alu(AluOp.ADD, [(entries, 1, 0)], 0, imm=127)


def quotients(x, both, totals, on):
    """e / total of each row, by the device: parameters of a requantising store have the reciprocal."""
    rows, entries = x.shape[0], x.shape[1] // BLOCK
    headroom = 32 - np.frexp(totals.astype(np.float64))[1].astype(np.int64)
    inverse = reciprocal((totals << headroom) - (1 << 31))
    shift = headroom - 35
    inverse, shift = np.where(shift < -32, 0, inverse), np.maximum(shift, -32)  # below half of the last bit
    scale = {"multiplier": np.repeat(inverse, BLOCK), "exponent": np.repeat(shift, BLOCK)}
    data = pack_par(PLUS, bias=0, **scale, zero_point=-128, low=-128, high=127, contract="double")
    p = with_tables(*both)
    parameters = p.buffer("reciprocals", data.shape, 32, kind="constant", data=data.view(np.uint8).reshape(-1))
    source, out = p.buffer("x", (rows * entries, BLOCK)), p.buffer("y", (rows * entries, BLOCK), kind="output")
    p.load(Mem.PAR, 0, parameters, 0, x_size=rows)
    for row in range(rows):
        differences(p, source, row, entries)
        p.alu(AluOp.LOOKUP, [(entries, 1, 0)], 0, imm=0)
        p.store(0, out, row * entries, x_size=entries, par=row)
    outputs, _ = run(p.finish(), {"x": x.reshape(-1, BLOCK)}, open_device(on, PLUS))
    return outputs["y"].reshape(x.shape)


@pytest.mark.parametrize("on", ["spec", "model"])
@pytest.mark.parametrize("scale", [0.002, 0.03, 0.1, 1.3])
def test_softmax_is_exact_with_the_reciprocal_of_each_sum_from_the_host(on, scale):
    rng = np.random.default_rng(int(scale * 1000))
    x = np.concatenate([rng.integers(-128, 128, (5, 3 * BLOCK)), rng.integers(90, 128, (2, 3 * BLOCK))]).astype(np.int8)
    x[0] = -128
    multiplier, exponent = quantize_multiplier(scale * (1 << 26))
    both = exponentials(multiplier, exponent)
    got = quotients(x, both, sums(x, both, on), on)
    np.testing.assert_array_equal(got, softmax(x, axis=1, multiplier=multiplier, exponent=exponent))


def test_a_sum_of_very_many_equal_values_is_exact():
    """The quotient is below half of the last bit: the exponent would not fit its field."""
    x = np.full((1, 64 * BLOCK), 5, np.int8)
    x[0, ::7] = -90
    multiplier, exponent = quantize_multiplier(0.001 * (1 << 26))
    both = exponentials(multiplier, exponent)
    want = softmax(np.repeat(x, 3, axis=1), axis=1, multiplier=multiplier, exponent=exponent)
    got = quotients(x, both, 3 * sums(x, both, "model"), "model")
    np.testing.assert_array_equal(got, want[:, : x.shape[1]])
