"""sim/timing/read_port.py: rows to bursts and answers."""

from hypothesis import given
from hypothesis import strategies as st

from tilewright.hw.config import PRESETS
from tilewright.sim.dram import Dram
from tilewright.sim.timing.read_port import Writer

PYNQ = PRESETS["pynq_z1"]
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
