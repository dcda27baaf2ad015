"""The timing model without a circuit: cycles that circuits took, short ways, units and banks that are waited for."""

from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest

from tests.sim.timing.conftest import CONFIGS, COUNTED, COUNTERS, CYCLES, Work
from tilewright.hw.config import PRESETS
from tilewright.hw.errors import DeadlockError, ExecutionError, UnsupportedError
from tilewright.hw.isa import AluOp, Isa, Mem, Op, Queue
from tilewright.hw.rtl import latencies as lat
from tilewright.runtime.device import open_device
from tilewright.runtime.program import Program
from tilewright.sim.dram import Dram, unshared
from tilewright.sim.model.device import ModelDevice
from tilewright.sim.random_programs import NARROW, ROWS, Recorder, random_case, record_random
from tilewright.sim.timing import predict
from tilewright.sim.timing.device import TimingDevice, burst_lengths
from tilewright.sim.timing.issues import PLACE, Kernels
from tilewright.sim.timing.program import Write, columns
from tilewright.sim.timing.read_port import ReadPort, Writer

TINY, TWO, PYNQ, VTA, PYNQ_TWO = map(PRESETS.__getitem__, ("tiny", "tiny_two", "pynq_z1", "vta", "pynq_z1_two"))
HALF = PYNQ.acc_depth // 2


@pytest.mark.parametrize("first", range(2))
@pytest.mark.parametrize("name", CYCLES)
def test_programs_take_the_cycles_that_the_circuit_took(name, first):
    cfg, expected = CONFIGS[name], dict(list(CYCLES[name].items())[first::2])
    device = TimingDevice(cfg, dram=unshared(cfg))
    assert {seed: device.run_image(*random_case(cfg, seed)).cycles for seed in expected} == expected


def test_units_are_busy_and_wait_as_on_the_circuit():
    for seed, expected in COUNTERS.items():
        counters = TimingDevice(TINY).run_image(*random_case(TINY, seed)).counters
        assert tuple(counters[name] for name in COUNTED) == expected, seed


def test_a_program_that_never_ends():
    program = Program(PYNQ, "stuck")
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
    """The tests below compare two different ways: runs and remembered STOREs in one, none in the other."""
    runs, remembered = [], []
    steady, restore = ReadPort._steady, Writer.restore

    def noted(self, client, now, limit):
        after = steady(self, client, now, limit)
        runs.append(after > now)
        return after

    monkeypatch.setattr(ReadPort, "_steady", noted)
    monkeypatch.setattr(Writer, "restore", lambda *a: (remembered.append(a), restore(*a)))
    launch = convolution(PYNQ)
    predict(launch)
    assert any(runs) and remembered
    runs.clear()
    remembered.clear()
    predict(launch, fast=False)
    assert not any(runs) and not remembered


@pytest.mark.parametrize("dram", [Dram(), Dram(latency=3), Dram(latency=90)], ids=lambda d: f"latency{d.latency}")
@pytest.mark.parametrize(
    "cfg", [PYNQ, VTA, TINY, ROWS, PYNQ.replace(load_ports=2)], ids=lambda c: f"{c.name}{c.load_ports}"
)
def test_short_ways_do_not_change_a_cycle(cfg, dram):
    for seed in range(2):
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


