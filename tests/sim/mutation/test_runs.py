"""sim/mutation.py: runs see what is wrong, and the definition runs as the model does."""

from tilewright.hw.config import PRESETS
from tilewright.hw.isa import Isa, Op
from tilewright.hw.units import queues
from tilewright.runtime.verify import verify, without_pair
from tilewright.sim.mutation import Bench, Defined, Preferring, Reversed, judge

TINY = PRESETS["tiny"]


def outcomes(launch, runs=5):
    return [Bench(launch, 0).run(number) for number in range(runs)]


def test_runs_of_a_right_program_leave_the_same(program):
    assert len(set(outcomes(program()))) == 1
    first = outcomes(program())[0]
    assert first.error == "" and len(first.contents) > 1000 and len(first.memory) > 1000 and not first.outside


def test_the_definition_leaves_the_same_in_memory(program):
    bench = Bench(program(), 3)
    for number in range(2):
        model, definition = bench.run(number), bench.run(number, by=Defined)
        assert (model.error, model.memory) == (definition.error, definition.memory) and definition.contents


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


def test_a_pair_is_reversed_where_tokens_allow_that(program):
    launch = program()
    (pair, *_) = verify(launch).pairs
    way = Reversed(pair.pop, pair.push)
    assert not Bench(launch, 0).run(1, way).error and not way.held


def changed(launch, op, mem=None, **fields):
    """`launch` with other fields of its first instruction `op` of `mem`."""
    isa = Isa(TINY)
    k, f = next((k, f) for k, f in enumerate(isa.decode(launch.insn)) if f["op"] == op and f.get("mem") == mem)
    insn = launch.insn.copy()
    fmt = isa.format_of(op, mem or 0)
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
