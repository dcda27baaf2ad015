"""sim/timing.py: cycles as the circuit counts them, from the program alone."""

import shutil

import numpy as np
import pytest

from tilewright.hw.config import PRESETS
from tilewright.hw.errors import DeadlockError, UnsupportedError
from tilewright.runtime.program import Program
from tilewright.sim.dram import Dram
from tilewright.sim.random_programs import Recorder, random_case, record_random
from tilewright.sim.rtl import RtlDevice
from tilewright.sim.timing import predict
from tilewright.sim.timing_device import TimingDevice

CONFIGS = [PRESETS["pynq_z1"], PRESETS["vta"], PRESETS["tiny"]]
needs_compiler = pytest.mark.skipif(not shutil.which("g++"), reason="g++ is missing: no circuit can be built")


@needs_compiler
@pytest.mark.parametrize("cfg", CONFIGS, ids=lambda c: c.name)
def test_random_programs_take_as_long_as_in_the_circuit(cfg):
    circuit, timing, errors = RtlDevice(cfg), TimingDevice(cfg), []
    for seed in range(12):
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


@pytest.mark.parametrize(("dram", "what"), [(Dram.random(1), "Dram.seed"), (Dram(total_bytes=8), "Dram.total_bytes")])
def test_a_memory_that_it_does_not_know(dram, what):
    with pytest.raises(UnsupportedError, match=what):
        predict(Program(CONFIGS[0]), dram=dram)
