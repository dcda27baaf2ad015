"""compiler/api.py: what `build` takes, and what the program and its buffers are called."""

import numpy as np
import pytest

from tilewright.compiler import build
from tilewright.compiler.api import build_into
from tilewright.compiler.schedule.dense import dense
from tilewright.compiler.tir.placement import Placement
from tilewright.compiler.tvm_compat import IRModule
from tilewright.hw import rounding
from tilewright.hw.config import PRESETS
from tilewright.hw.errors import ConfigError, ScheduleError
from tilewright.hw.isa import Mem
from tilewright.runtime import layout
from tilewright.runtime.loader import run
from tilewright.runtime.program import Program
from tilewright.runtime.verify import verify

VTA = PRESETS["vta"]


@pytest.fixture(scope="module")
def sch():
    return dense(VTA, 8, 32, 32)


def test_functions_and_modules_are_built_as_schedules_are(sch):
    func = sch.mod["main"]
    named = IRModule({"other": func}), func.with_attr("global_symbol", "mine")
    for scheduled, name in ((sch, "main"), (sch.mod, "main"), (func, "main"), (named[0], "other"), (named[1], "mine")):
        program = build(scheduled, "vta")
        assert program.name == name and list(program.buffers) == ["x", "w", "out"]
        assert [b.kind for b in program.buffers.values()] == ["input", "input", "output"]
    assert build(sch, VTA, name="product").name == "product"


def test_widths_are_those_of_the_scratchpads():
    cfg = PRESETS["tiny"].replace(name="narrow", wgt_bits=4)
    buffers = build(dense(cfg, 4, 8, 8), cfg).buffers
    assert {name: b.bits for name, b in buffers.items()} == {"x": 8, "w": 4, "out": 8}


def test_what_is_no_function_is_refused(sch):
    with pytest.raises(ScheduleError, match="build takes a Schedule, PrimFunc or IRModule, not int"):
        build(3, VTA)  # pyright: ignore[reportArgumentType]
    with pytest.raises(ScheduleError, match="the module has no PrimFunc; give one that te.create_prim_func makes"):
        build(IRModule({}), VTA)
    with pytest.raises(ConfigError, match="unknown preset 'moon'"):
        build(sch, "moon")


def test_a_module_of_several_functions():
    """All are one program, the one that is named is one of its own; `build_into` takes one."""
    cfg, rng = PRESETS["tiny"], np.random.default_rng(7)
    mod = IRModule({"wide": dense(cfg, 4, 8, 16).mod["main"], "small": dense(cfg, 4, 8, 8).mod["main"]})
    assert set(build(mod, cfg, name="small").buffers) == {"x", "w", "out"}
    with pytest.raises(ScheduleError, match="name = 'smal': must be a function of the module: small, wide"):
        build(mod, cfg, name="smal")
    program, inputs, expected = build(mod, cfg), {}, {}
    for name, columns in (("small", 8), ("wide", 16)):
        x, w = rng.integers(-128, 128, (4, 8), np.int8), rng.integers(-128, 128, (columns, 8), np.int8)
        inputs |= {f"{name}.x": layout.pack_dense_activations(x, cfg), f"{name}.w": layout.pack_dense_weights(w, cfg)}
        expected[f"{name}.out"] = (x.astype(np.int32) @ w.astype(np.int32).T).astype(np.int8)
    outputs, _ = run(program, inputs)
    for name, values in expected.items():
        assert np.array_equal(layout.unpack_dense_activations(outputs[name], values.shape[1]), values)
    with pytest.raises(ScheduleError, match="build_into takes one function; the module has small, wide"):
        build_into(program, mod)


@pytest.fixture
def chain():
    """Two dense layers of `tiny` with requantising stores, and the float-free result of both."""
    cfg, rng = PRESETS["tiny"], np.random.default_rng(5)
    w = [rng.integers(-128, 128, (20, 20), np.int8) for _ in range(2)]
    facts = {"multiplier": 1 << 30, "exponent": -9, "zero_point": 1, "low": -128, "high": 127, "contract": "single"}
    par = layout.pack_par(cfg, bias=np.arange(20), **facts)
    x = rng.integers(-128, 128, (3, 20), np.int8)

    def expected(k):
        value = x
        for weights in w[:k]:
            acc = value.astype(np.int64) @ weights.T.astype(np.int64) + np.arange(20)
            value = rounding.requantise(acc, 1 << 30, -9, 1, -128, 127, "single")
        return layout.pack_dense_activations(value, cfg)

    inputs = {"a.x": layout.pack_dense_activations(x, cfg)}
    for name, weights in zip("ab", w):
        inputs |= {f"{name}.w": layout.pack_dense_weights(weights, cfg), f"{name}.q": par}
    return cfg, dense(cfg, 3, 20, 20, epilogue=[("requant", "q")]), inputs, expected


def test_functions_follow_each_other_in_one_program(chain):
    cfg, layer, inputs, expected = chain
    program, placement = Program(cfg, "both"), Placement(cfg)
    first = build_into(program, layer, {}, placement, name="a")
    assert sorted(first) == ["out", "q", "w", "x"]
    second = build_into(program, layer, {"x": first["out"]}, placement, name="b")
    assert second["x"] is first["out"] and list(program.buffers) == [
        *(f"a.{name}" for name in ("x", "w", "q", "out")),
        *(f"b.{name}" for name in ("w", "q", "out")),
    ]
    verify(program.finish())
    out, _ = run(program, inputs)
    assert np.array_equal(out["a.out"], expected(1)) and np.array_equal(out["b.out"], expected(2))


def test_what_is_between_two_functions_may_be_a_buffer_of_another_shape(chain):
    cfg, layer, inputs, expected = chain
    program, placement = Program(cfg, "both"), Placement(cfg)
    between = program.buffer("between", (3 * 20,), 8, kind="temp")
    build_into(program, layer, {"out": between}, placement, name="a")
    build_into(program, layer, {"x": between}, placement, name="b")
    out, _ = run(program, inputs)
    assert list(out) == ["b.out"] and np.array_equal(out["b.out"], expected(2))


def test_the_second_function_begins_where_the_first_ended_longest_ago(chain):
    cfg, layer, *_ = chain

    def first_loads(placement):
        program = Program(cfg, "both")
        found = []
        for name in "ab":
            start = len(program._rows)
            build_into(program, layer, {}, placement or Placement(cfg), name=name)
            rows = [row for row in program._rows[start:] if row.format == "LOAD" and row.fields["mem"] != Mem.UOP]
            found.append({row.fields["mem"]: row.fields["sram_base"] for row in reversed(rows)})
        return found

    same, apart = first_loads(None), first_loads(Placement(cfg))
    assert same[0] == same[1]
    assert {mem for mem in apart[0] if apart[0][mem] != apart[1][mem]} == {Mem.INP, Mem.WGT}


def test_buffers_that_do_not_fit_are_refused(chain):
    cfg, layer, *_ = chain
    program = Program(cfg, "p")
    small, wide = program.buffer("small", (8,), 8), program.buffer("wide", (15,), 32)
    with pytest.raises(
        ScheduleError, match="'x' is 60 elements of 8 bits; buffer 'small' has 8 bytes in elements of 8"
    ):
        build_into(program, layer, {"x": small})
    with pytest.raises(ScheduleError, match="buffer 'wide' has 60 bytes in elements of 32 bits"):
        build_into(program, layer, {"x": wide})
    with pytest.raises(ScheduleError, match="unknown parameter 'y'; main has out, q, w, x"):
        build_into(program, layer, {"y": small})
