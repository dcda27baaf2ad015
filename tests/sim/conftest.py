"""What the tests of the model share: a machine to run instructions on, comparison with the definition, a program."""

import math
import random
import sys
import tracemalloc
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import pytest

from tilewright.hw.config import PRESETS, Config
from tilewright.hw.isa import PAR, Isa, Mem, Op, depth, entry_bytes
from tilewright.sim.model.device import Model
from tilewright.sim.spec import SpecDevice

TINY = PRESETS["tiny"]
UNEQUAL = {"extensions": TINY.extensions - {"depthwise"}}  # which needs equal blocks
NARROW = {"extensions": TINY.extensions - {"acc8", "requant", "rescale"}}  # which need outputs of a byte
CONFIGS = {
    "tiny": TINY,
    "block16": PRESETS["vta"].replace(
        name="block16", uop_bytes=1 << 10, inp_bytes=1 << 11, wgt_bytes=1 << 15, acc_bytes=1 << 13
    ),
    "batch2": TINY.replace(name="batch2", batch=2, inp_bytes=512, acc_bytes=4096),
    "wide_in": TINY.replace(name="wide_in", block_in=8, block_out=2, wgt_bits=4, **UNEQUAL),
    "wide_out": TINY.replace(name="wide_out", block_in=2, block_out=8, batch=2, acc_bytes=4096, wgt_bits=2, **UNEQUAL),
    "int4": TINY.replace(name="int4", inp_bits=4, wgt_bits=4, out_bits=4, **NARROW),
    "single": TINY.replace(name="single", block_in=1, block_out=1, inp_bytes=64, wgt_bytes=64, acc_bytes=256),
}
PARAMETERS = 44000  # where the tests put post-processing parameters


class Machine:
    """A model with a DRAM image: instructions as dicts of fields, micro-ops as rows (dst, src, wgt)."""

    def __init__(self, cfg: Config, nbytes: int = 1 << 16, seed: int = 0):
        self.cfg, self.isa = cfg, Isa(cfg)
        self.rng = np.random.default_rng(seed)
        self.dram = self.rng.integers(0, 256, nbytes, np.uint8)
        self.model = Model(cfg, self.dram)

    def put_uops(self, rows, address: int) -> None:
        """Write micro-ops at the byte `address`."""
        rows = np.asarray(rows).reshape(-1, 3)
        words = self.isa.uop.encode(len(rows), dst=rows[:, 0], src=rows[:, 1], wgt=rows[:, 2]).astype("<u4")
        self.dram[address : address + words.nbytes] = words.view(np.uint8).reshape(-1)

    def words(self, insns) -> np.ndarray:
        """The binary program of `insns`."""
        out = np.zeros((len(insns), 2), np.uint64)
        for k, f in enumerate(insns):
            fmt = self.isa.format_of(f)
            assert fmt is not None
            out[k] = fmt.encode(**{key: int(v) for key, v in f.items()})[0]
        return out

    def put(self, insns, address: int = 0) -> tuple[int, int]:
        """Write the binary program of `insns` at `address`; the arguments of `run`."""
        data = self.words(insns).view(np.uint8).reshape(-1)
        self.dram[address : address + len(data)] = data
        return address, len(insns)

    def run(self, insns, address: int = 0):
        """Execute `insns` and a FINISH."""
        return self.model.run(*self.put([*insns, {"op": Op.FINISH}], address))

    def scratchpads(self) -> dict[str, np.ndarray]:
        """Contents in the definition's shapes; fields are the last axis."""
        cfg, s = self.cfg, self.model.state
        return {
            "inp": s.inp.reshape(cfg.inp_depth, cfg.batch, cfg.block_in),
            "wgt": s.wgt.reshape(cfg.wgt_depth, cfg.block_out, cfg.block_in),
            "acc": s.acc.reshape(cfg.acc_depth, cfg.batch, cfg.block_out),
            "twgt": s.twgt.reshape(-1, cfg.ternary_blocks * cfg.block_out, cfg.block_in),
            "uop": self._fields(s.uop),
            "tuop": self._fields(s.tuop),
            "par": np.stack([s.par[name] for name in PAR.fields], axis=-1),
        }

    def _fields(self, words: np.ndarray) -> np.ndarray:
        return np.stack([*self.isa.uop.decode(words.astype(np.uint64)[:, None]).values()], axis=-1)[:, None]


