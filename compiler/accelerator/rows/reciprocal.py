"""TensorFlow Lite's reciprocal of a sum (runtime/softmax.py) on the accelerator, bit by bit.

Every lane has a sum of its own. A product of two computed values is a RESCALE whose multipliers are one of them
(scales.py). It rounds as `high_product` does, so that each step of Newton's method is the kernel's.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ....hw.config import Config
from ....hw.isa import AluOp, Mem
from ....runtime import softmax as kernel
from ....runtime.buffer import Buffer
from ..direct import lookup
from ..recording import Recording
from . import scales

LEAST_BITS, MOST_BITS = 20, 29  # of a sum: the largest value adds 2**19, and with the exponent's limit
LARGEST = 1 << MOST_BITS  # sums are below
STEPS = 3  # of Newton's method
_ARRAYS = 5  # of accumulators: half the sum, its shift, the reciprocal and two copies
_GUESS, _ONE, _TWO = kernel.GUESS, 1 << 29, 1 << 30  # 48/17, 1 and 2 with two integer bits
_NUMBERS = np.array([_GUESS, _ONE, _TWO, _TWO - 1])
NUMBERS = len(_NUMBERS)


@dataclass(frozen=True)
class Constants:
    """The table of numbers of bits, parameters of the first guess, the first of `_NUMBERS`, what makes parameters."""

    bits: int
    slope: int
    numbers: int
    scales: scales.Scales


def accumulators(count: int, cfg: Config) -> int:
    """Accumulators for the reciprocals of `count` entries of sums."""
    return _ARRAYS * count + scales.accumulators(count, cfg)


def slope_parameters(rec: Recording, name: str) -> Buffer:
    """The parameters of the first guess."""
    facts = {"bias": 0, "exponent": 0, "zero_point": 0, "low": -128, "high": 127, "contract": "double"}
    return rec.parameters(f"{name}.slope", multiplier=-kernel.SLOPE, **facts)


def constants(rec: Recording, name: str, made: scales.Scales, slope: int, numbers: int) -> Constants:
    """Load what the reciprocals of operator `name` need, to one entry of parameters and `NUMBERS` accumulators.

    `made` makes the parameters of stores to zero point -128.
    """
    cfg = rec.cfg
    rec.program.load(Mem.PAR, slope, slope_parameters(rec, name), 0)
    values = np.broadcast_to(_NUMBERS[:, None, None], (NUMBERS, cfg.batch, cfg.block_out)).astype(np.int32)
    rec.program.load(Mem.ACC, numbers, rec.constant(f"{name}.numbers", values), 0, x_size=NUMBERS)
    bits = lookup.loaded(rec, f"{name}.bits", np.array([k.bit_length() for k in range(256)]))
    return Constants(bits, slope, numbers, made)


def inverse(rec: Recording, found: Constants, at: scales.Places, sums: int, base: int) -> Iterator[None]:
    """Make the parameters that divide exponentials by the sums from `sums` on: of STORE, to int8 with 8 more bits.

    `base` are accumulators, as many as `accumulators` says. Yields where it waits for DRAM.
    """
    program, count = rec.program, at.count
    half, shift, y, copy, other = (base + k * count for k in range(_ARRAYS))
    each, both = [(count, 1, 0)], [(count, 1, 1)]

    def number(k: int, op: AluOp, to: int) -> None:
        program.alu(op, each, to, found.numbers + k)

    def zero(arrays: int, first: int) -> None:
        program.gemm([(arrays * count, 1, 0, 0)], first, reset=True)

    # the sum has 20 + min(sum >> 20, 1) + bits(sum >> 21) bits; shifted left, it has 31
    zero(_ARRAYS, base)
    program.alu(AluOp.ADD, [(3, count, 0), (count, 1, 1)], half, sums)
    program.alu(AluOp.SHR, each, shift, imm=LEAST_BITS)
    program.alu(AluOp.SHR, each, y, imm=LEAST_BITS + 1)
    program.alu(AluOp.MIN, each, shift, imm=1)
    program.alu(AluOp.ADD, each, y, imm=-128)
    program.alu(AluOp.LOOKUP, each, y, imm=found.bits)
    program.alu(AluOp.ADD, each, shift, imm=LEAST_BITS - kernel.BITS)
    program.alu(AluOp.ADD, both, shift, y)
    program.alu(AluOp.SHR, both, half, shift)
    zero(1, y)
    program.alu(AluOp.ADD, both, y, half)
    program.alu(AluOp.MUL, each, y, imm=-1)
    program.alu(AluOp.RESCALE, each, y, imm=found.slope)
    number(0, AluOp.ADD, y)
    for _ in range(STEPS):
        zero(scales.WORD, at.planes)
        scales.planes_of(rec, at, y)
        zero(1, copy)
        program.alu(AluOp.ADD, both, copy, half)
        yield from _to_parameters(rec, found, at, scales.WORD)
        scales.rescale(rec, at, copy)
        program.alu(AluOp.MUL, each, copy, imm=-1)
        number(1, AluOp.ADD, copy)
        scales.rescale(rec, at, copy)
        program.alu(AluOp.SHR, each, copy, imm=-2)
        program.alu(AluOp.ADD, both, y, copy)
    zero(2, copy)
    zero(scales.PLANES, at.planes)
    _double(rec, found, y, copy, count)
    _exponent(rec, at, shift, y, other)
    scales.planes_of(rec, at, y)
    yield from _to_parameters(rec, found, at, scales.PLANES)


def _to_parameters(rec: Recording, found: Constants, at: scales.Places, planes: int) -> Iterator[None]:
    yield from scales.to_inputs(rec, at, planes)
    yield
    scales.to_parameters(rec, at, found.scales, planes, whole=planes == scales.PLANES)
    yield


def _double(rec: Recording, found: Constants, y: int, copy: int, count: int) -> None:
    """Double the reciprocals, saturating at 2**31 - 1; `copy` are zeros."""
    each, both = [(count, 1, 0)], [(count, 1, 1)]
    rec.program.alu(AluOp.MIN, each, y, found.numbers + 2)
    rec.program.alu(AluOp.ADD, both, copy, y)
    rec.program.alu(AluOp.MIN, each, copy, found.numbers + 3)
    rec.program.alu(AluOp.ADD, both, y, copy)


def _exponent(rec: Recording, at: scales.Places, shift: int, y: int, zeros: int) -> None:
    """The exponent of `shift`, which is that of the sum less 31: its lowest bit in the sign of `y`, the rest a plane.

    The product has 12 integer bits of the sum and 31 - 8 more to lose: the exponent is -34 - shift.
    """
    program, count = rec.program, at.count
    each, both, rest = [(count, 1, 0)], [(count, 1, 1)], at.planes + scales.WORD * at.count
    program.alu(AluOp.ADD, both, rest, shift)
    program.alu(AluOp.ADD, both, zeros, shift)
    program.alu(AluOp.SHR, each, zeros, imm=-31)
    program.alu(AluOp.ADD, both, y, zeros)
    program.alu(AluOp.MUL, each, rest, imm=-1)
    program.alu(AluOp.ADD, each, rest, imm=-34)
    program.alu(AluOp.SHR, each, rest, imm=1)
    program.alu(AluOp.ADD, each, rest, imm=32)  # six bits in two's complement, of which five are here
