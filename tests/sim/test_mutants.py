"""The mutation study: what it makes, that runs see what is wrong, and that it finds a verifier that is wrong."""

from collections import Counter
from itertools import islice

import numpy as np
import pytest

from tilewright.hw.config import PRESETS
from tilewright.hw.errors import DeadlockError, TilewrightError
from tilewright.hw.isa import Isa, Op
from tilewright.runtime.verify import verify, without_pair
from tilewright.sim import mutants as module
from tilewright.sim.model.device import ModelDevice
from tilewright.sim.model.tokens import at_random
from tilewright.sim.mutants import Bench, Study, judge, mutants, study
from tilewright.sim.random_programs import Recorder, record_random
from tilewright.sim.spec import SpecDevice

TINY = PRESETS["tiny"]


def program(seed=0, length=6):
    recorder = Recorder(TINY, seed)
    record_random(recorder, length)
    return recorder.program.finish()


def outcomes(launch, runs=5):
    rng = np.random.default_rng(0)
    return [Bench(launch, 0).run(rng, at_random(rng)) for _ in range(runs)]


def check(found, count):
    assert (found.missed, found.alarms, found.classes) == (0, 0, {}), found.named
    kinds = ("caught", "accepted", "harmless", "unproved")
    assert sum(getattr(found, kind) for kind in kinds) == count
    assert found.caught > count // 2 and found.accepted > count // 10


def test_verify_model_and_runs_agree_on_mutants():
    check(study(150, 0), 150)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 5))
def test_verify_model_and_runs_agree_on_many_mutants(seed):
    check(study(1500, seed), 1500)


def test_a_study_can_be_repeated():
    assert study(10, 3) == study(10, 3)


def test_mutants_differ_in_one_thing_of_every_kind():
    base, kinds = program(), Counter()
    for text, mutant in islice(mutants(base, np.random.default_rng(0)), 300):
        assert len(mutant.insn) <= len(base.insn) and mutant.buffers is base.buffers
        same = len(mutant.insn) == len(base.insn) and (mutant.insn == base.insn).all()
        assert not same or (mutant.reloc != base.reloc).any()
        changed = {f"token {text.split()[-1]}": text.startswith("token"), "field": " of " in text and " from " in text}
        changed |= {word: text.endswith(word) for word in ("swapped", "cut", "added", "dropped")}
        changed["buffer"] = text.startswith("buffer of")
        kinds.update(name for name, holds in changed.items() if holds)
        if " of " in text:
            assert len(mutant.insn) == len(base.insn) and (mutant.insn != base.insn).any(axis=1).sum() <= 1
    assert min(kinds.values()) > 5
    assert set(kinds) == {"token added", "token dropped", "field", "swapped", "cut", "added", "dropped", "buffer"}


def test_runs_of_a_right_program_leave_the_same():
    assert len(set(outcomes(program()))) == 1
    first = outcomes(program())[0]
    assert first.error == "" and len(first.contents) > 1000 and not first.outside


def changed(launch, op, mem=None, **fields):
    """`launch` with other fields of its first instruction `op` of `mem`."""
    isa = Isa(TINY)
    k, f = next((k, f) for k, f in enumerate(isa.decode(launch.insn)) if f["op"] == op and f.get("mem") == mem)
    insn = launch.insn.copy()
    fmt = isa.format_of(op, mem or 0)
    assert fmt is not None
    insn[k] = fmt.encode(1, **{**f, **fields})[0]
    return type(launch)(TINY, launch.name, insn, launch.reloc, launch.buffers)


def test_runs_show_what_leaves_a_buffer_and_what_races():
    launch = program()
    assert len(set(outcomes(changed(launch, Op.LOAD, 2, dram_base=60)))) > 1
    assert all(outcome.outside for outcome in outcomes(changed(launch, Op.STORE, 4, dram_base=4096 - 8)))
    raced = [judge(without_pair(launch, pair), 0)[0] for pair in verify(launch).pairs if not pair.implied]
    assert set(raced) <= {"caught", "harmless"} and "caught" in raced
    assert {outcome.error for outcome in outcomes(changed(launch, Op.FINISH, push_next=1))} == {"TokenError"}


def test_definition_and_model_refuse_mutants_alike():
    """With the same error at the same instruction."""
    found = Counter()
    for seed in range(12):
        for _, mutant in islice(mutants(program(seed, 2), np.random.default_rng(seed)), 4):
            results = [result_on(device(TINY, capacity=1 << 18), mutant) for device in (ModelDevice, SpecDevice)]
            assert results[0] == results[1]
            found[results[0][0]] += 1
    assert len(found) > 3 and "" in found


def result_on(device, launch):
    """(name of the error class or "", index of the instruction) of a run."""
    bases = [device.allocate(b.nbytes, b.align) for b in launch.buffers]
    for buffer, base in zip(launch.buffers, bases):
        if buffer.data is not None:
            device.write(base, buffer.data)
    try:
        words = launch.relocate(bases).view(np.uint8).reshape(-1)
        code = device.allocate(len(words), 64)
        device.write(code, words)
        device.run(code, len(launch.insn))
    except TilewrightError as exc:
        return type(exc).__name__, getattr(exc, "index", None)
    return "", None


def test_a_verifier_that_accepts_all_is_found_out(monkeypatch):
    monkeypatch.setattr(module, "verify", lambda launch: None)
    found = study(60, 0)
    assert found.missed > 20 and found.missed + found.accepted == 60
    assert len(found.named) == 20 and found.named[0].startswith("missed: tiny, seed 0, mutant ")


def test_a_verifier_that_refuses_all_is_found_out(monkeypatch):
    def refuse(launch):
        raise DeadlockError("always")

    monkeypatch.setattr(module, "verify", refuse)
    found = study(60, 0)
    assert found.alarms > 10 and found.caught + found.alarms == 60
    assert found.classes.total() > 5


def test_counts_start_at_zero():
    assert Study() == Study(0, 0, 0, 0, 0, 0, Counter(), [])
