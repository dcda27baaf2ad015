"""sim/timing/device.py: the model's values with cycles and counters; bursts and full buffers as in the circuit."""

import shutil
from collections import Counter

import numpy as np
import pytest

from tilewright.hw.config import PRESETS
from tilewright.runtime.device import open_device
from tilewright.sim.model.device import ModelDevice
from tilewright.sim.random_programs import random_case
from tilewright.sim.rtl import RtlDevice
from tilewright.sim.timing.device import TimingDevice, burst_lengths

PYNQ = PRESETS["pynq_z1"]


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


TINY = PRESETS["tiny"]


PLAIN = TINY.replace(extensions=TINY.extensions - {"requant", "rescale"})


needs_compiler = pytest.mark.skipif(not shutil.which("g++"), reason="g++ is missing: no circuit can be built")


def counted(stats):
    assert stats.observed is not None
    return stats.observed()


def seen(device, cfg, seed):
    return counted(device.run_image(*random_case(cfg, seed)))


@pytest.mark.circuit
@needs_compiler
@pytest.mark.parametrize(
    "cfg",
    [
        TINY,
        PRESETS["tiny_two"],
        pytest.param(TINY.replace(axi_bits=32, load_ports=2), id="two ports", marks=pytest.mark.slow),
        pytest.param(PLAIN.replace(axi_bits=512, queue_depth=4), id="512 bits", marks=pytest.mark.slow),
    ],
    ids=lambda cfg: cfg.name,
)
def test_bursts_are_those_on_the_buses_and_buffers_as_full_as_in_the_circuit(cfg):
    circuit, timing = RtlDevice(cfg), TimingDevice(cfg)
    fullest = Counter()
    for seed in range(12):
        expected, got = seen(circuit, cfg, seed), seen(timing, cfg, seed)
        buffers = {name for name in got if name.endswith("_buffer_high")}
        assert {n: got[n] for n in got.keys() - buffers} == {n: expected[n] for n in got.keys() - buffers}, seed
        for name in buffers:  # a beat comes or goes as many cycles earlier as the model errs
            assert abs(got[name] - expected[name]) <= 2, (seed, name)
            fullest[name] = max(fullest[name], expected[name])
        assert 0 < expected["reads_under_way_high"] <= 8 and expected["writes_under_way_high"] <= 8
    assert 0 < fullest["compute_buffer_high"] < 128 and 0 < fullest["fetch_buffer_high"] < 64, fullest


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
    found = counted(TimingDevice(TINY, skip="dma").run_image(image, address, count))
    assert found["write_bursts"] == {} and sum(int(n) * k for n, k in found["read_bursts"].items()) * 8 >= 16 * count
