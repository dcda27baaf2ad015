"""sim/rtl/device.py: the circuit computes what the definition says, over all bytes of memory, whatever the bus does.

The fast model stands for the definition where many programs run.
"""

import os
import re
import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from tilewright.hw.config import PRESETS
from tilewright.hw.errors import AccessError, DeadlockError, ExecutionError, FileError, UnsupportedError
from tilewright.hw.isa import AluOp, Isa, Mem, Op
from tilewright.hw.regs import REGISTERS
from tilewright.hw.rtl import verilog
from tilewright.hw.rtl.verilog import to_verilog
from tilewright.runtime.loader import run
from tilewright.sim.dram import Dram
from tilewright.sim.model.device import ModelDevice
from tilewright.sim.random_programs import NARROW, ODD, PORTS, ROWS, WIDE, Recorder, random_case, record_random
from tilewright.sim.replay import replay_case
from tilewright.sim.rtl import device as rtl
from tilewright.sim.rtl import verilator
from tilewright.sim.rtl.device import RtlDevice, Simulation, build_core, load_library
from tilewright.sim.rtl.rewrite import rewritten
from tilewright.sim.spec import SpecDevice

VTA, TINY, PYNQ, TWO = PRESETS["vta"], PRESETS["tiny"], PRESETS["pynq_z1"], PRESETS["tiny_two"]
# each is a circuit to build: those of the fewest differences are slow tests
BUILDS = [pytest.param(cfg, id=cfg.name) for cfg in (PYNQ, TINY, ROWS, PORTS, TWO)]
SLOW = (VTA, ODD, NARROW, WIDE, PRESETS["pynq_z1_two"])
BUILDS += [pytest.param(cfg, id=cfg.name, marks=pytest.mark.slow) for cfg in SLOW]
VECTORS = sorted((Path(__file__).parents[4] / "shared" / "vectors").glob("*.npz"))

pytestmark = pytest.mark.skipif(not shutil.which("g++"), reason="g++ is missing: no circuit can be built")


def differential(cfg, seed, device=None, model=None):
    """Run random program `seed` on model (or what is in its place) and circuit, and compare all of memory."""
    image, address, count = random_case(cfg, seed)
    expected, got = image.copy(), image.copy()
    stats = (model or ModelDevice(cfg)).run_image(expected, address, count)
    device = device or RtlDevice(cfg, dram=Dram.random(seed))
    counted = device.run_image(got, address, count)
    where = np.flatnonzero(expected != got)
    assert not len(where), f"{cfg.name} seed {seed}: {len(where)} bytes differ, the first at {where[0]:#x}"
    assert (counted.insns, counted.uops, counted.macs) == (stats.insns, stats.uops, stats.macs)
    return counted


@pytest.mark.circuit
@pytest.mark.parametrize("chunk", range(10))
@pytest.mark.parametrize("cfg", BUILDS)
def test_random_programs_equal_the_model(cfg, chunk):
    for seed in range(10 * chunk, 10 * chunk + 10):
        print(f"{cfg.name} seed {seed}")
        differential(cfg, seed)


@pytest.mark.slow
def test_random_programs_of_shallow_token_channels_equal_the_model():
    cfg = TINY.replace(name="shallow", token_depth=1)
    for seed in range(8):
        differential(cfg, seed)


@pytest.mark.slow
@pytest.mark.parametrize("chunk", range(10))
@pytest.mark.parametrize("cfg", BUILDS)
def test_many_random_programs_equal_the_model(cfg, chunk):
    """1,000 programs each; ten behind each other find what the one before left."""
    device = model = None
    for seed in range(10_000 + 100 * chunk, 10_100 + 100 * chunk):
        print(f"{cfg.name} seed {seed}")
        if seed % 10 == 0:
            device, model = RtlDevice(cfg, dram=Dram.random(seed)), ModelDevice(cfg)
        differential(cfg, seed, device, model)


@pytest.mark.circuit
@pytest.mark.parametrize("cfg", BUILDS)
def test_random_programs_equal_the_definition(cfg):
    """One after the other: each meets what the one before left in the scratchpads."""
    spec, circuit = SpecDevice(cfg), RtlDevice(cfg, dram=Dram.random(0))
    for seed in range(500, 508):
        print(f"{cfg.name} seed {seed}")
        differential(cfg, seed, circuit, spec)


