"""runtime/proof/conflicts.py, against every pair of events."""

import numpy as np

from tilewright.runtime.proof.conflicts import Events, Timeline, first_conflict, unwritten


def random_case(rng, turns=30, classes=4):
    """Events of one instruction in each turn, and clocks that never know too little of their own queue."""
    queue = rng.integers(0, 3, turns)
    position = np.zeros(turns, np.int64)
    clocks = np.zeros((turns, 3), np.int64)
    done, known = np.zeros(3, np.int64), np.zeros((3, 3), np.int64)
    for t, q in enumerate(queue):
        done[q] += 1
        position[t] = known[q, q] = done[q]
        if rng.random() < 0.8:
            known[q] = np.maximum(known[q], done)  # it has heard of all
        clocks[t] = known[q]
    turn = np.sort(rng.integers(0, turns, 60))
    write = rng.random(60) < 0.4
    events = Events(turn, rng.integers(0, classes, 60), write, write & (rng.random(60) < 0.3), np.arange(60))
    return events, Timeline(queue, position, clocks)


def pairs_without_order(events, line):
    """(turn, use, queue of the other, its position) of every pair that conflicts and has no order."""
    for b in range(len(events.turn)):
        for a in range(b):
            one, two = events.turn[a], events.turn[b]
            conflict = events.cls[a] == events.cls[b] and (events.write[a] or events.write[b])
            known = line.queue[one] == line.queue[two] or line.clocks[two, line.queue[one]] >= line.position[one]
            if conflict and not known:
                yield int(two), int(events.use[b]), int(line.queue[one]), int(line.position[one])


def test_the_first_conflict_is_found_and_none_where_there_is_none(rng):
    clean = 0
    for _ in range(200):
        events, line = random_case(rng)
        expected, found = list(pairs_without_order(events, line)), first_conflict(events, line)
        clean += not expected
        if not expected:
            assert found is None
            continue
        assert found is not None and found.turn == min(expected)[0]
        assert (found.turn, found.use, found.source, found.position) in expected
        assert len(found.classes) == 1
    assert 5 < clean < 195


def test_what_is_read_before_it_is_written(rng):
    for _ in range(100):
        events, _ = random_case(rng)
        ready = rng.random(4) < 0.3
        expected = []
        for k, (turn, cls, write, updates, _) in enumerate(zip(*events)):
            before = ((events.turn < turn) & (events.cls == cls) & events.write).any()
            same = ((events.turn == turn) & (events.cls == cls) & events.write).any() and not write
            if (updates or not write) and not (ready[cls] or before or same):
                expected.append(k)
        assert unwritten(events, 4, ready).tolist() == expected
