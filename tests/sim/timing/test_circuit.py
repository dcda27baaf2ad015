"""The timing model against the simulated circuit: cycles, counters, bursts, and waits of instructions."""

import shutil
from collections import Counter
from typing import Any

import numpy as np
import pytest

from tests.sim.conftest import Machine
from tests.sim.timing.conftest import CONFIGS, COUNTED, COUNTERS, CYCLES, Work
from tests.sim.wrong import FINISH, load, store
from tilewright.hw.config import PRESETS
from tilewright.hw.isa import Mem, Op
from tilewright.runtime.loader import run
from tilewright.runtime.program import Program
from tilewright.sim.dram import unshared
from tilewright.sim.random_programs import ROWS, random_case
from tilewright.sim.rtl import RtlDevice
from tilewright.sim.timing import predict
from tilewright.sim.timing.device import TimingDevice

pytestmark = [
    pytest.mark.circuit,
    pytest.mark.skipif(not shutil.which("g++"), reason="g++ is missing: no circuit can be built"),
]
TINY, TWO, PYNQ, VTA = PRESETS["tiny"], PRESETS["tiny_two"], PRESETS["pynq_z1"], PRESETS["vta"]
PLAIN = TINY.replace(extensions=TINY.extensions - {"requant", "rescale"})


@pytest.mark.parametrize("cfg", [PYNQ, TINY, ROWS, pytest.param(VTA, marks=pytest.mark.slow)], ids=lambda c: c.name)
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


@pytest.mark.parametrize("name", CYCLES)
def test_the_cycles_on_record_are_those_of_the_circuit(name):
    """Those that the tests without a circuit compare with."""
    cfg = CONFIGS[name]
    device = RtlDevice(cfg, dram=unshared(cfg))
    found = {seed: device.run_image(*random_case(cfg, seed)) for seed in CYCLES[name]}
    assert {seed: stats.cycles for seed, stats in found.items()} == CYCLES[name]
    for seed, expected in COUNTERS.items() if name == "tiny" else ():
        assert tuple(found[seed].counters[counter] for counter in COUNTED) == expected


@pytest.mark.parametrize(
    "cfg",
    [
        TINY,
        TWO,
        pytest.param(TINY.replace(axi_bits=32, load_ports=2), id="two ports", marks=pytest.mark.slow),
        pytest.param(PLAIN.replace(axi_bits=512, queue_depth=4), id="512 bits", marks=pytest.mark.slow),
    ],
    ids=lambda cfg: cfg.name,
)
def test_bursts_are_those_on_the_buses_and_buffers_as_full_as_in_the_circuit(cfg):
    circuit, timing, fullest = RtlDevice(cfg), TimingDevice(cfg), Counter()
    for seed in range(12):
        seen = [device.run_image(*random_case(cfg, seed)).observed for device in (circuit, timing)]
        expected, got = (dict[str, Any](observed()) for observed in seen if observed is not None)
        buffers = {name for name in got if name.endswith("_buffer_high")}
        assert {n: got[n] for n in got.keys() - buffers} == {n: expected[n] for n in got.keys() - buffers}, seed
        for name in buffers:  # a beat comes or goes as many cycles earlier as the model errs
            assert abs(got[name] - expected[name]) <= 2, (seed, name)
            fullest[name] = max(fullest[name], expected[name])
        assert 0 < expected["reads_under_way_high"] <= 8 and expected["writes_under_way_high"] <= 8
    assert 0 < fullest["compute_buffer_high"] < 128 and 0 < fullest["fetch_buffer_high"] < 64, fullest


def test_busy_cycles_and_token_waits_of_stores_are_those_of_the_circuit():
    """Busy up to the last beat, not to the answer; the next one waits for its token beside a LOAD of PAR, too."""
    circuit, timing = RtlDevice(TINY), TimingDevice(TINY)
    for seed in (0, 5, 6):
        expected, got = (d.run_image(*random_case(TINY, seed)) for d in (circuit, timing))
        assert expected.insns["LOAD.PAR"] and expected.insns["STORE.OUTQ"]
        for name in ("STORE_BUSY", "STORE_TOKEN_WAIT"):
            assert got.counters[name] == expected.counters[name], (seed, name)