@pytest.mark.circuit
@pytest.mark.slow  # tests/test_golden.py has those of tiny
@pytest.mark.parametrize("path", VECTORS, ids=lambda p: p.stem)
def test_recorded_cases(path):
    result = replay_case(path, "rtl")
    assert result.passed, result.detail
    assert result.stats.cycles


def program(cfg, *insns):
    """(image, address, count) of hand-made instructions: (format, fields)."""
    isa, image = Isa(cfg), np.random.default_rng(0).integers(0, 256, 1 << 16, np.uint8)
    words = np.concatenate([isa.formats[name].encode(1, **fields) for name, fields in insns])
    image[4096 : 4096 + words.nbytes] = words.view(np.uint8).reshape(-1)
    return image, 4096, len(words)


def load(mem, sram=0, dram=0, x=1, **fields):
    return "LOAD", {"op": Op.LOAD, "mem": mem, "sram_base": sram, "dram_base": dram, "y_size": 1, "x_size": x, **fields}


def store(sram=0, dram=0, x=1, **fields):
    sizes = {"y_size": 1, "x_size": x, "x_stride": x, **fields}
    return "STORE", {"op": Op.STORE, "mem": Mem.OUT, "sram_base": sram, "dram_base": dram, **sizes}


def alu(**fields):
    one = {"op": Op.ALU, "alu_op": AluOp.ADD, "use_imm": 1, "uop_end": 1, "iter_out": 1, "iter_in": 1}
    return "ALU", one | fields


def storeq(par_base, par_step=0, x=1, y=1):
    sizes = {"y_size": y, "x_size": x, "x_stride": x, "par_base": par_base, "par_step": par_step}
    return "STOREQ", {"op": Op.STORE, "mem": Mem.OUTQ, **sizes}


def rescale(par, **fields):
    return alu(alu_op=AluOp.RESCALE, imm=par, **fields)


FINISH = ("FINISH", {"op": Op.FINISH})
DRAINED = [("STORE", {"op": Op.STORE, "push_prev": 1}), ("FINISH", {"op": Op.FINISH, "pop_next": 1})]


@pytest.fixture(scope="module")
def tiny():
    """One circuit, which goes on after every error."""
    return RtlDevice(TINY, watchdog=2000)


def test_model_and_circuit_refuse_the_same_addresses_and_counts(tiny):
    image, address, count = program(TINY, load(Mem.INP), FINISH)
    for device in (ModelDevice(TINY), tiny):
        with pytest.raises(AccessError, match="instructions at 0x1008: the address must be a multiple of 16"):
            device.run_image(image, address + 8, count)
        with pytest.raises(AccessError, match="2 instructions at 0xfff0 are outside DRAM, 0..0xffff"):
            device.run_image(image, len(image) - 16, count)
        with pytest.raises(ExecutionError, match="^the program has no FINISH: it has no instructions$") as caught:
            device.run_image(image, address, 0)
        assert caught.value.index is None


def test_a_program_in_which_finish_is_not_last_runs_to_its_end_on_the_circuit(tiny):
    """The model refuses it."""
    image, address, count = program(TINY, store(pop_prev=1, dram=2048), ("FINISH", {"op": Op.FINISH, "push_next": 1}))
    with pytest.raises(ExecutionError, match="executes after FINISH: nothing orders FINISH behind it"):
        ModelDevice(TINY).run_image(image.copy(), address, count)
    before = image.copy()
    tiny.run_image(image, address, count)
    assert not np.array_equal(image, before)


def begin(sim, image, address, count):
    """Start the program as a host would."""
    sim.use(image)
    for name, value in (("INSN_COUNT", count), ("INSN_ADDR_LO", address), ("INSN_ADDR_HI", 0), ("WATCHDOG", 20000)):
        sim.write(name, value)
    sim.write("CONTROL", 1)


