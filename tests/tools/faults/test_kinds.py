"""tools/faults/kinds.py: what is told to happen happens, once, where it was told; what each kind does to a run."""

import numpy as np
import pytest

from tilewright.hw.config import ISA_VERSION
from tilewright.hw.isa import INSN_BYTES, Isa, Op
from tilewright.hw.regs import MAGIC, Error, Status
from tilewright.sim.dram import ZYNQ_HP
from tools.faults.compare import decoded
from tools.faults.kinds import KINDS, Disturbance, Disturbed, FaultyDevice, Undisturbed, bus_channels, every_register

LATE = 300  # cycles after its start in which the program runs


@pytest.fixture
def device(case):
    return FaultyDevice(case.cfg, ZYNQ_HP)


def attempt(device, case, **happens):
    """(the end, cycles, memory)."""
    image = case.image.copy()
    end = device.attempt(image, case.address, case.count, **happens)
    return end, device.sim.read("CYCLES"), image


@pytest.mark.circuit
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


@pytest.mark.circuit
@pytest.mark.parametrize("channel, code", [("load0.r", Error.READ_RESPONSE), ("store0.b", Error.WRITE_RESPONSE)])
@pytest.mark.parametrize("answer", [2, 3])
def test_an_error_answers_one_beat_and_is_gone_in_the_next_run(device, case, channel, code, answer):
    attempt(device, case)
    for at in (0, device.sim.seen(channel) - 1):
        end, _, _ = attempt(device, case, disturbances=[Disturbance(channel, at, answer=answer)])
        assert (end.what, end.error, end.code) == ("error", "AccessError", code)
        assert device.sim.hit(channel) is not None and device.sim.seen(channel) > at
        assert at or channel != "load0.r" or (end.index, device.sim.hit(channel)) == (0, case.address)
        end, _, image = attempt(device, case)
        assert end.what == "done" and device.sim.hit(channel) is None
        np.testing.assert_array_equal(image, case.expected)


@pytest.mark.circuit
def test_a_stall_lasts_as_long_as_told(device, case):
    _, cycles, _ = attempt(device, case)
    _, stalled, image = attempt(device, case, disturbances=[Disturbance("load0.r", 0, wait=5000)])
    assert stalled - cycles == 5000  # nothing else can go on without the first instruction
    np.testing.assert_array_equal(image, case.expected)
    for channel in bus_channels(case.cfg):
        _, stalled, image = attempt(device, case, disturbances=[Disturbance(channel, 2, wait=5000)], watchdog=0)
        assert 1000 < stalled - cycles <= 5000, channel
        np.testing.assert_array_equal(image, case.expected)


@pytest.mark.circuit
def test_a_stall_beyond_the_watchdog_is_an_error(device, case):
    end, cycles, _ = attempt(device, case, disturbances=[Disturbance("load0.r", 0, wait=5000)], watchdog=1000)
    assert (end.error, end.code) == ("DeadlockError", Error.WATCHDOG)
    assert 5000 < cycles < 6000  # it ends when the bus does


@pytest.mark.circuit
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


@pytest.mark.circuit
def test_a_circuit_that_is_never_done_hangs(device, case, monkeypatch):
    monkeypatch.setattr("tools.faults.kinds._STOPPING", 2000)
    forever = Disturbance("load0.r", 0, wait=1 << 40)
    end, _, _ = attempt(device, case, disturbances=[forever], acts=[(LATE, lambda sim: sim.write("CONTROL", 2))])
    assert end.what == "hung" and "a reset did not end the program in 2000 cycles" in end.text
    _, _, image = attempt(device, case)
    np.testing.assert_array_equal(image, case.expected)


@pytest.fixture(scope="module")
def run(case):
    """A run of about as many cycles and handshakes as the circuit takes, without the circuit."""
    return Undisturbed(case, 4000, {"load0.ar": 60, "load0.r": 400, "store0.aw": 30, "store0.w": 90, "store0.b": 30})


def trials(run, kind, n=60):
    rng = np.random.default_rng(5)
    found = [trial for trial in (KINDS[kind](run, rng) for _ in range(n)) if trial is not None]
    assert len(found) > n // 2
    return found


@pytest.mark.parametrize("kind", [kind for kind in KINDS if "SLVERR" in kind or "DECERR" in kind])
def test_errors_are_on_any_beat(run, kind):
    found = [trial.disturbances[0] for trial in trials(run, kind, 400)]
    assert {each.answer for each in found} == {2 if "SLVERR" in kind else 3}
    (channel,) = {each.channel for each in found}
    assert channel == ("load0.r" if "read" in kind else "store0.b")
    places = {each.at for each in found}
    assert min(places) < 10 and max(places) < run.handshakes[channel] <= max(places) + 10
    code = Error.READ_RESPONSE if "read" in kind else Error.WRITE_RESPONSE
    assert all((trial.ends, trial.codes) == (("error",), (code,)) for trial in trials(run, kind))


@pytest.mark.parametrize("name", ["AR", "R", "AW", "W", "B"])
def test_stalls_without_a_watchdog_change_nothing(run, name):
    for trial in trials(run, f"stall of {name}, no watchdog"):
        (each,) = trial.disturbances
        assert each.channel.endswith(f".{name.lower()}") and each.wait >= 1000
        assert (trial.ends, trial.watchdog) == (("right",), 0)
    ends = set()
    for trial in trials(run, f"stall of {name}, watchdog"):
        (each,) = trial.disturbances
        assert ("error" in trial.ends) == (each.wait + 2000 > trial.watchdog) and "right" in trial.ends
        ends.add((trial.ends, each.wait < trial.watchdog))
    assert (("right", "error"), False) in ends and (("right",), True) in ends and (("right",), False) not in ends


