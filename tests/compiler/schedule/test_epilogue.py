"""compiler/schedule/epilogue.py: stages, parameters and outputs after an accumulator."""

import pytest

from tilewright.compiler.conv_shape import ConvShape
from tilewright.compiler.schedule import epilogue as ep
from tilewright.compiler.schedule.tiling import Work
from tilewright.compiler.tvm_compat import te
from tilewright.hw.config import PRESETS
from tilewright.hw.errors import ScheduleError

TINY = PRESETS["tiny"]
CHAIN = [("shr", 3), ("add", "b"), ("mul", "s"), ("sub", "b")]


def built(chain, planes):
    return ep.build(te.placeholder((2, 3, 5, 1, 4), "int32", "acc"), chain, planes, TINY, 3)


def test_parameters_are_loaded_once_each():
    assert ep.operand_names(CHAIN) == ["b", "s"]
    found = built(CHAIN, False)
    assert [tensor.op.name for tensor in found.operands] == ["b", "s"]
    assert [tuple(map(int, tensor.shape)) for tensor in found.operands] == [(3, 1, 4)] * 2
    assert found.readers == [(name, "local.acc") for name in ("add1", "mul2", "sub3")]


def test_one_output_after_the_last_stage():
    found = built(CHAIN, False)
    assert found.stages == ["shr0", "add1", "mul2", "sub3"]
    assert [found.stored_after(stage) for stage in (None, *found.stages)] == [[], [], [], [], ["out"]]
    assert built([], False).stored_after(None) == ["out"]


def test_planes_are_stored_between_shifts():
    found = built([("add", "b")], True)
    assert found.stages == ["add0", "byte1", "byte2", "byte3"]
    assert [found.stored_after(stage) for stage in (None, *found.stages)] == [[], *([name] for name in ep.PLANES)]
    assert built([], True).stored_after(None) == ["OUT0"]


def test_fewer_planes_than_bytes():
    found = built([("add", "b")], 2)
    assert found.stages == ["add0", "byte1"] and [t.op.name for t in found.outputs] == ["OUT0", "OUT1"]
    assert ep.alu_ops(CHAIN, 2) == 5 and ep.plane_names(3) == ep.PLANES[:3]
    with pytest.raises(ScheduleError, match="planes = 5: must be True, False, or 2 to 4 bytes"):
        ep.plane_names(5)


def test_parameters_of_all_channels_are_one_entry():
    each, every = (built([(op, "p")], False) for op in ("requant", "requant_all"))
    assert [tuple(map(int, found.operands[0].shape)) for found in (each, every)] == [(3, 4, 3), (1, 4, 3)]
    assert (each.shared, every.shared) == (frozenset(), {"out"})
    work = Work.of(ConvShape(1, 4, 1, 1, 12), TINY)
    assert [ep.with_epilogue(work, [(op, "p")], False).packed for op in ("requant", "requant_all")] == [1, 0]
    with pytest.raises(ScheduleError, match="must be the last one, without planes"):
        ep.check([("requant_all", "p"), ("add", 1)], [])


def test_operations_per_accumulator():
    assert ep.alu_ops(CHAIN, False) == 4 and ep.alu_ops(CHAIN, True) == 7 and ep.alu_ops([], False) == 0


@pytest.mark.parametrize(
    "stage, text",
    [
        (("div", 2), r"epilogue stage \('div', 2\): must be one of add, sub, mul"),
        (("add", 1.5), r"epilogue stage \('add', 1.5\): must be one of"),
        (("add",), r"epilogue stage \('add',\): must be one of"),
        (("mul", 0), "the result would always be 0"),
        (("add", "x"), "epilogue parameter 'x': the name is taken"),
        (("add", "out"), "epilogue parameter 'out': the name is taken"),
        (("add", "OUT3"), "epilogue parameter 'OUT3': the name is taken"),
    ],
)
def test_impossible_stages(stage, text):
    with pytest.raises(ScheduleError, match=text):
        ep.check([("max", 0), stage], ["x"])


def test_possible_stages():
    ep.check([*CHAIN, ("max", 0), ("min", -5), ("shl", 2)], ["x", "w"])