def wrap(x):
    """int64 to the value that 32 bits hold."""
    return np.asarray(x).astype(np.int32).astype(np.int64)


def scaled(x: int, multiplier: int, exponent: int, mode: int) -> int:
    """`x` times multiplier * 2 ** (exponent - 31) on Python's integers, rounded twice (mode 0) or once (1)."""
    if mode:
        return math.floor(Fraction(x * multiplier) * Fraction(2) ** (exponent - 31) + Fraction(1, 2))
    shifted = (x * 2 ** max(exponent, 0) + 2**31) % 2**32 - 2**31
    high = Fraction(math.floor(Fraction(shifted * multiplier, 2**31) + Fraction(1, 2)), 2 ** max(-exponent, 0))
    nearest = math.floor(abs(high) + Fraction(1, 2))  # ties away from zero
    return nearest if high > 0 else -nearest


def parameters(rng, count: int) -> np.ndarray:
    """The bytes, uint8, of random parameters of `count` channels: any of their fields, often at its edge."""
    edges = {32: [0, 1, -1, 1 << 30, -(1 << 30), (1 << 31) - 1, -(1 << 31)], 31: [0, 1, 1 << 30, (1 << 31) - 1]}
    edges |= {6: [-32, -31, -1, 0, 1, 30, 31], 8: [-128, -1, 0, 127], 1: [0, 1], 2: [0, 3]}
    out = bytearray()
    for _ in range(count):
        number = at = 0
        for bits in (32, 31, 6, 8, 8, 8, 1, 2):
            value = int(rng.choice(edges[bits])) if rng.integers(2) else int(rng.integers(1 << bits))
            if bits == 6 and rng.integers(2):
                value = int(rng.integers(-9, 1))  # where results are neither all zero nor all clamped
            number |= value % (1 << bits) << at
            at += bits
        out += number.to_bytes(12, "little")
    return np.frombuffer(bytes(out), np.uint8)


def random_uops(rng, n_max=24):
    """Micro-ops (n, 3) from 0 on: unrolled loops, loops with a flaw, constant columns, or noise."""
    rows = np.zeros((1, 3), np.int64)
    for _ in range(rng.integers(0, 4)):
        n = int(rng.integers(1, 5))
        if len(rows) * n > n_max:
            break
        step = rng.integers(-2, 4, 3) * rng.integers(0, 2, 3)
        rows = (np.arange(n)[:, None, None] * step + rows).reshape(-1, 3)
    style = rng.integers(4)
    if style == 1:
        rows[rng.integers(len(rows))] += rng.integers(0, 3, 3)
    elif style == 2:
        rows = rng.integers(0, 6, (int(rng.integers(1, n_max)), 3)) * rng.integers(0, 2, 3)
    return rows - rows.min(axis=0)


def random_loop(rng, limits, uops):
    """Loop fields, and `uops` moved to where every index stays below `limits` (dst, src, wgt)."""
    for _ in range(1000):
        trips = rng.choice([1, 1, 2, 3, 5, 8], 2)
        steps = rng.integers(0, 5, (2, 3)) * rng.integers(0, 2, (2, 3))
        span = uops.max(axis=0) + (trips - 1) @ steps
        if (span < limits).all():
            break
    else:
        raise ValueError("no such loop")
    moved = uops + [int(rng.integers(0, limit - s)) for limit, s in zip(limits, span)]
    fields = {"iter_out": trips[0], "iter_in": trips[1], "uop_bgn": 0, "uop_end": len(uops)}
    for loop, row in zip(("out", "in"), steps):
        fields |= {f"{name}_{loop}": row[c] for c, name in enumerate(("dst", "src", "wgt"))}
    return fields, moved


