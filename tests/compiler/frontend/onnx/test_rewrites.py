"""Composed operators of ONNX, as elementary ones: each against onnxruntime."""

import numpy as np
import pytest

from tilewright.compiler import graph as g


def real(m, *shape, low=-1.0, high=1.0):
    return m.const(m.rng.uniform(low, high, shape).astype(np.float32))


def norm(m, x, c):
    return m.node("BatchNormalization", x, *(real(m, c) for _ in range(3)), real(m, c, low=0.5), name="norm")


def test_a_normalisation_is_part_of_the_convolution_before_it(m, compared):
    w, scale = m.weights(5, 3, 3, 3)
    y = m.node("Conv", m.quantise(m.input("x", [1, 3, 6, 6])), w, m.bias(scale), name="conv")
    m.output(m.quantise(m.node("Relu", norm(m, y, 5)), 0.1))
    graph = compared(m, 1.001, 0.02, 0.1)
    assert [type(op) for op in graph.ops] == [g.Quantize, g.QConv2d, g.Dequantize]


@pytest.mark.parametrize("shape", [(1, 5, 6, 4), (3, 5), (2, 5, 7)])
def test_a_normalisation_of_its_own_is_a_depthwise_convolution(m, compared, shape):
    m.output(m.quantise(m.node("Relu", norm(m, m.quantise(m.input("x", list(shape))), 5)), 0.02))
    graph = compared(m, 1.001, 0.02, 0.02)
    assert [op.groups for op in graph.ops if isinstance(op, g.QConv2d)] == [5]


def test_channels_multiplied_by_zero(m, compared):
    factor = np.array([0, 1, -0.5], np.float32).reshape(3, 1, 1)
    y = m.node("Mul", m.quantise(m.input("x", [1, 3, 4, 4])), m.const(factor))
    m.output(m.quantise(m.node("Add", y, m.const(np.array([[[0.3]], [[0]], [[1]]], np.float32)))))
    compared(m, 1.001, 0.2, 0.05)  # half steps, which are ties


@pytest.mark.parametrize(
    "kind, shape, constants, attrs, most, opset",
    [
        ("GroupNormalization", [2, 6, 3, 4], [6, 6], {"num_groups": 2}, 1e-4, 21),
        ("InstanceNormalization", [1, 3, 5, 4], [3, 3], {}, 1e-4, 17),
        ("LRN", [2, 6, 3, 4], [], {"size": 3, "alpha": 0.3, "beta": 0.6, "bias": 2.0}, 1e-5, 17),
        ("LRN", [2, 6, 3, 4], [], {"size": 5, "alpha": 0.3, "beta": 0.6, "bias": 2.0}, 1e-5, 17),
        ("LayerNormalization", [2, 3, 8], [8, 8], {}, 1e-4, 17),
        ("LayerNormalization", [2, 3, 8], [8], {}, 1e-4, 17),
        ("MeanVarianceNormalization", [2, 3, 4, 5], [], {}, 1e-4, 17),
        ("RMSNormalization", [2, 3, 8], [8], {"epsilon": 1e-3}, 1e-4, 23),
        ("Softmax", [2, 3, 4], [], {"axis": 1}, 1e-5, 11),  # of old files: over all that follows
    ],
)
def test_normalisations(m, compared, kind, shape, constants, attrs, most, opset):
    m.output(m.node(kind, m.input("x", shape), *(real(m, n) for n in constants), **attrs))
    compared(m, most, opset=opset)


def test_a_softmax_of_fine_steps_is_not_in_fixed_point(m, compared):
    m.output(m.quantise(m.node("Softmax", m.quantise(m.input("x", [2, 100])), axis=-1), 0.0005, -128))
    compared(m, 1.001, 0.01, 0.0005)


@pytest.mark.parametrize("p", [1, 2])
def test_vectors_of_length_1(m, compared, p):
    x = m.node("Mul", m.input("x", [2, 3, 8]), m.const(np.array([[[1]], [[0]]], np.float32)))
    m.output(m.node("LpNormalization", x, axis=-1, p=p))
    compared(m, 1e-5)


@pytest.mark.parametrize("bias", [True, False])
def test_normalisation_of_a_sum(m, compared, bias):
    x, y = m.input("x", [2, 3, 8]), m.input("y", [2, 3, 8])
    more = [real(m, 8), real(m, 8)] if bias else []
    outputs = ["normalised", "", "", "total"] if bias else ["normalised"]
    found = m.nodes_of("SkipLayerNormalization", [x, y, real(m, 8), *more], outputs, "skip", domain="com.microsoft")
    m.output(found[0])
    if bias:
        m.output(m.node("Neg", found[3]))
    compared(m, 1e-4)


def test_operators_on_several_inputs(m, compared):
    x, y, z = (m.input(name, [1, 6]) for name in "xyz")
    for kind in ("Sum", "Max", "Min"):
        m.output(m.node(kind, x, y, z))
    m.output(m.node("Sum", x, name="alone"))
    compared(m, 1e-5)


def test_integers_that_are_computed_when_the_network_runs(m, compared):
    y, scale, zero = m.nodes_of("DynamicQuantizeLinear", [m.input("x", [2, 8])], ["q", "scale", "zero"], "dynamic")
    # 7 bits: without VNNI onnxruntime's sums of two products of uint8 and int8 saturate at 16 bits
    w = m.const(m.rng.integers(-64, 64, (8, 5)).astype(np.int8))
    sums = m.node("Cast", m.node("MatMulInteger", y, w, zero, m.const(np.int8(3))), to=1)
    m.output(m.node("Mul", sums, m.node("Mul", scale, m.const(np.float32(0.01)))))
    compared(m, 1e-3)


