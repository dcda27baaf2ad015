"""tools/faults/command.py: a few faults of every kind, and that a defect of each sort is counted and told."""

import shutil
from collections import Counter
from dataclasses import replace
from itertools import repeat

import numpy as np
import pytest

from tilewright.hw.config import PRESETS
from tilewright.hw.errors import ExecutionError
from tilewright.hw.isa import Isa, Mem, Op
from tilewright.hw.regs import Error
from tilewright.sim.random_programs import WIDE
from tools.faults import command
from tools.faults.command import Found, campaign, programs
from tools.faults.compare import Case
from tools.faults.kinds import KINDS, FaultyDevice

pytestmark = pytest.mark.circuit

BEAT, STALL, FLIPS = "SLVERR on a beat read", "stall of R, no watchdog", "bit flips in instructions"


def check(found, trials):
    assert not found.defects, found.defects
    rows = found.rows.values()
    assert sum(row.tried for row in rows) > trials // 2
    for row in rows:
        assert row.tried == row.error + row.right + row.stopped + row.unlike == row.next_right
        assert row.wrong == row.hung == 0


@pytest.mark.parametrize("kind", KINDS)
def test_a_fault_ends_in_an_error_or_does_no_harm(case, kind):
    found = campaign([case], 2, 4, [kind])
    check(found, 2)
    row = found.rows[kind]
    assert row.error == row.tried or not any(word in kind for word in ("ERR", "endless", "FINISH", "at once"))
    assert row.right == row.tried or "no watchdog" not in kind


@pytest.mark.slow
@pytest.mark.parametrize("cfg", [*map(PRESETS.get, ("tiny", "tiny_two", "pynq_z1")), WIDE], ids=lambda cfg: cfg.name)
def test_many_faults(cfg):
    check(campaign(programs([cfg], [], 7), 400, 7), 400)


@pytest.mark.parametrize("ports, expected", [(1, {80, 96}), (2, {64, 80, 96, 112})])
def test_two_ports_read_two_beats(ports, expected):
    """An error of either is that of the load that needs one of them."""
    cfg = WIDE.replace(load_ports=ports)
    load = {"op": Op.LOAD, "mem": Mem.INP, "dram_base": 5, "y_size": 1, "x_size": 2, "x_stride": 2}
    insn = Isa(cfg).formats["LOAD"].encode(**load)
    image = np.zeros(4096, np.uint8)
    image[2048 : 2048 + 16] = insn.astype("<u8").view(np.uint8).reshape(-1)
    case = Case("one load", cfg, image, 2048, 1, image)
    assert {at for at in range(0, 256, 16) if command._touches(case, 0, at)} == expected


def test_programs_come_in_turn(case):
    cfgs = [PRESETS["tiny"], PRESETS["tiny_two"]]
    found = programs(cfgs, [case], 3)
    names = [next(found).name for _ in range(4)]
    assert [name.split()[0] for name in names] == ["tiny", "tiny_two", "tiny", "tiny"] and len(set(names)) == 4


class Liar(FaultyDevice):
    """A circuit whose runs with a fault end as `lie` says."""

    def attempt(self, image, address, count, disturbances=(), acts=(), watchdog=8000):
        end = super().attempt(image, address, count, disturbances, acts, watchdog)
        return self.lie(end, image) if disturbances else end

    def lie(self, end, image):
        return end


def lies(monkeypatch, case, lie, kind=BEAT):
    monkeypatch.setattr(command, "FaultyDevice", type("Liar", (Liar,), {"lie": lambda self, *given: lie(*given)}))
    found = campaign([case], 3, 4, [kind])
    return found, found.rows[kind]


def change_result(beyond):
    """A lie about one byte: where the program stores, or `beyond`."""

    def lie(end, image, case):
        image[int(np.flatnonzero((case.image != case.expected) ^ beyond)[0])] ^= 1
        return end

    return lie


