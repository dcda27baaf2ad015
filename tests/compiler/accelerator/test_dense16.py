"""Dense layers with results of 16 and 32 bits as one launch, against the reference."""

from dataclasses import replace

import numpy as np
import pytest

from tilewright.compiler.graph import Dense16, Dequantize, Graph, QDense, Tensor
from tilewright.compiler.kernels.table import refusal
from tilewright.compiler.network import compile_graph
from tilewright.hw.config import PRESETS
from tilewright.hw.isa import AluOp, Isa, Op
from tilewright.runtime.executable import HostStep, LaunchStep


def dense(n=2, features=40, rows=21, scale=0.3, dtype="int16", bias=500, x=None, seed=0):
    rng = np.random.default_rng(seed)
    x = x or Tensor("x", (n, features), scale=0.05, zero_point=-9)
    y = Tensor("sums", (x.shape[0], rows), dtype, 0.01)
    weight = rng.integers(-128, 128, (rows, x.shape[1])).astype(np.int8)
    return Dense16("dense", (x,), y, weight, rng.integers(-bias, bias, rows, np.int32), rng.uniform(0, scale, rows))


def alu_operations(launch):
    return [AluOp(f["alu_op"]) for f in Isa(launch.cfg).decode(launch.insn) if f["op"] == Op.ALU]


@pytest.mark.parametrize("name", ["pynq_z1", "pynq_z1_plus", "tiny"])
@pytest.mark.parametrize("scale", [0.01, 0.3, 3.0])
def test_every_value_has_all_its_bits(exact, name, scale):
    exact(dense(scale=scale), cfg=PRESETS[name])
    exact(dense(scale=scale, dtype="int32"), cfg=PRESETS[name], contract="single")


def test_weights_larger_than_their_scratchpad(exact):
    launch = exact(dense(1, 512, 600))
    assert sum(f["op"] == Op.GEMM for f in Isa(launch.cfg).decode(launch.insn)) > 2


def test_clamps_and_biases_are_left_out_where_they_change_nothing(exact):
    small, large = dense(scale=0.01), dense(scale=3.0)
    assert small.result_ends[1] < 1 << 15 < large.result_ends[1]
    assert not {AluOp.MAX, AluOp.MIN} & {*alu_operations(exact(small))}
    assert {AluOp.MAX, AluOp.MIN} < {*alu_operations(exact(large))}
    plain = replace(small, bias=np.zeros(21, np.int32), inputs=(replace(small.x, zero_point=0),))
    assert {*alu_operations(exact(plain))} == {AluOp.RESCALE, AluOp.SHR}


def test_as_many_planes_as_values_need():
    assert [dense(dtype=dtype).result_bytes for dtype in ("int16", "int32")] == [2, 3]
    assert dense(dtype="int32", features=700, scale=1.9).result_bytes == 4


def test_it_needs_an_extension():
    cfg = PRESETS["pynq_z1"]
    bare = replace(cfg, extensions=cfg.extensions - {"rescale"})
    assert refusal(dense(), cfg) == "" and "needs the extension rescale" in refusal(dense(), bare)
    assert "where they wrap" in refusal(replace(dense(), bias=np.full(21, (1 << 31) - 1, np.int32)), cfg)


def test_the_host_joins_the_planes_and_what_follows_in_one_call():
    x, hidden = Tensor("x", (1, 256), scale=0.05), Tensor("hidden", (1, 256), scale=0.05, zero_point=4)
    rng = np.random.default_rng(2)
    weight = rng.integers(-128, 128, (256, 256)).astype(np.int8)
    first = QDense("first", (x,), hidden, weight, np.full(256, 0.01, np.float32), np.zeros(256, np.int32))
    sums = dense(rows=512, x=hidden)
    last = Dequantize("real", (sums.output,), Tensor("real", (1, 512), "float32"))
    graph = Graph("g", (x,), (last.output,), (first, sums, last))
    executable = compile_graph(graph, PRESETS["pynq_z1"])
    kinds = [step.op if isinstance(step, HostStep) else type(step) for step in executable.steps]
    assert kinds == ["pack", LaunchStep, "chain"] and isinstance(last := executable.steps[-1], HostStep)
    assert [name for name, _ in last.attrs["stages"]] == ["unpack_planes", "dequantize"]
