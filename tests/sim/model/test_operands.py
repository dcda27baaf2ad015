"""sim/model/loops.py: what was made of a scratchpad's entries is kept until they change."""

import numpy as np

from tilewright.sim.model import loops
from tilewright.sim.model.loops import Operands


def made(kept, key, limits, size=1):
    """True where the operand of `key` was not kept."""
    calls = []

    def make():
        calls.append(key)
        return np.zeros(size, np.float32)

    kept.get(key, limits, make)
    return bool(calls)


def test_an_operand_is_made_once_until_an_entry_of_it_changes():
    kept = Operands()
    assert made(kept, "a", (3, 5)) and made(kept, "b", (6, 9))
    for low, high in ((0, 2), (10, 12)):
        kept.changed(low, high)
    assert not made(kept, "a", (3, 5)) and not made(kept, "b", (6, 9))
    kept.changed(5, 5)
    assert made(kept, "a", (3, 5)) and not made(kept, "b", (6, 9))
    kept.changed(0, 100)
    assert made(kept, "a", (3, 5)) and made(kept, "b", (6, 9))


def test_nothing_is_kept_once_the_memories_may_change():
    kept = Operands()
    assert made(kept, "a", (0, 0))
    kept.clear()
    assert made(kept, "a", (0, 0))


def test_no_more_is_kept_than_the_limit(monkeypatch):
    monkeypatch.setattr(loops, "_BYTES", 100)
    kept = Operands()
    assert made(kept, "a", (0, 0), 12) and made(kept, "b", (1, 1), 12)
    assert not made(kept, "a", (0, 0))
    assert made(kept, "c", (2, 2), 12)
    assert not made(kept, "c", (2, 2)) and made(kept, "a", (0, 0), 12)
    assert made(kept, "large", (3, 3), 1000) and not made(kept, "large", (3, 3))
    kept.changed(3, 3)
    assert made(kept, "a", (0, 0), 12) and made(kept, "b", (1, 1), 12) and not made(kept, "a", (0, 0))
