"""runtime/proof/order.py, against the orders of many random executions; a race as a drawing."""

import numpy as np
import pytest

from tilewright.hw.config import PRESETS
from tilewright.hw.errors import RaceError
from tilewright.hw.units import Queue
from tilewright.runtime.proof.order import Instructions, Order, drawn, missing_edge
from tilewright.runtime.verify import verify, without_pair
from tilewright.sim.model.device import Node, at_random, schedule
from tilewright.sim.random_programs import Recorder, record_random


def test_clocks_hold_in_every_execution_and_nothing_else_does(rng):
    recorder = Recorder(PRESETS["tiny"], 3)
    record_random(recorder, 6)
    launch = recorder.program.finish()
    program = Instructions(launch.cfg, launch.insn)
    order = Order(program)
    nodes = [Node(program.queues[q], *sides) for q, *sides in zip(program.queue, program.pops, program.pushes)]
    always = np.full((program.n, len(program.queues)), 1 << 30)
    for _ in range(300):
        done = [0] * len(program.queues)
        for k in schedule(launch.cfg, nodes, str, at_random(rng)):
            done[program.queue[k]] += 1
            always[k] = np.minimum(always[k], done)
    assert (order.clocks <= always).all()
    assert (order.clocks == always).mean() > 0.9  # what 300 executions leave open is little


def test_token_pairs_join_pushes_and_pops_in_order(launch):
    order = Order(Instructions(launch.cfg, launch.insn))
    for source, target in {(p.source, p.target) for p in order.pairs}:
        mine = [p for p in order.pairs if (p.source, p.target) == (source, target)]
        assert [p.push for p in mine] == sorted(p.push for p in mine)
        assert [p.pop for p in mine] == sorted(p.pop for p in mine)
    assert max(order.in_flight.values()) >= 1


def test_a_drawing_has_both_instructions_in_their_queues_and_the_missing_token(launch):
    pair = next(p for p in verify(launch).pairs if (p.source, p.target) == (Queue.COMPUTE, Queue.STORE))
    raced = without_pair(launch, pair)
    with pytest.raises(RaceError, match=r"of tile0 .*; missing: a token COMPUTE -> STORE, given by \d+ or") as caught:
        verify(raced)
    assert caught.value.pair is not None
    first, then = caught.value.pair
    lines = drawn(raced, caught.value.pair).splitlines()
    assert lines[0].split() == ["LOAD", "COMPUTE", "STORE"]
    marked = [line for line in lines if line.startswith(">")]
    assert [int(line[1:8]) for line in marked] == [first, then]
    columns = [lines[0].index(name) for name in ("COMPUTE", "STORE")]
    assert [line[9:].index(line[9:].split()[0]) + 9 for line in marked] == columns
    assert lines[-1] == missing_edge(first, then, Queue.COMPUTE, Queue.STORE)


def test_an_edge_between_queues_without_a_channel_goes_through_the_one_between():
    text = "missing: a token LOAD -> COMPUTE -> STORE, given by 3 or behind it, taken by 9 or before it"
    assert missing_edge(3, 9, Queue.LOAD, Queue.STORE) == text
