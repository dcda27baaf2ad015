"""The plan of attention on chip."""

import numpy as np

from tilewright.compiler.accelerator.attention.scores import accumulators, plan_of, refusal
from tilewright.compiler.graph import Attention, Tensor
from tilewright.hw.config import PRESETS

PLUS = PRESETS["pynq_z1_plus"]


def attention(chunks=2, groups=4, head=8, context=512, seen=64):
    keys = tuple(k // (head // 2) for k in range(groups * head // 2))
    values = tuple(k // head for k in range(groups * head))
    shapes = (1, chunks * 2 * len(keys)), (1, 2 * len(keys), context, 1), (1, context, len(values), 1)
    inputs = [Tensor(name, shape, scale=0.05) for name, shape in zip("qkv", shapes)]
    y = Tensor("y", (1, chunks * len(values)), scale=0.05)
    return Attention("op", (*inputs, Tensor("position", (1,), "int32")), y, keys, values, head, seen)


def test_sizes():
    plan = plan_of(attention(), PLUS)
    assert (plan.chunks, plan.groups, plan.tiles, plan.wide, plan.deep) == (2, 4, 4, 2, 2)
    assert (plan.heads, plan.scores, plan.slot, plan.slots) == (8, 32, 8, 2)
    assert accumulators(plan) == (32 + 8 + 4, 16 + 16 + 4 + 8 + 16 + 4)
    assert plan.masks().shape == (4, 16) and np.array_equal(plan.masks().sum(0), np.ones(16))


def test_long_contexts_are_loaded_in_parts():
    plan = plan_of(attention(groups=8, head=16, context=1024, seen=1024), PLUS)
    assert [*plan.key_loads()] == [(k, 1) for k in range(8)] and plan.slot == 64
    assert [*plan.value_loads()] == [(k, 8) for k in range(0, 64, 8)] and plan.slots == 4


def test_what_does_not_fit():
    op = attention(chunks=8, groups=8, head=16, context=512, seen=512)
    assert refusal(op, PLUS) == "it needs 2176 accumulators: at most 1024"
    small = PLUS.replace(name="small", wgt_bytes=PLUS.wgt_bytes // 8)
    assert refusal(attention(groups=2, context=1024, seen=1024), small) == "it needs 256 weight entries: at most 60"
    few = PLUS.replace(name="few", inp_bytes=PLUS.inp_bytes // 16)
    assert refusal(attention(context=512, seen=512), few) == "it needs 276 input entries: at most 128"
