"""sim/mutants.py and sim/mutation.py: programs with one mistake, their runs, and the study of the verifier."""

from collections import Counter
from itertools import islice
from math import comb

import numpy as np
import pytest

from tests.runs import result_on
from tilewright.hw.config import PRESETS
from tilewright.hw.errors import DeadlockError
from tilewright.hw.isa import Isa, Mem, Op
from tilewright.hw.units import queues
from tilewright.runtime.program import Program
from tilewright.runtime.verify import verify, without_pair
from tilewright.sim import mutation as module
from tilewright.sim.model.device import ModelDevice
from tilewright.sim.mutants import KINDS, mutants
from tilewright.sim.mutation import (
    PER_PROGRAM,
    VERDICTS,
    Bench,
    Defined,
    Outcome,
    Preferring,
    Reversed,
    Study,
    every_order,
    judge,
    random_launches,
    study,
)
from tilewright.sim.random_programs import Recorder, record_random
from tilewright.sim.spec import SpecDevice


@pytest.fixture(scope="session")
def program():
    """A maker of random launches of `tiny` with few instructions."""

    def make(seed=0, length=6):
        recorder = Recorder(PRESETS["tiny"], seed)
        record_random(recorder, length)
        return recorder.program.finish()

    return make


TINY = PRESETS["tiny"]


def test_mutants_differ_in_one_thing_of_every_class(program):
    base, kinds = program(), Counter()
    for mutant in islice(mutants(base, np.random.default_rng(0)), 400):
        new = mutant.launch
        kinds[mutant.kind] += 1
        same = len(new.insn) == len(base.insn)
        differ = int((new.insn != base.insn).any(axis=1).sum()) if same else len(base.insn) - len(new.insn)
        if mutant.kind == "micro-op":
            (a,), (b,) = ([x.data for x in launch.buffers if x.name == "uop"] for launch in (base, new))
            assert a is not None and b is not None
            assert not differ and (a.view("<u4") != b.view("<u4")).sum() == 1
            continue
        assert new.buffers is base.buffers
        assert differ or (new.reloc != base.reloc).sum() == 1
        if mutant.kind in ("address", "extent", "other field", "token flag dropped", "token flag added"):
            assert differ == 1 and same, mutant.text
        if mutant.kind in ("token flag moved", "token dropped", "token added", "instructions swapped"):
            assert differ <= 2 and same
    assert set(kinds) == set(KINDS) and min(kinds.values()) > 5


def test_a_program_without_micro_ops_and_tokens_has_mutants_too():
    to = Recorder(TINY, 0)
    launch = to.program.finish()
    kinds = {mutant.kind for mutant in islice(mutants(launch, np.random.default_rng(0)), 20)}
    assert "micro-op" not in kinds and "token flag dropped" not in kinds


def outcomes(launch, runs=5):
    return [Bench(launch, 0).run(number) for number in range(runs)]


def test_runs_of_a_right_program_leave_the_same_on_model_and_definition(program):
    first, *others = outcomes(program())
    assert set(others) == {first}
    assert first.error == "" and len(first.contents) > 1000 and len(first.memory) > 1000 and not first.outside
    bench = Bench(program(), 0)
    for number in range(2):
        definition = bench.run(number, by=Defined)
        assert (definition.error, definition.memory) == ("", first.memory) and definition.contents
    (pair, *_) = verify(program()).pairs
    way = Reversed(pair.pop, pair.push)
    assert not bench.run(1, way).error and not way.held


def test_preferred_queues_are_ahead(program):
    launch, order = program(), []

    def follow(choose):
        def chosen(ready):
            order.append(choose(ready))
            return order[-1]

        return chosen

    isa = Isa(TINY)
    every, fields = list(queues(TINY)), isa.decode(launch.insn)
    firsts = []
    for preferred in (every, every[::-1]):
        order.clear()
        assert not Bench(launch, 0).run(1, follow(Preferring(launch, preferred))).error
        firsts.append([isa.queue(fields[k]) for k in order].index(every[-1]))
    assert firsts[0] > firsts[1]


def changed(launch, op, mem=None, **fields):
    """`launch` with other fields of its first instruction `op` of `mem`."""
    isa = Isa(TINY)
    k, f = next((k, f) for k, f in enumerate(isa.decode(launch.insn)) if f["op"] == op and f.get("mem") == mem)
    insn = launch.insn.copy()
    fmt = isa.format_of({"op": op, "mem": mem or 0})
    assert fmt is not None
    insn[k] = fmt.encode(1, **{**f, **fields})[0]
    return type(launch)(TINY, launch.name, insn, launch.reloc, launch.buffers)


def test_runs_show_what_leaves_a_buffer_and_what_races(program):
    launch = program()
    assert len(set(outcomes(changed(launch, Op.LOAD, 2, dram_base=60)))) > 1
    assert all(outcome.outside for outcome in outcomes(changed(launch, Op.STORE, 4, dram_base=4096 - 8)))
    raced = [judge(without_pair(launch, pair), 0)[0] for pair in verify(launch).pairs if not pair.implied]
    assert set(raced) <= {"caught", "harmless"} and "caught" in raced
    assert {outcome.error for outcome in outcomes(changed(launch, Op.FINISH, push_next=1))} == {"TokenError"}


