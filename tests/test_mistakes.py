"""Mistakes of schedule authors, network users and hardware designers, each made through what they call.

Each gives one line of at most 300 characters that says what to do: the words of the remedy stand in the tables.
"""

import re
import traceback
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("tvm")
pytest.importorskip("click")

from tilewright.cli.main import run as command
from tilewright.compiler import build
from tilewright.compiler.schedule.conv2d import conv2d
from tilewright.compiler.schedule.dense import dense
from tilewright.compiler.schedule.depthwise import depthwise
from tilewright.compiler.schedule.pool import pool
from tilewright.compiler.tile import Tile
from tilewright.hw.config import PRESETS, load_config
from tilewright.hw.errors import TilewrightError
from tilewright.hw.isa import Mem
from tilewright.runtime import layout
from tilewright.runtime.loader import run
from tilewright.runtime.program import Program
from tilewright.sim.timing import predict
from tilewright.sim.timing.device import TimingDevice

LONGEST = 300  # characters of a message
CFG = PRESETS["vta"]

IMPORTS = """
from tilewright.compiler.intrin import ACC, INP, WGT, tensorize_gemm
from tilewright.compiler.tvm_compat import Schedule, te, tirx


def number(value):
    return tirx.const(value, "int32")
"""
PRODUCT = f"""{IMPORTS}

def schedule(cfg):
    x = te.placeholder((4, 2, cfg.batch, cfg.block_in), "int8", "x")
    w = te.placeholder((2, 2, cfg.block_out, cfg.block_in), "int8", "w")
    k, ki = te.reduce_axis((0, 2), "k"), te.reduce_axis((0, cfg.block_in), "ki")

    def product(i, j, bi, bj):
        left, right = x[i, k, bi, ki], w[j, k, bj, ki]
        return te.sum(left.astype("int32") * right.astype("int32"), axis=[k, ki])

    acc = te.compute((4, 2, cfg.batch, cfg.block_out), product, name="acc")
    y = te.compute(acc.shape, lambda *i: acc(*i).astype("int8"), name="y")
    sch = Schedule(te.create_prim_func([x, w, y]))
    block = sch.get_sblock("acc")
    sch.cache_read(block, 0, INP)
    sch.cache_read(block, 1, WGT)
    sch.set_scope(block, 0, ACC)
    i, j, bi, bj, k, ki = sch.get_loops(block)
    sch.reorder(k, i, j, bi, bj, ki)
    init = sch.decompose_reduction(block, k)
    tensorize_gemm(sch, block, cfg)
    return sch
"""
SUM = f"""{IMPORTS}

def schedule(cfg):
    x = te.placeholder((8, cfg.batch, cfg.block_out), "int32", "x")
    acc = te.compute(x.shape, lambda *i: x(*i) + number(1), name="acc")
    y = te.compute(acc.shape, lambda *i: acc(*i).astype("int8"), name="y")
    sch = Schedule(te.create_prim_func([x, y]))
    block = sch.get_sblock("acc")
    sch.cache_read(block, 0, ACC)
    sch.set_scope(block, 0, ACC)
    loop = sch.get_loops(sch.get_sblock("y"))[0]
    return sch
"""
LANES = f"""{IMPORTS}

def schedule(cfg):
    x = te.placeholder((16, cfg.batch, 16), "int32", "x")
    r = te.reduce_axis((0, 16), "r")
    most = te.compute((16, cfg.batch, cfg.block_out), lambda i, b, c: te.max(x[r, b, c], axis=r), name="most")
    y = te.compute(most.shape, lambda *i: most(*i).astype("int8"), name="y")
    sch = Schedule(te.create_prim_func([x, y]))
    block = sch.get_sblock("most")
    sch.cache_read(block, 0, ACC)
    sch.set_scope(block, 0, ACC)
    i, b, c, r = sch.get_loops(block)
    sch.reorder(r, i, b, c)
    sch.decompose_reduction(block, r)
    return sch
"""
RECORDED = """
from tilewright.hw.isa import Mem
from tilewright.runtime.program import Program


def schedule(cfg):
    p = Program(cfg)
    x, y = p.buffer("x", (8, 1, 16), 32), p.buffer("y", (8, 1, 16), kind="output")
    p.load(Mem.ACC, 0, x, 0, x_size=8)
    p.alu("add", [(8, 1, 0)], imm=1)
    p.store(0, y, 0, x_size=8)
    return p
"""
PLAIN = 'w = te.placeholder((2, 2, cfg.block_out, cfg.block_in), "int8", "w")'
# source, what is written in place of what, the remedy
SOURCES = [
    # the product of a tensor intrinsic
    (PRODUCT, "sch.cache_read(block, 0, INP)", "", r"operand x is in DRAM.*sch\.cache_read\(acc, 0, INP\)"),
    (PRODUCT, "sch.cache_read(block, 1, WGT)", "", r"operand w is in DRAM.*sch\.cache_read\(acc, 1, WGT\)"),
    (PRODUCT, "sch.set_scope(block, 0, ACC)", "", r"acc is in DRAM.*sch\.set_scope\(acc, 0, ACC\)"),
    (PRODUCT, "(block, 0, INP)", "(block, 0, WGT)", r"x is in local\.wgt.*sch\.cache_read\(acc, 0, INP\)"),
    (PRODUCT, "(block, 0, INP)", '(block, 0, "local.inp_buffer")', r"is VTA's name; write 'local\.inp'"),
    (PRODUCT, "(block, 0, ACC)", '(block, 0, "local.acc_buffer")', r"is VTA's name; write 'local\.acc'"),
    (PRODUCT, '"int8", "x"', '"uint8", "x"', r"x is uint8.*subtract 128 on the host"),
    (PRODUCT, '"int8", "w"', '"int16", "w"', r"w is int16.*quantise it"),
    (PRODUCT, "left, right = x[i, k, bi, ki], w[j, k, bj, ki]", "right, left = x[i, k, bi, ki], w[j, k, bj, ki]",
     r"operands are swapped: write x \* w"),
    (PRODUCT, "w[j, k, bj, ki]", "w[j, k, ki, bj]", r"must be \(block_out, block_in\).*pack them with layout\.pack_"),
    (PRODUCT, 'left.astype("int32") * right.astype("int32")', '(left * right).astype("int32")',
     r"two casts to int32: x\.astype"),
    (PRODUCT, 'left.astype("int32")', '(left.astype("int32") - number(3))', r"in the bias, and pad with pad_value"),
    (PRODUCT, "bi, bj, ki)\n", "bi, ki, bj)\n", r"sch\.reorder\(\.\.\., batch, block_out, block_in\)"),
    (PRODUCT, "sch.reorder(k, i, j, bi, bj, ki)", "", r"split the loops by \(1, 16, 16\) and reorder these innermost"),
    (PRODUCT, "tensorize_gemm(sch, block, cfg)", "tensorize_gemm(sch, init, cfg)", r"as te\.sum\(x \* w\) does"),
    (PRODUCT, "tensorize_gemm(sch, block, cfg)", "", r"becomes GEMM by intrin\.tensorize_gemm"),
    (PRODUCT, f"    {PLAIN}", '    w = te.placeholder((32, 32), "int8", "w")\n'
     "    def at(o, c, j, i):\n        return w[o * 16 + j, c * 16 + i]",
     r"w \(32, 32\).*lay it out as \(2, 2, 16, 16\)"),
    # sums and other operations of the ALU
    (SUM, "return sch", 'sch.bind(loop, "threadIdx.x")\n    return sch', r"bind it to vthread\.x"),
    (SUM, "x(*i) + number(1)", "te.floordiv(x(*i), number(3))", r"is not an ALU operation.*or on the host"),
    (SUM, "number(1)", "number(70000)", r"does not fit an immediate of 16 bits; load it as a tensor"),
    (SUM, "sch.set_scope(block, 0, ACC)", "", r"compute on accumulators \(set_scope ACC"),
    (SUM, "(block, 0, ACC)\n    sch.set", '(block, 0, "local.shared")\n    sch.set', r"must be one of global, local"),
    (SUM, '"int32", "x"', '"float32", "x"', r"quantise floats on the host"),
    (SUM, '.astype("int8"), name="y"', '.astype("int16"), name="y"', r"cast to int8"),
    (SUM, "x = te.placeholder((8,", 'x = te.placeholder((te.var("n"),', r"make a schedule for each size"),
    (SUM, 'get_sblock("y")', 'get_sblock("z")', r"Cannot find a block with the name: z"),
    (SUM, "return sch", 'sch.compute_at(sch.get_sblock("y"), loop)\n    return sch',
     r"sch\.compute_at: .*; take a loop of a block that reads this one"),
    (SUM, "return sch", "return [x, y]", r"make one with Schedule\(te\.create_prim_func"),
    (SUM, 'name="acc")', 'nam="acc")', r"\.py:\d+: TypeError: .*nam"),
    (SUM, "x(*i) + number(1)", "te.floordiv(x(*i), number(4))", r"write >> 2 in place of the division by 4$"),
    (SUM, "x(*i) + number(1)", "te.truncdiv(x(*i), number(4))", r"write >> 2 .*, which rounds down$"),
    (SUM, "x(*i) + number(1)", "te.floormod(x(*i), number(4))", r"the remainder is x - \(\(x >> 2\) << 2\), in"),
    (SUM, "x(*i) + number(1)", "te.truncmod(x(*i), number(4))",
     r"the remainder is x - \(\(x >> 2\) << 2\), which rounds down, in"),
    (SUM, "x(*i) + number(1)", "tirx.Select(x(*i) > number(0), x(*i), number(0))", r"write ReLU as te\.max\(x, 0\)"),
    (SUM, "x(*i) + number(1)", "tirx.Select(x(*i) > number(0), x(*i), x(*i) >> number(3))", r"leaky ReLU as te\.max"),
    (SUM, "x(*i) + number(1)", "te.abs(x(*i))", r"abs as te\.max\(x, -x\)"),
    (SUM, "x(*i) + number(1)", '(x(*i).astype("float32") * tirx.const(0.5, "float32")).astype("int32")',
     r"scales are integers: mul and >>, or REQUANTISE"),
    (SUM, "lambda *i: acc(*i).astype", 'lambda *i: (acc(*i) * tirx.const(0.5, "float32")).astype',
     r"scales are integers"),
    (SUM, "lambda *i: x(*i)", "lambda i, b, c: x[tirx.floormod(i, number(2)), b, c]",
     r"split its loop by 2: sch\.split\(loop, \[None, 2\]\)"),
    (SUM, "return sch", "return te.create_prim_func([x, y])", r"not scheduled: give it to Schedule and cache_read"),
    (PRODUCT, "sch.set_scope(block, 0, ACC)", "sch.cache_write(block, 0, ACC)", r"write sch\.set_scope\(acc, 0, ACC\)"),
    # reductions along lanes
    (LANES, "te.max(x[r, b, c], axis=r)", "te.max(x[i, b, r], axis=r)", r"transpose x so that axis 2 is across"),
    (LANES, "sch.reorder(r, i, b, c)\n    sch.decompose_reduction(block, r)", "", r"after decompose_reduction"),
    # programs
    (RECORDED, '"add"', '"plus"', r"use one of MIN, MAX, ADD"),
    (RECORDED, "(8, 1, 0)", "(8, 1)", r"must be 3 integers \(extent, dst, src step\)"),
    (RECORDED, "0, x, 0, x_size=8", "0, x, 0, x_size=9", r"move less, or declare it larger"),
    (RECORDED, "return p", "p.load(Mem.INP, 0, x, 0, pads=(1, 1))", r"4 integers \(rows before, after, columns"),
    (RECORDED, "return p", "import sys; sys.exit(1)", r"instead of defining 'schedule'"),
]  # fmt: skip


