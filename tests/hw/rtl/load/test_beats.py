"""hw/rtl/mover.py: entries in beats, by the bytes of both."""

import pytest
from amaranth.hdl import Module, Signal

from tilewright.hw.config import PRESETS
from tilewright.hw.isa import LOADABLE, Mem, depth, entry_bytes
from tilewright.hw.rtl.mover import beat_shift, count_bits, in_units, loaded_as, loads_int8, units

CONFIGS = [cfg.replace(axi_bits=bits) for cfg in PRESETS.values() for bits in (32, 64, 256)]


@pytest.mark.parametrize("cfg", CONFIGS, ids=lambda cfg: f"{cfg.name}-{cfg.axi_bits}")
def test_units_of_an_entry_fill_beats_or_share_them(cfg):
    for mem in LOADABLE:
        if mem == Mem.PAR and "requant" not in cfg.extensions:
            continue
        assert units(mem) * 2.0 ** beat_shift(cfg, mem) * cfg.axi_bits == 8 * entry_bytes(cfg, mem)


def test_a_count_passes_every_index():
    for cfg in CONFIGS:
        assert (1 << count_bits(cfg)) > max(1 << 16, *(depth(cfg, m) for m in (Mem.UOP, Mem.INP, Mem.WGT, Mem.ACC)))


def test_accumulators_are_loaded_as_int8_too():
    vta = PRESETS["vta"]
    assert loads_int8(vta) and loaded_as(vta, (Mem.UOP, Mem.ACC)) == (Mem.UOP, Mem.ACC, Mem.ACC8)
    assert loaded_as(vta, (Mem.INP, Mem.WGT)) == (Mem.INP, Mem.WGT)
    without = vta.replace(extensions=frozenset())
    assert not loads_int8(without) and loaded_as(without, (Mem.ACC,)) == (Mem.ACC,)


@pytest.mark.parametrize("mem", [Mem.PAR, Mem.INP])
def test_entries_in_units(simulate, mem):
    m, n = Module(), Signal(8)
    found = Signal(10)
    m.d.comb += found.eq(in_units(mem, n))

    async def bench(ctx):
        for k in (0, 1, 85, 255):
            ctx.set(n, k)
            assert ctx.get(found) == k * (3 if mem == Mem.PAR else 1)

    m.d.sync += Signal().eq(0)  # the simulator wants a clock
    simulate(m, bench)