class Queues(Bench):
    """A bench without a machine: `sizes` instructions in queues that do not wait for each other."""

    def __init__(self, *sizes):
        self.sizes = sizes

    def run(self, number, choose=None, *, by=None):
        assert choose is not None
        left, order = list(self.sizes), []
        while any(left):
            k = choose([k for k, n in enumerate(left) if n])
            left[k] -= 1
            order.append(k)
        return Outcome("", bytes(order), bytes([number]))


@pytest.mark.parametrize("a, b, c", [(0, 0, 0), (3, 0, 0), (2, 3, 0), (1, 2, 3), (3, 3, 2)])
def test_every_order_comes_once(a, b, c):
    count = comb(a + b + c, a) * comb(b + c, b)
    found = every_order(Queues(a, b, c), 7, count)
    assert found is not None and len(found) == len(set(found)) == count
    assert {outcome.memory for outcome in found} == {bytes([7])}
    assert every_order(Queues(a, b, c), 7, count - 1) is None


def launch(loads, base):
    """Loads of accumulators and a store from `base` on, which no token orders."""
    p = Program(TINY, tokens="explicit")
    x, y = p.buffer("x", (loads, TINY.acc_entry_bytes), 32), p.buffer("y", (1, TINY.out_entry_bytes), kind="output")
    for k in range(loads):
        p.load(Mem.ACC, k, x, k)
    p.store(base, y, 0)
    return p.finish()


@pytest.mark.parametrize("base, results", [(9, 1), (2, 2)])
def test_tokens_leave_fewer_orders_and_a_race_shows_in_some(base, results):
    """FINISH takes a token of the store queue, which gives it behind the store."""
    found = every_order(Bench(launch(3, base), 0), 0, 1000)
    assert found is not None and not any(outcome.error for outcome in found)
    assert len(found) == comb(5, 2) and len(set(found)) == results


def check(found, count):
    assert found.passed and not found.classes, found.named
    assert found.count(*VERDICTS) == count and not found.refused and found.programs == count // PER_PROGRAM
    assert found.count("caught") > count // 2 and found.count("accepted") > count // 10


@pytest.mark.circuit
def test_proof_runs_and_definition_agree_on_mutants():
    found = study(random_launches(0), 50, 0)
    check(found, 50)
    assert 2 <= found.defined <= 5


@pytest.mark.slow
def test_verify_model_and_runs_agree_on_many_mutants():
    check(study(random_launches(1), 1500, 1), 1500)


@pytest.mark.slow
def test_verify_agrees_with_every_order_of_short_programs():
    found = study(random_launches(11, steps=3), 600, 11)
    wrong, right = found.count("caught", "missed"), found.count("accepted", "alarms")
    print(f"{found.exhausted} of 600 mutants in every order, {found.orders} in all; {wrong} wrong, {right} correct")
    check(found, 600)
    assert found.exhausted > 400 and found.orders > 40 * found.exhausted


def test_a_study_can_be_repeated():
    assert study(random_launches(3), 4, 3) == study(random_launches(3), 4, 3)


def test_definition_and_model_refuse_mutants_alike(program):
    """With the same error at the same instruction."""
    found = Counter()
    for seed in range(8):
        for mutant in islice(mutants(program(seed, 2), np.random.default_rng(seed)), 4):
            results = [result_on(device(TINY, capacity=1 << 18), mutant.launch) for device in (ModelDevice, SpecDevice)]
            assert results[0] == results[1]
            found[results[0][0]] += 1
    assert len(found) > 3 and "" in found


def test_a_verifier_that_accepts_all_is_found_out(monkeypatch):
    monkeypatch.setattr(module, "verify", lambda launch: None)
    found = study(random_launches(0), 15, 0)
    assert found.count("missed") > 5 and found.count("missed", "accepted") == 15 and not found.passed
    assert 5 < len(found.named) <= 15 and found.named[0].startswith("missed: tiny 0.0, mutant ")


@pytest.mark.circuit
def test_a_verifier_that_refuses_all_is_found_out(monkeypatch):
    def refuse(launch):
        raise DeadlockError("always")

    monkeypatch.setattr(module, "verify", refuse)
    found = study(random_launches(0), 30, 0)
    assert found.count("alarms") > 5 and found.count("caught", "alarms") == 30 and not found.passed
    assert found.classes.total() > 2
    assert len(found.refused) == 3 and found.refused[0] == "tiny 0.0: always"


def test_a_definition_that_differs_is_found_out(monkeypatch):
    monkeypatch.setattr(module.Defined, "run", lambda self, address, count: None)
    found = study(random_launches(0), 11, 0)
    assert found.differ == found.defined >= 1 and not found.passed
    assert "not as defined" in found.named[0]


def test_the_table_has_a_row_per_class_and_one_for_all():
    found = Study(Counter({("swap", "caught"): 3, ("micro-op", "caught"): 1, ("micro-op", "harmless"): 2}))
    rows = {row["class"]: row for row in found.table()}
    assert list(rows) == ["micro-op", "all"]
    counts = {"mutants": 3, "wrong": 1, "caught": 1, "correct": 0, "accepted": 0, "neither": 2}
    assert rows["micro-op"] == {"class": "micro-op", **counts}
    assert rows["all"]["mutants"] == 6 and rows["all"]["neither"] == 2
