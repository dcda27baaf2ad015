"""Decoder steps in QDQ: one token, whose keys and values join those of earlier ones, inputs that come out longer.

Operators differ from onnxruntime's by one step at most (test_quantised.py); in a network such steps add up.
"""

from collections import Counter

import numpy as np
import pytest

from tilewright.compiler import graph as g
from tilewright.compiler.frontend.onnx import import_onnx
from tilewright.compiler.graph import reference
from tilewright.compiler.network import compile_for
from tilewright.hw.config import PRESETS
from tilewright.runtime.loader import run

CACHE = 0.03  # scale of keys and values
OUT = 0.06


class Step:
    """A decoder step in the making, of a Llama with `groups` of keys and values; caches are int8 or float32."""

    def __init__(self, m, earlier, wide, heads, groups, integers):
        self.m, self.wide, self.heads, self.groups, self.each = m, wide, heads, groups, wide // heads
        self.earlier, self.integers = earlier, integers
        x, self.cos, self.sin = (
            m.quantise(m.input(name, shape), scale)
            for name, shape, scale in (
                ("x", [1, 1, wide], 0.03),
                ("cos", [1, 1, 1, self.each], 0.01),
                ("sin", [1, 1, 1, self.each], 0.01),
            )
        )
        x = self.q(m.node("Add", x, self.attention(self.norm(x))), OUT)
        h, up = (self.dense(self.norm(x), wide, 2 * wide) for _ in range(2))
        gate = self.q(m.node("Mul", h, self.q(m.node("Sigmoid", h), 1 / 256)))
        y = self.dense(self.q(m.node("Mul", gate, up)), 2 * wide, wide)
        m.output(self.q(m.node("Add", x, y), OUT))

    def q(self, x, scale=0.04):
        return self.m.quantise(x, scale, 0)

    def dense(self, x, into, out):
        m = self.m
        w = m.rng.normal(0, 40 / np.sqrt(into), (into, out)).round().astype(np.int8)
        scales = m.const(np.full(out, 0.03, np.float32)), m.const(np.zeros(out, np.int8))
        return self.q(m.node("MatMul", x, m.node("DequantizeLinear", m.const(w), *scales, axis=1)))

    def norm(self, x):
        m = self.m
        squares = self.q(m.node("Mul", x, x), 0.1)
        mean = self.q(m.node("ReduceMean", squares, axes=[-1]), 0.03)
        root = m.node("Sqrt", m.node("Add", mean, m.const(np.array([1e-2], np.float32))))
        return self.q(m.node("Div", x, root))

    def shaped(self, x, *shape):
        return self.q(self.m.node("Reshape", x, self.m.const(np.array(shape, np.int64))))

    def turned(self, x):
        m, half = self.m, self.each // 2
        first, second = m.nodes_of(
            "Split", [x, m.const(np.array([half, half], np.int64))], [f"{x}.a", f"{x}.b"], f"{x}.s", axis=-1
        )
        other = self.q(m.node("Concat", self.q(m.node("Neg", self.q(second))), self.q(first), axis=-1))
        parts = self.q(m.node("Mul", x, self.cos)), self.q(m.node("Mul", other, self.sin))
        return self.q(m.node("Add", *parts), CACHE)

    def longer(self, name, row):
        """The cache with the row, which is an output, as other operators read it."""
        m, shape = self.m, [1, self.groups, self.earlier, self.each]
        parameters = m.const(np.float32(CACHE)), m.const(np.int8(0))
        if self.integers:
            cache = m.node("DequantizeLinear", m.input(name, shape, "INT8"), *parameters)
            joined = m.node("QuantizeLinear", m.node("Concat", cache, row, axis=2), *parameters)
            m.output(joined, "INT8")
            return m.node("DequantizeLinear", joined, *parameters)
        joined = self.q(m.node("Concat", self.q(m.input(name, shape), CACHE), row, axis=2), CACHE)
        m.output(joined)
        return joined

    def attention(self, x):
        m, groups, each = self.m, self.groups, self.each
        narrow = groups * each
        query = self.turned(self.shaped(self.dense(x, self.wide, self.wide), 1, self.heads, 1, each))
        key = self.turned(self.shaped(self.dense(x, self.wide, narrow), 1, groups, 1, each))
        value = self.q(self.shaped(self.dense(x, self.wide, narrow), 1, groups, 1, each), CACHE)
        keys, values = self.longer("keys", key), self.longer("values", value)
        query = self.shaped(query, 1, groups, self.heads // groups, each)
        scores = self.q(m.node("MatMul", query, self.q(m.node("Transpose", keys, perm=[0, 1, 3, 2]), CACHE)), 0.05)
        scores = self.q(m.node("Mul", scores, m.const(np.array([each**-0.5], np.float32))))
        shares = m.quantise(m.node("Softmax", scores, axis=-1), 1 / 256, -128)
        found = self.shaped(self.q(m.node("MatMul", shares, values), 0.02), 1, 1, self.wide)
        return self.dense(found, self.wide, self.wide)


def given(graph, rng):
    shapes = {t.name: t.shape for t in graph.inputs}
    kinds = {t.name: t.dtype for t in graph.inputs}
    values = {name: rng.normal(0, 1, shape).astype(np.float32) for name, shape in shapes.items()}
    return {n: np.clip(v / CACHE, -127, 127).astype(np.int8) if kinds[n] == "int8" else v for n, v in values.items()}


@pytest.mark.parametrize("integers", [False, True])
@pytest.mark.parametrize(("earlier", "wide", "heads", "groups"), [(15, 32, 4, 2), (63, 64, 4, 4), (7, 48, 3, 1)])
def test_steps_equal_onnxruntime_but_for_rounding(m, onnxruntime_outputs, earlier, wide, heads, groups, integers):
    """The correlation says that nothing else differs: single roundings add up."""
    Step(m, earlier, wide, heads, groups, integers)
    path = m.save()
    graph = import_onnx(path)
    floats = Counter(type(op).__name__ for op in graph.ops if isinstance(op, g.FloatOperator))
    assert set(floats) == {"FloatBinary", "FloatFunction"}  # root and quotient of each norm
    assert sum(isinstance(op, g.BatchMatMul) for op in graph.ops) == 2
    rng = np.random.default_rng(3)
    for _ in range(3):
        x = given(graph, rng)
        mine, _ = reference.run(graph, x)
        for name, wanted in onnxruntime_outputs(path, x).items():
            real = wanted.dtype == np.float32
            scale = (OUT if wanted.ndim == 3 else CACHE) if real else 1
            steps = np.abs(np.rint((mine[name].astype(np.float64) - wanted) / scale))
            assert mine[name].shape == wanted.shape and steps.max() <= 4
            assert np.corrcoef(mine[name].reshape(-1), wanted.reshape(-1))[0, 1] > 0.99
            if wanted.ndim == 4:
                assert not steps[:, :, :-1].any()  # what was there before


@pytest.mark.parametrize("integers", [False, True])
def test_steps_are_exact_on_the_device(qdq, integers):
    m, cfg = qdq(), PRESETS["pynq_z1_plus"]
    Step(m, 31, 256, 8, 4, integers)
    graph = import_onnx(m.save())
    compiled = compile_for(graph, cfg)
    launches = compiled.executable.launches
    assert sum(step.macs for step in launches) == graph.macs
    x = given(graph, np.random.default_rng(4))
    wanted, _ = reference.run(graph, x)
    got = run(compiled.executable, x)[0]
    assert all(np.array_equal(got[t.name], wanted[t.name]) for t in graph.outputs)
