"""compiler/frontend/relax_layout.py: constants that move, and element-wise operators before their images do."""

import numpy as np

from tilewright.compiler import graph as g
from tilewright.compiler.frontend.relax import TO_NCHW, TO_NHWC, fold_constants, sunk
from tilewright.compiler.tvm_compat import relax

OP = relax.op
ZERO = relax.const(np.int8(0))


def folded(body):
    """The folded value of the last binding of what `body(emit)` emits."""
    builder = relax.BlockBuilder()
    with builder.function("main", []):
        with builder.dataflow():
            result = builder.emit_output(body(builder.emit))
        builder.emit_func_output(result)
    bindings = builder.get()["main"].body.blocks[0].bindings
    return fold_constants(bindings)[bindings[-2].var]  # the last one is the output's name


def test_transposed_weights_are_constants_again():
    weight, scales = np.arange(6, dtype=np.int8).reshape(2, 3), relax.const(np.ones(2, np.float32))
    found = folded(lambda emit: emit(OP.dequantize(emit(OP.permute_dims(relax.const(weight))), scales, ZERO, axis=1)))
    assert np.array_equal(found.args[0].value.numpy(), weight.T) and found.attrs.axis == 1
    assert [int(n) for n in found.ty.shape] == [3, 2]


def test_scales_stay_with_their_axis_where_weights_are_reshaped():
    weight, scales = np.arange(18, dtype=np.int8).reshape(1, 3, 3, 2), relax.const(np.ones(2, np.float32))
    found = folded(
        lambda emit: emit(OP.reshape(emit(OP.dequantize(relax.const(weight), scales, ZERO, axis=3)), (3, 3, 2, 1)))
    )
    assert found.op.name == "relax.dequantize" and found.attrs.axis == 2
    assert found.args[0].value.numpy().shape == (3, 3, 2, 1)


def test_a_reshape_that_mixes_the_axis_of_the_scales_stays():
    weight, scales = np.arange(6, dtype=np.int8).reshape(3, 2), relax.const(np.ones(2, np.float32))
    found = folded(lambda emit: emit(OP.reshape(emit(OP.dequantize(relax.const(weight), scales, ZERO, axis=1)), (6,))))
    assert found.op.name == "relax.reshape"


def images(*names):
    """Images NCHW that become NHWC: the operators that turn them, and the tensors NHWC."""
    ops = []
    for name in names:
        x, y = (g.Tensor(f"{name}.{k}", shape, scale=0.1) for k, shape in (("c", (1, 4, 2, 3)), ("n", (1, 2, 3, 4))))
        ops.append(g.Transpose(f"{name}.turn", (x,), y, TO_NHWC, True))
    return ops, [op.output for op in ops]


def test_a_sum_is_computed_before_its_images_are_turned():
    ops, (a, b) = images("a", "b")
    *_, total, turn = sunk([*ops, g.Add("sum", (a, b), g.Tensor("y", a.shape, scale=0.2))])
    assert [t.name for t in total.inputs] == ["a.c", "b.c"] and total.output.shape == (1, 4, 2, 3)
    assert isinstance(turn, g.Transpose) and (turn.x, turn.output.name, turn.axes) == (total.output, "y", TO_NHWC)


def test_the_axis_of_a_concatenation_follows():
    ops, (a, b) = images("a", "b")
    *_, both, _turn = sunk([*ops, g.Concat("both", (a, b), g.Tensor("y", (1, 2, 3, 8), scale=0.1), 3)])
    assert isinstance(both, g.Concat) and both.axis == 1 and both.output.shape == (1, 8, 2, 3)


def test_constants_are_turned_and_other_images_are_not():
    ops, (a,) = images("a")
    values = np.arange(24, dtype=np.int8).reshape(1, 2, 3, 4)
    constant = g.Tensor("k", values.shape, scale=0.1, data=values)
    *_, total, _turn = sunk([*ops, g.Add("sum", (a, constant), g.Tensor("y", a.shape, scale=0.2))])
    turned = total.inputs[1].data
    assert turned is not None and np.array_equal(turned, values.transpose(TO_NCHW))
    other = g.Tensor("other", a.shape, scale=0.1)
    plain = g.Add("sum", (a, other), g.Tensor("y", a.shape, scale=0.2))
    assert sunk([*ops, plain])[-1] is plain
