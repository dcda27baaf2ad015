"""DRAM accesses of one queue happen in the order of the program: a load reads what every earlier store of its queue
wrote, on definition, model and circuit, whatever the memory's timing.

The store queue alone both reads and writes DRAM: STORE and LOAD of PAR.
"""

import shutil

import numpy as np
import pytest

from tilewright.hw.config import PRESETS
from tilewright.hw.isa import AluOp, Isa, Mem
from tilewright.runtime.loader import run
from tilewright.runtime.program import Program
from tilewright.runtime.verify import verify
from tilewright.sim.dram import Dram
from tilewright.sim.model.device import ModelDevice
from tilewright.sim.random_programs import ODD, random_case, random_parameters
from tilewright.sim.rtl import RtlDevice
from tilewright.sim.spec import SpecDevice
from tilewright.sim.timing import predict
from tilewright.sim.timing.device import TimingDevice

TINY, PYNQ = PRESETS["tiny"], PRESETS["pynq_z1"]
MEMORIES = [
    Dram(),
    Dram(latency=1, response=1),
    Dram(latency=1, response=100),
    Dram(latency=90, response=3),
    Dram(port_bytes=1),
    Dram(outstanding_writes=1, response=60),
    *(Dram.random(seed) for seed in range(6)),
]
needs_compiler = pytest.mark.skipif(not shutil.which("g++"), reason="g++ is missing: no circuit can be built")


