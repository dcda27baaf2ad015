"""sim/timing/issues.py: when a bank is used, and when not."""

from tilewright.sim.timing.issues import Uses
from tilewright.sim.timing.read_port import NEVER


def test_a_bank_is_free_between_its_uses():
    uses = Uses()
    for begin, end, banks in ((10, 19, 0b01), (20, 24, 0b01), (30, 31, 0b11)):
        uses.add(begin, end, banks)
    assert [uses.free(0b01, cycle) for cycle in (9, 10, 24, 25, 30)] == [9, 25, 25, 25, 32]
    assert uses.free(0b10, 12) == 12 and uses.free(0b10, 31) == 32
    assert [uses.next(0b01, cycle) for cycle in (0, 10, 25, 30)] == [10, 20, 30, NEVER]
    assert uses.next(0b10, 0) == 30


def test_the_last_use():
    uses = Uses()
    assert uses.latest(0b11) == -1
    uses.add(3, 8, 0b01)
    uses.add(5, 6, 0b10)
    assert (uses.latest(0b01), uses.latest(0b10), uses.latest(0b11), uses.latest(0b100)) == (8, 6, 8, -1)