@pytest.mark.slow
def test_a_library_compiled_by_the_counts_of_a_rehearsal_is_the_same_circuit(tmp_path, monkeypatch):
    source, ran = tmp_path / "core.v", []
    source.write_text(rewritten(to_verilog(TINY, name="core")))
    rtl.build_harness(
        tmp_path, source, "core", TINY, rehearse=lambda path: ran.append(path) or rtl.rehearse(TINY, path)
    )
    assert [path.name for path in ran] == ["counting.so"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["core.so", "core.v"]
    seen = []
    for change in (lambda *a, **k: tmp_path / "core.so", build_core):
        monkeypatch.setattr(rtl, "build_core", change)
        device = RtlDevice(TINY)
        for seed in range(20, 30):
            image, address, count = random_case(TINY, seed)
            stats = device.run_image(image, address, count)
            seen.append((image.tobytes(), stats.cycles, stats.insns, device.trace.end.tolist()))
    assert seen[:10] == seen[10:]


@pytest.mark.circuit
def test_a_circuit_that_fails_in_its_rehearsal_is_built(monkeypatch):
    ran = []

    def failing(*case):
        ran.append(case)
        raise ExecutionError("broken")

    monkeypatch.setattr(RtlDevice, "run_image", failing)
    rtl.rehearse(TINY, build_core(TINY))
    assert len(ran) == 1


@pytest.mark.parametrize("cfg, waves, expected", [(PYNQ, "", True), (PYNQ, "fst", False), (TINY, "", False)])
def test_large_circuits_without_waveforms_are_rehearsed(cfg, waves, expected, monkeypatch, tmp_path):
    found = []
    monkeypatch.setattr(rtl, "build_harness", lambda *a, rehearse, **k: found.append(rehearse is not None))
    monkeypatch.setattr(rtl, "cached", lambda kind, key, make: make(tmp_path) or tmp_path)
    monkeypatch.setattr(verilog, "to_verilog", lambda *a, **k: "")
    build_core(cfg, waves)
    assert found == [expected]


def begun(seeds):
    """A simulation per seed that has just begun a program; before the next one the program must have ended rightly."""
    image, address, count = random_case(TINY, 2)
    expected = image.copy()
    ModelDevice(TINY).run_image(expected, address, count)
    library = load_library(build_core(TINY))
    for seed in range(seeds):
        print(f"seed {seed}")
        got, sim = image.copy(), Simulation(library, Dram.random(seed))

        def begin_again(sim=sim, got=got):
            got[:] = image
            begin(sim, got, address, count)

        begin_again()
        yield seed, np.random.default_rng(seed), sim, begin_again
        assert sim.run(1 << 20) and (sim.read("CONTROL"), sim.read("ERROR")) == (2, 0)
        np.testing.assert_array_equal(got, expected)
        sim.close()


@pytest.mark.circuit
def test_nothing_that_a_host_does_to_the_registers_disturbs_a_program():
    for _, rng, sim, _ in begun(10):
        for _ in range(15):
            name = rng.choice(["CONTROL", "INSN_COUNT", "INSN_ADDR_LO", "INSN_ADDR_HI", "VERSION", "ERROR", "CYCLES"])
            sim.write(name, 1 if name == "CONTROL" else int(rng.integers(1 << 32)))
            assert sim.read(str(rng.choice(list(REGISTERS)))) >= 0
            sim.run(int(rng.integers(10)))
        assert sim.read("CONTROL") == 1


@pytest.mark.circuit
def test_a_reset_at_any_time_ends_a_program_and_the_next_one_runs():
    for seed, rng, sim, begin_again in begun(20):
        ended = sim.run(0 if seed < 3 else int(rng.integers(2000)))
        sim.write("CONTROL", 2)
        assert not sim.run(2000) and sim.read("CONTROL") == 0 or ended
        begin_again()


@pytest.mark.circuit
def test_a_bus_error_in_the_middle_of_any_program_ends_it():
    ended = 0
    for seed in range(60):
        print(f"seed {seed}")
        image, address, count = random_case(TINY, seed)
        used = np.flatnonzero(image)
        at = int(used[np.random.default_rng(seed).integers(len(used))])
        device = RtlDevice(TINY, dram=Dram.random(seed), faults=(at, at + 7))
        try:
            device.run_image(image, address, count)
        except AccessError as exc:
            assert "the bus answered a read with an error" in str(exc)
            ended += 1
        device.close()
    assert ended > 20


def test_a_deadlock_is_reported_with_what_each_queue_waits_for(tiny):
    image, address, count = program(TINY, load(Mem.INP), alu(pop_prev=1), store(pop_prev=1), *DRAINED)
    with pytest.raises(DeadlockError) as caught:
        tiny.run_image(image, address, count)
    assert str(caught.value) == (
        "deadlock: LOAD is empty; COMPUTE waits for a token LOAD -> COMPUTE at instruction 1 (ALU.ADD uop_end=1 "
        "iter_out=1 iter_in=1 use_imm=1 pop_prev); STORE waits for a token COMPUTE -> STORE at instruction 2 "
        "(STORE.OUT y_size=1 x_size=1 x_stride=1 pop_prev)"
    )


@pytest.mark.circuit
def test_counters_and_statistics():
    recorder = Recorder(TINY, 5)
    record_random(recorder)
    model, circuit = (run(recorder.program, recorder.inputs, device)[1] for device in ("model", "rtl"))
    assert (circuit.insns, circuit.uops, circuit.macs) == (model.insns, model.uops, model.macs)
    assert circuit.cycles and circuit.counters.keys() == {
        f"{unit}_{what}"
        for unit in ("LOAD", "COMPUTE", "STORE")
        for what in ("BUSY", "TOKEN_WAIT", "MEMORY_WAIT", "INSNS", "BYTES")
    }
    assert sum(circuit.counters[f"{unit}_INSNS"] for unit in ("LOAD", "COMPUTE", "STORE")) == circuit.insns.total()
    par = model.bytes_loaded["PAR"]
    assert circuit.counters["STORE_BYTES"] == model.bytes_stored.total() + par
    loaded = circuit.counters["LOAD_BYTES"] + circuit.counters["COMPUTE_BYTES"]
    assert loaded == model.bytes_loaded.total() - par > 0
    twice = circuit + circuit + model
    assert (twice.cycles, twice.counters["LOAD_INSNS"]) == (2 * circuit.cycles, 2 * circuit.counters["LOAD_INSNS"])
    assert (model.cycles, "cycles" in model.to_dict(), circuit.to_dict()["cycles"]) == (None, False, circuit.cycles)


@pytest.mark.slow  # a build of its own
def test_waves_are_written(tmp_path):
    image, address, count = random_case(TINY, 1)
    device = RtlDevice(TINY, waves=tmp_path / "core.vcd")
    device.run_image(image, address, count)
    device.close()
    text = (tmp_path / "core.vcd").read_text()
    assert "$var" in text and "s_axil_awaddr" in text and text.rstrip().splitlines()[-1]
    with pytest.raises(UnsupportedError, match=r"core.ghw: a file for waveforms must end in .fst or .vcd"):
        RtlDevice(TINY, waves=tmp_path / "core.ghw")


def test_missing_tools_are_named_with_the_line_that_installs_them(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    text = "needs g++, which is missing; install with: sudo apt-get install g++"
    with pytest.raises(UnsupportedError, match=re.escape(text)):
        RtlDevice(TINY)
    with pytest.raises(UnsupportedError, match="needs g[+][+] and make and perl, which are missing"):
        verilator.environment()


def test_a_cache_folder_appears_whole_or_not_at_all(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

    def fail(folder):
        (folder / "half").write_text("")
        raise UnsupportedError("broken")

    with pytest.raises(UnsupportedError, match="broken"):
        verilator.cached("kind", {"a": 1}, fail)
    assert not [path for path in (tmp_path / "tilewright" / "kind").iterdir() if path.is_dir()]
    made = []

    def make(folder):
        time.sleep(0.2)
        (folder / "file").write_text("")
        made.append(folder)

    with ThreadPoolExecutor(4) as pool:  # a lock on an open file holds between threads as between processes
        folders = set(pool.map(lambda _: verilator.cached("kind", {"a": 1}, make), range(4)))
    assert len(made) == len(folders) == 1 and (folders.pop() / "file").exists()


@pytest.mark.circuit
def test_the_device_that_builds_says_how_long(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(rtl, "build_harness", lambda *a, **k: None)
    monkeypatch.setattr(rtl, "load_library", lambda path: None)
    assert [RtlDevice(TINY).build_seconds is None for _ in range(2)] == [False, True]


def test_old_builds_go(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    kind = tmp_path / "tilewright" / "kind"
    (kind / ".killed").mkdir(parents=True)
    os.utime(kind / ".killed", (0, 0))
    for k in range(40):
        verilator.cached("kind", {"k": k}, lambda folder: None)
    assert len([path for path in kind.iterdir() if path.is_dir()]) == 32


def test_a_cache_that_cannot_be_written_is_an_error(monkeypatch, tmp_path):
    (tmp_path / "tilewright").write_text("a file")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(FileError, match="cannot keep builds there .*; set XDG_CACHE_HOME"):
        verilator.cached("kind", {}, lambda folder: None)
