"""Dot products with ternary weights against numpy."""

import itertools

import numpy as np
import pytest
from amaranth.hdl import Module, Signal
from amaranth.sim import Simulator

from tilewright.hw.config import PRESETS
from tilewright.hw.rtl.latencies import ternary_array_latency
from tilewright.hw.rtl.ternary import TernaryDot, coded

TINY = PRESETS["tiny_two"]
PAIR = TINY.replace(name="pair", block_in=2, block_out=4, extensions={"requant"})
SINGLE = TINY.replace(name="single", block_in=1, block_out=4, extensions={"requant"})
NARROW = TINY.replace(
    name="narrow", batch=2, block_in=8, ternary_blocks=2, inp_bits=4, twgt_bytes=1024, extensions={"requant"}
)
CONFIGS = [TINY, PAIR, SINGLE, NARROW, PRESETS["pynq_z1_two"]]
BITS = {0: 0, 1: 1, -1: 3}  # of a weight


def word(values, bits):
    return sum((int(v) & (1 << bits) - 1) << k * bits for k, v in enumerate(np.asarray(values).reshape(-1)))


def sums(cfg, pairs):
    """What `TernaryDot` makes of (inputs, bits of weights), one pair per cycle."""
    m, wgt, en, found = Module(), Signal(cfg.twgt_entry_bits), Signal(), []
    m.submodules.dot = dot = TernaryDot(cfg)
    m.d.comb += dot.en.eq(en)
    m.d.sync += dot.wgt.eq(coded(cfg, wgt))  # which stands there a cycle after the inputs
    sim = Simulator(m)
    sim.add_clock(1e-6)

    async def drive(ctx):
        for k in range(len(pairs) + ternary_array_latency(cfg)):
            ctx.set(en, k < len(pairs))
            if k < len(pairs):
                inp, weights = pairs[k]
                ctx.set(dot.inp, word(inp, cfg.inp_bits))
                ctx.set(wgt, word(weights, 2))
            if k >= ternary_array_latency(cfg):
                found.append([-term.value if term.minus else term.value for term in ctx.get(dot.sums)])
            await ctx.tick()

    sim.add_testbench(drive)
    sim.run()
    return np.array(found).reshape(len(pairs), cfg.ternary_blocks, cfg.batch, cfg.block_out)


def values(bits):
    return (bits & 1) * (1 - (bits & 2))


@pytest.mark.parametrize("cfg", CONFIGS, ids=lambda cfg: cfg.name)
def test_sums_are_those_of_numpy(cfg):
    """Random operands, also a weight of bits 10, which is 0, and the extremes, whose sums need every bit."""
    rng, low = np.random.default_rng(1), -(1 << cfg.inp_bits - 1)
    high = -low - 1
    shape = cfg.ternary_blocks, cfg.block_out, cfg.block_in
    pairs = [(rng.integers(low, high + 1, (cfg.batch, cfg.block_in)), rng.integers(0, 4, shape)) for _ in range(20)] + [
        (np.full((cfg.batch, cfg.block_in), x), np.full(shape, BITS[w]))
        for x, w in itertools.product((low, 0, high), BITS)
    ]
    signs = np.resize([1, -1, -1], cfg.block_in)
    pairs.append((np.where(signs > 0, high, low)[None].repeat(cfg.batch, 0), np.broadcast_to(signs & 3, shape)))
    expected = [np.einsum("bi,tci->tbc", inp, values(np.asarray(bits))) for inp, bits in pairs]
    assert (sums(cfg, pairs) == expected).all()


def test_all_weights_of_a_pair():
    """Every pair of 2 bits, on inputs that tell them apart."""
    inputs = np.array([[5, -77, 0, 0]])
    pairs = []
    for first, second in itertools.product(range(4), range(4)):
        weights = np.zeros((4, 4, 4), int)
        weights[..., :2] = first, second
        pairs.append((inputs, weights))
    expected = [5 * values(w[0, 0, 0]) - 77 * values(w[0, 0, 1]) for _, w in pairs]
    assert (sums(TINY, pairs) == np.array(expected)[:, None, None, None]).all()
