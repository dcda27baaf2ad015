"""apps/relax: claims of a block and why the rest is left, outlined functions, and their programs."""

import json

import numpy as np
import pytest

from tilewright.apps.relax import release
from tilewright.apps.relax.codegen import Choice, carried, codegen, compiled
from tilewright.apps.relax.partition import Claims, Partition
from tilewright.compiler.frontend.relax import arguments as operands
from tilewright.compiler.tvm_compat import relax, tvm_ffi
from tilewright.hw.config import PRESETS
from tilewright.hw.errors import UnsupportedError

OP = relax.op
FLOATS = ((4, 64), "float32")


@pytest.fixture
def claims(function):
    """The claims of a function's block."""
    return lambda body, *parameters: Claims(function(body, *parameters)["main"].body.blocks[0])


def kinds(found):
    """The operators whose results are claimed."""
    return [found.values[var].op.name.removeprefix("relax.") for var in found.needs]


def test_a_layer_is_claimed_with_all_up_to_the_integers_before_it(claims, quantised):
    found = claims(lambda emit, x: quantised.layer(emit, quantised(emit, x)), FLOATS)
    first, second = found.needs
    assert kinds(found) == ["quantize", "quantize"] and found.left == []
    assert found.needs[second] == [first] and [var.name for var in found.needs[first]] == ["x0"]
    names = sorted(found.values[var].op.name for var in found.inside[second])
    assert names == ["relax.dequantize", "relax.dequantize", "relax.matmul", "relax.quantize"]


def test_floats_between_are_where_a_claim_begins(claims, quantised):
    def body(emit, x):
        return quantised.layer(emit, quantised(emit, emit(OP.sin(quantised.layer(emit, quantised(emit, x))))))

    found = claims(body, FLOATS)
    assert kinds(found) == ["quantize"] * 4
    (sine,) = list(found.needs.values())[2]
    assert found.values[sine].op.name == "relax.sin"


def test_integers_of_other_operators_are_named_and_may_be_read(claims, quantised):
    def body(emit, x):
        integers = emit(OP.astype(emit(OP.round(x)), "int8"))
        return quantised.layer(emit, emit(OP.dequantize(integers, quantised.scale, quantised.zero)))

    found = claims(body, FLOATS)
    assert kinds(found) == ["quantize"]
    assert found.left == ["relax.astype of 'lv1' is not computed from quantised values"]
    assert [var.name for var in found.needs[next(iter(found.needs))]] == ["lv1"]


def test_integers_may_be_taken_for_other_numbers(claims, quantised):
    def body(emit, x):
        q = emit(OP.quantize(x, quantised.scale, quantised.zero))
        real = [emit(OP.dequantize(q, relax.const(np.float32(s)), quantised.zero)) for s in (0.1, 0.2)]
        return emit(OP.quantize(emit(OP.add(*real)), quantised.scale, quantised.zero))

    found = claims(body, FLOATS)
    assert len(found.needs) == 3 and found.left == []  # with the result's second name


def test_other_types_are_not_claimed(claims, quantised):
    def body(emit, x):
        return emit(OP.quantize(x, quantised.scale, relax.const(np.float16(0)), out_dtype="float8_e4m3fn"))

    assert not claims(body, FLOATS).needs


def test_scales_of_channels_and_computed_ones_are_not_claimed(claims, quantised):
    scales = relax.const(np.full(64, 0.1, np.float32)), relax.const(np.zeros(64, np.int8))
    found = claims(lambda emit, x: emit(OP.quantize(x, *scales, axis=1)), FLOATS)
    assert not found.needs and "has 64 values of scale; activations have one" in found.left[0]
    found = claims(lambda emit, x, s: emit(OP.quantize(x, s, quantised.zero)), FLOATS, ((), "float32"))
    assert not found.needs and "has a scale that is no constant" in found.left[0]


def test_a_sum_that_is_no_bias_is_left(claims, quantised):
    rows = relax.const(np.ones((4, 64), np.float32))

    def body(emit, x):
        real = quantised(emit, x)
        weight = emit(OP.dequantize(quantised.weight, quantised.weight_scale, relax.const(np.int8(0)), axis=1))
        return quantised(emit, emit(OP.add(emit(OP.matmul(real, weight)), rows)))

    found = claims(body, FLOATS)
    assert len(found.needs) == 2 and [var.name for var in list(found.needs.values())[1]] == ["lv4"]