# kind, the lie, what is counted, why
LIES = [
    *(
        (BEAT, lambda end, image, case, change=change: replace(end, **change), "wrong", why)
        for change, why in (
            ({"what": "done"}, "right, expected error"),
            ({"code": Error.WATCHDOG}, "another error"),
            ({"index": 1 << 20}, "is not this instruction's"),
            ({"what": "stopped"}, "stopped, expected error"),
        )
    ),
    (BEAT, lambda end, image, case: replace(end, what="hung"), "hung", "hung"),
    (STALL, change_result(False), "wrong", "a wrong result, reported as right"),
    (STALL, change_result(True), "wrong", "it wrote where no STORE does"),
    (BEAT, change_result(True), "wrong", "it wrote where no STORE does"),
]


@pytest.mark.parametrize("kind, lie, count, why", LIES)
def test_runs_that_end_otherwise_than_told_are_defects(monkeypatch, case, kind, lie, count, why):
    class Liar(FaultyDevice):
        def attempt(self, image, address, insns, disturbances=(), acts=(), watchdog=8000):
            end = super().attempt(image, address, insns, disturbances, acts, watchdog)
            return lie(end, image, case) if disturbances else end

    monkeypatch.setattr(command, "FaultyDevice", Liar)
    found = campaign([case], 3, 4, [kind])
    row = found.rows[kind]
    assert (row.tried, getattr(row, count), row.wrong + row.hung, row.next_right) == (3, 3, 3, 3)
    assert len(found.defects) == 3
    assert all(why in text and kind in text and f"{case.name}, seed 4, case 0, trial" in text for text in found.defects)


def test_a_next_run_that_fails_is_told(monkeypatch, case):
    runs = []

    class Tired(FaultyDevice):
        def attempt(self, image, *given):
            end = super().attempt(image, *given)
            runs.append(1)
            image[-1] ^= len(runs) == 3
            return end

    monkeypatch.setattr(command, "FaultyDevice", Tired)
    found = campaign([case], 2, 4, [BEAT])
    assert (found.rows[BEAT].tried, found.rows[BEAT].next_right) == (2, 1)
    assert len(found.defects) == 1 and "the next run" in found.defects[0]


def test_a_difference_without_a_reason_is_wrong(monkeypatch, case):
    monkeypatch.setattr(command, "difference", lambda *given: ("no error / AccessError", command.UNEXPLAINED))
    found = campaign([case], 3, 4, [FLIPS])
    assert found.rows[FLIPS].wrong == 3 and found.differences.total() == 3
    monkeypatch.setattr(command, "difference", lambda *given: ("no error / AccessError", "a reason"))
    row = campaign([case], 3, 4, [FLIPS]).rows[FLIPS]
    assert (row.wrong, row.error + row.unlike) == (0, 3)


def test_a_case_that_fails_without_a_fault_is_refused(case):
    wrong = replace(case, expected=case.image)
    with pytest.raises(ExecutionError, match="fails without a fault: another result"):
        campaign(repeat(wrong), 1, 0)


@pytest.mark.skipif(not shutil.which("g++"), reason="g++ is missing: no circuit can be built")
def test_a_short_run(capsys):
    status = command.main(["--count", "20", "--config", "tiny", "--seed", "3"])
    out = capsys.readouterr().out
    assert status == 0, out
    assert out.startswith("20 faults, seed 3, tiny, 0 recorded cases:") and "\n0 defects" in out
    total = [int(cell) for cell in out.split("| all |")[1].split("\n")[0].strip(" |").split("|")]
    tried, *ends, wrong, hung, next_right = total
    assert 15 < tried <= 20 and sum(ends) == tried == next_right and wrong == hung == 0


def test_defects_are_told(monkeypatch, capsys):
    found = Found(hits=Counter({"fetch": 3}), defects=["SLVERR on a write: tiny 5, seed 0: hung"])
    found.rows["SLVERR on a write"].tried = found.rows["SLVERR on a write"].hung = 1
    found.differences["AccessError / no error", "a reason"] = 2
    monkeypatch.setattr(command, "campaign", lambda programs, count, seed, kinds: found)
    assert command.main(["--count", "1"]) == 1
    out = capsys.readouterr().out
    assert "| SLVERR on a write | 1 | 0 | 0 | 0 | 0 | 0 | 1 | 0 |" in out and "bus errors hit: fetch 3" in out
    assert "     2 AccessError / no error; a reason" in out
    assert "1 defects" in out and out.endswith("SLVERR on a write: tiny 5, seed 0: hung\n")
