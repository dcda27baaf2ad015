"""runtime/proof/drawing.py."""

import pytest

from tilewright.hw.errors import RaceError
from tilewright.hw.units import Queue
from tilewright.runtime.proof.order import drawn, missing_edge
from tilewright.runtime.verify import verify, without_pair


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
