"""runtime/proof/order.py, against the orders of many random executions."""

import numpy as np

from tilewright.hw.config import PRESETS
from tilewright.runtime.proof.instructions import Instructions
from tilewright.runtime.proof.order import Order
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
