"""sim/rtl.py: the circuit computes what the behavioural model does, over all bytes of memory, whatever the bus does."""

import shutil
from pathlib import Path

import numpy as np
import pytest

from tilewright.hw.config import PRESETS, Config
from tilewright.hw.errors import AccessError, DeadlockError, ExecutionError, UnsupportedError
from tilewright.hw.isa import AluOp, Isa, Mem, Op, Queue
from tilewright.runtime.device import Stats, open_device
from tilewright.runtime.loader import run
from tilewright.runtime.program import Program
from tilewright.sim import rtl, verilator
from tilewright.sim.device import ModelDevice
from tilewright.sim.dram import ZYNQ_HP, Dram
from tilewright.sim.memory import Memory
from tilewright.sim.random_programs import ODD, Recorder, record_random, with_idlers
from tilewright.sim.replay import read_case, replay_case
from tilewright.sim.rtl import RtlDevice

VTA, TINY, PYNQ = PRESETS["vta"], PRESETS["tiny"], PRESETS["pynq_z1"]
NARROW = Config(
    name="narrow",
    block_in=4,
    block_out=8,
    inp_bits=4,
    wgt_bits=2,
    out_bits=4,
    inp_bytes=1 << 9,
    wgt_bytes=1 << 10,
    acc_bytes=1 << 12,
    uop_bytes=256,
    axi_bits=32,
    acc_banks=2,
    queue_depth=4,
    extensions=frozenset({"overwrite", "pad_value"}),
)
WIDE = TINY.replace(name="wide", axi_bits=128, batch=4, inp_bytes=2048, acc_bytes=4096, load_ports=2)
CONFIGS = [VTA, PYNQ, TINY, ODD, NARROW, WIDE]
VECTORS = sorted((Path(__file__).parents[3] / "shared" / "vectors").glob("*.npz"))

pytestmark = pytest.mark.skipif(not shutil.which("g++"), reason="g++ is missing: no circuit can be built")


class Placed(Memory):
    """A device that keeps what it should have run."""

    def __init__(self, cfg):
        super().__init__(1 << 31)
        self.cfg, self.start, self.count = cfg, 0, 0

    def run(self, insn_address, insn_count):
        self.start, self.count = insn_address, insn_count
        return Stats()


def random_case(cfg, seed):
    """(image, address, count) of a random program."""
    recorder = Recorder(cfg, seed)
    record_random(recorder, int(recorder.rng.integers(5, 60)))
    launch = recorder.program.finish()
    if seed % 3 == 0:
        launch = with_idlers(launch, recorder.rng, 10)
    placed = Placed(cfg)
    run(launch, recorder.inputs, placed)
    return placed.bytes, placed.start, placed.count


def differential(cfg, seed, dram=None):
    """Run random program `seed` on model and circuit, and compare all of memory."""
    image, address, count = random_case(cfg, seed)
    expected, got = image.copy(), image.copy()
    stats = ModelDevice(cfg).run_image(expected, address, count)
    device = RtlDevice(cfg, dram=dram or Dram.random(seed))
    counted = device.run_image(got, address, count)
    device.close()
    where = np.flatnonzero(expected != got)
    assert not len(where), f"{cfg.name} seed {seed}: {len(where)} bytes differ, the first at {where[0]:#x}"
    assert (counted.insns, counted.uops, counted.macs) == (stats.insns, stats.uops, stats.macs)
    return counted


@pytest.mark.parametrize("chunk", range(10))
@pytest.mark.parametrize("cfg", CONFIGS, ids=lambda c: c.name)
def test_random_programs_equal_the_model(cfg, chunk):
    for seed in range(10 * chunk, 10 * chunk + 10):
        print(f"{cfg.name} seed {seed}")
        differential(cfg, seed)


@pytest.mark.slow
@pytest.mark.parametrize("chunk", range(34))
@pytest.mark.parametrize("cfg", CONFIGS, ids=lambda c: c.name)
def test_many_random_programs_equal_the_model(cfg, chunk):
    """20,400 programs."""
    for seed in range(10_000 + 100 * chunk, 10_100 + 100 * chunk):
        print(f"{cfg.name} seed {seed}")
        differential(cfg, seed)


@pytest.mark.parametrize("path", VECTORS, ids=lambda p: p.stem)
def test_recorded_cases(path):
    result = replay_case(path, "rtl")
    assert result.passed, result.detail
    assert result.stats.cycles
