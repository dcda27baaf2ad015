"""compiler/api.py: what `build` takes, and what the program and its buffers are called."""

import pytest

from tilewright.compiler import build
from tilewright.compiler.schedule.dense import dense
from tilewright.compiler.tvm_compat import IRModule
from tilewright.hw.config import PRESETS
from tilewright.hw.errors import ConfigError, ScheduleError

VTA = PRESETS["vta"]


@pytest.fixture(scope="module")
def sch():
    return dense(VTA, 8, 32, 32)


def test_functions_and_modules_are_built_as_schedules_are(sch):
    for scheduled in (sch, sch.mod, sch.mod["main"]):
        program = build(scheduled, "vta", name="product")
        assert program.name == "product" and list(program.buffers) == ["x", "w", "out"]
        assert [b.kind for b in program.buffers.values()] == ["input", "input", "output"]


def test_names_come_from_the_function(sch):
    func = sch.mod["main"]
    assert build(sch, VTA).name == "main"
    assert build(IRModule({"other": func}), VTA).name == "other"
    assert build(func.with_attr("global_symbol", "mine"), VTA).name == "mine"


def test_widths_are_those_of_the_scratchpads():
    cfg = PRESETS["tiny"].replace(name="narrow", wgt_bits=4)
    buffers = build(dense(cfg, 4, 8, 8), cfg).buffers
    assert {name: b.bits for name, b in buffers.items()} == {"x": 8, "w": 4, "out": 8}


def test_what_is_no_function_is_refused(sch):
    with pytest.raises(ScheduleError, match="build takes a Schedule, PrimFunc or IRModule, not int"):
        build(3, VTA)  # pyright: ignore[reportArgumentType]
    with pytest.raises(ScheduleError, match="build takes one function; the module has none"):
        build(IRModule({}), VTA)
    func = sch.mod["main"]
    two = IRModule({"one": func, "two": func.with_attr("global_symbol", "two")})
    with pytest.raises(ScheduleError, match="build takes one function; the module has one, two"):
        build(two, VTA)
    with pytest.raises(ConfigError, match="unknown preset 'moon'"):
        build(sch, "moon")