def spoiled(source: str, old: str, new: str) -> str:
    assert old in source
    return source.replace(old, new)


def argmax():
    """Two values at a time, along lanes."""
    from tilewright.compiler.intrin import ACC
    from tilewright.compiler.tvm_compat import Schedule, te, tirx

    x, r = te.placeholder((8, 1, 16), "int32", "x"), te.reduce_axis((0, 16), "r")
    best = te.comm_reducer(
        lambda a, b: (tirx.Select(a[1] >= b[1], a[0], b[0]), tirx.Select(a[1] >= b[1], a[1], b[1])),
        lambda index, value: (tirx.const(-1, index), tirx.min_value(value)),
    )
    index, _ = te.compute((8, 1), lambda i, b: best((r, x[i, b, r]), axis=r), name="best")
    y = te.compute((8, 1), lambda *i: index(*i).astype("int8"), name="y")
    sch = Schedule(te.create_prim_func([x, y]))
    block = sch.get_sblock("best")
    sch.cache_read(block, 0, ACC)
    for k in range(2):
        sch.set_scope(block, k, ACC)
    return sch


def program():
    """A product."""
    p = Program(CFG)
    p.gemm([(4, 1, 1, 0)])
    return p


X = np.zeros((8, 16), np.int8)
# what users call, with arguments that type checkers would refuse
api: Any = SimpleNamespace(
    conv2d=conv2d, dense=dense, depthwise=depthwise, pool=pool, build=build, load_config=load_config, layout=layout,
    Program=Program, predict=predict, run=run,
)  # fmt: skip
# Python: what is called, the remedy
CALLS = [
    (lambda: api.conv2d(CFG, 1, 8, 8, 16, 16, 3, 3, pad=(1, 1)), r"must be \(top, left, bottom, right\), for example"),
    (lambda: api.conv2d(CFG, 1, 8, 8, 16, 16, 3, 3, stride=2), r"stride = 2: must be \(y, x\), for example \(2, 2\)"),
    (lambda: api.conv2d(CFG, 1, 2, 2, 16, 16, 3, 3), "smaller than the kernel of 3x3; pad it"),
    (lambda: api.dense(CFG, X, 16, 16), r"must be an integer, for a tensor x as in x\.shape\[0\]"),
    (lambda: api.dense(CFG, 0, 16, 16), "n = 0: must be at least 1"),
    (lambda: api.dense("vta", 8, 16, 16), r"must be a Config, as load_config"),
    (lambda: api.dense(CFG, 8, 16, 16, epilogue=[("relu", 0)]), "must be one of add, sub, mul, max"),
    (lambda: api.dense(CFG, 8, 16, 16, tile=Tile(vthreads=9)), "must be 1 to 4"),
    (lambda: api.depthwise(CFG, 1, 8, 8, 16, 3, 3), "use conv2d"),
    (lambda: api.pool(CFG, 1, 8, 8, 16, 2, 2, kind="average"), "must be one of max, sum"),
    (lambda: api.build(argmax(), CFG), r"take the max of value \* n \+ index with the reduced axis across entries"),
    (lambda: api.build(3, CFG), "takes a Schedule, PrimFunc or IRModule"),
    (lambda: api.build(api.dense(CFG, 8, 16, 16), "moon"), r"known are vta, pynq_z1, .*, tiny, tiny_two"),
    (lambda: api.build(api.dense(CFG, 8, 16, 16), "tiny"), "give the schedule and build the same configuration"),
    (lambda: api.load_config({"block_in": 3}), "must be a power of two"),
    (lambda: api.load_config({"blockin": 16}), "block_in"),
    (lambda: api.Program(CFG).buffer("x", X), r"give its sizes, as x\.shape"),
    (lambda: api.Program(CFG).buffer("x", 16), r"must be a tuple of integers, as \(16,\)"),
    (lambda: api.Program(CFG).buffer("x", (16,), 7), "must be one of 2, 4, 8, 32"),
    (lambda: api.Program(CFG).load(Mem.INP, 0, X, 0), r"give what this one's buffer\(\.\.\.\) returned"),
    (lambda: api.Program(CFG).load("inp", 0, X, 0), "must be one of WGT, INP, ACC, .*as Mem.INP"),
    (lambda: api.Program(CFG).gemm([(4, 1, 1)]), r"must be 4 integers \(extent, dst, src, wgt step\)"),
    (lambda: api.predict(program(), skip=("loads",)), "gemm, alu, dma can"),
    (lambda: api.predict(api.dense(CFG, 8, 16, 16)), r"compiler\.build\(schedule, config\) makes a Program"),
    (lambda: api.run(program(), {}, TimingDevice(CFG, skip=["stores"])), "gemm, alu, dma can"),
    (lambda: api.run(program(), {}, "fpga"), "known are board, model, rtl, rtl_fast, spec, timing"),
    (lambda: api.run(api.build(api.dense(CFG, 8, 16, 16), CFG), {"y": X}), "inputs are x, w"),
    (lambda: api.run(api.build(api.dense(CFG, 8, 16, 16), CFG), X, X), r"inputs are \{'x': \.\.\., 'w': \.\.\.\}"),
    (lambda: api.run(api.build(api.dense(CFG, 8, 16, 16), CFG), [X, X]), r"as one dictionary by name, not list"),
    (lambda: api.run(program(), {}, 5), r"^device is of type int: give a name, as 'model', or an open device$"),
    (lambda: api.run(program(), {"x": X}, None), r"^device is of type NoneType: give a name"),
    (lambda: api.layout.pack_weights(X, CFG), "expected 4 dimensions"),
    (lambda: api.layout.pack_activations(np.zeros((1, 8, 8, 16)), CFG, layout="HWC"), "must be NCHW or NHWC"),
]  # fmt: skip


