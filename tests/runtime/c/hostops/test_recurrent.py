"""Recurrent layers, in C."""

import numpy as np
import pytest

RNG = np.random.default_rng(7)
FACTS = [
    {"zero_point": 5, "cell_bits": 4, "clip": 0, "multiplier": 1095936512, "exponent": -22},
    {"zero_point": -128, "cell_bits": 0, "clip": 20480, "multiplier": 1 << 30, "exponent": -20},
    {"zero_point": 0, "cell_bits": 6, "clip": 32767, "multiplier": (1 << 31) - 1, "exponent": -21},
]


def int16(*shape):
    """Many values, the extremes among them."""
    values = RNG.integers(-(1 << 15), 1 << 15, shape)
    return np.where(RNG.random(shape) < 0.2, RNG.choice([-(1 << 15), -1, 0, 1, (1 << 15) - 1], shape), values).astype(
        "i2"
    )


@pytest.mark.parametrize("facts", FACTS, ids=str)
@pytest.mark.parametrize("coupled", [False, True])
def test_one_step(same, facts, coupled):
    kinds = 3 if coupled else 4
    own = RNG.integers(-(1 << 17), 1 << 17, (3, kinds * 99)).astype(np.int32)
    same("lstm_step", int16(3, 1, kinds * 99), own, int16(3, 99), **facts, coupled=coupled)
    same("lstm_step", int16(3, 1, kinds * 99), int16(3, kinds * 99), int16(3, 99), **facts, coupled=coupled)


def test_every_value_of_a_gate(same):
    """All 65536 sums through both functions, one gate at a time."""
    every, zeros = np.arange(-(1 << 15), 1 << 15).astype(np.int16), np.zeros(1 << 16, np.int16)
    for gate in range(4):
        gates = np.where(np.arange(4)[:, None] == gate, every, 20000).astype(np.int16).reshape(1, 1, -1)
        same("lstm_step", gates, np.zeros((1, 1 << 18), np.int32), zeros[None] + 5000, **FACTS[0])
    for facts in FACTS:
        gates = np.full((1, 1, 1 << 18), 32767, np.int16)
        gates[..., : 1 << 16] = -32768
        same("lstm_step", gates, np.zeros((1, 1 << 18), np.int32), every[None], **facts)


@pytest.mark.parametrize("facts", FACTS, ids=str)
@pytest.mark.parametrize("coupled", [False, True])
@pytest.mark.parametrize("count, steps, units", [(2, 5, 7), (1, 1, 1)])
def test_all_steps(same, facts, coupled, count, steps, units):
    rows = (3 if coupled else 4) * units
    constants = {
        "weight": RNG.integers(-128, 128, (rows, units)).astype(np.int8),
        "bias": RNG.integers(-(1 << 14), 1 << 14, rows).astype(np.int32),
        "gate_multiplier": RNG.integers(1 << 30, 1 << 31, rows),
        "gate_exponent": RNG.integers(-6, 2, rows),
    }
    hidden = RNG.integers(-128, 128, (count, units)).astype(np.int8)
    same("lstm", int16(count, steps, rows), hidden, int16(count, units), **constants, **facts, coupled=coupled)
