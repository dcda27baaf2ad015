"""hw/rtl/latencies.py: what follows from the configuration, by hand; without Amaranth. Other tests measure each."""

import subprocess
import sys

import pytest

from tilewright.hw.config import PRESETS
from tilewright.hw.rtl import latencies as lat

PYNQ, TINY = PRESETS["pynq_z1"], PRESETS["tiny"]


def test_the_array_has_a_register_after_every_level_of_adders():
    plain = PYNQ.replace(extensions=[])
    assert [lat.tree_stages(plain.replace(block_in=n)) for n in (16, 32, 64)] == [4, 5, 6]
    assert lat.tree_stages(TINY) == 2  # of 4 inputs
    assert lat.array_latency(PYNQ) == 2 + 2 + 4 and lat.dot_latency(PYNQ) == 11 and lat.issue_latency(PYNQ) == 12


def test_accumulators_arrive_with_the_sums():
    for cfg in PRESETS.values():
        assert lat.accumulator_latency(cfg) + lat.ACC_STAGES == lat.dot_latency(cfg)


@pytest.mark.parametrize("lanes", [1, 4, 16])
def test_products_take_a_cycle_per_group_of_lanes(lanes):
    cfg = PYNQ.replace(ppu_lanes=lanes)
    assert lat.multipliers(cfg) == lanes and lat.groups(cfg) == 16 // lanes
    assert lat.multiply_interval(cfg) == 16 // lanes + lat.RESCALE_LATENCY + 2
    assert lat.multiply_latency(cfg) == 11 + 16 // lanes + lat.RESCALE_LATENCY
    assert lat.issue_interval(cfg, multiply=True) == max(16 // lanes, 2)
    assert lat.ppu_latency(cfg) == 16 // lanes - 1 + lat.REQUANTISE_LATENCY + 1
    assert lat.quantised_data_latency(cfg) == lat.STORE_DATA_LATENCY - lat.PLAIN_LATENCY + lat.ppu_latency(cfg)


def test_a_second_accumulator_of_the_same_bank_costs_a_cycle():
    assert lat.issue_interval(PYNQ) == lat.issue_interval(PYNQ, tensor=True) == 1
    assert lat.issue_interval(PYNQ, tensor=True, same_bank=True) == 2
    assert lat.issue_interval(PYNQ.replace(acc_banks=1), tensor=True) == 2


def test_a_period_of_the_interlock_is_a_power_of_two_that_every_issue_fits_in():
    for cfg in PRESETS.values():
        cycles = lat.memory_cycles(cfg)
        assert cycles & (cycles - 1) == 0 and cycles > lat.issue_latency(cfg) + lat.multiply_interval(cfg)


def test_nothing_here_needs_amaranth():
    code = "import sys; sys.modules['amaranth'] = None\nimport tilewright.hw.rtl.latencies, tilewright.hw.stages"
    subprocess.run([sys.executable, "-I", "-c", code], check=True, timeout=60)