def filled(cfg: Config, seed: int) -> tuple[Machine, list[dict]]:
    """A machine, and the loads that fill its scratchpads with random numbers from DRAM."""
    m = Machine(cfg, seed=seed)
    mems = [Mem.INP, Mem.WGT, Mem.ACC, *([Mem.TWGT] if "ternary" in cfg.units else [])]
    mems += [Mem.PAR] if "requant" in cfg.extensions else []
    base = 8192 // np.array([entry_bytes(cfg, mem) for mem in mems]) + 1
    if Mem.PAR in mems:  # behind what the others read
        base[-1] = -(-PARAMETERS // entry_bytes(cfg, Mem.PAR))
        data = parameters(m.rng, cfg.par_entries * cfg.block_out)
        at = int(base[-1]) * entry_bytes(cfg, Mem.PAR)
        m.dram[at : at + len(data)] = data
    return m, [
        {"op": Op.LOAD, "mem": mem.id, "dram_base": at, "y_size": 1, "x_size": min(depth(cfg, mem), 128), "x_stride": 1}
        for mem, at in zip(mems, base)
    ]


def load_uops(address: int, count: int, mem: Mem = Mem.UOP) -> dict:
    """The LOAD of `count` micro-ops from the byte `address` to the begin of their buffer."""
    return {"op": Op.LOAD, "mem": mem.id, "dram_base": address // 4, "y_size": 1, "x_size": count, "x_stride": count}


class Interleaving:
    """A scheduler that chooses at random, and keeps what it chose."""

    def __init__(self, seed):
        self.rng, self.order = random.Random(seed), []

    def __call__(self, ready):
        self.order.append(self.rng.choice(ready))
        return self.order[-1]


@dataclass
class Effort:
    """What a block takes on any machine: `calls` of functions, of Python and C, and at most `nbytes` of memory."""

    calls: int = 0
    nbytes: int = 0


@pytest.fixture
def effort():
    """Makes a context manager that measures an `Effort`, in place of the time, which differs."""

    @contextmanager
    def measured():
        found = Effort()

        def count(frame, event, arg):
            found.calls += event in ("call", "c_call")

        tracemalloc.start()
        sys.setprofile(count)
        try:
            yield found
        finally:
            sys.setprofile(None)
            found.nbytes = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()

    return measured


@pytest.fixture(params=CONFIGS)
def any_cfg(request) -> Config:
    """Each of the configurations whose shapes differ."""
    return CONFIGS[request.param]


def contents(spec: SpecDevice) -> dict[str, np.ndarray]:
    """The scratchpads of the definition; fields are the last axis."""
    held = {name: list(getattr(spec, name).values()) for name in ("inp", "wgt", "acc", "par")}
    held |= {name: list(getattr(spec, name).values()) for name in ("twgt", "uop", "tuop")}
    held |= {
        name: [[[*fields.values()] for fields in entry] for entry in held[name]] for name in ("uop", "tuop", "par")
    }
    return {name: np.array(entries) for name, entries in held.items()}


@pytest.fixture
def agree():
    """Runs `insns` on a machine and as the definition says, and compares every memory."""

    def check(m: Machine, insns: list[dict]):
        place = m.put([*insns, {"op": Op.FINISH}])
        spec, dram = SpecDevice(m.cfg), m.dram.copy()
        expected = spec.run_image(dram, *place)
        stats = m.run(insns)
        assert stats == expected
        wanted = contents(spec)
        for name, got in m.scratchpads().items():
            np.testing.assert_array_equal(got, wanted[name].reshape(got.shape), err_msg=name)
        np.testing.assert_array_equal(m.dram, dram)
        return stats

    return check
