"""tools/faults/bus.py: what is told to happen happens, once, where it was told."""

import numpy as np
import pytest

from tilewright.hw.regs import Error
from tilewright.sim.dram import ZYNQ_HP
from tools.faults.kinds import Disturbance, FaultyDevice, bus_channels

LATE = 300  # cycles after its start in which the program runs


@pytest.fixture
def device(case):
    return FaultyDevice(case.cfg, ZYNQ_HP)


def attempt(device, case, **happens):
    """(the end, cycles, memory)."""
    image = case.image.copy()
    end = device.attempt(image, case.address, case.count, **happens)
    return end, device.sim.read("CYCLES"), image


def test_handshakes_are_counted_and_without_a_fault_the_result_is_right(device, case):
    image = case.image.copy()
    end = device.attempt(image, case.address, case.count)
    assert end.what == "done"
    np.testing.assert_array_equal(image, case.expected)
    seen = {name: device.sim.seen(name) for name in bus_channels(case.cfg)}
    observed = device.run_image(case.image.copy(), case.address, case.count).observed()
    beats = {name: sum(int(n) * k for n, k in observed[f"{name}_bursts"].items()) for name in ("read", "write")}
    assert seen == {
        "load0.ar": sum(observed["read_bursts"].values()),
        "load0.r": beats["read"],
        "store0.aw": sum(observed["write_bursts"].values()),
        "store0.w": beats["write"],
        "store0.b": sum(observed["write_bursts"].values()),
    }


@pytest.mark.parametrize("channel, code", [("load0.r", Error.READ_RESPONSE), ("store0.b", Error.WRITE_RESPONSE)])
@pytest.mark.parametrize("answer", [2, 3])
def test_an_error_answers_one_beat_and_is_gone_in_the_next_run(device, case, channel, code, answer):
    attempt(device, case)
    for at in (0, device.sim.seen(channel) - 1):
        end, _, _ = attempt(device, case, disturbances=[Disturbance(channel, at, answer=answer)])
        assert (end.what, end.error, end.code) == ("error", "AccessError", code)
        assert device.sim.hit(channel) is not None and device.sim.seen(channel) > at
        end, _, image = attempt(device, case)
        assert end.what == "done" and device.sim.hit(channel) is None
        np.testing.assert_array_equal(image, case.expected)


def test_the_first_beat_is_the_first_instruction(device, case):
    end, _, _ = attempt(device, case, disturbances=[Disturbance("load0.r", 0, answer=2)])
    assert (end.index, device.sim.hit("load0.r")) == (0, case.address)


def test_a_stall_lasts_as_long_as_told(device, case):
    _, cycles, _ = attempt(device, case)
    _, stalled, image = attempt(device, case, disturbances=[Disturbance("load0.r", 0, wait=5000)])
    assert stalled - cycles == 5000  # nothing else can go on without the first instruction
    np.testing.assert_array_equal(image, case.expected)
    for channel in bus_channels(case.cfg):
        _, stalled, image = attempt(device, case, disturbances=[Disturbance(channel, 2, wait=5000)], watchdog=0)
        assert 1000 < stalled - cycles <= 5000, channel
        np.testing.assert_array_equal(image, case.expected)


def test_a_stall_beyond_the_watchdog_is_an_error(device, case):
    end, cycles, _ = attempt(device, case, disturbances=[Disturbance("load0.r", 0, wait=5000)], watchdog=1000)
    assert (end.error, end.code) == ("DeadlockError", Error.WATCHDOG)
    assert 5000 < cycles < 6000  # it ends when the bus does


@pytest.mark.parametrize(
    "reset", [lambda sim: sim.write("CONTROL", 2), lambda sim: sim.reset()], ids=["CONTROL", "rst"]
)
def test_a_reset_stops_the_program(device, case, reset):
    for cycle in (0, LATE):
        end, _, image = attempt(device, case, acts=[(cycle, reset)])
        assert end.what == "stopped" and not np.array_equal(image, case.expected)
        assert device.sim.read("CONTROL") == 0
    _, _, image = attempt(device, case)
    np.testing.assert_array_equal(image, case.expected)


def test_acts_come_in_their_cycles(device, case):
    seen = []
    attempt(device, case, acts=[(cycle, lambda sim: seen.append(sim.read("CYCLES"))) for cycle in (400, 100)])
    assert 100 <= seen[0] < 110 and 400 <= seen[1] < 410


def test_a_circuit_that_is_never_done_hangs(device, case, monkeypatch):
    monkeypatch.setattr("tools.faults.kinds._STOPPING", 2000)
    forever = Disturbance("load0.r", 0, wait=1 << 40)
    end, _, _ = attempt(device, case, disturbances=[forever], acts=[(LATE, lambda sim: sim.write("CONTROL", 2))])
    assert end.what == "hung" and "a reset did not end the program in 2000 cycles" in end.text
    _, _, image = attempt(device, case)
    np.testing.assert_array_equal(image, case.expected)
