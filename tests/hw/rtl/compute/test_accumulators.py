"""hw/rtl/compute/accumulators.py: all ports at once, and who waits for whom at the banks."""

import pytest

from tests.hw.bench import random_bits, simulate, written
from tilewright.hw.config import PRESETS, Config
from tilewright.hw.isa import Mem
from tilewright.hw.rtl.compute.accumulators import Accumulators
from tilewright.hw.rtl.ports import word_bits

TINY, TWO = PRESETS["tiny"], PRESETS["tiny_two"]
ODD = Config(name="odd", batch=2, block_in=8, block_out=4, wgt_bits=4, wgt_bytes=1 << 10, acc_bytes=1 << 11)
CONFIGS = {
    "two banks": TINY,
    "one bank": TINY.replace(acc_banks=1),
    "four banks": TINY.replace(acc_banks=4),
    "odd": ODD,
    "four planes": TWO,
    "one plane": TWO.replace(ternary_blocks=1, twgt_bytes=512),
    "wide beats": TWO.replace(ternary_blocks=2, twgt_bytes=1024, axi_bits=256),
}


class Ports:
    """Random use of all ports in one cycle, as they may be used together, and the accumulators beside them."""

    def __init__(self, cfg, rng):
        self.cfg, self.rng, self.memory = cfg, rng, {}
        self.two = "ternary" in cfg.units
        self.planes = cfg.ternary_blocks if self.two else 1
        places, size = (0, 1), cfg.bank_depth // self.planes
        self.starts = [size * k for k in range(cfg.acc_banks * self.planes)]
        self.used = [start + place for start in self.starts for place in places]
        self.entry = (1 << cfg.acc_entry_bits) - 1

    def bank(self, at):
        return at // self.cfg.bank_depth

    def choose(self):
        """Addresses and enables by port."""
        r, cfg = self.rng, self.cfg
        self.addr = {name: self.used[r.integers(len(self.used))] for name in ("dst", "src", "store", "write", "load")}
        self.en = {name: int(r.random() < 0.5) for name in self.addr}
        self.en["src"] &= not (self.en["dst"] and self.bank(self.addr["src"]) == self.bank(self.addr["dst"]))
        self.en["load"] &= not (self.en["write"] and self.bank(self.addr["load"]) == self.bank(self.addr["write"]))
        self.reads: tuple[int, int] | None = None
        self.writes: tuple[int, int] | None = None
        if self.two:
            taken = {self.bank(self.addr[name]) for name in ("dst", "src", "write", "load") if self.en[name]}
            for name in ("reads", "writes"):
                bank = int(r.integers(cfg.acc_banks))
                setattr(self, name, None if bank in taken else (bank, int(r.integers(2))))

    def row(self, bank, place):
        """The entries of one place of a bank, as unit ternary sees them."""
        first = bank * self.planes
        row = [self.memory.get(self.starts[first + p] + place, 0) for p in range(self.planes)]
        return sum(value << p * self.cfg.acc_entry_bits for p, value in enumerate(row))

    def write_row(self, bank, place, row):
        for p in range(self.planes):
            self.memory[self.starts[bank * self.planes + p] + place] = row >> p * self.cfg.acc_entry_bits & self.entry

    def drive(self, ctx, acc):
        """Sets the ports; returns what the writes bring."""
        cfg, r = self.cfg, self.rng
        lanes = random_bits(r, len(acc.load.en)) if self.en["load"] else 0
        shown = self.en | {"load": lanes}
        shown |= {name: self.en[name] << self.bank(self.addr[name]) for name in ("dst", "src")}
        for name, at in self.addr.items():
            ctx.set(getattr(acc, name).addr, at)
            ctx.set(getattr(acc, name).en, shown[name])
        entry, word = random_bits(r, cfg.acc_entry_bits), random_bits(r, word_bits(cfg, Mem.ACC))
        ctx.set(acc.write.data, entry)
        ctx.set(acc.load.data, word)
        row = random_bits(r, self.planes * cfg.acc_entry_bits)
        if self.two:
            for port, used in ((acc.ternary_read, self.reads), (acc.ternary_write, self.writes)):
                ctx.set(port.en, 1 << used[0] if used else 0)
                ctx.set(port.addr, used[1] if used else 0)
            ctx.set(acc.ternary_write.data, row)
        return lanes, word, entry, row


@pytest.mark.parametrize("name", CONFIGS)
def test_accumulators(rng, name):
    """All ports at once, at random; STORE waits exactly where another unit reads its bank, and its data stay."""
    cfg = CONFIGS[name]
    acc, ports = Accumulators(cfg), Ports(cfg, rng)
    memory = ports.memory

    async def bench(ctx):
        stored, waits, rows = None, 0, 0
        for _ in range(600):
            ports.choose()
            lanes, word, entry, row = ports.drive(ctx, acc)
            addr, en = ports.addr, ports.en
            busy = {ports.bank(addr[name]) for name in ("dst", "src") if en[name]}
            busy |= {ports.reads[0]} if ports.reads else set()
            assert ctx.get(acc.store.ready) == (ports.bank(addr["store"]) not in busy)
            waits += en["store"] and not ctx.get(acc.store.ready)
            expected = {name: memory.get(addr[name], 0) if en[name] else None for name in ("dst", "src")}
            if en["store"] and ctx.get(acc.store.ready):
                stored = memory.get(addr["store"], 0)
            expected["store"] = stored
            expected["ternary_read"] = ports.row(*ports.reads) if ports.reads else None
            if en["load"]:
                memory[addr["load"]] = written(cfg, Mem.ACC, memory.get(addr["load"], 0), lanes, word)
            if en["write"]:
                memory[addr["write"]] = entry
            if ports.writes:
                ports.write_row(*ports.writes, row)
            await ctx.tick()
            for port, value in expected.items():
                if value is not None:
                    read = getattr(acc, port)
                    found = read.data[ctx.get(read.upper)] if port in ("dst", "src") else read.data
                    assert ctx.get(found) == value, port
            rows += bool(expected["ternary_read"])
        assert waits > 20
        assert rows > 50 or not ports.two

    simulate(acc, bench, cycles=700)