def waiting():
    """Programs of `tiny` without tokens, by what waits in them."""
    rng = np.random.default_rng(5)

    def parameters(count):
        return [load(Mem.PAR, dram_base=int(rng.integers(50)), x_size=int(rng.integers(9))) for _ in range(count)]

    kept = store(dram_base=9000, x_size=3, x_stride=3)
    for count in range(1, 9):
        yield [*parameters(count), kept]
        yield [kept, *parameters(1) * count, kept]
    for _ in range(12):  # a plain store waits for requantising ones
        mems, sizes = [(Mem.OUT, Mem.OUTQ)[k] for k in rng.integers(2, size=5)], rng.integers(1, 40, 5)
        yield [store(mem, dram_base=9000 + 64 * k, x_size=n, x_stride=n) for k, (mem, n) in enumerate(zip(mems, sizes))]
    # what issues nothing waits for the micro-ops that it names, and for none the place between two of them
    for begin, end in ((0, 1), (3, 3), (3, 5), (4, 4), (0, 0)):
        empty = {"op": Op.ALU, "uop_bgn": begin, "uop_end": end, "iter_out": 0, "iter_in": 1}
        yield [load(Mem.UOP, dram_base=100, x_size=4), empty]


def test_instructions_wait_as_long_as_in_the_circuit():
    circuit, timing, m = RtlDevice(TINY), TimingDevice(TINY), Machine(TINY)
    for insns in waiting():
        program = m.put([*insns, FINISH], 4096)
        expected, got = (device.run_image(m.dram.copy(), *program).cycles for device in (circuit, timing))
        assert got == expected, insns


@pytest.mark.parametrize("cfg", [TINY, PYNQ], ids=lambda cfg: cfg.name)
def test_products_of_results_whose_products_are_on_their_way(cfg):
    """Short instructions one behind the other that use the same few accumulators, in one bank or two."""
    circuit, timing, entry = RtlDevice(cfg), TimingDevice(cfg), (cfg.batch, cfg.block_out)
    for seed in range(20):
        rng, p = np.random.default_rng(seed), Program(cfg)
        x, y = p.buffer("x", (8, *entry), 32), p.buffer("y", (8, *entry), kind="output")
        for bank in range(2):
            p.load(Mem.ACC, bank * cfg.bank_depth, x, 0, x_size=8)
        for _ in range(int(rng.integers(3, 30))):
            op = str(rng.choice(["mul", "mul", "mul", "add", "max"]))
            count, dst, src = int(rng.integers(1, 7)), int(rng.integers(4)), int(rng.integers(4))
            loop = [(count, *rng.integers(2, size=2).tolist())]
            if rng.integers(2):
                p.alu(op, loop, dst, imm=3)
            else:
                p.alu(op, loop, dst, src + cfg.bank_depth * int(rng.integers(2)))
        p.store(0, y, 0, x_size=8)
        inputs = {"x": np.zeros((8, *entry), np.int32)}
        expected, got = (run(p, inputs, device)[1].cycles for device in (circuit, timing))
        assert expected and got and abs(got / expected - 1) < 0.02, (seed, got, expected)


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


# (GEMM first, trips of unit ternary, trips of GEMM, bank of the unit): GEMM has bank 0
SHARED = [(1, 9, 5, 0), (0, 9, 5, 0), (0, 30, 2, 0), (1, 2, 30, 0), (0, 1, 1, 0), (0, 20, 20, 1)]


@pytest.mark.parametrize("case", SHARED, ids=str)
def test_instructions_of_two_units_take_the_cycles_of_the_circuit(case):
    first, ternary, gemm, bank = case
    work = Work(TWO)
    for _ in range(4):
        if first:
            work.gemm(gemm, 0)
        work.ternary(ternary, bank, 4)
        if not first:
            work.gemm(gemm, 0)
    work.store(0)
    work.store(bank, 4)
    launch = work.p.finish()
    inputs = {b.name: np.zeros(b.shape, np.int8) for b in launch.buffers if b.kind == "input"}
    timing, (_, found) = predict(launch), run(launch, inputs, RtlDevice(TWO))
    assert found.timeline is not None
    circuit = found.timeline()
    assert timing.cycles == found.cycles
    np.testing.assert_array_equal(timing.issue, circuit.issue)
    np.testing.assert_array_equal(timing.end, circuit.end)
    for name in ("TERNARY_BUSY", "TERNARY_INSNS", "TERNARY_TOKEN_WAIT"):
        assert timing.counters[name] == found.counters[name]
