"""Kernels whose instructions follow from shapes: operators that differ in scales and constants have the same ones."""

from dataclasses import replace

import numpy as np
import pytest

from tests.compiler.accelerator.attention.test_attention import HEADS, attention
from tests.compiler.accelerator.attention.test_cache import columns, output, rows
from tests.compiler.accelerator.attention.test_embedding import gather
from tests.compiler.accelerator.attention.test_norm import norm
from tests.compiler.accelerator.attention.test_rotate import rotation
from tilewright.compiler.kernels.language import by_shape, cycles
from tilewright.compiler.kernels.norm import rms_norm
from tilewright.hw.config import PRESETS

OPERATORS = {
    "gather": (gather(9, 40),),
    "norm": (norm((2, 40)),),
    "rotation": (rotation(2, 16),),
    "caches": (*columns(32, 32), output(32)),
    "rows": (rows(40, 48, 16), output(40, 16)),
    "attention": (attention(*HEADS["two queries of each of four"][:3], 32, 32, 8),),
}


def other(op):
    """`op` of other scales and constants."""
    inputs = (replace(t, scale=t.scale / 3, data=None if t.data is None else t.data // 2) for t in op.inputs)
    found = replace(op, inputs=tuple(inputs), output=replace(op.output, scale=op.output.scale / 3))
    own = {name: getattr(op, name) // 2 for name in ("gain", "cosine", "sine") if hasattr(op, name)}
    return replace(found, **own)


@pytest.mark.parametrize("ops", OPERATORS.values(), ids=OPERATORS)
def test_instructions_are_the_same(steps, ops):
    names = {t.name for op in ops for t in op.inputs if t.shape == (1,)}
    symbols = [dict.fromkeys(names, 0)]
    first, second = steps(*ops, symbols=symbols), steps(*map(other, ops), symbols=symbols)
    assert np.array_equal(first.insn, second.insn)
    assert any(a.data is not None and not np.array_equal(a.data, b.data) for a, b in zip(first.buffers, second.buffers))


def test_they_are_tried_once():
    tried = []

    @by_shape()
    def counted(k, op):
        tried.append(op)
        rms_norm(k, op)

    op = norm((1, 64))
    assert cycles(counted, op, PRESETS["pynq_z1_plus"]) == cycles(counted, other(op), PRESETS["pynq_z1_plus"])
    assert tried == [op]
    assert cycles(counted, norm((1, 80)), PRESETS["pynq_z1_plus"]) and len(tried) == 2
