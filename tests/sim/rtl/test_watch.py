"""sim/rtl/watch.py: the cycles of each instruction, from events made by hand and from the circuit."""

import shutil

import numpy as np
import pytest

pytest.importorskip("amaranth")

from tilewright.hw.config import PRESETS
from tilewright.hw.isa import Isa, Mem, Queue
from tilewright.hw.units import channels, queues
from tilewright.runtime.loader import run
from tilewright.runtime.program import Program
from tilewright.sim.dram import ZYNQ_HP, Dram
from tilewright.sim.random_programs import random_case
from tilewright.sim.rtl import RtlDevice
from tilewright.sim.rtl.watch import BURSTS, bursts, counted, decode, event_type, fifos, levels, most_events, tiles
from tilewright.sim.timing import predict

TINY = PRESETS["tiny"]
ROWS = 16
circuit = pytest.mark.skipif(not shutil.which("g++"), reason="g++ is missing: no circuit can be built")
# bits of an event, in the order of the core's output
START, LOAD_TAKEN, LOAD_ENDED, COMPUTE_TAKEN, COMPUTE_ENDED, STORE_TAKEN, STORE_ENDED = (1 << k for k in range(7))


def tiled(copies: int, count: int = 12):
    """A program of `count` tiles, each loaded to one of `copies` places and multiplied often."""
    program = Program(TINY)
    x, w = program.buffer("x", (ROWS * count, 4)), program.buffer("w", (4, 4))
    out = program.buffer("out", (ROWS * count, 4), kind="output")
    program.load(Mem.WGT, 0, w, 0, x_size=1)
    for k in range(count):
        place = ROWS * (k % copies)
        program.load(Mem.INP, place, x, ROWS * k, x_size=ROWS)
        program.gemm([(ROWS, 1, 1, 0), (20, 0, 0, 0)], dst=place, src=place, overwrite=True)
        program.store(place, out, ROWS * k, x_size=ROWS)
    return program


def traced(program, device):
    """(instructions, trace, cycles) of a run on zeros."""
    launch = program.finish()
    inputs = {"x": np.zeros((ROWS * 12, 4), np.int8), "w": np.zeros((4, 4), np.int8)}
    _, stats = run(launch, inputs, device)
    assert stats.cycles is not None
    return launch.insn, device.trace, stats.cycles


def test_events_become_cycles_of_instructions():
    program = Program(TINY)
    x, out = program.buffer("x", (8, 4)), program.buffer("out", (8, 4), kind="output")
    program.load(Mem.INP, 0, x, 0, x_size=4)
    program.load(Mem.INP, 4, x, 4, x_size=4)
    program.gemm([(4, 1, 1, 0)], dst=0, src=0, overwrite=True)
    program.gemm([(4, 1, 1, 0)], dst=4, src=4, overwrite=True)
    program.store(0, out, 0, x_size=8)
    insn, isa = program.finish().insn, Isa(TINY)
    queue = [isa.queue(fields) for fields in isa.decode(insn)]
    compute = queue.count(Queue.COMPUTE)
    assert queue.count(Queue.LOAD) == 2 and queue.count(Queue.STORE) == 1 and compute >= 4
    happened = [(100, START, {}), (110, LOAD_TAKEN, {"load_unit": 3}), (111, LOAD_TAKEN, {"load_unit": 4})]
    happened += [(120, LOAD_ENDED, {"load_memory": 7})]
    happened += [(121 + k, COMPUTE_TAKEN, {"compute_token": 5}) for k in range(compute)]
    happened += [(130, LOAD_ENDED | STORE_TAKEN, {"product": 4, "load_memory": 9, "store_token": 20})]
    happened += [(140 + k, COMPUTE_ENDED, {"product": 6}) for k in range(compute)]
    happened += [(199, STORE_ENDED, {"product": 8, "store_bank": 2})]
    assert len(happened) <= most_events(len(insn))
    events, names = np.zeros(len(happened), event_type(TINY)), counted(TINY)
    so_far = dict.fromkeys(names, 0)
    for event, (cycle, what, counts) in zip(events, happened):
        so_far |= counts
        event["cycle"], event["what"], event["counts"] = cycle, what, list(so_far.values())
    trace = decode(isa, insn, events)
    loads, stores = trace.queue == Queue.LOAD, trace.queue == Queue.STORE
    assert trace.queue.tolist() == queue
    assert trace.issue[loads].tolist() == [10, 11] and trace.end[loads].tolist() == [20, 30]
    assert trace.start[loads].tolist() == [10, 20]  # the second waits for the first
    assert trace.products_start[loads].tolist() == [0, 0] and trace.products_end[loads].tolist() == [0, 4]
    assert (trace.start[stores], trace.end[stores]) == (30, 99)
    assert trace.waits["unit"][loads].tolist() == [3, 1] and trace.waits["memory"][loads].tolist() == [7, 2]
    assert trace.waits["token"][~loads].sum() == 25 and trace.waits["token"][stores] == 20
    assert trace.waits["bank"].sum() == trace.waits["bank"][stores] == 2
    found = tiles(isa, insn, trace)
    assert sum(tile.cycles for tile in found) == 20 and sum(tile.products for tile in found) == 4
    assert found[-1].hidden == pytest.approx(4 / found[-1].cycles)


