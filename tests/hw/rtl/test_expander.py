"""hw/rtl/expander.py: every product of a weight and a scale; which lanes a beat fills, and what it counts."""

import pytest

from tests.hw.bench import assign, simulate
from tilewright.hw.config import Config
from tilewright.hw.rtl.expander import Expander, beats, shared

CFG = Config(extensions=frozenset({"pad_value", "wgt4"}))  # 16x16, 64 bits
EVERY = sum(k << 4 * k for k in range(16))  # all values of 4 bits, from 0 on


def row(scale):
    """The 16 weights of `EVERY`, times `scale`, as a number of 128 bits."""
    return sum((scale * (k - 16 * (k > 7)) & 0xFF) << 8 * k for k in range(16))


def play(cfg, *rows):
    """[(more, en, bytes, data)] of rows (inside, first, chunk, beat) that are taken one after the other."""
    dut, seen = Expander(cfg), []

    async def bench(ctx):
        for inside, first, chunk, beat in rows:
            assign(ctx, dut, take=1, inside=inside, first=first, chunk=chunk, beat=beat)
            now = tuple(ctx.get(value) for value in (dut.more, dut.en, dut.bytes))
            await ctx.tick()
            seen.append((*now, ctx.get(dut.data)))

    simulate(dut, bench)
    return seen


def test_a_beat_of_scales_then_a_row_per_beat():
    """One entry with every scale and, in each row, every weight."""
    assert not shared(CFG) and beats(CFG) == 17
    first, *weights = play(CFG, *((0, 0, chunk, EVERY) for chunk in range(17)))
    assert first[:3] == (0, 0, 8)
    assert weights == [(0, 0b11 << 2 * k, 8, row(k)) for k in range(16)]


def test_scales_of_several_beats_and_rows_of_two():
    cfg = CFG.replace(axi_bits=32)
    assert beats(cfg) == 34
    low, high = EVERY & 0xFFFFFFFF, EVERY >> 32
    seen = play(cfg, *((0, 0, chunk, (low, high)[chunk % 2]) for chunk in range(34)))
    assert [one[1] for one in seen[:2]] == [0, 0]
    half = (1 << 64) - 1
    assert [one[1] for one in seen[2:]] == [0b11 << 2 * k for k in range(32)]
    assert [one[3] for one in seen[2:]] == [row(k // 2) >> 64 * (k % 2) & half for k in range(32)]


WIDE = CFG.replace(axi_bits=128)
TWICE = EVERY | EVERY << 64


def test_every_other_entry_begins_inside_a_beat():
    """Two entries in 17 beats; the scales of the second come with the last row of the first."""
    assert shared(WIDE) and (beats(WIDE), beats(WIDE, inside=True)) == (9, 8)
    rows = [(0, int(k == 0), k, TWICE) for k in range(9)] + [(1, 0, k, TWICE) for k in range(8)]
    seen = play(WIDE, *rows)
    lanes = (1 << 16) - 1
    half = (1 << 128) - 1
    for k in range(9):  # the row of an odd number, lower in the beat, goes to the upper half of the word
        more, en, nbytes, data = seen[k]
        assert (more, en, nbytes) == (0, (0b11 << 2 * k >> 1) & lanes, 8 if k == 8 else 16)
        assert k == 8 or data & half == row(2 * k)
        assert k == 0 or data >> 128 == row(2 * k - 1)
    for k in range(8):
        assert seen[9 + k] == (0, 0b11 << 2 * k, 24 if k == 0 else 16, row(2 * k) | row(2 * k + 1) << 128)
    assert sum(one[2] for one in seen) == 2 * 136


@pytest.mark.parametrize("scales", [EVERY, 0, (1 << 64) - 1])
def test_the_first_entry_of_a_request_may_begin_inside_a_beat(scales):
    """A beat brings its scales and nothing else; the one after is its first."""
    rows = [(1, 1, 0, scales << 64 | 5)] + [(1, 1, k, TWICE) for k in range(8)]
    alone, *weights = play(WIDE, *rows)
    assert alone[:3] == (1, 0, 0)
    of = [scales >> 4 * k & 15 for k in range(16)]
    wanted = [row(of[2 * k]) | row(of[2 * k + 1]) << 128 for k in range(8)]
    assert [one[3] for one in weights] == wanted and sum(one[2] for one in weights) == 136
