"""runtime/symbols.py: the offsets that values make, against counting; symbols as columns, and back."""

from typing import Any

import numpy as np
import pytest

from tilewright.hw.errors import ProgramError
from tilewright.runtime.symbols import Patches, Symbol, note_limit

SOME = [
    (Symbol("position", 64, step=1), "position"),
    (Symbol("position", 64, step=12), "12 * position"),
    (Symbol("position", 40, block=16, within=1), "(position % 16)"),
    (Symbol("position", 40, step=64, block=16, within=3), "64 * (position // 16) + 3 * (position % 16)"),
    (Symbol("position", 40, step=1, block=16, within=3), "(position // 16) + 3 * (position % 16)"),
    (Symbol("token", 1, step=5), "5 * token"),
    (Symbol("token", 9), "0 * token"),
]


@pytest.mark.parametrize("symbol, text", SOME)
def test_offsets_of_all_values(symbol, text):
    every = [symbol.step * (v // symbol.block) + symbol.within * (v % symbol.block) for v in range(symbol.limit)]
    np.testing.assert_array_equal(symbol.offsets(), sorted(set(every)))
    assert symbol.most == max(every)
    assert str(symbol) == text
    assert symbol.scaled(16).most == 16 * symbol.most


@pytest.mark.parametrize(
    "fields, text",
    [
        ({"limit": 0}, "symbol 'position': limit = 0: must be an integer from 1 to 1048576"),
        ({"limit": 1 << 21}, "limit = 2097152: must be"),
        ({"limit": 8.0}, "limit = 8.0: must be"),
        ({"limit": 8, "step": -1}, "step = -1: must be an integer from 0"),
        ({"limit": 8, "block": 0}, "block = .*: must be an integer from 1"),
        ({"limit": 8, "within": 1 << 41}, "within = .*: must be"),
        ({"limit": 8, "name": "a\nb"}, r"name = 'a\\nb': must be a text"),
    ],
)
def test_numbers_out_of_range(fields, text):
    with pytest.raises(ProgramError, match=text):
        Symbol(**{"name": "position"} | fields)


def test_steps_in_bytes_are_named_as_they_stand():
    for key in ("step", "within"):
        symbol = Symbol(**{"name": "position", "limit": 8, key: 1 << 39})
        assert getattr(symbol.scaled(2), key) == 1 << 40
        with pytest.raises(
            ProgramError, match=f"symbol 'position': {key} = {1 << 39}: at most 68,719,476,736 entries of 16 bytes"
        ):
            symbol.scaled(16)


def test_a_symbol_has_one_limit():
    limits: dict[str, int] = {}
    other: Any = 3
    note_limit(limits, None, "load")
    note_limit(limits, Symbol("position", 64, step=1), "load")
    note_limit(limits, Symbol("position", 64, step=2), "load")
    assert limits == {"position": 64}
    with pytest.raises(
        ProgramError, match="store: symbol 'position' has limit 32, elsewhere in this program 64; a sym"
    ):
        note_limit(limits, Symbol("position", 32, step=1), "store")
    with pytest.raises(ProgramError, match="load: at = 3: must be a Symbol, as Symbol"):
        note_limit(limits, other, "load")


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