def two_units(cfg):
    """Products of both units, in one bank and in two, and stores of them."""
    work = Work(cfg)
    for k in range(6):
        work.gemm(20, 0)
        work.ternary(9 + k, k // 3, 4)
        work.store(0)
        work.store(k // 3, 4)
    return work.p.finish()


@pytest.mark.parametrize(
    "launch", [convolution(PYNQ), convolution(VTA), two_units(TWO)], ids=lambda launch: launch.cfg.name
)
def test_nor_do_they_in_a_convolution_or_with_two_units(launch):
    same_without_short_ways(launch, Dram(), launch.cfg.name)


@pytest.mark.parametrize(("dram", "what"), [(Dram.random(1), "Dram.seed"), (Dram(total_bytes=8), "moves 8 bytes")])
def test_a_memory_that_it_does_not_know(dram, what):
    with pytest.raises(UnsupportedError, match=what):
        predict(Program(PYNQ), dram=dram)


def test_it_shows_its_cycles_counters_and_waits():
    program = Program(TINY)
    program.gemm([(100, 0, 0, 0)], reset=True)
    timing = predict(program)
    assert repr(timing) == f"Timing({timing.cycles:,} cycles, {len(program.finish().insn)} instructions)"
    text = timing._repr_html_()
    assert f"<td>COMPUTE_BUSY</td><td>{timing.counters['COMPUTE_BUSY']:,}</td>" in text
    assert f"<td>waits: memory</td><td>{timing.waits['memory'].sum():,}</td>" in text


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


# -- the device


def test_values_are_the_models():
    image, address, count = random_case(PYNQ, 3)
    expected = image.copy()
    stats = ModelDevice(PYNQ).run_image(expected, address, count)
    device = open_device("timing", PYNQ)
    assert isinstance(device, TimingDevice)
    got = device.run_image(image, address, count)
    assert np.array_equal(image, expected)
    assert (got.insns, got.uops, got.macs) == (stats.insns, stats.uops, stats.macs)
    assert got.cycles and got.counters["LOAD_BUSY"] < got.cycles


def test_skipped_work_changes_cycles_alone():
    image, address, count = random_case(PYNQ, 3)
    cycles, images = [], []
    for skip in ((), ("alu",), ("alu", "gemm"), ("alu", "gemm", "dma")):
        images.append(image.copy())
        cycles.append(TimingDevice(PYNQ, skip=frozenset(skip)).run_image(images[-1], address, count).cycles)
    assert cycles == sorted(cycles, reverse=True) and len(set(cycles)) == 4
    assert all(np.array_equal(images[0], one) for one in images)


def test_fetching_alone():
    words = np.zeros((5, 2), np.uint64)
    words[:, 0] = 3  # FINISH
    beats = 5 * 16 // (TINY.axi_bits // 8)
    found = burst_lengths(TINY, words, 0)
    assert found["write_bursts"] == {} and sum(int(n) * count for n, count in found["read_bursts"].items()) == beats
    across = burst_lengths(TINY, words, 16 * TINY.axi_bits // 8 - 16)  # one instruction before the boundary
    assert list(across["read_bursts"].values()) == [1, 1]


def test_what_is_skipped_moves_nothing():
    image, address, count = random_case(TINY, 1)
    observed = TimingDevice(TINY, skip="dma").run_image(image, address, count).observed
    assert observed is not None
    found = dict[str, Any](observed())
    assert found["write_bursts"] == {} and sum(int(n) * k for n, k in found["read_bursts"].items()) * 8 >= 16 * count


# -- units and banks


def overlapped(loads: int):
    """The timing, on pynq_z1, of loads each of which gives a token to a GEMM of 1000 issues; and the GEMMs."""
    program = Program(PYNQ, tokens="explicit")
    x = program.buffer("x", (loads, PYNQ.inp_entry_bytes))
    for k in range(loads):
        program.load(Mem.INP, k, x, k)
        program.dep_push(Queue.LOAD, Queue.COMPUTE)
        program.dep_pop(Queue.LOAD, Queue.COMPUTE)
        program.gemm([(1000, 0, 0, 0)])
    timing = predict(program)
    return timing, np.flatnonzero((timing.queue == Queue.COMPUTE) & (timing.end - timing.start > 900))


def test_gemm_follows_gemm_without_a_gap_and_waits_have_reasons():
    timing, gemm = overlapped(3)
    assert np.diff(timing.start[gemm]).tolist() == [1000, 1000]
    assert (timing.end[gemm] - timing.start[gemm] == 999 + lat.issue_latency(PYNQ)).all()
    loads = np.flatnonzero(timing.queue == Queue.LOAD)
    assert timing.waits["token_prev"].sum() > 0 and timing.waits["unit"][gemm[2]] > 900
    assert timing.waits["memory"][loads[0]] >= 40
    assert timing.counters["COMPUTE_TOKEN_WAIT"] == timing.waits["token_prev"][timing.queue == Queue.COMPUTE].sum()
    waited = sum(timing.waits[name] for name in ("token_prev", "token_next", "unit"))
    assert (timing.issue - timing.arrive == waited).all()


def test_a_load_into_another_bank_passes_gemm():
    def cycles(base):
        program = Program(PYNQ, tokens="explicit")
        b = program.buffer("b", (8, PYNQ.acc_entry_bytes))
        program.gemm([(2000, 0, 0, 0)])
        program.load(Mem.ACC, base, b, 0, x_size=8)
        timing = predict(program)
        load = int(np.flatnonzero((program.finish().insn[:, 0] >> np.uint64(7) & np.uint64(7)) == Mem.ACC)[0])
        return timing.start[load], timing.end[load]

    (same, _), (other, end) = cycles(0), cycles(PYNQ.acc_depth // 2)
    assert other < 1000 and same > 2000
    assert end > 2000  # its token comes in the order of the queue


def test_a_load_of_no_rows_has_the_place_that_its_low_bits_name():
    """What reads another bank passes it; what reads that one waits, also where the place is beyond the accumulators."""

    def cycles(place):
        program = Program(NARROW)
        x, y = program.buffer("x", (8, 1, 8), 32), program.buffer("y", (8, 1, 8), 4, kind="output")
        program.load(Mem.ACC, 0, x, 0, x_size=8)
        for _ in range(3):
            program.load(Mem.ACC, place, x, 0, x_size=2, y_size=0)
            program.alu_uops("ADD", np.array([(1, 0), (2, 0)]), imm=1)
        program.store(0, y, 0, x_size=8)
        return predict(program).cycles

    assert cycles(0) == cycles(NARROW.acc_depth) > cycles(NARROW.acc_depth - 1)


def store_beside_gemm(base, entries=64, **fields):
    """The timing of one store of accumulators from `base` on while GEMM reads those from 0 on, and its position."""
    program = Program(PYNQ, tokens="explicit")
    out = program.buffer("out", (entries * 4, PYNQ.out_entry_bytes), kind="output")
    program.gemm([(2000, 0, 0, 0)])
    program.store(base, out, 0, x_size=entries, **fields)
    timing = predict(program)
    return timing, int(np.flatnonzero(program.finish().insn[:, 0] & np.uint64(7) == Op.STORE)[0])


def test_another_bank_is_read_beside_gemm():
    timing, at = store_beside_gemm(HALF)
    assert timing.waits["bank"][at] == 0
    # 4 cycles to the first beat, two beats per entry, 20 cycles to the response
    assert timing.end[at] == timing.start[at] + 4 + 2 * 64 - 1 + 20


def test_the_same_bank_waits_for_gemm():
    timing, at = store_beside_gemm(1)
    gemm = int(np.argmax(np.where(timing.queue == Queue.COMPUTE, timing.end - timing.start, 0)))
    assert timing.waits["bank"][at] > 1500
    assert timing.end[at] > timing.end[gemm]


@pytest.mark.parametrize(("rows", "stride"), [(1, 64), (4, 64), (3, 80)])
def test_rows_follow_each_other(rows, stride):
    timing, at = store_beside_gemm(HALF, y_size=rows, x_stride=stride)
    assert timing.counters["STORE_BYTES"] == rows * 64 * 16
    assert timing.end[at] == timing.start[at] + 4 + rows * 2 * 64 - 1 + 20


@pytest.mark.parametrize("cfg", [TWO, PYNQ_TWO], ids=lambda cfg: cfg.name)
def test_instructions_follow_each_other_without_a_gap(cfg):
    work = Work(cfg)
    for _ in range(3):
        work.ternary(50, 2)
    timing = predict(work.p)
    at = np.flatnonzero(timing.queue == Queue.TERNARY)[:3]
    assert np.diff(timing.start[at]).tolist() == [200, 200]
    assert (timing.end[at] - timing.start[at] == 199 + lat.ternary_latency(cfg)).all()
    assert timing.start[at[0]] - timing.issue[at[0]] == lat.TERNARY_SEQUENCER_LATENCY
    assert (
        timing.counters["TERNARY_INSNS"] == (timing.queue == Queue.TERNARY).sum()
        and timing.counters["TERNARY_BUSY"] > 600
    )


def test_units_work_at_the_same_time_in_banks_of_their_own():
    def cycles(gemm, ternary, bank):
        work = Work(PYNQ_TWO)
        work.ternary(ternary, bank, PYNQ_TWO.plane_depth // 2)
        work.gemm(gemm, 0)
        return predict(work.p).cycles

    least = cycles(1, 1, 1)
    assert cycles(300, 1, 1) == pytest.approx(least + 1200, abs=20)
    assert cycles(300, 300, 1) == pytest.approx(cycles(300, 1, 1), abs=2)
    assert cycles(300, 300, 0) == pytest.approx(least + 2400, abs=40)  # one after the other


def test_store_waits_for_a_bank_that_the_unit_reads():
    def waits(bank):
        work = Work(PYNQ_TWO)
        work.p.ternary([(4, 1, 1, 0)], reset=True)
        work.store(0)
        work.p.ternary([(50, 0, 0, 0), (4, 1, 1, 0)], bank * PYNQ_TWO.bank_depth + 8)
        timing = predict(work.p)
        return timing.waits["bank"].sum()

    assert waits(0) > 100 and waits(1) == 0


# -- instructions as the model sees them


def no_uops(first, count):
    return np.zeros(count, np.uint32)


def column(cfg, name, skip: Iterable[str] = (), /, **fields):
    isa = Isa(cfg)
    finish = isa.formats["FINISH"].encode(op=Op.FINISH)
    return columns(cfg, np.concatenate([isa.formats[name].encode(**fields), finish]), no_uops, skip)


TILE = {"op": Op.LOAD, "mem": Mem.INP, "sram_base": 7, "dram_base": 100, "y_size": 3, "x_size": 5, "x_stride": 9}


PADS = {"y_pad_0": 1, "y_pad_1": 2, "x_pad_0": 1, "x_pad_1": 3}


@pytest.mark.parametrize(
    "cfg, change, expected",
    [
        # 16 bytes are two beats; 6 rows of 9 entries with padding, of which 3 x 5 are loaded
        (PYNQ, PADS, {"rows": 3, "first": 200, "step": 18, "length": 10, "per_beat": 1, "low": 7, "high": 60}),
        (PYNQ, PADS, {"lead": 10, "between": 4, "tail": 21}),
        (PYNQ, {**PADS, "y_size": 1}, {"rows": 1, "between": 0, "lead": 10, "tail": 21}),
        (PYNQ, {**PADS, "x_stride": 5}, {"rows": 1, "length": 30, "lead": 10, "between": 8, "tail": 21}),
        (PYNQ, {**PADS, "x_size": 0}, {"rows": 0, "lead": 1}),
        (PYNQ, {**PADS, "y_size": 0}, {"rows": 0, "lead": (5 + 4) * 3}),
        (TINY, {}, {"first": 100, "step": 9, "length": 5, "per_beat": 2}),  # entries of half a beat
    ],
)
def test_rows_and_padding_of_a_load(cfg, change, expected):
    move = column(cfg, "LOAD", **TILE | change).work[0]
    assert {name: getattr(move, name) for name in expected} == expected


def test_bytes_and_rows_of_stores_and_small_entries():
    assert column(PYNQ, "LOAD", **TILE).bytes_moved[0] == 3 * 5 * 16
    smallest = PYNQ.replace(block_in=1, block_out=1, inp_bytes=None, wgt_bytes=None, acc_bytes=None)
    assert column(smallest, "LOAD", **TILE).bytes_moved[0] == 15
    work = column(PYNQ, "STORE", **(TILE | {"op": Op.STORE, "mem": Mem.OUT})).work[0]
    assert work == Write(rows=3, entries=5, base=7, first=200, step=18, length=10, per_beat=1, quantised=False)


@pytest.mark.parametrize("skip", [("dma",), ["dma", "gemm"], {"dma"}, "dma", iter(["dma"])])
def test_skipped_work_takes_no_time(skip):
    assert column(PYNQ, "LOAD", skip, **TILE).work[0].rows == 0 != column(PYNQ, "LOAD", **TILE).work[0].rows
    loops = {"op": Op.GEMM, "uop_end": 1, "iter_out": 4, "iter_in": 4}
    assert column(PYNQ, "GEMM", "gemm", **loops).work[0] == PLACE != column(PYNQ, "GEMM", "dma", **loops).work[0]


def test_programs_without_an_end_and_unknown_work_are_refused():
    with pytest.raises(ExecutionError, match="no FINISH"):
        columns(PYNQ, np.zeros((1, 2), np.uint64), no_uops)
    with pytest.raises(UnsupportedError, match="'fetch' cannot be skipped; gemm, alu, dma can"):
        column(PYNQ, "LOAD", frozenset({"fetch"}), **TILE)


GEMM = {"uop_bgn": 0, "uop_end": 2, "iter_out": 3, "iter_in": 5, "dst_out": 2, "dst_in": 1, "src_out": 0, "src_in": 0}
GEMM |= {"reset": 0, "overwrite": 0}
ALU = GEMM | {"use_imm": 0, "alu_op": AluOp.ADD}


def kernels(cfg, *uops):
    words = Isa(cfg).uop.encode(len(uops), dst=[u[0] for u in uops], src=[u[1] for u in uops]).astype(np.uint32)
    found = Kernels(cfg, lambda first, count: words.reshape(-1)[:count], np.zeros(cfg.uop_depth, np.uint32))
    found.load(0, 0, len(uops))
    return found


def test_gemm_reads_the_bank_of_its_accumulators():
    low, high = kernels(PYNQ, (0, 0), (9, 0)), kernels(PYNQ, (HALF, 0), (HALF + 9, 0))
    job = low.job(Op.GEMM, GEMM)
    assert (job.issues, job.cycles, job.banks, job.uops) == (30, 30, 1, (0, 1))
    assert high.job(Op.GEMM, GEMM).banks == high.job(Op.GEMM, GEMM).touched == 2
    assert kernels(PYNQ, (HALF - 1, 0)).job(Op.GEMM, GEMM | {"uop_end": 1}).touched == 3
    assert low.job(Op.GEMM, GEMM | {"overwrite": 1}).touched == 1
    assert low.job(Op.GEMM, GEMM | {"overwrite": 1}).banks == low.job(Op.GEMM, GEMM | {"reset": 1}).banks == 0


def test_operands_in_one_bank_take_two_cycles():
    assert kernels(PYNQ, (0, 1), (2, 3)).job(Op.ALU, ALU).cycles == 60
    assert kernels(PYNQ, (0, HALF), (2, HALF + 3)).job(Op.ALU, ALU).cycles == 30
    assert kernels(PYNQ, (0, 1), (2, HALF + 3)).job(Op.ALU, ALU).cycles == 45
    assert kernels(PYNQ, (0, 1), (2, 3)).job(Op.ALU, ALU | {"use_imm": 1}).cycles == 30
    assert kernels(VTA, (0, 1), (2, 2000)).job(Op.ALU, ALU).cycles == 60


def test_trips_that_are_too_many_to_look_at_count_to_the_last():
    f = GEMM | {"uop_end": 1, "iter_out": 16383, "iter_in": 16383, "dst_out": 0, "dst_in": 0}
    assert kernels(PYNQ, (HALF - 1, 0)).job(Op.GEMM, f).tails == ()
    half = kernels(PYNQ, (0, 0), (HALF, 0)).job(Op.GEMM, f | {"uop_end": 2})
    assert half.tails == (1, 0)
    moved = kernels(PYNQ, (HALF - 500, 0)).job(Op.GEMM, f | {"iter_out": 1000, "dst_out": 1})
    assert moved.touched == 3 and moved.tails == (0, 0)  # bank 0 is left in the middle


def test_multiplications_follow_each_other_unless_they_need_a_product():
    apart = ALU | {"use_imm": 1, "alu_op": AluOp.MUL, "dst_in": 2, "dst_out": 10}
    found = kernels(PYNQ, (0, 0), (1, 0))
    assert found.job(Op.ALU, apart).cycles == 1 + 29 * lat.issue_interval(PYNQ, multiply=True)
    same = found.job(Op.ALU, apart | {"dst_in": 0, "dst_out": 0}).cycles
    assert same == 1 + lat.issue_interval(PYNQ, multiply=True) + 28 * lat.multiply_interval(PYNQ)


@pytest.mark.parametrize("seed", range(20))
def test_banks_of_every_issue_with_two_units(seed):
    """`runs` and `windows` against all micro-op issues, one after the other."""
    print(f"seed {seed}")
    cfg, rng = TWO, np.random.default_rng(seed)
    uops = rng.integers(0, cfg.acc_depth // 2, (int(rng.integers(1, 5)), 2))
    f = GEMM | {"uop_end": len(uops), "iter_out": int(rng.integers(1, 4)), "iter_in": int(rng.integers(1, 4))}
    f |= {name: int(rng.integers(0, 17)) for name in ("dst_out", "dst_in", "src_out", "src_in")}
    f |= {"use_imm": int(rng.integers(0, 2)), "alu_op": AluOp.ADD}
    of, indices = kernels(cfg, *uops), []
    for i, j, u in np.ndindex(f["iter_out"], f["iter_in"], len(uops)):
        steps = (("dst_out", "dst_in"), ("src_out", "src_in"))
        indices.append([int(uops[u, k]) + i * f[a] + j * f[b] for k, (a, b) in enumerate(steps)])
    banks = [dst // cfg.bank_depth for dst, _ in indices]
    runs = of.job(Op.TERNARY, f).runs
    assert [bank for mask, count in runs for bank in [mask.bit_length() - 1] * count] == banks
    assert all(a[0] != b[0] for a, b in zip(runs, runs[1:]))
    job, cycle, used, read = of.job(Op.ALU, f), 0, set(), set()
    for dst, src in indices:
        both = {dst // cfg.bank_depth} | ({src // cfg.bank_depth} if not f["use_imm"] else set())
        takes = 2 if not f["use_imm"] and len(both) == 1 else 1
        used |= {(at, bank) for bank in both for at in range(cycle, cycle + takes + lat.issue_latency(cfg))}
        read |= {(at, bank) for bank in both for at in range(cycle, cycle + takes)}
        cycle += takes
    shown = {
        (at, bank) for b, e, mask in job.windows for bank in range(4) if mask >> bank & 1 for at in range(b, e + 1)
    }
    assert shown == used and cycle == job.cycles
    if job.touched & (job.touched - 1):  # of one bank it is told in short
        assert {(at, bank.bit_length() - 1) for b, e, bank in job.reads for at in range(b, e + 1)} == read
    assert job.used == sum(1 << bank for bank in {bank for _, bank in used})


def test_what_is_too_long_to_look_at_touches_its_banks_all_the_time():
    cfg = TWO
    f = GEMM | {"uop_end": 1, "iter_out": 16383, "iter_in": 16383, "dst_out": 0, "dst_in": 0}
    of = kernels(cfg, (0, 0), (cfg.bank_depth, 0))
    assert of.job(Op.TERNARY, f | {"uop_end": 2}).runs == ((3, 2 * 16383**2),)
    assert of.job(Op.TERNARY, f | {"iter_in": 1}).runs == ((1, 16383),)
    long = of.job(Op.GEMM, f | {"uop_end": 2})
    assert long.used == 3 and {banks for *_, banks in long.windows} == {1, 2}
    assert max(end for _, end, _ in long.windows) == long.cycles - 1 + lat.issue_latency(cfg)
