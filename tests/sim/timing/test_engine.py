"""sim/timing/engine.py: cycles against the circuit, short ways, and what instructions ask of units."""

import shutil
from collections import deque
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tilewright.hw.config import PRESETS
from tilewright.hw.errors import DeadlockError, ExecutionError, UnsupportedError
from tilewright.hw.isa import Isa, Mem, Op, Queue
from tilewright.hw.rtl import latencies as lat
from tilewright.hw.units import Reader
from tilewright.runtime.program import Program
from tilewright.sim.dram import Dram
from tilewright.sim.random_programs import ROWS, Recorder, random_case, record_random
from tilewright.sim.rtl import RtlDevice
from tilewright.sim.timing import predict
from tilewright.sim.timing.device import TimingDevice
from tilewright.sim.timing.engine import Fetch
from tilewright.sim.timing.issues import PLACE
from tilewright.sim.timing.program import Write, columns
from tilewright.sim.timing.read_port import ReadPort, Writer

CONFIGS = [PRESETS["pynq_z1"], PRESETS["vta"], PRESETS["tiny"], ROWS]


CIRCUITS = [cfg if cfg != PRESETS["vta"] else pytest.param(cfg, marks=pytest.mark.slow) for cfg in CONFIGS]


needs_compiler = pytest.mark.skipif(not shutil.which("g++"), reason="g++ is missing: no circuit can be built")


@pytest.mark.circuit
@needs_compiler
@pytest.mark.parametrize("cfg", CIRCUITS, ids=lambda c: c.name)
def test_random_programs_take_as_long_as_in_the_circuit(cfg):
    circuit, timing, errors = RtlDevice(cfg), TimingDevice(cfg), []
    for seed in (*range(12), 4012, 7035, 12006):  # the last ones: loads behind jobs that leave a bank, or issue nothing
        image, address, count = random_case(cfg, seed)
        expected = circuit.run_image(image.copy(), address, count)
        got = timing.run_image(image, address, count)
        assert got.cycles and expected.cycles
        errors.append(abs(got.cycles / expected.cycles - 1))
        print(f"{cfg.name} seed {seed}: {got.cycles} cycles, circuit {expected.cycles}")
        assert errors[-1] < 0.05
        assert got.counters.keys() == expected.counters.keys()
        for name in ("LOAD_INSNS", "COMPUTE_INSNS", "STORE_INSNS", "LOAD_BYTES", "COMPUTE_BYTES", "STORE_BYTES"):
            assert got.counters[name] == expected.counters[name]
    assert np.mean(errors) < 0.02


def test_times_of_instructions_are_in_order():
    recorder = Recorder(CONFIGS[0], 5)
    record_random(recorder, 40)
    timing = predict(recorder.program)
    assert (timing.issue >= timing.arrive).all() and (timing.end >= timing.start).all()
    assert (timing.start > timing.issue).all() and timing.end.max() < timing.cycles
    for queue in range(3):
        assert (np.diff(timing.issue[timing.queue == queue]) > 0).all()


def test_a_program_that_never_ends():
    program = Program(CONFIGS[0], "stuck")
    launch = program.finish()
    launch.insn[-1, 0] |= np.uint64(1 << 3)  # FINISH waits for a token that nobody gives
    with pytest.raises(DeadlockError, match="COMPUTE at instruction"):
        predict(launch)


