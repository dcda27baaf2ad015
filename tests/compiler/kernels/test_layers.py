"""Convolutions and dense layers: how they are divided, their instructions and transfers, tiles of two units."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.compiler.kernels.operators import NONE, SAME, conv, dense, dense16, tensor, transposed
from tilewright.compiler import graph as g
from tilewright.compiler.conv_shape import ConvShape
from tilewright.compiler.graph import reference
from tilewright.compiler.kernels.conv import groups_per_part, whole_image
from tilewright.compiler.kernels.language import cycles, why_not
from tilewright.compiler.kernels.two_units import Layer, divided
from tilewright.compiler.network import compile_graph
from tilewright.hw.config import PRESETS, Config
from tilewright.hw.errors import InputError, UnsupportedError
from tilewright.hw.isa import AluOp, Isa, Op, known_isa
from tilewright.runtime.device import program_stats
from tilewright.runtime.executable import HostStep, LaunchStep
from tilewright.sim.timing import predict

CFG, PLUS, TINY = (PRESETS[name] for name in ("pynq_z1", "pynq_z1_plus", "tiny"))
TWO, TINY_TWO = PRESETS["pynq_z1_two"], PRESETS["tiny_two"]
LAYER = ConvShape(1, 64, 28, 28, 64, (3, 3), pads=SAME)


def decoded(launch):
    isa = Isa(launch.cfg)
    return [(isa.mnemonic(fields), fields) for fields in isa.decode(launch.insn)]


def counts(launch):
    return program_stats(known_isa(launch.cfg), launch.insn)


@pytest.mark.parametrize("make", [lambda: dense(5, 70, 37), lambda: conv(70, (1, 1), 37, (1, 1), n=5)])
@pytest.mark.parametrize("cfg", [CFG, TINY])
def test_scales_of_all_channels_are_one_entry_of_parameters(exact, make, cfg):
    """Without biases, and of zero point 0; one other scale, and every block of channels has its own."""
    op = make()
    op = replace(op, inputs=(replace(op.x, zero_point=0),), bias=np.zeros(37, np.int32))
    for last, entries in ((0.01, 1), (0.011, -(-37 // cfg.block_out))):
        launch = exact(replace(op, weight_scale=np.array([0.01] * 36 + [last], np.float32)), cfg=cfg)
        assert sum(f["y_size"] * f["x_size"] for name, f in decoded(launch) if name == "LOAD.PAR") == entries


@pytest.mark.parametrize(
    "op",
    [
        dense(2, 40, 21),
        conv(64, (7, 6), 36, (3, 2), groups=4),
        conv(20, (5, 5), 20, groups=20),
        transposed(1, 3, (4, 4), 5, (3, 3), (2, 2), NONE),
    ],
    ids=["dense", "groups", "depthwise", "transposed"],
)
@pytest.mark.parametrize("cfg", [CFG, TINY])
def test_each_channel_has_its_zero_point(exact_graph, op, cfg):
    """A step more in the zero point, and as many units less in the bias, are the same results, on each device."""
    steps = np.arange(len(op.bias), dtype=np.int32) % 5 - 2
    op = replace(op, weight_scale=np.full(len(op.bias), op.output.scale / op.x.scale / 512, np.float32))
    moved = replace(op, steps=steps, bias=op.bias - 512 * steps)
    x = np.random.default_rng(1).integers(-128, 128, op.x.shape).astype(np.int8)
    results = []
    for each in (op, moved):
        graph = g.Graph("g", (op.x,), (op.output,), (each,))
        exact_graph(graph, cfg, contract="single", data={"x": x})
        results.append(reference.run(graph, {"x": x})[0][op.output.name])
    assert np.array_equal(*results) and len(np.unique(results[0])) > 10
    with pytest.raises(InputError, match="whether the zero points are int8"):
        replace(op, steps=np.full_like(op.bias, 200))


@pytest.mark.circuit
def test_depthwise_convolutions_take_several_taps(exact):
    facts = {"strides": (2, 2), "pads": (0, 1, 1, 0), "n": 2, "groups": 20}
    assert "DWGEMM" in dict(decoded(exact(conv(20, (9, 7), 20, (3, 3), **facts))))
    for width, more in ((3, {2}), (5, {0, 3}), (4, {3})):
        launch = exact(conv(20, (9, 7), 20, (3, width), **facts), cfg=PLUS)
        assert {fields["extra_taps"] for _, fields in decoded(launch) if fields["op"] == Op.DWGEMM} == more
    wide = [conv(2200, (8, 8), 2200, kernel, groups=2200) for kernel in ((5, 5), (4, 4))]
    assert [groups_per_part(op, PLUS) for op in wide] == [12 * 16, 128 * 16]
    exact(wide[1], cfg=PLUS)


@pytest.mark.parametrize("value, sign", [((1 << 30) - 1, 1), (1 << 30, -1)])
def test_dead_channels_with_huge_biases(exact, value, sign):
    op = dense(1, 16, 4)
    op.bias[:] = sign * value
    op.weight_scale[:] = 2.0**-40
    exact(op)


@pytest.mark.parametrize("channels, o, groups, together", [
    (64, 128, 4, 1),  # whole blocks: no zeros
    (64, 64, 16, 4),  # four groups fill a block
    (12, 18, 3, 3),  # zeros where channels do not meet
    (32, 64, 32, 16),  # depthwise with two outputs per channel
])  # fmt: skip
def test_groups(exact, channels, o, groups, together):
    op = conv(channels, (7, 6), o, (3, 2), (1, 2), (1, 0, 1, 1), groups=groups)
    assert groups_per_part(op, CFG) == together
    issues = 16 * -(-channels // 16) * -(-o // 16) // (groups // together)  # entries of weights
    assert sum(b.nbytes for b in exact(op).buffers if b.name.endswith(".w")) == issues // 16 * 6 * 256


def test_groups_of_several_images_and_without_their_instruction(exact):
    op = conv(32, (5, 5), 32, n=2, groups=2)
    assert groups_per_part(op, CFG) == 2
    exact(op)
    less = Config("less", wgt_bytes=1 << 17, uop_bytes=1 << 14, extensions=CFG.extensions - {"depthwise"})
    exact(conv(40, (5, 5), 40, groups=40), cfg=less)
    wide = conv(600, (8, 8), 600, (4, 4), groups=600)
    assert groups_per_part(wide, CFG) == 512
    exact(wide)


@pytest.mark.parametrize("n, features, outputs", [(1, 20000, 1), (3, 8003, 33), (37, 1009, 5), (1, 4099, 301)])
def test_dense_layers_of_any_size_take_few_instructions(exact, n, features, outputs):
    assert len(exact(dense(n, features, outputs)).insn) < 1200  # as few as if the blocks could be divided


def test_layers_of_whole_images_are_dense(exact):
    op = conv(3, (118, 100), 10, (118, 100))
    assert not why_not(whole_image, op, CFG)
    weights = 118 * 100 * 256
    assert predict(exact(op)).cycles < 1.2 * weights / 8  # their transfer


# results of several bytes


def test_clamps_and_biases_are_left_out_where_they_change_nothing(exact):
    def operations(op):
        return {AluOp(f["alu_op"]) for _, f in decoded(exact(op)) if f["op"] == Op.ALU}

    small, large = dense16(scale=0.01), dense16(scale=3.0)
    assert small.result_ends[1] < 1 << 15 < large.result_ends[1]
    assert not {AluOp.MAX, AluOp.MIN} & operations(small) and {AluOp.MAX, AluOp.MIN} < operations(large)
    plain = replace(small, bias=np.zeros(21, np.int32), inputs=(replace(small.x, zero_point=0),))
    assert operations(plain) == {AluOp.RESCALE, AluOp.SHR}
    assert [dense16(dtype=dtype).result_bytes for dtype in ("int16", "int32")] == [2, 3]
    assert dense16(dtype="int32", features=700, scale=1.9).result_bytes == 4


def test_the_host_joins_the_planes_and_what_follows_in_one_call():
    first = replace(dense(1, 256, 256), name="first")
    sums = dense16(rows=512, x=first.output)
    last = g.Dequantize("real", (sums.output,), g.Tensor("real", (1, 512), "float32"))
    executable = compile_graph(g.Graph("g", first.inputs, (last.output,), (first, sums, last)), CFG)
    kinds = [step.op if isinstance(step, HostStep) else type(step) for step in executable.steps]
    assert kinds == ["pack", LaunchStep, "chain"] and isinstance(step := executable.steps[-1], HostStep)
    assert [name for name, _ in step.attrs["stages"]] == ["unpack_planes", "dequantize"]


# transposed convolutions


def test_transposed_convolutions_that_are_the_hosts():
    op = transposed(1, 3, (4, 4), 5, (3, 3), (2, 2), (0, 0, 1, 1))
    beyond = replace(op, weight=2 * op.weight.clip(-127, 127).astype(np.int16))
    for op in (beyond, transposed(1, 16, (4, 4), 16, (17, 17), (2, 2), NONE)):
        assert not compile_graph(g.Graph("g", (op.x,), (op.output,), (op,)), TINY).launches


@settings(max_examples=10, deadline=None)
@given(st.data())
def test_random_transposed_convolutions_are_exact_wherever_they_run(exact_graph, data):
    draw = data.draw
    kernel, strides = draw(st.tuples(*[st.integers(1, 5)] * 2)), draw(st.tuples(*[st.integers(1, 4)] * 2))
    size, pads = draw(st.tuples(*[st.integers(1, 7)] * 2)), draw(st.tuples(*[st.integers(0, 2)] * 4))
    assume(all((size[k] - 1) * strides[k] + kernel[k] - pads[k] - pads[k + 2] > 0 for k in (0, 1)))
    counts = draw(st.integers(1, 2)), draw(st.integers(1, 33)), size, draw(st.integers(1, 20))
    op = transposed(*counts, kernel, strides, pads)
    graph = g.Graph("g", (op.x,), (op.output,), (op,))
    try:
        exact_graph(graph)
    except UnsupportedError:
        exact_graph(graph, refused={})


# two units


def test_both_units_take_half_of_the_cycles_of_one():
    both, one = (cycles(divided, conv(64, (28, 28), 64, pads=SAME, ternary=count), TWO) for count in (32, 64))
    products = 28 * 28 * 9 * 4 * 2  # of each unit: 4 blocks of the input, 2 of the output
    assert Layer.of(LAYER, 32, None, TWO).products == products and products <= both < min(1.05 * products, 0.53 * one)
    shape = ConvShape(1, 16, 8, 8, 32, (3, 3), pads=SAME)  # several blocks at once
    assert Layer.of(shape, 32, None, TINY_TWO).products < 0.3 * Layer.of(shape, 0, None, TINY_TWO).products


def test_inputs_and_weights_are_loaded_once(exact):
    launch = exact(conv(64, (14, 14), 64, (1, 1), ternary=32), cfg=TWO)
    loaded, found = counts(launch).bytes_loaded, counts(launch).insns
    assert loaded["INP"] == 64 * 14 * 14 and loaded["WGT"] == 32 * 64 and loaded["TWGT"] == 32 * 64 // 4
    assert found["TERNARY"] and found["GEMM"]
    alone = counts(exact(conv(40, (9, 11), 64, pads=SAME, ternary=64), cfg=TWO)).insns
    assert alone["TERNARY"] and not alone["GEMM"]


def test_neighbours_read_and_write_the_same_layout(exact):
    def layer(name, x, o, ternary):
        op = conv(x.shape[1], (10, 10), o, pads=SAME, ternary=ternary)
        return replace(op, name=name, inputs=(x,), output=replace(op.output, name=f"{name}.y"))

    x = tensor("a", (1, 32, 10, 10), 0.05)
    before = g.Requantize("before", (x,), tensor("p", x.shape, 0.07, -2))
    first = layer("first", before.output, 48, 16)
    second = layer("second", first.output, 48, 32)
    total = g.Add("total", (first.output, second.output), tensor("t", first.output.shape, 0.3))
    launch = exact(before, first, second, total, layer("last", total.output, 16, 16), cfg=TWO)
    plain = exact(before, first, second, layer("plain", second.output, 32, 0), cfg=TWO)
    assert counts(launch).insns["TERNARY"] and counts(plain).insns["TERNARY"]


def test_random_layers_of_two_units(exact):
    rng = np.random.default_rng(8)
    for _ in range(3):
        kernel, strides = (tuple(rng.integers(1, high, 2).tolist()) for high in (4, 3))
        pads = tuple(int(rng.integers(0, kernel[k % 2])) for k in range(4))
        size = tuple((kernel[k] + rng.integers(0, 12)).item() for k in range(2))
        ternary, others = int(rng.integers(1, 30)), 4 * int(rng.integers(0, 4))
        facts = {"n": int(rng.integers(1, 3)), "ternary": ternary, "seed": int(rng.integers(99))}
        exact(conv(int(rng.integers(4, 30)), size, others + ternary, kernel, strides, pads, **facts), cfg=TINY_TWO)