def reloading(cfg, rounds=4, seed=0):
    """(launch, its inputs): a program that stores bytes, loads them as parameters, and requantises with them.

    The bytes of each round go where those of the round before were read.
    """
    rng, program = np.random.default_rng(seed), Program(cfg)
    size = cfg.par_entry_bytes // cfg.out_entry_bytes  # outputs that are one PAR entry
    entries = min(cfg.par_entries, (cfg.acc_depth - 8) // size, 4)
    par = random_parameters(cfg, rng, rounds * entries).astype("<i4").tobytes()
    each = (cfg.batch, cfg.block_out)
    planes = np.frombuffer(par, np.int8).reshape(-1, *each).astype(np.int64)
    values = rng.integers(-(1 << 31), 1 << 31, (8, *each))
    data = program.buffer("data", planes.shape, 8)
    accs = program.buffer("accs", values.shape, 32)
    parameters = program.buffer("parameters", (entries * size, *each), 8, kind="output")
    out = program.buffer("out", (rounds * entries * 8, *each), 8, kind="output")
    scaled = program.buffer("scaled", (rounds * 8, *each), 8, kind="output")
    high = entries * size
    for k in range(rounds):
        program.load(Mem.ACC8, 0, data, k * high, x_size=high)
        program.load(Mem.ACC, high, accs, 0, x_size=8)
        program.store(0, parameters, 0, x_size=high)
        program.load(Mem.PAR, 0, parameters, 0, x_size=entries)
        for entry in range(entries):
            program.store(high, out, (k * entries + entry) * 8, x_size=8, par=entry)
        program.alu(AluOp.RESCALE, [(8, 1, 0)], high, imm=entries - 1)
        program.store(high, scaled, k * 8, x_size=8)
    return program.finish(), {"data": planes, "accs": values}


@pytest.mark.parametrize("cfg", [TINY, ODD], ids=lambda c: c.name)
def test_no_token_is_needed(cfg):
    """`verify` accepts a load behind a store in one queue; definition and model execute them in this order."""
    launch, inputs = reloading(cfg)
    report = verify(launch)
    queues = [Isa(cfg).queue(f) for f in Isa(cfg).decode(launch.insn)]
    assert all(queues[pair.push] != queues[pair.pop] for pair in report.pairs)
    expected, _ = run(launch, inputs, SpecDevice(cfg))
    assert len(np.unique(expected["out"])) > 30
    for seed in range(4):  # any legal interleaving
        got, _ = run(launch, inputs, ModelDevice(cfg, rng=np.random.default_rng(seed)))
        np.testing.assert_array_equal(got["out"], expected["out"])


@pytest.mark.slow
@needs_compiler
@pytest.mark.parametrize("cfg", [TINY, ODD, PYNQ], ids=lambda c: c.name)
def test_parameters_that_were_just_stored_are_those_loaded(cfg):
    launch, inputs = reloading(cfg)
    verify(launch)
    expected, _ = run(launch, inputs, SpecDevice(cfg) if cfg != PYNQ else ModelDevice(cfg))
    assert len(np.unique(expected["out"])) > 30 and len(np.unique(expected["scaled"])) > 30
    memories = MEMORIES[::3] if cfg == PYNQ else MEMORIES
    for device in (ModelDevice(cfg), *(RtlDevice(cfg, dram=dram) for dram in memories)):
        got, _ = run(launch, inputs, device)
        for name, values in expected.items():
            wrong = int((got[name] != values).sum())
            assert not wrong, f"{cfg.name}, {getattr(device, 'dram', 'model')}: {wrong} of {values.size} in {name}"


@needs_compiler
@pytest.mark.parametrize("cfg", [TINY, pytest.param(ODD, marks=pytest.mark.slow), PYNQ], ids=lambda c: c.name)
def test_the_timing_model_waits_as_the_circuit_does(cfg):
    launch, inputs = reloading(cfg)
    for dram in (Dram(), Dram(latency=1, response=1), Dram(latency=90, response=3), Dram(response=100)):
        _, found = run(launch, inputs, RtlDevice(cfg, dram=dram))
        _, predicted = run(launch, inputs, TimingDevice(cfg, dram=dram))
        assert found.cycles and predicted.cycles
        print(f"{cfg.name} {dram}: {predicted.cycles} cycles, circuit {found.cycles}")
        assert abs(predicted.cycles / found.cycles - 1) < 0.01


def stored_then_loaded(cfg, first):
    """A STORE to entries 0 to 47 of a buffer, then a LOAD of one PAR entry from entry `first` of it on."""
    program = Program(cfg)
    size = cfg.par_entry_bytes // cfg.out_entry_bytes
    out = program.buffer("out", (8 * size, cfg.batch, cfg.block_out), 8, kind="output")
    program.store(0, out, size, x_size=3 * size)
    program.load(Mem.PAR, 0, out, first)
    program.store(0, out, 6 * size, x_size=4, par=0)
    return program.finish()


@needs_compiler
@pytest.mark.parametrize(("first", "waits"), [(0, True), (1, True), (3, True), (4, False), (7, False)])
def test_only_loads_behind_all_unanswered_stores_pass_them(first, waits):
    """A load before the store's bytes could pass it, too, but the circuit compares with their end alone."""
    launch = stored_then_loaded(TINY, first)
    verify(launch)
    dram = Dram(response=100)
    timing, device = predict(launch, dram=dram), RtlDevice(TINY, dram=dram)
    run(launch, {}, device)
    assert (timing.issue[1] > timing.end[0]) == waits
    assert (device.trace.issue[1] > device.trace.end[0]) == waits


EXTREME = TINY.replace(
    name="extreme", axi_bits=32, load_ports=2, queue_depth=4, token_depth=4, ppu_lanes=1, acc_banks=1
)


@needs_compiler
@pytest.mark.slow
@pytest.mark.parametrize("chunk", range(20))
@pytest.mark.parametrize("cfg", [TINY, ODD, EXTREME], ids=lambda c: c.name)
def test_programs_that_load_what_they_stored_equal_the_model(cfg, chunk):
    """2,000 programs in three configurations; ten after each other meet what the one before left in scratchpads."""
    circuit = model = None
    for seed in range(30_000 + 100 * chunk, 30_100 + 100 * chunk):
        print(f"{cfg.name} seed {seed}")
        if circuit is None or model is None or seed % 10 == 0:
            circuit, model = RtlDevice(cfg, dram=Dram.random(seed)), ModelDevice(cfg)
        image, address, count = random_case(cfg, seed)
        expected, got = image.copy(), image.copy()
        model.run_image(expected, address, count)
        circuit.run_image(got, address, count)
        assert (got == expected).all(), f"{cfg.name} seed {seed}: {(got != expected).sum()} bytes differ"
