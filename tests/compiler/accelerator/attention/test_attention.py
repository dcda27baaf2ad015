"""Attention as one launch against the reference."""

import numpy as np
import pytest

from tilewright.compiler.accelerator.module import Accelerator
from tilewright.compiler.graph import Attention, Tensor
from tilewright.compiler.kernels import language
from tilewright.compiler.kernels.table import chosen
from tilewright.hw.config import PRESETS
from tilewright.sim.timing import predict

PLUS = PRESETS["pynq_z1_plus"]


def attention(chunks, key_groups, value_groups, context, seen, head, scale=0.05, tokens=1):
    wide, deep = 2 * len(key_groups), len(value_groups)
    shapes = (tokens, chunks * wide), (1, wide, context, 1), (1, context, deep, 1)
    q, k, v = (Tensor(n, s, scale=c) for n, s, c in zip(("q", "k", "v"), shapes, (scale, 0.05, 0.05)))
    y = Tensor("y", (tokens, chunks * deep), scale=0.03)
    inputs = q, k, v, Tensor("position", (1,), "int32")
    return Attention("attention", inputs, y, tuple(key_groups), tuple(value_groups), head, seen)


def repeated(groups, each, lanes):
    found = [group for group in range(groups) for _ in range(each)]
    return found + [-1] * (lanes - len(found))


def places(*positions):
    return [{"position": p} for p in positions]


HEADS = {  # chunks, groups of keys, groups of values, elements of a head
    "two queries of each of four": (2, repeated(4, 4, 16), repeated(4, 8, 32), 8),
    "heads of 2": (3, repeated(5, 1, 16), repeated(5, 2, 16), 2),
    "heads of 48": (1, repeated(6, 24, 144), repeated(6, 48, 288), 48),
    "one group": (4, repeated(1, 4, 16), repeated(1, 8, 16), 8),
    "one query": (1, repeated(1, 8, 8), repeated(1, 16, 16), 16),
    "half a key of 8 lanes": (2, repeated(2, 4, 8), repeated(2, 8, 16), 8),
    "one chunk of any width": (1, repeated(3, 1, 3), repeated(3, 2, 16), 2),
}


@pytest.mark.parametrize("heads", HEADS.values(), ids=HEADS)
@pytest.mark.parametrize("seen", [16, 64])
def test_heads(steps, heads, seen):
    chunks, keys, values, head = heads
    op = attention(chunks, keys, values, 64, seen, head)
    steps(op, symbols=places(*(p for p in (0, 15, 16, 17, seen - 1) if p < seen)))


@pytest.mark.parametrize(
    ("heads", "context", "seen"),
    [("two queries of each of four", 64, 64), ("two queries of each of four", 512, 512), ("heads of 48", 64, 48)],
)
def test_blocks_of_tokens(steps, heads, context, seen):
    """All 16 tokens together, or as many as fit."""
    chunks, keys, values, head = HEADS[heads]
    steps(attention(chunks, keys, values, context, seen, head, tokens=16), symbols=places(*range(0, seen // 16, 3)))


@pytest.mark.parametrize(("context", "seen"), [(512, 512), (512, 48), (2048, 1024)])
def test_contexts(steps, context, seen):
    """Loads of keys and values in several tiles; of 2048 positions reciprocals have fewer bits."""
    chunks, keys, values, head = HEADS["one group" if seen > 512 else "two queries of each of four"]
    steps(attention(chunks, keys, values, context, seen, head), symbols=places(0, seen // 2, seen - 1))


@pytest.mark.parametrize("scale", [1e-5, 0.5])
def test_weights_that_are_all_alike_and_one_that_is_all(steps, scale):
    steps(attention(*HEADS["two queries of each of four"][:3], 64, 64, 8, scale), symbols=places(3, 40))


def test_queries_of_zeros(steps):
    op = attention(*HEADS["heads of 2"][:3], 32, 32, 2)
    steps(op, symbols=places(0, 20), data={"q": np.zeros(op.x.shape, np.int8)})


@pytest.mark.parametrize("on", ["spec", "rtl"])
def test_devices(steps, on):
    steps(attention(2, [0, 0, 1, 1], [0, 0, 1, 1], 12, 8, 4), symbols=places(0, 5), on=on)
    block = attention(2, [0, 0, 1, 1], [0, 0, 1, 1], 12, 8, 4, tokens=4)
    steps(block, symbols=places(0, 1), on=on)


@pytest.mark.parametrize(("seen", "tokens"), [(64, 1), (512, 1), (64, 16), (512, 16)])
def test_its_cycles_are_those_of_the_timing_model(steps, seen, tokens):
    op = attention(1, *HEADS["two queries of each of four"][1:3], 512, seen, 8, tokens=tokens)
    launch = steps(op, symbols=places(0))
    record = chosen(op, PLUS)
    assert record and language.cycles(record, op, PLUS) == predict(launch).cycles


def refusal(*args, cfg=PLUS):
    return Accelerator(cfg).refusal(attention(*args))


def test_refusals():
    assert refusal(*HEADS["one group"][:3], 64, 64, 8) == ""
    assert refusal(1, [0] * 16, [0] * 16, 40, 16, 8) == (
        "40 positions, values of 16 elements: must be whole blocks of 16"
    )
    assert refusal(2, [0] * 4, [0] * 16, 32, 16, 8) == (
        "keys of 8 elements: must be whole blocks of 16 where there are 2 chunks"
    )
    assert refusal(32, [0] * 16, [0] * 16, 1024, 1024, 8) == (
        "2112 entries of ACC: they do not fit those that are free in 0 to 1024"
    )
    long = 2, repeated(4, 4, 16), repeated(4, 8, 32), 512, 512, 8
    for few, what in (
        ({"wgt_bytes": 8 << 10}, "128 entries of WGT: they do not fit those that are free in 0 to 32"),
        ({"inp_bytes": 2 << 10}, "276 entries of INP: they do not fit those that are free in 0 to 128"),
        ({"tables": 2}, "it needs 3 tables; small has 2"),
    ):
        assert refusal(*long, cfg=PLUS.replace(name="small", **few)) == what
    assert refusal(*HEADS["one group"][:3], 64, 64, 8, 0.05, 8) == (
        "8 tokens, 64 positions: must be one, or 16 and whole blocks of as many"
    )
    assert refusal(1, [0] * 4, [0] * 16, 32, 32, 8, 0.05, 16) == (
        "keys of 8 elements: must be whole blocks of 16 where there are 16 tokens"
    )
    assert "extensions" in refusal(*HEADS["one group"][:3], 64, 64, 8, cfg=PRESETS["pynq_z1"])
