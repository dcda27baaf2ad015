"""Dot products against numpy, plain and two products per multiplier."""

import itertools

import numpy as np
import pytest

from tests.hw.bench import assign, pack, script, simulate
from tilewright.hw.config import PRESETS, Config
from tilewright.hw.rtl.compute.gemm import Dot
from tilewright.hw.rtl.latencies import array_latency

TINY = PRESETS["tiny"]
ODD = Config(
    name="odd", batch=2, block_in=8, block_out=4, wgt_bits=4, inp_bytes=1 << 10, wgt_bytes=1 << 10, acc_bytes=1 << 11
)
SINGLE = Config(name="single", block_in=1, block_out=1, inp_bytes=1 << 10, wgt_bytes=1 << 10, acc_bytes=1 << 12)
CONFIGS = [PRESETS["vta"], PRESETS["pynq_z1"], TINY, TINY.replace(dsp_packing=True), ODD, ODD.replace(dsp_packing=True)]
CONFIGS += [SINGLE, SINGLE.replace(dsp_packing=True)]
DOUBLE = TINY.replace(array_clock=2)
CONFIGS += [DOUBLE, DOUBLE.replace(dsp_packing=True), ODD.replace(array_clock=2)]
CONFIGS += [
    TINY.replace(
        block_in=8,
        block_out=16,
        dsp_packing=True,
        array_clock=2,
        extensions=(),
        wgt_bytes=1 << 13,
        acc_bytes=1 << 12,
        inp_bytes=1 << 11,
    )
]
CORNERS = (-128, -127, -1, 0, 1, 127)


def products(cfg, pairs, rows=(), near=(), extra=()):
    """What `Dot` makes of (inputs, weights), one pair per cycle; with row `rows[k]` alone where that is >= 0.

    `near[k]` are the entries behind the inputs, of which `extra[k]` count.
    """
    dot, out, lanes = Dot(cfg), [], cfg.lanes

    async def drive(ctx):
        for k in range(len(pairs) + array_latency(cfg)):
            ctx.set(dot.en, k < len(pairs))
            if k < len(pairs):
                inp, wgt = pairs[k]
                assign(ctx, dot, inp=pack(inp, cfg.inp_bits), wgt=pack(wgt, cfg.wgt_bits))
                if rows:
                    assign(ctx, dot, rows=rows[k] >= 0, row=max(rows[k], 0))
                if extra:
                    assign(ctx, dot, near=pack(near[k], cfg.inp_bits), extra=extra[k])
            if k >= array_latency(cfg):
                out.append([int(v) for v in ctx.get(dot.sums)][:lanes])
            await ctx.tick()

    simulate(dot, drive)
    return np.array(out).reshape(len(pairs), cfg.batch, cfg.block_out)


def check(cfg, pairs):
    want = np.array([np.asarray(x, np.int64) @ np.asarray(w, np.int64).T for x, w in pairs])
    np.testing.assert_array_equal(products(cfg, pairs), want)


def extreme_pairs(cfg, rng):
    """Random operands, and operands at the limits."""
    shapes, pairs = ((cfg.batch, cfg.block_in), (cfg.block_out, cfg.block_in)), []
    for k in range(24):
        pair = []
        for bits, shape in zip((cfg.inp_bits, cfg.wgt_bits), shapes):
            low, high = -(1 << bits - 1), (1 << bits - 1) - 1
            extreme = rng.choice([low, high] if k % 3 else [low], shape)
            pair.append(rng.integers(low, high + 1, shape) if k % 2 else extreme)
        pairs.append(tuple(pair))
    return pairs


def named(cfg):
    return f"{cfg.name}-{'packed' if cfg.dsp_packing else 'plain'}-{cfg.array_clock}"


@pytest.mark.circuit
@pytest.mark.parametrize("cfg", CONFIGS, ids=named)
def test_random_and_extreme_operands(cfg):
    check(cfg, extreme_pairs(cfg, np.random.default_rng(1)))