@pytest.mark.circuit
@circuit
def test_loads_overlap_gemm_where_they_have_another_place():
    device = RtlDevice(TINY)
    insn, trace, alone = traced(tiled(1), device)
    assert [tile.products for tile in tiles(Isa(TINY), insn, trace)] == [0] * 12
    insn, trace, both = traced(tiled(2), device)
    found = tiles(Isa(TINY), insn, trace)
    assert len(found) == 12 and found[0].products == 0
    assert sum(tile.hidden > 0.9 for tile in found) >= 10
    assert both < alone


@pytest.mark.circuit
@circuit
def test_the_timing_model_ends_every_instruction_when_the_circuit_does():
    for copies in (1, 2):
        program = tiled(copies)
        _, trace, cycles = traced(program, RtlDevice(TINY, dram=ZYNQ_HP))
        timing = predict(program)
        assert np.abs(trace.end - timing.end).max() <= 2 and abs(cycles - timing.cycles) <= 2


@pytest.mark.circuit
@circuit
@pytest.mark.parametrize("seed", range(8))
def test_instructions_of_a_queue_follow_each_other(seed):
    print(f"seed {seed}")
    image, address, count = random_case(TINY, seed)
    device = RtlDevice(TINY, dram=Dram.random(seed))
    stats = device.run_image(image, address, count)
    trace = device.trace
    assert len(trace.end) == count and trace.end.max() <= stats.cycles
    assert (trace.issue <= trace.start).all() and (trace.start <= trace.end).all()
    assert (trace.products_start <= trace.products_end).all() and trace.products_end.max() <= stats.uops
    for queue in queues(TINY):
        mine = trace.queue == queue
        assert (np.diff(trace.issue[mine]) > 0).all() and (np.diff(trace.end[mine]) > 0).all()
        assert (trace.start[mine][1:] >= trace.end[mine][:-1]).all()
    fields = Isa(TINY).decode(image[address : address + 16 * count].view(np.uint64).reshape(-1, 2))
    for channel in channels(TINY):  # why no product that is made while a tile is loaded can be of it
        gives = [f[channel.push] == 1 for f in fields] & (trace.queue == channel.source)
        takes = [f[channel.pop] == 1 for f in fields] & (trace.queue == channel.target)
        assert gives.sum() == takes.sum() and (trace.issue[takes] > trace.end[gives]).all()


@pytest.mark.circuit
@circuit
def test_before_the_first_run_there_is_no_trace():
    assert len(RtlDevice(TINY).trace.end) == 0


def test_bursts_of_reads_and_writes():
    counts = np.zeros(BURSTS, np.uint64)
    half = BURSTS // 2
    counts[[1, 16, half - 1, half + 4, BURSTS - 1]] = 7, 9, 8, 2, 1
    assert bursts(counts) == {
        "read_bursts": {"1": 7, "16": 9},
        "reads_under_way_high": 8,
        "write_bursts": {"4": 2},
        "writes_under_way_high": 1,
    }


def test_levels_of_fifos():
    names = ["load_buffer_high", "compute_buffer_high", "fetch_buffer_high", "store_buffer_high", "store_data_high"]
    assert [metric for metric, _, _ in fifos(TINY)] == names
    assert levels(TINY, np.array([5, 4, 3, 2, 1], np.uint64)) == dict(zip(names, [5, 4, 3, 2, 1]))
    spread = fifos(TINY.replace(load_ports=2))  # the load unit takes two beats at once, at two ports
    assert [beats for metric, _, beats in spread if metric == "load_buffer_high"] == [2, 2]
    of_port = np.array([3 if metric == "load_buffer_high" else 0 for metric, _, _ in spread], np.uint64)
    of_port[[metric for metric, _, _ in spread].index("load_buffer_high")] = 7
    assert levels(TINY.replace(load_ports=2), of_port)["load_buffer_high"] == 14
    places = [name for _, name, _ in spread]
    assert len(set(places)) == len(places) and sum("buffer_words" in name for name in places) == 2
