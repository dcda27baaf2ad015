"""sim/timing/read_port.py: bursts and beats in their cycles, answers to writes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.hw.config import PRESETS
from tilewright.sim.dram import Dram
from tilewright.sim.timing.read_port import Client, ReadPort, Writer

PYNQ = PRESETS["pynq_z1"]


class Reader(Client):
    """Takes every beat two cycles after it was on the bus; `requests` are (address, beats)."""

    def __init__(self, *requests, buffer=128, steady=False, yields=False):
        super().__init__(buffer, yields=yields)
        self.requests, self.steady, self.ends = list(requests), steady, []
        self.accept(0)
        self.update()

    def accept(self, free):
        self.left = 0
        if self.requests:
            self.address, self.left = self.requests.pop(0)
            self.valid = free + 1

    def burst(self, beats, end, final):
        self.ends.append((end, beats))
        self.taken.append((self.asked, end + 2, 1))

    def lag(self, end):
        return 0 if self.steady else 1 << 60

    def skip(self, beats, end):
        self.taken.append((self.asked + beats, end + beats + 2, 1))


def run(dram, *clients):
    port = ReadPort(PYNQ, dram, list(clients))
    port.plan()
    while port.next < 1 << 60:
        port.step()
    return port


def test_first_beat_and_rate():
    client = Reader((3, 40))
    run(Dram(latency=40), client)
    # granted in cycle 1, its address in 2, its first beat in 42; bursts end at multiples of 16 beats
    assert client.ends == [(42 + 12, 13), (42 + 28, 16), (42 + 39, 11)]


def test_eight_bursts_in_flight():
    client = Reader(*[(16 * k, 1) for k in range(9)])
    run(Dram(latency=200), client)
    ends = [end for end, _ in client.ends]
    assert ends == [*range(202, 210), 202 + 2 + 1 + 200]  # the ninth waits for the end of the first


def test_turns():
    first, second = Reader((0, 64)), Reader((0, 64))
    run(Dram(), first, second)
    assert abs(first.ends[-1][0] - second.ends[-1][0]) == 16 and max(first.ends[-1][0], second.ends[-1][0]) == 42 + 127


def test_one_that_yields_comes_behind_the_others():
    first, second, third = Reader((0, 64), yields=True), Reader((0, 64)), Reader((0, 64))
    run(Dram(latency=10), first, second, third)
    ends = [client.ends[-1][0] for client in (first, second, third)]
    assert ends == [12 + 191, 12 + 111, 12 + 127]  # and the others take turns
    assert first.ends[0][0] > ends[2]


@pytest.mark.parametrize("latency", [1, 40, 100, 111, 300])
def test_many_bursts_at_once_end_when_they_end_one_by_one(latency):
    ends = []
    for steady in (False, True):
        client = Reader((5, 1000), (7, 2000), steady=steady)
        ends.append((run(Dram(latency=latency), client).end, client.asked))
        if steady and latency < 105:
            assert len(client.ends) < 50
    assert ends[0] == ends[1]


def test_a_port_of_half_the_width():
    client = Reader((0, 16))
    assert run(Dram(port_bytes=4), client).end == 42 + 2 * 15, "the cycle of the last beat"


MEMORIES = [Dram(), Dram(response=1), Dram(port_bytes=4), Dram(outstanding_writes=2), Dram(response=90)]


def write(writer, begin, rows):
    """Rows of (address, beats) whose beats are read one per cycle; what is to be seen of them."""
    seen, put = [], begin
    for address, beats in rows:
        put = writer.put(put)
        first = max(put + 1, writer.read_at)
        writer.read(first + beats, first + beats - 1)
        writer.send(address, beats, first + 2, first + beats + 1, 1)
        seen.append((put, writer.read_at, writer.word, writer.answer))
        put += 1
    return seen


def test_one_row():
    writer = Writer(PYNQ, Dram(response=20))
    assert write(writer, 100, [(8, 24)]) == [(100, 125, 126, 146)]
    assert writer.rest == 19


def test_rows_wait_for_answers():
    writer = Writer(PYNQ, Dram(response=200))
    seen = write(writer, 0, [(16 * k, 1) for k in range(9)])
    assert seen[8][2] > seen[0][3]  # eight bursts are under way at most


ROWS = st.lists(st.tuples(st.integers(0, 40), st.integers(1, 50)), min_size=1, max_size=12)


@given(st.sampled_from(MEMORIES), st.lists(st.tuples(st.integers(0, 120), ROWS), min_size=1, max_size=6))
def test_a_state_says_all(dram, stores):
    plain, now = Writer(PYNQ, dram), 50
    for gap, rows in stores:
        now = max(now, plain.row + 1) + gap
        other, far = Writer(PYNQ, dram), now + 1000
        other.restore(far, plain.state(now))
        before = plain.waited
        expected = write(plain, now, rows)
        assert [tuple(c - 1000 for c in cycles) for cycles in write(other, far, rows)] == expected
        assert other.waited == plain.waited - before and other.rest == plain.rest
