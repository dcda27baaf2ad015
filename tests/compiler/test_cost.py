"""compiler/cost.py: the terms of estimates, against the circuit's stages and by hand."""

import numpy as np
import pytest

from tilewright.compiler import cost
from tilewright.hw.config import PRESETS
from tilewright.hw.stages import stages
from tilewright.hw.units import striped
from tilewright.sim.dram import PRESETS as DRAMS
from tilewright.sim.dram import ZYNQ_HP, bandwidths

PYNQ = PRESETS["pynq_z1"]


def latency(block, what):
    (found,) = [stage.latency for stage in stages(PYNQ) if (stage.block, stage.what) == (block, what)]
    return found


def test_what_instructions_cost_is_the_circuits():
    assert cost.TRANSFER == 7 == latency("mover", "command to its token, nothing to move") + 1  # a token's cycle
    first_sums = latency("sequencer", "instruction to its first micro-op issue") + latency("gemm", "operands to sums")
    assert cost.INSTRUCTION == 8 < first_sums  # most of which passes beside the instruction before
    assert cost.round_trip() == 60 == ZYNQ_HP.latency + 20


TWO = striped(PYNQ.replace(load_ports=2))


@pytest.mark.parametrize(
    "found, expected",
    [
        (cost.port_bytes(PYNQ.replace(axi_bits=128)), 16),
        (cost.moved(PYNQ, 100), 12.5),
        (cost.moved(PYNQ, np.array([16, 8])), [2, 1]),
        (cost.moved(TWO, 100), 6.25),
        (cost.transfer(PYNQ, 800), 100 + 7),
        (cost.transfer(PYNQ, 800, instructions=3, rows=7), 100 + 3 * 7 + 7),
        (cost.rows_moved(PYNQ, 8, 1, 100), 8 / 8 + 7 + 100 + 392),  # 5 cycles per row: 8 rows are in flight
        (cost.computed(100), 108),
        (cost.computed(100, instructions=2), 116),
        (cost.overlapped(30, 70, 2), 70),
        (cost.overlapped(30, 70, 1), 100),
        (cost.roofline(PYNQ, 30, 800), 100),
        (cost.roofline(PYNQ, 300, 800), 300),
    ],
)
def test_terms(found, expected):
    assert np.array_equal(found, expected)


@pytest.mark.parametrize("macs, loaded, stored, least", [(256 * 90, 800, 80, "load"), (256 * 200, 8, 8, "gemm")])
def test_bounds_are_those_of_the_array_and_of_memory(macs, loaded, stored, least):
    found = cost.bounds(PYNQ, macs, loaded, stored)
    assert found == {
        "gemm": macs / 256,
        "load": loaded / 8,
        "store": stored / 8,
        "memory": (loaded + stored) / 16,
    }
    assert max(found, key=lambda name: found[name]) == least


def test_ports_and_memory_limit_the_bandwidth():
    assert bandwidths(PYNQ, ZYNQ_HP) == {"port": 8, "load": 8, "store": 8, "both": 16}
    assert bandwidths(PYNQ.replace(load_ports=4), ZYNQ_HP) == {"port": 8, "load": 16, "store": 8, "both": 16}
    assert bandwidths(PYNQ.replace(load_ports=2), DRAMS["zynq_hp4"])["both"] == 24
    assert bandwidths(PYNQ.replace(axi_bits=128), ZYNQ_HP)["port"] == 8, "the memory's ports are narrower"
    assert set(bandwidths(PYNQ, ZYNQ_HP.replace(port_bytes=4, total_bytes=4)).values()) == {4}


SLOW = ZYNQ_HP.replace(name="slow", latency=200, response=100, port_bytes=2, outstanding=4)


def test_estimates_are_for_the_memory_around_them():
    with cost.on_memory(SLOW, PYNQ):
        assert (cost.latency(), cost.round_trip(), cost.kernel()) == (200, 300, 210)
        assert cost.moved(PYNQ, 100) == 50  # two bytes per cycle
        assert cost.moved(striped(PYNQ.replace(load_ports=2)), 100) == 25  # of each of two ports
        assert cost.rows_moved(PYNQ, 8, 1, 100) == 5000  # four rows per 200 cycles
        with cost.on_memory(None, PYNQ):
            assert cost.latency() == 200
    assert cost.latency() == ZYNQ_HP.latency and cost.moved(PYNQ, 100) == 12.5


@pytest.mark.parametrize("ports, total, moved", [(1, 16, 1), (2, 16, 1), (4, 16, 2), (1, 4, 2)])
def test_ports_share_what_the_memory_moves(ports, total, moved):
    cfg = PYNQ.replace(load_ports=ports)
    with cost.on_memory(ZYNQ_HP.replace(total_bytes=total), cfg):
        assert cost.moved(cfg, 8) == moved


def test_memories_that_estimates_cannot_tell_apart_have_one_key():
    assert cost.memory_facts() == cost.memory_facts(ZYNQ_HP, PYNQ) == cost.memory_facts(DRAMS["zynq_hp4"], PYNQ) == {}
    assert cost.memory_facts(ZYNQ_HP, PYNQ.replace(axi_bits=128))["memory"]["rate"] == 0.5
    with cost.on_memory(SLOW, PYNQ):
        assert cost.memory_facts()["memory"]["latency"] == 200 and cost.memory_facts() == cost.memory_facts(SLOW, PYNQ)


def test_what_is_remembered_of_one_memory_is_not_taken_for_another():
    found = cost.cached(8)(lambda entries: entries * cost.latency())
    assert found(2) == 80
    with cost.on_memory(SLOW, PYNQ):
        assert found(2) == 400
    assert found(2) == 80
