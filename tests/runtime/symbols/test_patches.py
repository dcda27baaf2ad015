"""Patches: symbols of instructions as columns, and back."""

import numpy as np
import pytest

from tilewright.hw.errors import ProgramError
from tilewright.runtime.symbols import Patches, Symbol

ROW, RING, WORD = (
    Symbol("position", 64, step=1),
    Symbol("position", 64, step=7, block=16, within=2),
    Symbol("token", 9, step=5),
)


def test_symbols_become_columns_and_come_back():
    found = Patches.of([None, ROW, WORD, None, RING, ROW])
    assert found.limits == {"position": 64, "token": 9}
    assert found.at.tolist() == [1, 2, 4, 5]
    assert found.symbols == {1: ROW, 2: WORD, 4: RING, 5: ROW}
    assert found.most.tolist() == [63, 40, RING.most, 63]
    assert Patches(found.limits, found.columns).symbols == found.symbols


@pytest.mark.parametrize("position", [0, 1, 15, 16, 63])
def test_offsets_follow_the_values(position):
    found = Patches.of([ROW, WORD, RING]).offsets({"position": position, "token": 3})
    assert found.tolist() == [position, 15, 7 * (position // 16) + 2 * (position % 16)]
    assert Patches.of([ROW, WORD]).offsets({}).tolist() == [0, 0]


def test_they_follow_their_instructions():
    moved = Patches.of([ROW, None, WORD]).moved(np.array([2, -1, 1, 0]))
    assert moved.symbols == {0: WORD, 3: ROW}
    assert not len(Patches.of([ROW, None]).moved(np.array([1])).columns)


@pytest.mark.parametrize(
    "limits, columns, text",
    [
        ({"p": 4}, np.zeros((1, 4), np.int64), r"columns must be int64 \(n, 5\): instruction, symbol, step, block"),
        ({"p": 4}, np.zeros((1, 5), np.int32), "columns must be int64"),
        ({"p": 4}, [[0, 0, 1, 1, 0]], "columns must be int64"),
        ({"p": 4}, [[-1, 0, 1, 1, 0]], "instructions must ascend from 0 on, each once"),
        ({"p": 4}, [[2, 0, 1, 1, 0], [2, 0, 1, 1, 0]], "instructions must ascend"),
        ({"p": 4}, [[2, 1, 1, 1, 0]], "symbol 1 of instruction 2: must be one of 1 symbols"),
        ({"p": 4, "q": 4}, [[2, 0, 1, 1, 0]], "no instruction has symbol 'q'; leave it out"),
        ({"p": 4}, [[2, 0, -1, 1, 0]], "symbol 'p': step = "),
        ({"p": 1 << 40}, [[2, 0, 1, 1, 0]], "symbol 'p': limit = "),
    ],
)
def test_columns_that_do_not_fit(limits, columns, text):
    given = columns if isinstance(columns, np.ndarray) or "int64" in text else np.array(columns, np.int64)
    with pytest.raises(ProgramError, match=text):
        Patches(limits, given)
