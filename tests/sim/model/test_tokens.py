import numpy as np
import pytest

from tilewright.hw.config import PRESETS
from tilewright.hw.errors import DeadlockError, ExecutionError, TokenError
from tilewright.hw.isa import FLAGS
from tilewright.hw.units import channels, queues
from tilewright.sim.model.device import Node, at_random, node, schedule

TINY = PRESETS["tiny"]
LOAD, COMPUTE, STORE = queues(TINY)
CHANNELS = channels(TINY)
LC, CL, CS, SC = range(4)
FINISH = Node(COMPUTE, (), ())


def at(k):
    return f"instruction {k}"


def order(*nodes, depth=9, rng=None):
    return schedule(TINY.replace(token_depth=depth), [*nodes, FINISH], at, min if rng is None else at_random(rng))


def test_flags_name_the_channels_of_each_queue():
    flags: dict[str, int] = dict.fromkeys(FLAGS, 1)
    assert node(CHANNELS, LOAD, flags) == Node(LOAD, (CL,), (LC,))
    assert node(CHANNELS, COMPUTE, flags) == Node(COMPUTE, (LC, SC), (CL, CS))
    assert node(CHANNELS, STORE, flags) == Node(STORE, (CS,), (SC,))
    assert node(CHANNELS, COMPUTE, {**dict.fromkeys(FLAGS, 0), "push_next": 1}) == Node(COMPUTE, (), (CS,))
    assert [str(c) for c in CHANNELS] == ["LOAD -> COMPUTE", "COMPUTE -> LOAD", "COMPUTE -> STORE", "STORE -> COMPUTE"]


def test_the_first_instruction_that_may_execute_goes_first():
    assert order(Node(STORE, (), ()), Node(LOAD, (), ()), Node(COMPUTE, (), ())) == [0, 1, 2, 3]


def test_an_instruction_waits_for_its_tokens():
    """A store recorded before the compute that it waits for."""
    nodes = Node(STORE, (CS,), (SC,)), Node(COMPUTE, (LC,), (CS,)), Node(LOAD, (), (LC,)), Node(COMPUTE, (SC,), ())
    assert order(*nodes) == [2, 1, 0, 3, 4]


def test_random_orders_are_legal_and_all_come_about():
    nodes = [Node(LOAD, (), (LC,)), Node(STORE, (), (SC,)), Node(COMPUTE, (LC, SC), ())]
    seen = {tuple(order(*nodes, rng=np.random.default_rng(seed))) for seed in range(50)}
    assert seen == {(0, 1, 2, 3), (1, 0, 2, 3)}


def test_tokens_are_counted_not_flagged():
    nodes = [Node(LOAD, (), (LC,))] * 3 + [Node(COMPUTE, (LC,), ())] * 3
    assert order(*nodes) == [0, 1, 2, 3, 4, 5, 6]


def test_a_deadlock_names_what_each_queue_waits_for():
    nodes = Node(LOAD, (CL,), ()), Node(COMPUTE, (LC, SC), ()), Node(LOAD, (), (LC,))
    with pytest.raises(DeadlockError) as caught:
        order(*nodes)
    assert str(caught.value) == (
        "deadlock: LOAD waits for a token COMPUTE -> LOAD at instruction 0; "
        "COMPUTE waits for a token LOAD -> COMPUTE and STORE -> COMPUTE at instruction 1; STORE is empty"
    )
    assert caught.value.index == 0


def test_a_deadlock_after_some_progress_names_the_instructions_that_are_left():
    nodes = Node(LOAD, (), (LC,)), Node(COMPUTE, (LC,), ()), Node(COMPUTE, (LC,), ()), Node(STORE, (), ())
    with pytest.raises(DeadlockError, match="COMPUTE waits for a token LOAD -> COMPUTE at instruction 2") as caught:
        order(*nodes)
    assert "STORE is empty" in str(caught.value)
    assert caught.value.index == 2


@pytest.mark.parametrize("rng", [None, np.random.default_rng(0)])
def test_tokens_left_over_are_refused(rng):
    with pytest.raises(TokenError) as caught:
        order(*[Node(LOAD, (), (LC,))] * 2, Node(STORE, (), ()), rng=np.random.default_rng(3) if rng else None)
    assert str(caught.value) == "2 tokens LOAD -> COMPUTE are left over; the last is pushed by instruction 1"
    assert caught.value.index == 1


def test_more_tokens_than_a_channel_holds_are_refused():
    nodes = [Node(LOAD, (), (LC,))] * 4 + [Node(COMPUTE, (LC,), ())] * 4
    assert len(order(*nodes, depth=4)) == 9
    with pytest.raises(TokenError) as caught:
        order(*nodes, depth=3)
    assert str(caught.value) == "instruction 3: 4 tokens LOAD -> COMPUTE; the channel holds 3"
    assert caught.value.index == 3


def test_finish_must_wait_for_the_other_queues():
    """The store waits for a token that FINISH itself gives."""
    nodes = [Node(STORE, (CS,), ()), Node(COMPUTE, (), (CS,))]
    with pytest.raises(ExecutionError, match="^instruction 0 executes after FINISH"):
        schedule(TINY, nodes, at)


def test_a_finish_that_may_come_early_is_found_by_some_interleaving():
    seen = set()
    for seed in range(30):
        try:
            seen.add(len(order(Node(STORE, (), ()), rng=np.random.default_rng(seed))))
        except ExecutionError as exc:
            seen.add(str(exc))
    assert seen == {2, "instruction 0 executes after FINISH: nothing orders FINISH behind it"}
