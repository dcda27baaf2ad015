"""sim/dram.py, and the order of DRAM accesses of one queue: on all devices, whatever the memory's timing.

The store queue alone both reads and writes DRAM: STORE and LOAD of PAR.
"""

import json
import shutil

import numpy as np
import pytest

from tilewright.hw.config import PRESETS as CONFIGS
from tilewright.hw.errors import ConfigError, FileError
from tilewright.hw.isa import AluOp, Isa, Mem
from tilewright.runtime.loader import run
from tilewright.runtime.program import Program
from tilewright.runtime.verify import verify
from tilewright.sim.dram import MEANINGS, PRESETS, ZYNQ_HP, Dram, load_dram, pynq_z1_ddr, shared_bytes, unshared
from tilewright.sim.model.device import ModelDevice
from tilewright.sim.random_programs import ODD, random_parameters
from tilewright.sim.rtl import RtlDevice
from tilewright.sim.spec import SpecDevice
from tilewright.sim.timing import predict
from tilewright.sim.timing.device import TimingDevice

TINY = CONFIGS["tiny"]


@pytest.mark.parametrize(
    "spec, expected",
    [
        (None, ZYNQ_HP),
        (ZYNQ_HP, ZYNQ_HP),
        *((name, dram) for name, dram in PRESETS.items()),
        ("pynq_z1_ddr", pynq_z1_ddr(100)),
        ({"total_bytes": 64}, ZYNQ_HP.replace(name="custom", total_bytes=64)),
        (
            "zynq_hp4,latency=80,port_bytes=4",
            PRESETS["zynq_hp4"].replace(name="zynq_hp4,latency=80,port_bytes=4", latency=80, port_bytes=4),
        ),
        ("slow.json", ZYNQ_HP.replace(name="slow", latency=100)),
        ("named.json", ZYNQ_HP.replace(name="mine", latency=7)),
        ("slow.json,response=3", ZYNQ_HP.replace(name="slow.json,response=3", latency=100, response=3)),
    ],
)
def test_memories_by_name_fields_and_file(spec, expected, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "slow.json").write_text(json.dumps({"latency": 100}))
    (tmp_path / "named.json").write_text(json.dumps({"name": "mine", "latency": 7}))
    assert load_dram(spec) == expected
    assert set(MEANINGS) == set(PRESETS)


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        ("ddr", f"unknown memory 'ddr'; known are {', '.join(PRESETS)}, or give a .json file of fields"),
        ("zynq_hp,latency", "memory 'zynq_hp,latency': 'latency' must be FIELD=NUMBER, as in zynq_hp,latency=80"),
        ("zynq_hp,latency=x", "'latency=x' must be FIELD=NUMBER"),
        ("zynq_hp,speed=3", "Dram has no field 'speed'; it has name, latency,"),
        ("zynq_hp,latency=0", "Dram.latency = 0: must be an integer from 1 to 1048576"),
        ("zynq_hp,latency=-5", "Dram.latency = -5: must be an integer from 1 to 1048576"),
        ({"seed": -1}, "Dram.seed = -1: must be an integer from 0 on, or null for no stalls"),
        ({"name": 3}, "Dram.name = 3: must be a printable text"),
        ({"outstanding": 65}, "Dram.outstanding = 65: must be an integer from 1 to 64"),
        (3, "memory 3: must be zynq_hp, zynq_hp4, pynq_z1_ddr, wide, ideal, a .json file"),
        (["zynq_hp"], "memory ['zynq_hp']: must be"),
    ],
)
def test_unknown_memories(spec, text):
    with pytest.raises(ConfigError) as caught:
        load_dram(spec)
    assert text in str(caught.value)


@pytest.mark.parametrize(
    ("content", "error", "text"),
    [
        (
            None,
            FileError,
            "no such file; give a preset (zynq_hp, zynq_hp4, pynq_z1_ddr, wide, ideal) or a .json file",
        ),
        ("{", FileError, "cannot be read as JSON"),
        ("[1]", ConfigError, "a memory is a JSON object of fields, not a list"),
        ('{"port_bytes": 128}', ConfigError, "Dram.port_bytes = 128: must be an integer from 1 to 64"),
    ],
)
def test_files_that_are_no_memory(tmp_path, content, error, text):
    path = tmp_path / "memory.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(error) as caught:
        load_dram(str(path))
    assert text in str(caught.value)


def test_what_all_ports_can_move():
    assert shared_bytes(TINY, ZYNQ_HP) == 16 and unshared(TINY) == ZYNQ_HP
    two = TINY.replace(load_ports=2)
    assert shared_bytes(two, ZYNQ_HP) == 24 and unshared(two) == Dram(total_bytes=24)
    assert shared_bytes(TINY.replace(axi_bits=32), ZYNQ_HP) == 8, "a beat is less than the memory can move"


def test_a_faster_clock_leaves_fewer_bytes_for_each_cycle():
    assert [pynq_z1_ddr(mhz).total_bytes for mhz in (100, 125, 150)] == [21, 16, 14]
    assert pynq_z1_ddr(150) == ZYNQ_HP.replace(name="pynq_z1_ddr", total_bytes=14)


PYNQ = CONFIGS["pynq_z1"]


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


@pytest.mark.circuit
@needs_compiler
@pytest.mark.parametrize("cfg", [TINY, PYNQ], ids=lambda c: c.name)
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


@pytest.mark.circuit
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