def checked(text: str, remedy: str) -> None:
    assert re.search(remedy, text), text
    assert "\n" not in text and "Traceback" not in text and len(text) <= LONGEST, text


def told(capsys, *arguments: str) -> str:
    """The message of the command, which fails."""
    capsys.readouterr()
    assert command(list(arguments)) not in (0, None)
    out, err = capsys.readouterr()
    assert out == "" and err.startswith("tilewright: error: ") and err.count("\n") == 1, err
    return err.strip()


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("source", [PRODUCT, SUM, LANES, RECORDED], ids=["product", "sum", "lanes", "recorded"])
def test_the_sources_are_right(folder, source, capsys):
    (folder / "good.py").write_text(source)
    assert command(["compile", "good.py:schedule", "-o", "x.tw", "--config", "vta"]) in (0, None), capsys.readouterr()


@pytest.mark.parametrize(("source", "old", "new", "remedy"), SOURCES)
def test_mistakes_in_a_schedule_or_program(folder, capsys, source, old, new, remedy):
    text = spoiled(source, old, new)
    if "def at(" in new:
        text = spoiled(text, "w[j, k, bj, ki]", "at(j, k, bj, ki)")
    (folder / "mine.py").write_text(text)
    checked(told(capsys, "compile", "mine.py:schedule", "-o", "x.tw", "--config", "vta"), remedy)
    assert not (folder / "x.tw").exists()


@pytest.mark.parametrize(("source", "old", "new", "remedy"), [row for row in SOURCES if row[0] != RECORDED])
def test_the_same_in_python(source, old, new, remedy):
    """The error of `schedule` or of `build`; a traceback prints nothing of TVM's."""
    text = spoiled(source, old, new)
    if "def at(" in new:
        text = spoiled(text, "w[j, k, bj, ki]", "at(j, k, bj, ki)")
    if "nam=" in new:
        pytest.skip("an error of Python in the author's own file")
    namespace: dict[str, Any] = {}
    exec(compile(text, "mine.py", "exec"), namespace)
    with pytest.raises(TilewrightError) as raised:
        build(namespace["schedule"](CFG), CFG)
    checked(str(raised.value), remedy)
    printed = "".join(traceback.format_exception(raised.value))
    assert "I.ir_module" not in printed and printed.count("\n") < 60


@pytest.mark.parametrize(("call", "remedy"), CALLS)
def test_mistakes_in_a_call(call, remedy):
    with pytest.raises(TilewrightError) as raised:
        call()
    checked(str(raised.value), remedy)
