"""apps/relax/partition.py: levels, outlined functions, and blocks of other kinds."""

import numpy as np
import pytest

from tilewright.apps.relax.codegen import Choice
from tilewright.apps.relax.partition import Partition
from tilewright.compiler.tvm_compat import relax
from tilewright.hw.config import PRESETS

OP = relax.op
FLOATS = ((4, 64), "float32")
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
