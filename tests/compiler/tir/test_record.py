"""Schedules that users write: what becomes which instruction, and what is refused with which words."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.compiler import build
from tilewright.compiler.intrin import ACC, INP, INSTRUCTION, SLOTS, WGT, tensorize_gemm
from tilewright.compiler.tvm_compat import Schedule, T, te, tirx
from tilewright.hw.config import PRESETS
from tilewright.hw.errors import CapacityError, ScheduleError
from tilewright.runtime import layout
from tilewright.runtime.loader import run
from tilewright.runtime.verify import verify

from .conftest import block_product, check_block_product

VTA = PRESETS["vta"]
RNG = np.random.default_rng(0)
N = 8


def vector(name, n=N, dtype="int32"):
    return te.placeholder((n, 1, 16), dtype, name)


def on_acc(params, stages, out, loop=None):
    """A schedule of `out` with the tensors `stages` and copies of `params` in the accumulators."""
    sch = Schedule(te.create_prim_func([*params, out]))
    for stage in stages:
        sch.set_scope(sch.get_sblock(stage.op.name), 0, ACC)
    for stage in stages:
        block = sch.get_sblock(stage.op.name)
        for k, region in enumerate(sch.get(block).reads):
            if region.source.name in [param.op.name for param in params]:
                sch.cache_read(block, k, ACC)
    return sch


def stored(tensor, name="out"):
    return te.compute(tensor.shape, lambda *i: tensor(*i).astype("int8"), name=name)


def unary(value, n=N):
    """A schedule of one statement `value(a[i], b[i])`."""
    a, b = vector("a", n), vector("b", n)
    stage = te.compute(a.shape, lambda *i: value(a(*i), b(*i)), name="stage")
    sch = on_acc([a, b], [stage], stored(stage))
    return sch


def results(sch, cfg=VTA, **inputs):
    program = build(sch, cfg)
    verify(program.finish())
    given_ = {name: inputs[name] for name, buffer in program.buffers.items() if buffer.kind == "input"}
    return run(program, given_)


A, B = (RNG.integers(-(2**31), 2**31, (N, 1, 16)).astype(np.int32) for _ in range(2))


def c(value):
    return tirx.const(value, "int32")


@pytest.fixture
def shown(instructions):
    """(operation, immediate or None where it reads a tensor) of a schedule; RESET for a GEMM that resets."""

    def show(sch):
        found = [("RESET" if f.get("reset") else name.removeprefix("ALU."), f) for name, f in instructions(sch)]
        compute = [(name, f) for name, f in found if not name.startswith(("LOAD", "STORE"))]
        return [(name, f["imm"] if f.get("use_imm") else None) for name, f in compute]

    return show


@pytest.mark.parametrize(
    "value, expected, operations",
    [
        (lambda a, b: a + b, lambda a, b: a + b, [("ADD", None)]),
        (lambda a, b: a - c(5), lambda a, b: a - 5, [("ADD", -5)]),
        (lambda a, b: a - b, lambda a, b: a - b, [("MUL", -1), ("ADD", None)]),
        (lambda a, b: b - a, lambda a, b: b - a, [("MUL", -1), ("ADD", None)]),
        (lambda a, b: c(7) - a, lambda a, b: 7 - a, [("MUL", -1), ("ADD", 7)]),
        (lambda a, b: a * b, lambda a, b: a * b, [("MUL", None)]),
        (lambda a, b: a >> c(3), lambda a, b: a >> 3, [("SHR", 3)]),
        (lambda a, b: a >> c(31), lambda a, b: a >> 31, [("SHR", 15), ("SHR", 15), ("SHR", 1)]),
        (lambda a, b: (a + c(1)) * a, lambda a, b: (a + 1) * a, None),
        (lambda a, b: (a - b) * b, lambda a, b: (a - b) * b, [("MUL", -1), ("ADD", None), ("MUL", -1), ("MUL", None)]),
        (lambda a, b: a << c(17), lambda a, b: a << 17, [("SHR", -16), ("SHR", -1)]),
        (lambda a, b: te.max(te.min(a >> c(20), c(127)), c(-128)), lambda a, b: np.clip(a >> 20, -128, 127), None),
        (
            lambda a, b: te.min(te.max(a, b) >> c(4), c(90)),
            lambda a, b: np.minimum(np.maximum(a, b) >> 4, 90),
            [("MAX", None), ("SHR", 4), ("MIN", 90)],
        ),
        (lambda a, b: (a >> c(8)) + b, lambda a, b: (a >> 8) + b, [("SHR", 8), ("ADD", None)]),
        (lambda a, b: b + (a >> c(8)), lambda a, b: b + (a >> 8), [("SHR", 8), ("ADD", None)]),
        (lambda a, b: te.max(c(5), a), lambda a, b: np.maximum(a, 5), [("MAX", 5)]),
        (lambda a, b: c(0), lambda a, b: 0 * a, [("RESET", None)]),
        (lambda a, b: c(-7), lambda a, b: 0 * a - 7, [("RESET", None), ("ADD", -7)]),
        (
            lambda a, b: c(70000),
            lambda a, b: 0 * a + 70000,
            [("RESET", None), ("ADD", 1), ("SHR", -15), ("SHR", -1), ("ADD", 4464)],
        ),
    ],
)
def test_expressions_become_chains(shown, value, expected, operations):
    out, _ = results(unary(value), a=A, b=B)
    with np.errstate(over="ignore"):
        assert np.array_equal(out["out"], expected(A, B).astype(np.int8))
    assert operations is None or shown(unary(value)) == operations


def test_a_result_is_computed_in_place_of_an_operand_that_nobody_needs(instructions):
    *loads, (alu, fields), (store, stored) = instructions(unary(lambda a, b: a + b))
    assert (alu, store) == ("ALU.ADD", "STORE.OUT")
    assert tuple(fields[key] for key in ("iter_out", "iter_in", "dst_in", "src_in")) == (1, 8, 1, 1)
    bases = sorted(load["sram_base"] for _, load in loads)
    assert bases == [0, 8] and stored["sram_base"] in bases


@pytest.mark.parametrize(
    "value, text",
    [
        (lambda a, b: a + c(70000), "70000 does not fit an immediate of 16 bits"),
        (lambda a, b: a << b, "the amount of a left shift must be constant"),
        (lambda a, b: (a + c(1)) * (b + c(1)), "both operands of an operation are computed"),
        (lambda a, b: tirx.abs(a), "is not an ALU operation"),
    ],
)
def test_what_is_no_chain_is_refused(value, text):
    with pytest.raises(ScheduleError, match=rf"^stage.*{text}"):
        build(unary(value), VTA)


def test_shift_by_a_tensor():
    amounts = np.abs(B) % 32
    out, stats = results(unary(lambda a, b: a >> b), a=A, b=amounts)
    assert np.array_equal(out["out"], (A >> amounts).astype(np.int8)) and stats.insns["ALU.SHR"] == 1


def shifted(tensor, bits):
    return te.compute(tensor.shape, lambda *i: tensor(*i) >> c(bits), name=f"shifted{bits}")


@settings(max_examples=20, deadline=None)
@given(value=st.integers(-(2**31), 2**31 - 1) | st.sampled_from([0, 1, 32767, 32768, -32769, 2**31 - 1, -(2**31)]))
def test_any_constant_can_be_written(value):
    stage = te.compute((N, 1, 16), lambda *i: c(value), name="stage")
    planes = [shifted(stage, 8 * k) for k in range(4)]
    outs = [stored(plane, f"out{k}") for k, plane in enumerate(planes)]
    sch = Schedule(te.create_prim_func(outs))
    for tensor in (stage, *planes):
        sch.set_scope(sch.get_sblock(tensor.op.name), 0, ACC)
    out, _ = results(sch)
    assert (layout.planes_to_int32([out[f"out{k}"] for k in range(4)]) == value).all()


def test_a_value_used_twice_is_copied_not_destroyed():
    a = vector("a")
    plus = te.compute(a.shape, lambda *i: a(*i) + c(1), name="plus")
    double = te.compute(a.shape, lambda *i: plus(*i) << c(1), name="double")
    total = te.compute(a.shape, lambda *i: double(*i) + plus(*i), name="total")
    out, stats = results(on_acc([a], [plus, double, total], stored(total)), a=A)
    assert np.array_equal(out["out"], ((A + 1) * 3).astype(np.int8))
    assert stats.insns["GEMM"] == 1  # the reset of the copy


def test_a_tensor_between_two_stages_may_live_in_dram():
    a = vector("a")
    plus = te.compute(a.shape, lambda *i: a(*i) + c(1), name="plus")
    kept = stored(plus, "kept")
    wide = te.compute(a.shape, lambda *i: kept(*i).astype("int32"), name="wide")
    double = te.compute(a.shape, lambda *i: wide(*i) << c(1), name="double")
    sch = on_acc([a], [plus, wide, double], stored(double))
    program = build(sch, VTA)
    assert [b.name for b in program.buffers.values() if b.kind == "temp"] == ["kept"]
    out, stats = results(sch, a=A)
    assert np.array_equal(out["out"], ((A + 1).astype(np.int8) * 2).astype(np.int8)) and stats.insns["LOAD.ACC8"] == 1


def test_copies_of_many_dimensions_become_several_loads():
    x = te.placeholder((3, 4, 5, 6, 1, 16), "int32", "x")
    box = te.compute((2, 5, 3, 4, 1, 16), lambda a, b, p, q, i, j: x[a, q, b, p + 2, i, j], name="box")  # permuted, cut
    out = stored(box)
    sch = Schedule(te.create_prim_func([x, out]))
    sch.set_scope(sch.get_sblock("box"), 0, ACC)
    data = RNG.integers(-128, 128, (3, 4, 5, 6, 1, 16)).astype(np.int32)
    got, stats = results(sch, x=data)
    assert np.array_equal(got["out"], data[:2, :, :, 2:5].transpose(0, 2, 3, 1, 4, 5))
    assert stats.insns["LOAD.ACC"] == 2 * 5 * 3


def matmul(inner=8, step=2, *, prepare=lambda sch, loops: None, tensorize=True):
    """A product of 8 rows and 4 blocks of columns; `prepare` gets the schedule and its loops (rows, columns, steps)."""
    sch = Schedule(block_product(VTA, 8, 4, inner))
    block = sch.get_sblock("acc")
    sch.set_scope(block, 0, ACC)
    loads = sch.cache_read(block, 0, INP), sch.cache_read(block, 1, WGT)
    i, j, a, b, k, ki = sch.get_loops(block)
    steps, inside = sch.split(k, [None, step])
    sch.reorder(steps, inside, i, j, a, b, ki)
    for load in loads:
        sch.compute_at(load, steps, preserve_unit_loops=True)
    sch.decompose_reduction(block, steps)
    prepare(sch, (i, j, steps))
    if tensorize:
        tensorize_gemm(sch, block, VTA)
    return sch


@pytest.mark.parametrize("inner, step, loads", [(8, 2, (4, 4)), (7, 3, (10, 6))])  # 3 does not divide 7
def test_a_step_is_one_instruction(inner, step, loads):
    stats = check_block_product(matmul(inner, step), VTA, 8, 4, inner)
    assert stats.insns["GEMM"] == 1 + -(-inner // step)
    assert (stats.insns["LOAD.INP"], stats.insns["LOAD.WGT"]) == loads


def test_an_annotation_sets_where_an_instruction_begins():
    sch = matmul(prepare=lambda sch, loops: sch.annotate(loops[1], INSTRUCTION, 1))
    assert check_block_product(sch, VTA, 8, 4, 8).insns["GEMM"] == 1 + 4 * 2 * 8


def test_software_pipelining_doubles_the_buffers():
    def pipeline(sch, loops):
        sch.annotate(loops[2], "software_pipeline_stage", [0, 0, 1])
        sch.annotate(loops[2], "software_pipeline_order", [0, 1, 2])

    sch = matmul(prepare=pipeline)
    check_block_product(sch, VTA, 8, 4, 8)
    loads = [row.fields["sram_base"] for row in build(sch, VTA)._rows if row.fields.get("mem") == 2]
    assert loads == [0, 16, 0, 16]


def staged(a, stage, out=None, load=False):
    """A schedule of `stage` in accumulators, of `a` from DRAM, without a load unless asked for."""
    sch = Schedule(te.create_prim_func([a, stored(stage) if out is None else out]))
    sch.set_scope(sch.get_sblock("stage"), 0, ACC)
    if load:
        sch.cache_read(sch.get_sblock("stage"), 0, ACC)
    return sch


def computed(shape, value):
    return te.compute(shape, value, name="stage")


def bad_index(index):
    a = vector("a", 64)
    return staged(a, computed((N, 1, 16), lambda i, p, q: a[index(i), p, q] + c(1)), load=True)


def scoped(scope):
    sch = unary(lambda a, b: a + b)
    sch.set_scope(sch.get_sblock("stage"), 0, scope)
    return sch


def plus_one(load, dtype):
    a = vector("a")
    stage = computed(a.shape, lambda *i: a(*i) + c(1))
    return staged(a, stage, te.compute(a.shape, lambda *i: stage(*i).astype(dtype), name="out"), load)


def dram_only():
    a = vector("a", dtype="int8")
    return Schedule(te.create_prim_func([a, te.compute(a.shape, lambda *i: a(*i), name="out")]))


def half_entries():
    a = te.placeholder((N, 32), "int32", "a")
    return staged(a, computed((N, 8), lambda i, j: a[i, j]))


def running_sum():
    """acc = (acc + a[k]) >> 1 over k: two operations that cannot each pass over all of k."""
    a = vector("a")
    k = te.reduce_axis((0, N), "k")
    halved = te.comm_reducer(lambda x, y: (x + y) >> c(1), lambda dtype: tirx.const(0, dtype), name="halved")
    acc = te.compute((1, 1, 16), lambda i, p, q: halved(a[k, p, q], axis=[k]), name="acc")
    sch = on_acc([a], [acc], stored(acc))
    sch.decompose_reduction(sch.get_sblock("acc"), sch.get_loops(sch.get_sblock("acc"))[0])
    return sch


def marked_outside():
    a = vector("a")
    sch = staged(a, computed(a.shape, lambda *i: a(*i)))
    loop = sch.get_loops(sch.get_sblock("out"))[0]
    sch.compute_at(sch.get_sblock("stage"), loop)
    sch.annotate(loop, INSTRUCTION, 1)
    return sch


@pytest.mark.parametrize(
    "sch, text",
    [
        (lambda: bad_index(lambda i: i * i), r"stage.* is not an affine function of the instruction's loops"),
        (lambda: bad_index(lambda i: i // 2), r"stage.* is not an affine function of the instruction's loops"),
        (lambda: scoped("local.sum"), "'stage' is in scope 'local.sum'; must be one of global, local.inp, local.wgt"),
        (lambda: plus_one(True, "int32"), r"out\[.*STORE writes the low bits of accumulators as int8, not int32"),
        (lambda: plus_one(False, "int8"), r"stage.*only plain copies move data between DRAM and a scratchpad"),
        (dram_only, "no tensor on chip, so it is not scheduled"),
        (half_entries, r"stage.*the operands step differently within an entry of 16 elements"),
        (marked_outside, "an instruction is a perfect loop nest around one statement"),
        (lambda: matmul(tensorize=False), r"acc.*'[xw]' is not in local.acc; a multiply-accumulate becomes GEMM by"),
        (running_sum, r"acc.*reads or changes a result more than once"),
    ],
)
def test_what_is_refused_names_the_statement(sch, text):
    with pytest.raises(ScheduleError, match=text):
        build(sch(), VTA)


@pytest.mark.parametrize("slots", ["two", [2]])
def test_slots_are_a_number(slots):
    sch = plus_one(False, "int8")
    sch.annotate(sch.cache_read(sch.get_sblock("stage"), 0, ACC), SLOTS, slots)
    with pytest.raises(ScheduleError, match=f"'a': annotation {SLOTS} is .*; give a number of slots, as 2"):
        build(sch, VTA)


def test_a_tensor_that_does_not_fit_is_named():
    with pytest.raises(
        CapacityError,
        match="local.acc is too small: its tiles need 3000 entries, the largest is '[ab]' with 1500",
    ):
        build(unary(lambda a, b: a + b, n=1500), VTA)


@T.prim_func
def in_place(pa: T.handle):
    a = T.match_buffer(pa, (8, 1, 16), "int8")
    acc = T.alloc_buffer((8, 1, 16), "int32", scope="local.acc")
    for i, b, c in T.grid(8, 1, 16):
        acc[i, b, c] = T.cast(a[i, b, c], "int32")
    for i, b, c in T.grid(8, 1, 16):
        acc[i, b, c] = acc[i, b, c] + 1
    for i, b, c in T.grid(8, 1, 16):
        a[i, b, c] = T.cast(acc[i, b, c], "int8")


def test_a_parameter_that_is_loaded_and_stored_is_refused():
    text = "parameter 'a' is loaded and stored: it would be an input and an output; store to another parameter"
    with pytest.raises(ScheduleError, match=text):
        build(in_place, VTA)