def test_moved_integers_have_the_scale_with_which_they_are_dequantised(claims, quantised):
    def body(emit, x):
        moved = emit(OP.reshape(x, (4, 64)))
        return quantised.layer(emit, emit(OP.dequantize(moved, quantised.scale, quantised.zero)))

    found = claims(body, ((256,), "int8"))
    assert kinds(found) == ["reshape", "quantize"]


def test_variables_of_an_expression(function):
    mod = function(lambda emit, x, y: emit(OP.concat([x, y])), FLOATS, FLOATS)
    (binding,) = mod["main"].body.blocks[0].bindings[:1]
    assert [var.name for var in operands(binding.value)] == ["x0", "x1"]
    assert list(operands(relax.TupleGetItem(relax.Tuple(mod["main"].params), 1))) == list(mod["main"].params)


CHOICE = Choice(PRESETS["tiny"], "model", "double")


def sines(quantised, count):
    """Layers with sines between them, and a branch from the input to their end."""

    def body(emit, x):
        y = quantised(emit, x)
        branch = quantised.layer(emit, y)
        for _ in range(count):
            y = quantised(emit, emit(OP.sin(quantised.layer(emit, y))))
        return quantised(emit, emit(OP.add(quantised.layer(emit, y), branch)))

    return body


def test_claims_on_both_sides_of_floats_are_parts_in_order(function, quantised):
    found = Partition(function(sines(quantised, 2), FLOATS), CHOICE)
    assert [part.symbol.rsplit("_", 1)[0] for part in found.parts] == [f"tilewright_main_{k}" for k in range(3)]
    assert [len(part.gives) for part in found.parts] == [2, 1, 1]  # the branch begins with the first
    assert [len(part.takes) for part in found.parts] == [1, 1, 2]
    for part in found.parts:
        function_ = found.module[part.symbol]
        assert function_.attrs["Codegen"] == "tilewright"
        assert [var.name for var in function_.params] == [f"in{k}" for k in range(len(part.takes))]


def test_a_part_that_the_accelerator_has_nothing_of_is_dropped(function, quantised):
    def body(emit, x):
        return quantised(emit, emit(OP.sin(quantised.layer(emit, quantised(emit, x)))))

    found = Partition(function(body, FLOATS), CHOICE)
    assert len(found.parts) == 1
    assert found.left == ["1 result of 'main': no operator in them is faster on the accelerator"]


def test_the_module_is_the_one_given_where_nothing_is_claimed(function):
    mod = function(lambda emit, x: emit(OP.sin(x)), FLOATS)
    found = Partition(mod, CHOICE)
    assert found.module.same_as(mod) and not found.parts and not found.left


def test_open_sizes_are_left(function, quantised):
    from tilewright.compiler.tvm_compat import tirx

    mod = function(lambda emit, x: quantised.layer(emit, quantised(emit, x)), ((tirx.Var("n", "int64"), 64), "float32"))
    found = Partition(mod, CHOICE)
    assert not found.parts and "quantize of 'lv' has sizes that are not known" in str(found.left)


def test_only_dataflow_blocks_are_read(function, quantised):
    mod = function(lambda emit, x: quantised.layer(emit, quantised(emit, x)), FLOATS, dataflow=False)
    assert not Partition(mod, CHOICE).parts
    (part,) = Partition(relax.transform.ConvertToDataflow()(mod), CHOICE).parts
    assert len(part.gives) == 1


@pytest.mark.parametrize("value", [1, 2])
def test_equal_functions_of_other_constants_have_other_symbols(function, quantised, value):
    quantised.weight = relax.const(np.full((64, 64), value, np.int8))
    (part,) = Partition(function(lambda emit, x: quantised.layer(emit, quantised(emit, x)), FLOATS), CHOICE).parts
    quantised.weight = relax.const(np.full((64, 64), value + 1, np.int8))
    (other,) = Partition(function(lambda emit, x: quantised.layer(emit, quantised(emit, x)), FLOATS), CHOICE).parts
    assert part.symbol != other.symbol


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
    assert call.args[0].global_symbol == "tilewright.run" and key.value.startswith("tilewright:model:main_0:")
    assert bytes(program.value.numpy()[:2]) == b"PK"  # a .tw file
