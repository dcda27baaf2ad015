"""compiler/tune/decisions.py: decisions of an own schedule, taken again, mutated, read from a trace."""

import random

import pytest

from tilewright.compiler.tune.trials import decided, decisions_of, own_evolution, own_space
from tilewright.compiler.tvm_compat import te, tuning
from tilewright.hw.errors import ScheduleError


def copy(entries=24):
    x = te.placeholder((entries,), "int32", "x")
    return te.create_prim_func([x, te.compute((entries,), lambda i: x[i], name="y")])


def schedules(sch):
    """Two loops; their order is a decision that the schedule's code depends on."""
    (loop,) = sch.get_loops(sch.get_sblock("y"))
    outer, inner = sch.split(loop, sch.sample_perfect_tile(loop, 2, 8))
    if int(sch.get(sch.sample_categorical([0, 1], [0.5, 0.5]))):
        sch.reorder(inner, outer)
        sch.sample_categorical([5, 7], [1.0, 0.0])


def test_decisions_are_taken_as_wanted_and_read_back():
    for wanted in (((6, 4), 0), ((3, 8), 1, 7)):
        sch = decided(copy(), schedules, [list(each) if isinstance(each, tuple) else each for each in wanted])
        assert tuple(sch.taken) == wanted == decisions_of(sch.trace)
        assert [int(sch.get(loop).extent) for loop in sch.get_loops(sch.get_sblock("y"))] in ([6, 4], [8, 3])


def test_what_is_missing_or_impossible_is_drawn():
    taken = {tuple(decided(copy(), schedules, [(2, 12), 1], seed=seed).taken) for seed in range(8)}
    assert len(taken) > 1 and all(
        isinstance(first, tuple) and first[1] <= 8 and rest == [1, 5] for first, *rest in taken
    )


def test_mutations_change_the_schedule_and_keep_the_rest():
    space, rng = own_space(copy(), schedules), random.Random(0)
    drawn = space.draw(rng)
    assert drawn is not None and len(drawn) in (2, 3)
    mutants = {space.mutate(((6, 4), 1, 5), rng) for _ in range(20)}
    assert ((6, 4), 0) in mutants and ((6, 4), 1, 7) in mutants and any(m and m[0] != (6, 4) for m in mutants)
    assert space.features(((6, 4), 1))["0.1"] == 2 and space.features(((6, 4), 1))["0.1^2"] == 4
    assert own_space(copy(), lambda sch: None).mutate((), rng) is None


def test_decisions_without_a_schedule_are_named():
    def wrong(sch):
        sch.sample_categorical([3], [1.0])
        sch.get_sblock("nothing")

    with pytest.raises(ScheduleError, match=r"decisions \(3,\) give no schedule: "):
        decided(copy(), wrong)
    assert own_space(copy(), wrong).draw(random.Random(0)) == (3,)


def test_meta_schedule_gets_a_strategy_that_proposes_what_is_new():
    errors = list[str]()
    how = own_evolution(tuning(), copy(), schedules, 0, {((6, 4), 0): 100.0}, errors)
    strategy = how["strategy"]
    strategy.pre_tuning(6, 16, [])
    seen = {((6, 4), 0)}
    while candidates := strategy.generate_measure_candidates():
        found = {decisions_of(each.sch.trace) for each in candidates}
        assert not found & seen
        seen |= found
    assert len(seen) == 7 and not errors