@pytest.mark.parametrize("swapped", [True, False])
def test_choices_that_are_known(m, compared, swapped):
    mask = m.const(np.tril(np.ones((4, 4), bool)))
    parts = [m.input("x", [2, 4, 4]), m.const(np.float32(-1e9))]
    m.output(m.node("Softmax", m.node("Where", mask, *(parts[::-1] if swapped else parts)), axis=-1))
    compared(m, 1e-5)


def test_a_dropout_of_two_results(m, compared):
    y, _ = m.nodes_of("Dropout", [m.input("x", [2, 4])], ["y", "mask"], "dropout")
    m.output(m.node("Neg", y))
    compared(m)


@pytest.mark.parametrize("kind, attrs", [("Celu", {"alpha": 0.7}), ("Shrink", {"bias": 0.2, "lambd": 0.4})])
def test_functions_of_functions(m, compared, kind, attrs):
    m.output(m.node(kind, m.input("x", [2, 9]), **attrs))
    compared(m, 1e-5)


def test_a_function_of_functions_is_one_table(m, compared):
    m.output(m.quantise(m.node("Celu", m.quantise(m.input("x", [2, 9]))), 0.02))
    graph = compared(m, 1.001, 0.02, 0.02)
    assert sum(isinstance(op, g.Lookup) for op in graph.ops) == 1


@pytest.mark.parametrize("kind, count", [("BiasGelu", 2), ("FastGelu", 1), ("FastGelu", 2), ("QuickGelu", 1)])
def test_onnxruntimes_own_functions(m, compared, kind, count):
    more = [m.const(np.linspace(-1, 1, 9).astype(np.float32))] * (count - 1)
    m.output(m.nodes_of(kind, [m.input("x", [2, 9]), *more], ["y"], "gelu", domain="com.microsoft")[0])
    compared(m, 1e-5)


@pytest.mark.parametrize("kind", ["ReduceLogSum", "ReduceLogSumExp"])
@pytest.mark.parametrize("keepdims", [0, 1])
def test_logarithms_of_sums(m, compared, kind, keepdims):
    x = m.node("Abs", m.input("x", [2, 3, 4]))
    m.output(m.node(kind, x, axes=[0, 2], keepdims=keepdims))
    compared(m, 1e-5)


@pytest.mark.parametrize(
    "equation, shapes",
    [
        ("bij,bjk->bik", [(2, 3, 4), (2, 4, 5)]),
        ("bhid,bhjd->bhij", [(1, 2, 3, 4), (1, 2, 5, 4)]),
        ("nctv,vw->nctw", [(1, 3, 4, 5), (5, 5)]),
        ("i,j->ji", [(3,), (4,)]),
        ("ijk,kl", [(2, 3, 4), (4, 5)]),
        ("bij,cj->cib", [(2, 3, 4), (5, 4)]),
        ("...ij,...jk->...ik", [(2, 3, 4), (2, 4, 5)]),
        ("...ij->...ji", [(2, 3, 4)]),
        ("...ij,jk", [(2, 3, 4), (4, 5)]),
        ("abc->ca", [(2, 3, 4)]),
    ],
)
def test_sums_of_products(m, compared, equation, shapes):
    operands = [m.input(f"x{k}", list(shape)) for k, shape in enumerate(shapes)]
    m.output(m.node("Einsum", *operands, equation=equation))
    compared(m, 1e-5)


@pytest.mark.parametrize(
    "equation, shapes",
    [("ii->i", [(3, 3)]), ("i,i,i->i", [(3,)] * 3), ("ij,jk->ik", [(2, 1), (4, 5)]), ("ij,ij->", [(3, 4)] * 2)],
)
def test_other_sums_of_products(m, refusal, equation, shapes):
    operands = [m.input(f"x{k}", list(shape)) for k, shape in enumerate(shapes)]
    m.output(m.node("Einsum", *operands, equation=equation, name="bad"))
    assert "Einsum 'bad' has inputs or attributes that are not supported" in refusal(m.save())


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("attrs", [{}, {"exclusive": 1}, {"reverse": 1}, {"exclusive": 1, "reverse": 1}])
def test_running_sums(m, compared, axis, attrs):
    m.output(m.node("CumSum", m.input("x", [2, 3, 4]), m.const(np.array(axis)), **attrs))
    compared(m, 1e-5)


@pytest.mark.parametrize("upper, k", [(1, None), (0, 1), (1, -1)])
def test_triangles(m, compared, upper, k):
    m.output(m.node("Trilu", m.input("x", [2, 3, 4]), *([] if k is None else [m.const(np.array(k))]), upper=upper))
    compared(m)


@pytest.mark.parametrize("first, second", [((3, 8), (8,)), ((8,), (8, 5)), ((8,), (2, 8, 5)), ((2, 3, 8), (8,))])
@pytest.mark.parametrize("constant", [False, True])
def test_products_by_a_row_or_a_column(m, compared, first, second, constant):
    x = m.quantise(m.input("x", list(first)))
    y = m.const(m.rng.normal(0, 1, second).astype(np.float32)) if constant else m.input("y", list(second))
    m.output(m.node("MatMul", x, y))
    compared(m, 1e-4)