def test_every_register_is_written(run):
    """As far as one sees by what a simulation is asked to write."""
    written = set()

    class Recorder(Disturbed):
        _sim = None

        def __init__(self):
            """Of nothing."""

        def write(self, register, value):
            written.add(register)

    for kind in (kind for kind in KINDS if kind.startswith("writes")):
        for trial in trials(run, kind):
            cycles = [cycle for cycle, _ in trial.acts]
            assert cycles and all(0 <= cycle < run.cycles for cycle in cycles)
            for _, act in trial.acts:
                act(Recorder())
    assert written == set(every_register(run.case.cfg)) and "UNMAPPED" in written


CHANGED = {
    "bit flips in instructions": lambda ops, old: len(ops) == len(old),
    "garbage for instructions": lambda ops, old: len(ops) == len(old),
    "too few instructions": lambda ops, old: len(ops) < len(old) and ops == old[: len(ops)],
    "too many instructions": lambda ops, old: len(ops) > len(old) and ops[: len(old)] == old,
    "FINISH too early": lambda ops, old: ops[-1] == Op.FINISH and Op.FINISH in ops[:-1],
    "no FINISH": lambda ops, old: ops[-1] != Op.FINISH and ops[:-1] == old[:-1],
}


@pytest.mark.parametrize("kind", CHANGED)
def test_programs_are_changed(run, kind):
    case = run.case
    old = [f["op"] for f in decoded(case.cfg, case.image, case.address, case.count)]
    for trial in trials(run, kind):
        ops = [f["op"] for f in decoded(case.cfg, trial.image, trial.address, trial.count)]
        assert CHANGED[kind](ops, old) and trial.compared
        end = case.address + INSN_BYTES * (case.count + 8)
        np.testing.assert_array_equal(trial.image[: case.address], case.image[: case.address])
        np.testing.assert_array_equal(trial.image[end:], case.image[end:])


def test_micro_ops_are_flipped(run):
    case, size = run.case, Isa(run.case.cfg).uop.width // 8
    for trial in trials(run, "bit flips in micro-ops"):
        changed = np.flatnonzero(trial.image != case.image)
        assert len(changed) <= 8 and size == 4
        assert not ((changed >= case.address) & (changed < case.address + INSN_BYTES * case.count)).any()


def test_kinds_without_writes_have_no_trial(run):
    none = Undisturbed(run.case, run.cycles, dict.fromkeys(bus_channels(run.case.cfg), 0))
    rng = np.random.default_rng(0)
    for kind in (
        "SLVERR on a write",
        "stall of B, watchdog",
        "endless stall of any channel",
        "errors and stalls at once",
    ):
        assert KINDS[kind](none, rng) is None
    assert KINDS["writes to CONTROL"](Undisturbed(run.case, 100, run.handshakes), rng) is None


class Registers(Disturbed):
    """Registers without a circuit; `spoil` is what reads give in place of the value."""

    _sim = None

    def __init__(self, case, spoil):
        self.values = {"INSN_COUNT": case.count, "INSN_ADDR_LO": case.address, "CONTROL": Status.RUNNING}
        self.values |= {"VERSION": MAGIC << 16 | ISA_VERSION, "WATCHDOG": 8000}
        self.spoil, self.written = spoil, []

    def read(self, register):
        self.values["CYCLES"] = self.values.get("CYCLES", 0) + 10
        return self.spoil(register, self.values.get(register, 0))

    def write(self, register, value, strobes=15):
        self.written.append((register, strobes))
        mask = sum(255 << 8 * k for k in range(4) if strobes >> k & 1)
        if register == "WATCHDOG":
            self.values[register] = self.values[register] & ~mask | value & mask


@pytest.mark.parametrize(
    "name, spoil",
    [
        ("", lambda name, value: value),
        ("INSN_COUNT", lambda name, value: value ^ (name == "INSN_COUNT")),
        ("CYCLES", lambda name, value: 1000 - value if name == "CYCLES" else value),
        ("CONTROL", lambda name, value: value | Status.ERROR if name == "CONTROL" else value),
        ("UNMAPPED", lambda name, value: value | (name == "UNMAPPED")),
    ],
)
def test_what_registers_read_is_checked(run, name, spoil):
    seen = set()
    for trial in trials(run, "registers read"):
        sim = Registers(run.case, spoil)
        for _, act in trial.acts:
            act(sim)
        seen |= {text.split()[0] for text in trial.late}
    assert seen == ({name} if name else set())


def test_bytes_of_registers(run):
    written, late = set(), []
    for lost in (0, 1):
        for trial in trials(run, "some bytes of registers written"):
            sim = Registers(run.case, lambda name, value: value)
            if lost:
                sim.write = lambda register, value, strobes=15: None
            for _, act in trial.acts:
                act(sim)
            written |= set(sim.written)
            late.append((lost, bool(trial.late)))
    assert {name for name, _ in written} == set(every_register(run.case.cfg)) and (0, True) not in late
    assert late.count((1, True)) > 20 and not any(name == "CONTROL" and strobes & 1 for name, strobes in written)
