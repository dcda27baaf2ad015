"""sim/timing/store.py: stores beside GEMM."""

import shutil

import numpy as np
import pytest

from tilewright.hw.config import PRESETS
from tilewright.hw.isa import Mem, Op, Queue
from tilewright.runtime.loader import run
from tilewright.runtime.program import Program
from tilewright.sim.random_programs import random_case
from tilewright.sim.rtl import RtlDevice
from tilewright.sim.timing import engine as model
from tilewright.sim.timing import predict
from tilewright.sim.timing.device import TimingDevice

PYNQ = PRESETS["pynq_z1"]
HALF = PYNQ.acc_depth // 2


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


@pytest.mark.parametrize("name", ["pynq_z1", "vta"])
@pytest.mark.parametrize("seed", range(4))
def test_what_is_remembered_of_a_store_is_what_its_rows_do(seed, name, monkeypatch):
    cfg, rng = PRESETS[name], np.random.default_rng(seed)
    quantised = "requant" in cfg.extensions
    shapes = [(int(y), int(x), int(x + gap)) for y, x, gap in rng.integers((1, 1, 0), (30, 20, 3), (2, 3))]
    program = Program(cfg)
    out = program.buffer("out", (4096, cfg.out_entry_bytes), kind="output")
    for _ in range(100):
        y, x, stride = shapes[rng.integers(2)]
        half = int(rng.integers(2)) * cfg.acc_depth // 2
        if rng.integers(2):
            program.gemm_uops(np.array([[half, 0, 0]]), [(int(rng.integers(1, 300)), 1, 0, 0)])
        par = 0 if quantised and rng.integers(2) else None
        program.store(half, out, int(rng.integers(4)), y_size=y, x_size=x, x_stride=stride, par=par)
    launch = program.finish()
    stores, init = [], model.Store.__init__

    def noted(self, *arguments, **options):
        init(self, *arguments, **options)
        stores.append(self)

    monkeypatch.setattr(model.Store, "__init__", noted)
    remembered = predict(launch)
    assert len(stores[0].known) < 95, f"seed {seed}: nothing was remembered"

    expected = predict(launch, fast=False)
    assert remembered.cycles == expected.cycles and remembered.counters == expected.counters
    for field in ("arrive", "issue", "start", "end"):
        assert (getattr(remembered, field) == getattr(expected, field)).all(), f"seed {seed}: {field}"
    for reason, waits in expected.waits.items():
        assert (remembered.waits[reason] == waits).all(), f"seed {seed}: {reason}"


BUILT = pytest.mark.skipif(not shutil.which("g++"), reason="g++ is missing: no circuit can be built")


def parameters(rng):
    return {"op": Op.LOAD, "mem": Mem.PAR, "dram_base": int(rng.integers(50)), "x_size": int(rng.integers(9))}


@pytest.mark.circuit
@BUILT
def test_loads_of_parameters_are_requested_when_the_circuit_requests_them(machine):
    """One after another without a pause where no STORE is unanswered; a STORE behind them ends in the same cycle."""
    circuit, timing = RtlDevice(PRESETS["tiny"]), TimingDevice(PRESETS["tiny"])
    rng, m = np.random.default_rng(5), machine(PRESETS["tiny"])
    store = {"op": Op.STORE, "mem": Mem.OUT, "dram_base": 9000, "y_size": 1, "x_size": 3, "x_stride": 3}
    for count in range(1, 9):
        for insns in ([parameters(rng) for _ in range(count)], [store, *[parameters(rng)] * count]):
            program = m.put([*insns, store, {"op": Op.FINISH}], 4096)
            expected, got = (device.run_image(m.dram.copy(), *program).cycles for device in (circuit, timing))
            assert got == expected, insns


@pytest.mark.circuit
@BUILT
def test_its_counters_are_the_circuits():
    """Busy up to the last beat, not to the answer; the next one waits for its token beside a LOAD of PAR, too."""
    circuit, timing = RtlDevice(PRESETS["tiny"]), TimingDevice(PRESETS["tiny"])
    for seed in (0, 5, 6):
        expected, got = (d.run_image(*random_case(circuit.cfg, seed)) for d in (circuit, timing))
        assert expected.insns["LOAD.PAR"] and expected.insns["STORE.OUTQ"]
        for name in ("STORE_BUSY", "STORE_TOKEN_WAIT"):
            assert got.counters[name] == expected.counters[name], (seed, name)


@pytest.mark.circuit
@BUILT
def test_products_of_the_alu_come_between_any_groups_of_an_entry():
    """A requantising STORE from the first bank; sums of growing number in the second, and then products."""
    circuit, entry = RtlDevice(PYNQ), (PYNQ.batch, PYNQ.block_out)
    for delay in range(1, 30):
        p = Program(PYNQ)
        x, y = p.buffer("x", (20, *entry), 32), p.buffer("y", (30, *entry), kind="output")
        par = p.buffer("par", (PYNQ.par_entry_bytes,), kind="constant", data=np.zeros(PYNQ.par_entry_bytes, np.uint8))
        p.load(Mem.PAR, 0, par, 0)
        for bank in range(2):
            p.load(Mem.ACC, bank * PYNQ.bank_depth, x, 0, x_size=20)
        p.alu("add", [(20, 1, 0)], imm=1)
        p.store(0, y, 0, x_size=20, par=0)
        p.alu("add", [(delay, 0, 0)], PYNQ.bank_depth, imm=1)
        p.alu("mul", [(20, 1, 0)], PYNQ.bank_depth, imm=3)
        p.store(PYNQ.bank_depth, y, 20, x_size=10, par=0)
        launch = p.finish()
        _, found = run(launch, {"x": np.zeros((20, *entry), np.int32)}, circuit)
        assert predict(launch).cycles == found.cycles, delay


@pytest.mark.circuit
@BUILT
def test_a_plain_store_waits_for_requantising_ones(machine):
    circuit, timing = RtlDevice(PRESETS["tiny"]), TimingDevice(PRESETS["tiny"])
    rng, m = np.random.default_rng(7), machine(PRESETS["tiny"])
    for _ in range(12):
        mems, sizes = rng.choice([Mem.OUT, Mem.OUTQ], 5), rng.integers(1, 40, 5)
        stores = [{"op": Op.STORE, "mem": mem, "y_size": 1, "x_size": n, "x_stride": n} for mem, n in zip(mems, sizes)]
        program = m.put([s | {"dram_base": 9000 + 64 * k} for k, s in enumerate(stores)] + [{"op": Op.FINISH}], 4096)
        expected, got = (device.run_image(m.dram.copy(), *program).cycles for device in (circuit, timing))
        assert got == expected, (mems, sizes)
