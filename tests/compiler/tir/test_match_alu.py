"""compiler/tir/match_alu.py: which operations an expression becomes; tests of lowering check what they compute."""

import pytest

from tilewright.compiler.intrin import ACC
from tilewright.compiler.tvm_compat import Schedule, te, tirx
from tilewright.hw.errors import ScheduleError


def c(value):
    return tirx.const(value, "int32")


def unary(value):
    """A schedule of one statement `value(a[i], b[i])`; `b` is loaded only where it is read."""
    a, b = (te.placeholder((8, 1, 16), "int32", name) for name in "ab")
    stage = te.compute(a.shape, lambda *i: value(a(*i), b(*i)), name="stage")
    out = te.compute(a.shape, lambda *i: stage(*i).astype("int8"), name="out")
    sch = Schedule(te.create_prim_func([a, b, out]))
    block = sch.get_sblock("stage")
    sch.set_scope(block, 0, ACC)
    for k in range(len(sch.get(block).reads)):
        sch.cache_read(block, k, ACC)
    return sch


@pytest.fixture
def operations(instructions):
    """(operation, immediate or None where it reads a tensor) of a schedule; RESET for a GEMM that resets."""

    def show(sch):
        found = [("RESET" if f.get("reset") else name.removeprefix("ALU."), f) for name, f in instructions(sch)]
        compute = [(name, f) for name, f in found if not name.startswith(("LOAD", "STORE"))]
        return [(name, f["imm"] if f.get("use_imm") else None) for name, f in compute]

    return show


@pytest.mark.parametrize(
    "value, expected",
    [
        (lambda a, b: a + b, [("ADD", None)]),
        (lambda a, b: a - c(5), [("ADD", -5)]),
        (lambda a, b: c(7) - a, [("MUL", -1), ("ADD", 7)]),
        (lambda a, b: a - b, [("MUL", -1), ("ADD", None)]),
        (lambda a, b: a << c(17), [("SHR", -16), ("SHR", -1)]),
        (lambda a, b: a >> c(31), [("SHR", 15), ("SHR", 15), ("SHR", 1)]),
        (lambda a, b: a >> b, [("SHR", None)]),
        (lambda a, b: te.max(c(5), a), [("MAX", 5)]),
        (lambda a, b: te.min(te.max(a * c(3), b), c(90)), [("MUL", 3), ("MAX", None), ("MIN", 90)]),
        (lambda a, b: c(0), [("RESET", None)]),
        (lambda a, b: c(-7), [("RESET", None), ("ADD", -7)]),
        (lambda a, b: c(70000), [("RESET", None), ("ADD", 1), ("SHR", -15), ("SHR", -1), ("ADD", 4464)]),
    ],
)
def test_operations(operations, value, expected):
    assert operations(unary(value)) == expected


def test_a_result_is_computed_in_place_of_an_operand_that_nobody_needs(instructions):
    alu = [fields for name, fields in instructions(unary(lambda a, b: a + b)) if name == "ALU.ADD"]
    stores = [fields for name, fields in instructions(unary(lambda a, b: a + b)) if name == "STORE.OUT"]
    assert len(alu) == 1 and (alu[0]["iter_out"], alu[0]["iter_in"], alu[0]["dst_in"], alu[0]["src_in"]) == (1, 8, 1, 1)
    loads = [fields["sram_base"] for name, fields in instructions(unary(lambda a, b: a + b)) if name == "LOAD.ACC"]
    assert sorted(loads) == [0, 8] and stores[0]["sram_base"] in loads


@pytest.mark.parametrize(
    "value, text",
    [
        (lambda a, b: a + c(70000), "70000 does not fit an immediate of 16 bits"),
        (lambda a, b: a << b, "the amount of a left shift must be constant"),
        (lambda a, b: (a + c(1)) * (b + c(1)), "both operands of an operation are computed"),
        (lambda a, b: tirx.abs(a), "is not an ALU operation"),
    ],
)
def test_what_is_no_chain_is_refused(operations, value, text):
    with pytest.raises(ScheduleError, match=rf"^stage.*{text}"):
        operations(unary(value))
