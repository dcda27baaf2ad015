"""sim/timing/device.py: the model's values with the circuit's cycles."""

import numpy as np

from tilewright.hw.config import PRESETS
from tilewright.runtime.device import open_device
from tilewright.sim.model.device import ModelDevice
from tilewright.sim.random_programs import random_case
from tilewright.sim.timing.device import TimingDevice

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