@pytest.mark.parametrize(
    "cfg",
    [PRESETS["pynq_z1"], TINY, TINY.replace(batch=2, dsp_packing=True), DOUBLE],
    ids=["pynq_z1", "plain", "batch", "double"],
)
def test_rows_element_by_element_between_tiles(cfg):
    rng = np.random.default_rng(3)
    pairs = extreme_pairs(cfg, rng)
    rows = np.where(rng.integers(0, 3, len(pairs)), rng.integers(0, cfg.block_in, len(pairs)), -1).tolist()
    want = [
        np.asarray(x, np.int64) * w[row] if row >= 0 else np.asarray(x, np.int64) @ w.T.astype(np.int64)
        for (x, w), row in zip(pairs, rows)
    ]
    assert min(rows) < 0 < max(rows)
    np.testing.assert_array_equal(products(cfg, pairs, rows), np.array(want))


ROWS = TINY.replace(extensions=TINY.extensions | {"depthwise_rows"})
EIGHT = {"block_in": 8, "block_out": 8, "wgt_bytes": 1 << 12, "acc_bytes": 1 << 12}


@pytest.mark.parametrize("packing", [False, True])
@pytest.mark.parametrize(
    "shape",
    [{}, {"batch": 2}, EIGHT, {"array_clock": 2}],
    ids=["blocks of 4", "batch", "blocks of 8", "twice the clock"],
)
def test_several_taps_between_rows_and_tiles(shape, packing):
    cfg = ROWS.replace(**shape, dsp_packing=packing)
    rng, taps = np.random.default_rng(4), cfg.row_taps
    pairs = extreme_pairs(cfg, rng) * 3
    near = [rng.integers(-128, 128, (taps - 1, cfg.batch, cfg.block_in)) for _ in pairs]
    near[::3] = [np.full_like(each, -128) for each in near[::3]]
    extra = rng.integers(0, taps, len(pairs)).tolist()
    rows, want = [], []
    for (x, w), more, n in zip(pairs, near, extra):
        row = int(rng.integers(-1, cfg.block_in))
        rows.append(row := row // taps * taps if n else row)
        if row < 0:
            want.append(np.asarray(x, np.int64) @ w.T.astype(np.int64))
            continue
        entries = [np.asarray(x, np.int64), *more]
        want.append(sum(entries[t] * w[row + t] for t in range(n + 1)))
    extra = [n if row >= 0 else 0 for n, row in zip(extra, rows)]
    assert set(extra) == set(range(taps)) and min(rows) < 0
    np.testing.assert_array_equal(products(cfg, pairs, rows, near, extra), np.array(want))


@pytest.mark.parametrize("packing", [False, True])
def test_every_corner_of_a_pair_of_products(packing):
    """All (w0, w1, x) of int8 corners, in all lanes at once with other values beside them."""
    cfg = TINY.replace(dsp_packing=packing)
    rng, pairs = np.random.default_rng(2), []
    for w0, w1, x in itertools.product(CORNERS, repeat=3):
        inp, wgt = rng.choice(CORNERS, (1, 4)), rng.choice(CORNERS, (4, 4))
        at = rng.integers(0, 4)
        inp[0, at], wgt[0, at], wgt[1, at], wgt[2, at], wgt[3, at] = x, w0, w1, w1, w0
        pairs.append((inp, wgt))
    check(cfg, pairs)


@pytest.mark.parametrize("cfg", [TINY, DOUBLE], ids=named)
def test_stages_without_operands_keep_their_contents(cfg):
    dot = Dot(cfg)
    operands = {"en": 1, "inp": pack([1, 2, 3, 4], 8), "wgt": pack(np.ones(16), 8)}
    sums = {f"sums.{k}": 10 for k in range(4)}
    rows = (operands, {}), ({"en": 0, "inp": 0}, {}, array_latency(cfg) - 1), ({}, sums, 4)
    simulate(dot, script(dot, *rows))
