"""What the tests of unit ternary share: operands in scratchpads, and the sums that they make."""

import numpy as np
import pytest
from amaranth.hdl import Module
from amaranth.lib import wiring

from tilewright.hw.config import PRESETS
from tilewright.hw.isa import Mem
from tilewright.hw.rtl.compute.accumulators import Accumulators
from tilewright.hw.rtl.scratchpad import Scratchpad
from tilewright.hw.rtl.ternary import Weights

TWO = PRESETS["tiny_two"]
ENTRIES = 4  # that are used of inputs and weights


class Operands:
    """The scratchpads of a unit with random inputs and weights, the accumulators, and what these must hold."""

    def __init__(self, module: Module, cfg, rng):
        self.cfg = cfg
        self.inp = rng.integers(-(1 << cfg.inp_bits - 1), 1 << cfg.inp_bits - 1, (ENTRIES, cfg.batch, cfg.block_in))
        self.bits = rng.integers(0, 4, (ENTRIES, cfg.ternary_blocks, cfg.block_out, cfg.block_in))
        self.acc = np.zeros((cfg.acc_depth, cfg.batch, cfg.block_out), np.int32)
        module.submodules.inp = self.inputs = Scratchpad(cfg, mem=Mem.INP)
        module.submodules.weights = self.weights = Weights(cfg)
        module.submodules.accumulators = self.accumulators = Accumulators(cfg)

    def connect(self, m: Module, inp, wgt, read, write):
        """Join a unit's ports."""
        wiring.connect(m, inp, self.inputs.read)
        wiring.connect(m, wgt, self.weights.read)
        wiring.connect(m, read, self.accumulators.ternary_read)
        wiring.connect(m, write, self.accumulators.ternary_write)

    def execute(self, dst, src, wgt, *, reset=False, overwrite=False):
        """One issue, on what the accumulators must hold."""
        w = (self.bits[wgt] & 1) * (1 - (self.bits[wgt] & 2))
        for t in range(self.cfg.ternary_blocks):
            entry = self.acc[dst + t * self.cfg.plane_depth]
            product = (self.inp[src] @ w[t].T).astype(np.int32)
            entry[...] = 0 if reset else product + (0 if overwrite else entry)

    async def fill(self, ctx):
        """Inputs and weights into their scratchpads."""
        for pad, values, bits in ((self.inputs, self.inp, self.cfg.inp_bits), (self.weights, self.bits, 2)):
            for at, entry in enumerate(values):
                number = sum((int(v) & (1 << bits) - 1) << k * bits for k, v in enumerate(entry.reshape(-1)))
                size = len(pad.write.data)
                ctx.set(pad.write.addr, at)
                for lane in range(len(pad.write.en)):
                    ctx.set(pad.write.en, 1 << lane)
                    ctx.set(pad.write.data, number >> lane * size & (1 << size) - 1)
                    await ctx.tick()
            ctx.set(pad.write.en, 0)

    async def compare(self, ctx):
        """All accumulators, as STORE reads them."""
        store = self.accumulators.store
        for at, want in enumerate(self.acc):
            ctx.set(store.addr, at)
            ctx.set(store.en, 1)
            await ctx.tick().until(store.ready)
            ctx.set(store.en, 0)
            raw = int(ctx.get(store.data)).to_bytes(self.cfg.acc_entry_bytes, "little")
            np.testing.assert_array_equal(np.frombuffer(raw, "<i4").reshape(want.shape), want, f"accumulator {at}")


@pytest.fixture
def operands():
    """`Operands`, as a test cannot import from here."""
    return Operands
