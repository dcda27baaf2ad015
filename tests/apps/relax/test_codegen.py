"""apps/relax/codegen.py: what RunCodegen gets, and programs as constants."""

import json

import numpy as np
import pytest

from tilewright.apps.relax import release
from tilewright.apps.relax.codegen import Choice, carried, codegen, compiled
from tilewright.apps.relax.partition import Partition
from tilewright.compiler.tvm_compat import relax, tvm_ffi
from tilewright.hw.config import PRESETS
from tilewright.hw.errors import UnsupportedError

FLOATS = ((4, 64), "float32")
CHOICE = Choice(PRESETS["tiny"], "timing", "single")


def split(function, quantised):
    return Partition(function(lambda emit, x: quantised.layer(emit, quantised(emit, x)), FLOATS), CHOICE)


def test_a_choice_is_kept_in_attributes(function, quantised):
    (part,) = split(function, quantised).parts
    assert Choice.of(part.function) == CHOICE
    assert json.loads(part.function.attrs["tilewright.config"]) == CHOICE.cfg.to_dict()


def test_functions_of_others_are_refused(function, quantised):
    (part,) = split(function, quantised).parts
    with pytest.raises(UnsupportedError, match=r"tilewright_main_0_\w+ has Codegen 'tilewright', but no attribute"):
        codegen([part.function.without_attr("tilewright.config")], {}, {})


def test_a_program_has_the_tensors_of_the_function_by_position(function, quantised):
    (part,) = split(function, quantised).parts
    executable = compiled(part.function)
    assert [(t.name, t.dtype, t.shape) for t in executable.inputs] == [("in0", "float32", (4, 64))]
    assert [(t.name, t.dtype, t.shape) for t in executable.outputs] == [("out0", "int8", (4, 64))]
    assert compiled(part.function) is executable


def test_the_generator_registers_what_runs_a_function(function, quantised):
    (part,) = split(function, quantised).parts
    assert list(codegen([part.function], {}, {})) == []
    x, y = np.random.default_rng(0).normal(0, 3, (4, 64)).astype(np.float32), np.zeros((4, 64), np.int8)
    tvm_ffi.get_global_func(part.symbol)(*(tvm_ffi.from_dlpack(array) for array in (x, y)))
    assert np.array_equal(y, compiled(part.function)(x)["out0"])
    release()


def test_programs_become_constants_of_calls(function, quantised):
    mod = relax.transform.RunCodegen()(relax.transform.Normalize()(split(function, quantised).module))
    assert "const_name_to_constant" in mod.attrs
    mod = carried(mod)
    assert "const_name_to_constant" not in (mod.attrs or {})
    (call,) = [
        b.value
        for block in mod["main"].body.blocks
        for b in block.bindings
        if getattr(getattr(b.value, "op", None), "name", "") == "relax.call_dps_packed"
    ]
    key, program = call.args[1].fields[:2]
    assert call.args[0].global_symbol == "tilewright.run" and key.value.startswith("tilewright:timing:main_0:")
    assert bytes(program.value.numpy()[:2]) == b"PK"  # a .tw file
