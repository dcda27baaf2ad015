"""Circuits with unit ternary: against the model and the definition, alone and beside GEMM."""

import shutil

import numpy as np
import pytest

from tilewright.hw.config import PRESETS
from tilewright.hw.isa import Isa, Mem, Op
from tilewright.runtime.loader import run
from tilewright.sim.dram import Dram
from tilewright.sim.model.device import ModelDevice
from tilewright.sim.random_programs import ODD_TWO, Recorder, random_case
from tilewright.sim.rtl.device import RtlDevice
from tilewright.sim.spec import SpecDevice
from tools.fuzz.programs import Crowd

TWO = PRESETS["tiny_two"]


pytestmark = pytest.mark.skipif(not shutil.which("g++"), reason="g++ is missing: no circuit can be built")


def crowded(seed, circuit=None, model=None):
    """One such program on model and circuit."""
    launch, inputs = Crowd(TWO, seed).record()
    circuit, model = circuit or RtlDevice(TWO, dram=Dram.random(seed)), model or ModelDevice(TWO)
    (got,), (expected,) = (tuple(run(launch, inputs, device)[0].values()) for device in (circuit, model))
    np.testing.assert_array_equal(got, expected, f"seed {seed}")


@pytest.mark.circuit
@pytest.mark.parametrize("chunk", range(4))
def test_units_in_one_bank_give_what_the_model_gives(chunk):
    for seed in range(10 * chunk, 10 * chunk + 10):
        print(f"seed {seed}")
        crowded(seed)


@pytest.mark.slow
@pytest.mark.parametrize("chunk", range(20))
def test_units_in_one_bank_many_times(chunk):
    for seed in range(1000 + 100 * chunk, 1100 + 100 * chunk):
        print(f"seed {seed}")
        crowded(seed)


def cycles(gemm, ternary, bank):
    """Cycles of so many issues of GEMM in bank 0 and of unit `ternary` in `bank`, without tokens between them."""
    to = Recorder(TWO, 0)
    for mem in (Mem.INP, Mem.WGT, Mem.TWGT):
        to.load(mem, 0, 0, x=4)
    if ternary:
        to.ternary([(ternary, 0, 0, 0)], np.array([[bank * TWO.bank_depth, 0, 0]]))
    if gemm:
        to.gemm([(gemm, 0, 0, 0)], np.array([[1, 0, 0]]))
    to.store(0, 0, x=2)
    found = run(to.program.finish(), to.inputs, RtlDevice(TWO))[1].cycles
    assert found is not None
    return found


@pytest.mark.circuit
def test_both_units_compute_in_the_same_cycles_in_banks_of_their_own():
    alone = cycles(2000, 0, 0)
    assert cycles(2000, 2000, 1) <= alone + 60
    assert cycles(0, 2000, 1) >= 2000
    assert cycles(2000, 2000, 0) >= alone + 2000 - 60  # in one bank one after the other


ISA = Isa(TWO)


FAR = 1 << 24


SMALL = {"block_in": 2, "block_out": 2, "acc_bytes": 512, "par_entries": 1, "ppu_lanes": 2}


SMALL |= dict.fromkeys(("twgt_bytes", "uop_bytes", "inp_bytes", "wgt_bytes"), 64)


SHALLOW = {"token_depth": 1, "queue_depth": 4}


OTHERS = [
    TWO.replace(name="least_two", **SMALL, **SHALLOW, extensions=TWO.extensions - {"depthwise"}),
    TWO.replace(name="shallow_two", **SHALLOW),
    ODD_TWO,
]


def program(*insns):
    """(image, address, count) of hand-made instructions: (format, fields); micro-ops of 0 at DRAM address 0."""
    image = np.zeros(1 << 16, np.uint8)
    words = np.concatenate([ISA.formats[name].encode(1, **fields) for name, fields in insns])
    image[4096 : 4096 + words.nbytes] = words.view(np.uint8).reshape(-1)
    return image, 4096, len(words)