def long_program(cfg, seed):
    """Loads and stores of many rows, with loads of micro-ops and parameters between them that take turns with them."""
    rng, program = np.random.default_rng(seed), Program(cfg)
    quantised = "requant" in cfg.extensions
    sizes = {Mem.INP: (cfg.inp_entry_bytes, cfg.inp_depth), Mem.WGT: (cfg.wgt_entry_bytes, cfg.wgt_depth)}
    sizes[Mem.ACC] = cfg.acc_entry_bytes, cfg.acc_depth
    buffers = {mem: program.buffer(mem.name, (2048, nbytes)) for mem, (nbytes, _) in sizes.items()}
    out = program.buffer("out", (4096, cfg.out_entry_bytes), kind="output")
    par = program.buffer("par", (cfg.par_entries, cfg.par_entry_bytes)) if quantised else None
    for _ in range(40):
        half, kind = int(rng.integers(2)), rng.integers(8)
        y, x, gap, entry = map(int, rng.integers((1, 1, 0, 0), (20, 24, 3, 40)))
        if kind < 3:
            mem = (Mem.INP, Mem.WGT, Mem.ACC)[kind]
            depth = sizes[mem][1] // 2
            pads = (gap, 1, 1, gap // 2) if mem != Mem.WGT and entry % 2 else (0, 0, 0, 0)
            y = min(y, depth // (x + pads[2] + pads[3]) - pads[0] - pads[1])
            if y > 0:
                stride = x + 7 * gap
                program.load(mem, half * depth, buffers[mem], entry, y_size=y, x_size=x, x_stride=stride, pads=pads)
        elif kind < 5:
            uops = rng.integers(0, 8, (int(rng.integers(1, 7)), 3))
            uops[:, 0] += half * cfg.acc_depth // 2
            program.gemm_uops(uops, [(x, 1, 0, 0), (y, 0, 1, 0)])
        elif kind == 5 and par:
            program.load(Mem.PAR, half, par, 0, x_size=min(x, cfg.par_entries - 1))
        else:
            y = min(y, cfg.acc_depth // 2 // x)
            first, kept = half * cfg.acc_depth // 2, 0 if par and half else None
            program.store(first, out, entry, y_size=y, x_size=x, x_stride=x + gap, par=kept)
    return program.finish()


def same_without_short_ways(launch, dram, which):
    """`predict` finds the same with and without bursts in runs and what it remembers; returns it."""
    got, expected = predict(launch, dram=dram), predict(launch, dram=dram, fast=False)
    assert got.cycles == expected.cycles and got.counters == expected.counters, which
    for field in ("arrive", "issue", "start", "end"):
        assert (getattr(got, field) == getattr(expected, field)).all(), f"{which}: {field}"
    for reason, waits in expected.waits.items():
        assert (got.waits[reason] == waits).all(), f"{which}: {reason}"


def test_the_switch_turns_short_ways_off(monkeypatch):
    """The test above compares two different ways: runs and remembered STOREs in one, none in the other."""
    runs, remembered = [], []
    steady, restore = ReadPort._steady, Writer.restore

    def noted(self, client, now, limit):
        after = steady(self, client, now, limit)
        runs.append(after > now)
        return after

    monkeypatch.setattr(ReadPort, "_steady", noted)
    monkeypatch.setattr(Writer, "restore", lambda *a: (remembered.append(a), restore(*a)))
    launch = convolution(CONFIGS[0])
    predict(launch)
    assert any(runs) and remembered
    runs.clear()
    remembered.clear()
    predict(launch, fast=False)
    assert not any(runs) and not remembered


@pytest.mark.parametrize("dram", [Dram(), Dram(latency=3), Dram(latency=90)], ids=lambda d: f"latency{d.latency}")
@pytest.mark.parametrize("cfg", [*CONFIGS, CONFIGS[0].replace(load_ports=2)], ids=lambda c: f"{c.name}{c.load_ports}")
def test_short_ways_do_not_change_a_cycle(cfg, dram):
    for seed in range(8):
        random = Recorder(cfg, seed)
        record_random(random, 40)
        for launch in (long_program(cfg, seed), random.program.finish()):
            same_without_short_ways(launch, dram.replace(total_bytes=32), f"seed {seed}")


def convolution(cfg):
    """Tiles of inputs with padding and of weights, products of all taps, bias and requantised outputs; two threads."""
    size, taps, entries = 14, 9, 14 * 14
    program = Program(cfg)
    inp = program.buffer("inp", (8 * entries, cfg.inp_entry_bytes))
    wgt = program.buffer("wgt", (64 * taps, cfg.wgt_entry_bytes))
    bias = program.buffer("bias", (8, cfg.acc_entry_bytes))
    out = program.buffer("out", (8 * entries, cfg.out_entry_bytes), kind="output")
    par = program.buffer("par", (8, cfg.par_entry_bytes)) if "requant" in cfg.extensions else None
    uops = np.array([(0, (size + 2) * y + x, 3 * y + x) for y in range(3) for x in range(3)])
    for block in range(8):
        half = block % 2
        acc, tile, weights = half * cfg.acc_depth // 2, half * (size + 2) ** 2, half * taps
        program.load(Mem.ACC, acc, bias, block, x_size=1)
        if par:
            program.load(Mem.PAR, block, par, block, x_size=1)
        for k in range(4):
            to, pads = 2 * k * entries, (1, 1, 1, 1)
            program.load(Mem.INP, tile, inp, to, y_size=size, x_size=size, x_stride=size, pads=pads)
            program.load(Mem.WGT, weights, wgt, (block * 4 + k) * taps, x_size=taps)
            program.gemm_uops(np.add(uops, (acc, tile, weights)), [(size, size, size + 2, 0), (size, 1, 1, 0)])
        kept = block if par else None
        program.store(acc, out, block * entries, y_size=size, x_size=size, x_stride=size, par=kept)
    return program.finish()


@pytest.mark.parametrize("cfg", CONFIGS[:2], ids=lambda c: c.name)
def test_nor_do_they_in_a_convolution(cfg):
    same_without_short_ways(convolution(cfg), Dram(), cfg.name)


@pytest.mark.parametrize(("dram", "what"), [(Dram.random(1), "Dram.seed"), (Dram(total_bytes=8), "moves 8 bytes")])
def test_a_memory_that_it_does_not_know(dram, what):
    with pytest.raises(UnsupportedError, match=what):
        predict(Program(CONFIGS[0]), dram=dram)


def test_it_shows_its_cycles_counters_and_waits():
    program = Program(PRESETS["tiny"])
    program.gemm([(100, 0, 0, 0)], reset=True)
    timing = predict(program)
    assert repr(timing) == f"Timing({timing.cycles:,} cycles, {len(program.finish().insn)} instructions)"
    text = timing._repr_html_()
    assert f"<td>COMPUTE_BUSY</td><td>{timing.counters['COMPUTE_BUSY']:,}</td>" in text
    assert f"<td>waits: memory</td><td>{timing.waits['memory'].sum():,}</td>" in text


TINY = PRESETS["tiny"]


def test_an_instruction_is_two_beats():
    program = Program(TINY)
    for _ in range(12):
        program.gemm([(1, 0, 0, 0)])
    timing = predict(program)
    arrive = timing.arrive[timing.queue == Queue.COMPUTE]
    assert (np.diff(arrive[3:10]) == 2).all()


@pytest.mark.parametrize("depth", [4, 64])
def test_a_full_queue_keeps_other_queues_from_their_instructions(depth):
    program = Program(TINY.replace(queue_depth=depth), tokens="explicit")
    x = program.buffer("x", (1, TINY.inp_entry_bytes))
    for _ in range(20):
        program.gemm([(100, 0, 0, 0)])
    program.load(Mem.INP, 0, x, 0)
    timing = predict(program)
    load = timing.arrive[timing.queue == Queue.LOAD][0]
    assert (load > 1000) == (depth == 4)


def test_the_first_one_comes_after_the_latency():
    launch = Program(TINY).finish()
    near, far = (predict(launch, dram=Dram(latency=latency)) for latency in (10, 60))
    assert far.arrive[0] - near.arrive[0] == 50


def test_an_instruction_whose_queue_is_full_has_left_the_buffer():
    """It waits in the word that its beats were put together in, so the next burst has room before it has a queue."""
    cfg = TINY.replace(axi_bits=32, queue_depth=4)
    room = lat.capacity(cfg.queue_depth)
    beats = 4 * (room + 1)  # four of 32 bits for each instruction; the last one finds the queue full
    unit: Any = SimpleNamespace(arrivals=[], taken=deque(), at=0, wake=lambda: None)
    program: Any = SimpleNamespace(queue=np.zeros(room + 2, int), count=room + 2)
    fetch = Fetch(cfg, program, 0, [unit], Reader("fetch", 64, 1))
    fetch.asked = beats
    fetch.burst(beats, 100, final=False)
    assert len(unit.arrivals) == room and fetch.waits_for is unit
    assert list(fetch.taken) == [(beats, 100 + lat.BEAT_LATENCY, 1)]
    unit.taken.append(500)
    fetch.resume()
    assert unit.arrivals[-1] == 501 + lat.FIFO_LATENCY and len(fetch.taken) == 1


PYNQ = PRESETS["pynq_z1"]


def no_uops(first, count):
    return np.zeros(count, np.uint32)


def column(cfg, name, skip=frozenset(), /, **fields):
    isa = Isa(cfg)
    finish = isa.formats["FINISH"].encode(op=Op.FINISH)
    return columns(cfg, np.concatenate([isa.formats[name].encode(**fields), finish]), no_uops, skip)


TILE = {"op": Op.LOAD, "mem": Mem.INP, "sram_base": 7, "dram_base": 100, "y_size": 3, "x_size": 5, "x_stride": 9}


PADS = {"y_pad_0": 1, "y_pad_1": 2, "x_pad_0": 1, "x_pad_1": 3}


def test_rows_and_padding_of_a_load():
    program = column(PYNQ, "LOAD", **TILE, **PADS)
    move = program.work[0]
    width, height = 1 + 5 + 3, 1 + 3 + 2
    assert (move.rows, move.first, move.step, move.length, move.per_beat) == (3, 200, 18, 10, 1)  # 16 bytes: two beats
    assert move.lead + 2 * move.between + move.tail + 3 * 5 == width * height
    assert (move.low, move.high) == (7, 7 + width * height - 1)
    assert program.bytes_moved[0] == 3 * 5 * 16
    assert program.order == [[0], [1], []] and program.finish == 1


def test_one_row_has_nothing_between_rows():
    move = column(PYNQ, "LOAD", **(TILE | {"y_size": 1}), **PADS).work[0]
    assert (move.rows, move.between) == (1, 0) and move.lead + move.tail + 5 == 9 * 4


def test_rows_without_gaps_are_one_request():
    move = column(PYNQ, "LOAD", **(TILE | {"x_stride": 5}), **PADS).work[0]
    assert (move.rows, move.length) == (1, 30)
    assert move.lead + move.between + move.tail + 15 == 9 * 6


def test_entries_smaller_than_a_beat():
    move = column(TINY, "LOAD", **TILE).work[0]
    assert (move.first, move.step, move.length, move.per_beat) == (100, 9, 5, 2)


@pytest.mark.parametrize("change", [{"x_size": 0}, {"y_size": 0}])
def test_a_load_without_data(change):
    move = column(PYNQ, "LOAD", **(TILE | change), **PADS).work[0]
    assert (move.rows, move.lead) == (0, 1 if "x_size" in change else (5 + 4) * 3)


def test_a_store_goes_by_rows():
    work = column(PYNQ, "STORE", **(TILE | {"op": Op.STORE, "mem": Mem.OUT})).work[0]
    assert work == Write(rows=3, entries=5, base=7, first=200, step=18, length=10, per_beat=1, quantised=False)


@pytest.mark.parametrize("what", ["gemm", "dma"])
def test_skipped_work_takes_no_time(what):
    assert column(PYNQ, "LOAD", frozenset({"dma"}), **TILE).work[0].rows == 0
    loops = {"op": Op.GEMM, "uop_end": 1, "iter_out": 4, "iter_in": 4}
    assert (column(PYNQ, "GEMM", frozenset({what}), **loops).work[0] == PLACE) == (what == "gemm")


def test_a_program_without_an_end():
    with pytest.raises(ExecutionError, match="no FINISH"):
        columns(PYNQ, np.zeros((1, 2), np.uint64), no_uops)


def test_what_cannot_be_skipped():
    with pytest.raises(UnsupportedError, match="'fetch' cannot be skipped; gemm, alu, dma can"):
        column(PYNQ, "LOAD", frozenset({"fetch"}), **TILE)


def test_what_is_skipped_comes_in_any_collection():
    skipped = column(PYNQ, "LOAD", frozenset({"dma"}), **TILE).work[0]
    skip: Any
    for skip in (("dma",), ["dma", "gemm"], {"dma"}, "dma", iter(["dma"])):
        assert column(PYNQ, "LOAD", skip, **TILE).work[0] == skipped
    assert column(PYNQ, "LOAD", **TILE).work[0] != skipped


def test_a_unit_that_is_missing_has_no_entries():
    """Four ternary weights are a byte; blocks of one value would have entries of a quarter of it."""
    smallest = PYNQ.replace(block_in=1, block_out=1, inp_bytes=None, wgt_bytes=None, acc_bytes=None)
    assert column(smallest, "LOAD", **TILE).bytes_moved[0] == 15
