"""`tw.kernel`: kernels alone on arrays, in networks, and their authors' mistakes, each a sentence with a remedy."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("tvm")

import tilewright as tw
from tilewright.compiler import graph as g
from tilewright.compiler.graph import reference
from tilewright.compiler.kernels import table
from tilewright.compiler.kernels.elementwise import pair
from tilewright.compiler.kernels.language import Unfit
from tilewright.compiler.network import compile_for
from tilewright.compiler.user_kernels import target, target_of
from tilewright.hw.config import PRESETS
from tilewright.hw.errors import InputError, KernelError, TilewrightError, UnsupportedError
from tilewright.hw.isa import Mem
from tilewright.runtime.verify import verify

ROOT = Path(__file__).parents[2]
CFG = PRESETS["pynq_z1"]
SHAPE = (1, 32, 4, 4)
RNG = np.random.default_rng(7)


@tw.kernel
def double(k, op):
    x, out = k.input(0).merged("entry"), k.output.merged("entry")
    one, xs, ys = k.identity(), k.slots(min(x.size, k.slot)), k.banks(min(x.size, k.bank))
    for part, to in zip(x.parts(k.bank), out.parts(k.bank)):
        y = ys.next(**part.shape)
        y[...] = xs.load(part) @ one
        y *= 2
        k.store(to, y)


class Clipped(g.Custom):
    """The larger one of two tensors, at most 40."""

    def compute(self, *arrays):
        return np.minimum(np.maximum(*arrays), 40)


@tw.kernel(Clipped)
def clipped(k, op):
    x, z, out = (each.merged("entry") for each in (k.input(0), k.input(1), k.output))
    y = k.load(k.tile(Mem.ACC, high=k.bank, **x.shape), x)
    y.maximum(k.load(k.tile(Mem.ACC, low=k.bank, **z.shape), z))
    y.minimum(40)
    k.store(out, y)


def slow_maximum(k, op):
    """As `clipped`, in eight times as many instructions."""
    x, z, out = (each.merged("entry") for each in (k.input(0), k.input(1), k.output))
    y = k.load(k.tile(Mem.ACC, high=k.bank, **x.shape), x)
    others = k.load(k.tile(Mem.ACC, low=k.bank, **z.shape), z)
    for _ in range(8):
        y.maximum(others)
    k.store(out, y)


def ints(*shape):
    return RNG.integers(-60, 60, shape).astype(np.int8)


def network(kind=Clipped, name="clipped"):
    """A sum, an operator of `kind`, and another sum."""
    x, z, s, y, out = (g.Tensor(n, SHAPE) for n in ("x", "z", "s", "y", "out"))
    ops = g.Add("first", (x, z), s), kind(name, (s, z), y), g.Add("last", (y, x), out)
    return g.Graph("net", (x, z), (out,), ops)


@pytest.mark.parametrize("on", ["model", "timing"])
def test_a_kernel_runs_alone_on_arrays(on):
    x = ints(*SHAPE)
    found, stats = double.run(x, on=on)
    np.testing.assert_array_equal(found, (2 * x.astype(int)).astype(np.int8))
    if on == "timing":
        assert abs(stats.cycles - double.cycles(SHAPE)) < 10


def test_what_it_gives_is_an_executable_that_is_saved_proved_and_timed(tmp_path):
    executable = double.compile(SHAPE)
    executable.save(tmp_path / "x.tw")
    loaded = tw.load(tmp_path / "x.tw")
    x = ints(*SHAPE)
    np.testing.assert_array_equal(loaded(x)["y"], (2 * x.astype(int)).astype(np.int8))
    (step,) = executable.launches
    assert verify(step.launch, memory=True).certificate is not None
    assert abs(tw.predict(executable).cycles - double.cycles(SHAPE)) < 10
    assert sum(step.name != "double" for step in executable.steps) == 2  # pack and unpack


def test_it_runs_on_another_configuration_and_on_larger_arrays():
    x = ints(1, 8, 70, 9)
    np.testing.assert_array_equal(double.run(x, config="tiny")[0], 2 * x)
    with pytest.raises(UnsupportedError, match="vta runs no kernels: .*; take another configuration, as pynq_z1"):
        double.run(x, config="vta")


def test_an_operator_gives_it_scales_and_fields():
    @tw.kernel(g.ReduceMax)
    def largest(k, op):
        if op.axes != (2, 3):
            raise Unfit(f"over axes {op.axes}: only over rows and columns")
        x = k.input(0)[0].merged("pixel", "h", "w")
        y = k.load(k.tile(Mem.ACC, high=k.bank, **x.shape), x)
        top = k.tile(Mem.ACC, low=k.bank, b=x.shape["b"])
        top[...] = 0
        top += -128
        top.maximum(y)
        k.store(k.output.merged("b"), top)

    x = ints(*SHAPE)
    op = g.ReduceMax("top", (g.Tensor("x", SHAPE),), g.Tensor("y", (1, 32, 1, 1)), axes=(2, 3))
    np.testing.assert_array_equal(largest.run(x, op=op)[0], x.max((2, 3), keepdims=True))
    other = g.ReduceMax("top", (g.Tensor("x", SHAPE),), g.Tensor("y", (1, 32, 1, 4)), axes=(2,))
    assert largest.why_not(op=other) == "over axes (2,): only over rows and columns"
    with pytest.raises(Unfit, match="kernel largest: over axes"):
        largest.compile(op=other)
    # in a network it may compute what only the host did, and does not where it does not fit
    for one, module, refused in ((op, "accelerator", {"host": {"top": "in this test"}}), (other, "host", {})):
        graph = g.Graph("net", (one.x,), (one.output,), (one,))
        compiled = compile_for(graph, CFG, target=target(CFG, largest), refused=refused)
        assert [choice.module.name for choice in compiled.assignment.choices] == [module]
        np.testing.assert_array_equal(compiled.executable(x)["y"], reference.run(graph, {"x": x})[0]["y"])


def test_an_operator_of_ones_own_in_a_network():
    graph, inputs = network(), {"x": ints(*SHAPE), "z": ints(*SHAPE)}
    executable = tw.compile(graph, CFG, target=target(CFG, clipped))
    assert len(executable.launches) == 1  # with its neighbours
    expected = reference.run(graph, inputs)[0]["out"]
    np.testing.assert_array_equal(executable(inputs)["out"], expected)
    assert expected.max() > 40  # and not what `clipped` alone gives
    with pytest.raises(UnsupportedError, match="cannot run Clipped 'clipped'"):
        tw.compile(graph, CFG)


def test_an_operator_of_a_network_in_a_file():
    used = []

    @tw.kernel(g.MaxPool, first=True)
    def pool(k, op):
        if op.kernel != (2, 2) or op.strides != (2, 2) or any(op.pads):
            raise Unfit("only 2x2 pixels")
        x, out = k.input(0)[0], k.output[0]
        y = k.load(k.tile(Mem.ACC, high=k.bank, **x.shape), x)
        top = k.tile(Mem.ACC, low=k.bank, **out.shape)
        top[...] = 0
        top += -128
        top.maximum(y.split("h", h=out.shape["h"], dy=2).split("w", w=out.shape["w"], dx=2))
        k.store(out, top)
        used.append(op.name)

    path, images = ROOT / "examples/digits/digits.onnx", np.load(ROOT / "examples/digits/inputs.npz")["inputs"]
    plain, mine = tw.compile(path), tw.compile(path, target=target("pynq_z1", pool))
    assert used
    for image in images[:3]:
        np.testing.assert_array_equal(mine(image)["logits"], plain(image)["logits"])
    with pytest.raises(UnsupportedError, match="target= is for networks"):
        tw.compile(mine.launches[0].launch, target=target("pynq_z1", pool))


@pytest.mark.parametrize("first", [False, True])
def test_the_fewest_cycles_win_unless_it_is_preferred(first):
    op = g.Maximum("m", tuple(g.Tensor(n, SHAPE) for n in "xz"), g.Tensor("y", SHAPE))
    mine = tw.kernel(g.Maximum, first=first)(slow_maximum)
    with table.also(target(CFG, mine).kernels):
        assert table.chosen(op, CFG) is (mine if first else pair)
        assert table.cycles(op, CFG) > 0
    assert table.chosen(op, CFG) is pair
    x, z = ints(*SHAPE), ints(*SHAPE)
    np.testing.assert_array_equal(mine.run(x, z, op=op)[0], np.maximum(x, z))  # alone it is always taken


def test_targets_of_python_files():
    assert [each.record for each in target_of(clipped, CFG, "f").kernels] == [clipped]
    assert [each.record for each in target_of([clipped, double_of_networks()], CFG, "f").kernels][0] is clipped
    found = target(CFG, clipped)
    assert target_of(found, CFG, "f") is found
    with pytest.raises(InputError, match="f.py:x: is int; must be a kernel that tw.kernel makes"):
        target_of(3, CFG, "f.py:x")
    with pytest.raises(InputError, match="f.py:x: is int"):
        target_of([clipped, 3], CFG, "f.py:x")
    with pytest.raises(InputError, match="kernel double .*names no class of operators; write @kernel"):
        target(CFG, double)


def double_of_networks():
    return tw.kernel(g.Maximum)(slow_maximum)


# What an author may write, and what he is told.


def never_loaded(k, op):
    y = k.tile(Mem.ACC, **k.input(0).shape)
    y += 1
    k.store(k.output, y)


def half_loaded(k, op):
    x = k.input(0).merged("entry")
    y = k.tile(Mem.ACC, **x.shape)
    k.load(y[:20], x[:20])
    y *= 2
    k.store(k.output.merged("entry"), y)


def sum_without_zero(k, op):
    x = k.input(0).merged("entry")
    y, xs = k.tile(Mem.ACC, **x.shape), k.load(k.tile(Mem.INP, **x.shape), x)
    y += xs @ k.identity()
    k.store(k.output.merged("entry"), y)


def weights_never_loaded(k, op):
    x = k.input(0).merged("entry")
    y, xs = k.tile(Mem.ACC, **x.shape), k.load(k.tile(Mem.INP, **x.shape), x)
    y[...] = xs @ k.tile(Mem.WGT, one=1)[0]
    k.store(k.output.merged("entry"), y)


def parameters_never_loaded(k, op):
    x = k.input(0).merged("entry")
    y = k.load(k.tile(Mem.ACC, **x.shape), x)
    k.store(k.output.merged("entry"), y, k.tile(Mem.PAR, par=1))


def never_stored(k, op):
    kept = k.temporary("kept", entry=4)
    k.load(k.tile(Mem.INP, entry=4), kept)


def half_stored(k, op):
    x = k.input(0).merged("entry")
    y = k.load(k.tile(Mem.ACC, **x.shape), x)
    k.store(k.output.merged("entry")[:8], y[:8])


def other_extents(k, op):
    x = k.input(0)[0].merged("pixel", "h", "w")
    y = k.load(k.tile(Mem.ACC, **x.shape), x)
    y += k.load(k.tile(Mem.ACC, pixel=8), x[0, :8])


def other_lanes(k, op):
    k.constant(Mem.WGT, "weights", np.ones((3, 8, 16), np.int8))


def other_memory(k, op):
    x = k.input(0).merged("entry")
    y = k.load(k.tile(Mem.INP, **x.shape), x)
    y += 1


def other_axes(k, op):
    x = k.input(0)
    y = k.load(k.tile(Mem.ACC, **x.shape), x)
    k.store(k.output.merged("entry"), y)


def larger_than_its_place(k, op):
    x = k.input(0).merged("entry")
    k.slots(8).load(x)


def outside(k, op):
    k.input(0)[1]


def wide_weights(k, op):
    k.matrices("big", np.full((1, 16, 16), 200))


def plain_copy(k, op):
    x = k.input(0).merged("entry")
    y = k.load(k.tile(Mem.ACC, **x.shape), x)
    k.tile(Mem.ACC, **x.shape)[...] = y


MISTAKES = {
    never_loaded: "32 of its entries in ACC were never written: load them, set them to 0 .*, or replace them by a pr",
    half_loaded: "tile .entry 32. is read, but 12 of its entries in ACC were never written",
    sum_without_zero: "set them to 0",
    weights_never_loaded: "1 of its entries in WGT were never written: load them",
    parameters_never_loaded: r"in PAR were never written: load parameters, or take k.parameters\(...\)",
    never_stored: "never_stored.*is loaded, but was never stored: store it first",
    half_stored: "stores 8 of the 32 entries of its output: store the rest, too",
    other_extents: "axis pixel has different extents, 16 and 8: cut one of them, or give it another name",
    other_lanes: r"weights \(3, 8, 16\) int8: .* has 128 bytes, an entry of WGT 256; its lanes must be \(16, 16\)",
    other_memory: "is in INP: the statement takes one in ACC",
    other_axes: "they must have the same axes",
    larger_than_its_place: "is larger than its 8 entries of INP",
    outside: r"array .n 1, b 2, h 4, w 4.\[n 1\]: must be 0 to 0",
    wide_weights: "they must be within -128 to 127",
    plain_copy: "accumulators are copied by a product with the identity, or by adding to zero",
}


@pytest.mark.parametrize("record", MISTAKES, ids=lambda record: record.__name__)
def test_a_mistake_is_one_sentence_with_its_line_and_the_remedy(record):
    with pytest.raises(KernelError, match=MISTAKES[record]) as caught:
        tw.kernel(record).compile(SHAPE)
    text = str(caught.value)
    assert text.startswith(f"kernel {record.__name__}, line ") or record is half_stored
    assert len(text) <= 300 and "\n" not in text
    line = record.__code__.co_firstlineno
    if record is not half_stored:
        assert line < int(text.split("line ")[1].split(":")[0]) <= line + 5


def test_too_large_is_no_mistake_but_a_reason():
    @tw.kernel
    def whole(k, op):
        k.load(k.tile(Mem.INP, **k.input(0).shape), k.input(0))

    shape = (1, 16, 64, 64)
    assert "4096" in whole.why_not(shape).replace(",", "") and "INP" in whole.why_not(shape)
    with pytest.raises(Unfit, match="kernel whole: "):
        whole.compile(shape)

    @tw.kernel
    def tables(k, op):
        k.need("lookup")

    assert tables.why_not(SHAPE) == "it needs the extension lookup"


def test_mistakes_of_who_calls_it():
    wrong: Any = 3
    for call, words in (
        (lambda: double.cycles(), "kernel double: give shapes or arrays of its inputs, or op="),
        (lambda: clipped.run(ints(*SHAPE), op=network().ops[1]), "kernel clipped: 1 arrays given; it takes s, z"),
        (lambda: tw.kernel(wrong), "must be classes of operators, as g.Softmax, or one function"),
        (lambda: tw.kernel(g.QConv2d), "its layouts are chosen with its neighbours"),
        (lambda: g.Custom("c", (g.Tensor("x", SHAPE),), g.Tensor("y", SHAPE)).compute(), "define compute"),
    ):
        with pytest.raises(TilewrightError, match=words):
            call()