def load(mem, sram=0, dram=0, x=1, **fields):
    sizes = {"y_size": 1, "x_size": x, **fields}
    return "LOAD", {"op": Op.LOAD, "mem": mem.id, "sram_base": sram, "dram_base": dram, **sizes}


def ternary(**fields):
    return "TERNARY", {"op": Op.TERNARY, "uop_end": 1, "iter_out": 1, "iter_in": 1} | fields


def uops(**fields):
    """The micro-op of all zeros, and the token that says so."""
    return load(Mem.TUOP, push_prev=1, **fields)


READY = {"pop_next": 1}  # of a TERNARY behind `uops`


# FINISH behind the ternary queue: TERNARY gives to store, store to compute
STORED = [("STORE", {"op": Op.STORE, "pop_next": 1, "push_prev": 1}), ("FINISH", {"op": Op.FINISH, "pop_next": 1})]


FINISH = ("FINISH", {"op": Op.FINISH})


@pytest.fixture(scope="module")
def two():
    """One circuit, which goes on after every error."""
    return RtlDevice(TWO, watchdog=2000)


def test_a_nop_of_the_queue_passes_tokens(two):
    """From load to store, through TERNARY without micro-ops, and back."""
    insns = [load(Mem.INP, push_prev=1), ("TERNARY", {"op": Op.TERNARY, "pop_next": 1, "push_prev": 1})]
    insns += [("STORE", {"op": Op.STORE, "pop_next": 1, "push_next": 1, "push_prev": 1})]
    insns += [("TERNARY", {"op": Op.TERNARY, "pop_prev": 1, "push_next": 1}), load(Mem.INP, pop_prev=1, push_next=1)]
    insns += [("FINISH", {"op": Op.FINISH, "pop_next": 1, "pop_prev": 1})]
    image, address, count = program(*insns)
    stats = two.run_image(image.copy(), address, count)
    assert stats.insns == ModelDevice(TWO).run_image(image.copy(), address, count).insns
    assert stats.counters["TERNARY_INSNS"] == 2


@pytest.mark.parametrize("overwrite", [False, True])
def test_more_micro_ops_than_the_buffer_holds(two, overwrite):
    """They are cut into instructions, and each accumulator ends with what it is given last."""
    to, count = Recorder(TWO, 5), 8193
    to.load(Mem.INP, 0, 0, x=16)
    to.load(Mem.TWGT, 0, 0, x=16)
    to.ternary([(4, TWO.bank_depth, 0, 0), (TWO.plane_depth, 1, 0, 0)], np.zeros((1, 3), int), reset=True)
    dst = to.rng.integers(0, 4, count) * TWO.bank_depth + to.rng.integers(0, TWO.plane_depth - 1, count)
    uops = np.stack([dst, to.rng.integers(0, 15, count), to.rng.integers(0, 16, count)], 1)
    to.ternary([(2, 1, 1, 0)], uops, overwrite=overwrite)
    to.store(0, 0, x=TWO.acc_depth)
    launch = to.program.finish()
    results = [run(launch, to.inputs, device)[0]["out"] for device in (SpecDevice(TWO), ModelDevice(TWO), two)]
    assert results[0].any() and all(np.array_equal(results[0], other) for other in results[1:])


@pytest.mark.slow
@pytest.mark.parametrize("cfg", OTHERS, ids=lambda cfg: cfg.name)
def test_random_programs_of_other_sizes_equal_the_definition(cfg):
    circuit, spec = RtlDevice(cfg, dram=Dram.random(3)), SpecDevice(cfg)
    for seed in range(3000, 3040):
        image, address, count = random_case(cfg, seed)
        expected, got = image.copy(), image.copy()
        spec.run_image(expected, address, count)
        circuit.run_image(got, address, count)
        assert np.array_equal(expected, got), f"seed {seed}"
