"""`tw.kernel`: kernels alone on arrays, in networks, and their authors' mistakes, each a sentence with a remedy."""

import re
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
from tilewright.compiler.kernels.language import Requant, Unfit
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


def network(kind: type[g.Operator] = Clipped, name="clipped"):
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
    with pytest.raises(UnsupportedError, match="cannot run Clipped 'clipped' .*; name a kernel of it, --target FILE"):
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
    with pytest.raises(InputError, match="kernel double .*names no class of operators; write @tw.kernel"):
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


def half_stored(k, op):
    x = k.input(0).merged("entry")
    y = k.load(k.tile(Mem.ACC, **x.shape), x)
    k.store(k.output.merged("entry")[:8], y[:8])


MISTAKES = {
    never_loaded: "32 of its entries in ACC were never written: load them, set them to 0 .*, or replace them by a pr",
    half_loaded: "tile .entry 32. is read, but 12 of its entries in ACC were never written",
    half_stored: "stores 8 of the 32 entries of its output: store the rest, too",
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


# Statements, with x an array, y accumulators, i inputs, w weights and out the output, and what their author is told.
STATEMENTS = {
    "s = k.slots(8); a = s.load(x[:8]); s.load(x[8:16]); s.load(x[16:24]); y[:8] = a @ w": (
        "the place of tile .entry 8. in INP was taken by a later tile: use it before .*, or take more places"
    ),
    "with k.scope(): a = k.load(k.tile(Mem.INP, entry=32), x)\ny[...] = a @ w": (
        r"tile .entry 32. is used behind its `with k.scope\(\)`: use it inside, or take it before"
    ),
    "y.named(entry='entri')[...] = i @ w": "axis entry is combined and entri of tile .entri 32. repeated, both of 32",
    "k.input(0) @ w": r"unsupported .* @: 'Array' and 'Tile': an array is in DRAM: load it, k.load\(tile, array\)",
    "y += k.input(0)": "ADD of tile .entry 32. takes a tile or an integer, not 'Array': an array is in DRAM: load it",
    "y[...] = i @ np.eye(16)": "a statement takes a tile, not 'ndarray': k.matrices, k.rows and k.constant load",
    "y += np.arange(16)": "k.matrices, k.rows and k.constant load arrays of NumPy",
    "k.store(out, i @ w)": r"not 'Product': a product is the right side of y\[...\] = x @ w",
    "y = y * i; k.store(out, y)": "not 'Product': .* accumulators multiply by y \\*= z",
    "y + 1": r"unsupported .* \+: 'Tile' and 'int': tiles have \+=, \*=, >>=, <<= and methods, as y \+= -3",
    "y -= 3": "tiles have",
    "y //= 2": "tiles have",
    "np.maximum(y, 0)": r"y.maximum\(0\)",
    "y.max()": "'Tile' object has no attribute 'max': tiles have",
    "y[...] = k.input(0)": "set to a product or to 0, not to array .n 1, b 2, h 4, w 4.: load an array",
    "k.rows('r', np.ones((1, 8)))": r"weights r \(1, 8\): must be \(count, 16\)",
    "k.rows('r', np.full((1, 16), 1.5))": "weights r are no integers: round them",
    "k.matrices('m', np.full((1, 16, 16), 1.5))": "weights m are no integers: round them",
    "k.constant(Mem.ACC, 'c', np.ones((2, 16)))": r"c is float64: ACC takes int32, values.astype\(np.int32\)",
    "k.constant(Mem.ACC, 'c', np.ones((2, 1, 16), np.uint8))": "c is uint8: ACC takes int32",
    "k.constant(Mem.WGT, 'c', np.full((1, 16, 16), 200, np.uint8))": r"c is uint8: WGT takes int8, values.astype",
    "k.parameters(Requant(0, 1 << 30, 1, 300))": r"PAR.zero_point = 300: outside -128\.\.127",
    "k.load(i, x.window(300, entry=(-1, 32)))": "has padding of 300: must be within -128 to 127",
    "k.load(i, out)": "of y is loaded, but was never stored: store it first",
    "k.input(1)": r"k.input\(1\): the operator has 1, counted from 0",
    "k.store(out, y, Requant(0, 1 << 30, 1, 0))": r"'Requant': load it, k.parameters\(Requant\(...\)\)",
    "k.store(y, out)": "k.store takes an array in DRAM, and then a tile",
    "k.load(x, y)": "k.load takes a tile, and then an array in DRAM",
    "k.tile('ACC', entry=1)": "memories are Mem.INP, Mem.WGT, Mem.ACC and Mem.PAR",
    "y *= 0.5": r"MUL of tile .* not 'float': scale by y \*= m and y >>= n",
    "y += 100000": "ADD of tile .* with 100000: must be within -32768 to 32767; y <<= n makes it larger",
    "k.input(0).merged('b', 'h', 'w')": "two of them have one name; `merged` takes a new one first",
    "k.input(0).merged('p', 'h', 'v')": "has no axis v; its axes are n, b, h, w",
    "k.load(k.tile(Mem.ACC, entry=3), x)": "32 and 3 entries: they must have one size",
    "k.load(k.tile(Mem.ACC, entry=64)[::2], x)": "the tile has gaps; load to adjacent entries",
    "z = k.tile(Mem.ACC, entry=32); z += i @ w; k.store(out, z)": "set them to 0",
    "y[...] = i @ k.tile(Mem.WGT, one=1)[0]": "1 of its entries in WGT were never written: load them",
    "k.store(out, y, k.tile(Mem.PAR, par=1))": r"in PAR were never written: load parameters, or take k.para",
    "k.load(k.tile(Mem.INP, entry=4), k.temporary('kept', entry=4))": "kept is loaded, but was never stored: store",
    "y += k.load(k.tile(Mem.ACC, entry=8), x[:8])": "different extents, 32 and 8: cut one of them, or give it an",
    "k.constant(Mem.WGT, 'weights', np.ones((3, 8, 16), np.int8))": (
        r"weights \(3, 8, 16\) int8: .* has 128 bytes, an entry of WGT 256; its lanes must be \(16, 16\)"
    ),
    "i += 1": "is in INP: the statement takes one in ACC",
    "k.store(k.output, y)": "they must have the same axes",
    "k.slots(8).load(x)": "is no one piece of 32 entries",
    "k.input(0)[1]": r"array .n 1, b 2, h 4, w 4.\[n 1\]: must be 0 to 0",
    "k.matrices('big', np.full((1, 16, 16), 200))": "they must be within -128 to 127",
    "k.tile(Mem.ACC, entry=32)[...] = y": r"copied by a product with the identity, .* or y\[...\] = 0 and y \+= z",
    "op.fixed": "'Custom' object has no attribute 'fixed': give op=, an operator that has it",
}


@pytest.mark.parametrize("statement", STATEMENTS)
def test_a_wrong_statement_is_told_with_what_to_write(statement):
    @tw.kernel
    def written(k, op):
        x, out, w = k.input(0).merged("entry"), k.output.merged("entry"), k.identity()
        y, i = (k.load(k.tile(mem, **x.shape), x) for mem in (Mem.ACC, Mem.INP))
        exec(statement, globals(), dict(k=k, op=op, x=x, out=out, w=w, y=y, i=i, Requant=Requant))

    line = written.record.__code__.co_firstlineno + 4
    with pytest.raises(KernelError, match=STATEMENTS[statement]) as caught:
        written.cycles(SHAPE)
    text = str(caught.value)
    assert text.startswith(f"kernel written, line {line}: ") and len(text) <= 300 and "\n" not in text


@pytest.mark.parametrize("statement", ["y.max_lanes()", "y.lookup(0)", "k.table('t', np.arange(256))"])
def test_a_missing_extension_is_no_mistake(statement):
    @tw.kernel
    def written(k, op):
        y = k.load(k.tile(Mem.ACC, **k.input(0).shape), k.input(0))
        exec(statement, globals(), dict(k=k, y=y))

    assert re.fullmatch("it needs the extension (lookup|lane_reduce)", written.why_not(SHAPE))


def test_a_place_is_free_again_and_tiles_that_hold_the_same_stay():
    @tw.kernel
    def twice(k, op):
        x, out = k.input(0).merged("entry"), k.output.merged("entry")
        one, xs, ys = k.identity(), k.slots(8), k.banks(8)
        for part, to in zip(x.parts(8), out.parts(8)):
            with k.scope():  # whose end slots from outside survive
                y, first, second = ys.next(entry=8), xs.hold(part), xs.hold(part)
            y[...] = first @ one
            y += second @ k.identity()
            k.store(to, y)

    x = ints(*SHAPE)
    np.testing.assert_array_equal(twice.run(x)[0], 2 * x)


def test_a_kernel_that_computes_nothing_says_why():
    @tw.kernel(g.Softmax)
    def other(k, op):
        raise Unfit("never")

    @tw.kernel(Clipped)
    def refuses(k, op):
        raise Unfit("only on Sundays")

    slow = tw.kernel(g.Maximum)(slow_maximum)
    compiled = compile_for(network(), CFG, target=target(CFG, clipped, refuses, other))
    assert list(compiled.of_kernels(CFG).values()) == [True, False, False]
    first, second, third = compiled.of_kernels(CFG)
    assert first == "kernel clipped (Clipped) computes clipped"
    assert second == "kernel refuses (Clipped) computes no operator of net; clipped: only on Sundays"
    assert "computes no operator of net; none is of its classes" in third
    with pytest.warns(UserWarning, match="slow_maximum .Maximum. computes no operator of net; m: host takes less time"):
        tw.compile(network(g.Maximum, "m"), CFG, target=target(CFG, slow))


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
        (lambda: double.why_not((32, 8, 8)), r"\(32, 8, 8\) is no shape or array \(n, c, h, w\) or \(n, c\)"),
        (lambda: double.run([[1, 2]]), "is no shape or array"),
        (lambda: tw.kernel(wrong), "must be classes of operators, as g.Softmax, or one function"),
        (lambda: g.Custom("c", (g.Tensor("x", SHAPE),), g.Tensor("y", SHAPE)).compute(), "define compute"),
    ):
        with pytest.raises(TilewrightError, match=words):
            call()
