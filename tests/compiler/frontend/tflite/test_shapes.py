"""Shapes that a file computes are folded; anything else stays an operator."""

import numpy as np
import pytest

from tilewright.compiler.frontend.tflite.file import fold_constants, read
from tilewright.compiler.frontend.tflite.importer import import_tflite
from tilewright.compiler.graph import NumberBinary, QConvTranspose2d, Reshape, reference


def numbers(m, *values):
    return m.const(np.array(values if len(values) != 1 else values[0], np.int32))


def integer(m, kind, inputs, shape, **options):
    return m.node(kind, inputs, [m.tensor(shape, dtype="INT32")], **options)


def first_of_shape(m, x):
    """The batch size, as Keras computes it."""
    shape = integer(m, "SHAPE", [x], (4,), outType=2)
    cut = [m.const(np.array([v], np.int32)) for v in (0, 1, 1)]
    return integer(m, "STRIDED_SLICE", [shape, *cut], (), shrinkAxisMask=1)


def test_a_reshape_and_a_transposed_convolution_with_an_open_batch(m, litert_outputs):
    x = m.input((1, 3, 4, 2))
    m.graph.tensors[x].shapeSignature = np.array([-1, 3, 4, 2], np.int32)
    batch = first_of_shape(m, x)
    shape = integer(m, "PACK", [batch, *(numbers(m, n) for n in (6, 8, 5))], (4,), valuesCount=4)
    weights, bias = m.weights((5, 3, 3, 2))
    y = m.op("TRANSPOSE_CONV", [shape, weights, x, bias], (1, 6, 8, 5), padding=0, strideH=2, strideW=2)
    shape = integer(m, "PACK", [first_of_shape(m, y), numbers(m, 240)], (2,), valuesCount=2)
    m.output(m.op("RESHAPE", [y, shape], (1, 240)))
    path = m.save()
    graph = import_tflite(path)
    kinds = [type(op) for op in graph.ops if not op.name.endswith(".relayout")]
    assert kinds == [QConvTranspose2d, Reshape]
    x = m.rng.integers(-128, 128, (1, 3, 4, 2)).astype(np.int8)
    outputs, _ = reference.run(graph, {graph.inputs[0].name: x})
    assert np.array_equal(next(iter(outputs.values())), litert_outputs(path, x)[0])


@pytest.mark.parametrize(
    "kind, values, options, expected",
    [
        ("ADD", ([1, 2], [3, 4]), {}, [4, 6]),
        ("SUB", ([1, 2], [3, 5]), {}, [-2, -3]),
        ("MUL", ([1, 2], [3, 4]), {}, [3, 8]),
        ("FLOOR_DIV", ([7, -7], [2, 2]), {}, [3, -4]),
        ("PACK", ([1, 2], [3, 4]), {"axis": 1, "valuesCount": 2}, [[1, 3], [2, 4]]),
        ("CONCATENATION", ([1, 2], [3]), {}, [1, 2, 3]),
        ("GATHER", ([5, 6, 7], [2, 0]), {}, [7, 5]),
        ("REDUCE_PROD", ([2, 3, 4], [0]), {}, 24),
        ("STRIDED_SLICE", ([5, 6, 7, 8], [-1], [0], [-2]), {"endMask": 1}, [8, 6]),
        ("EXPAND_DIMS", ([5, 6], [0]), {}, [[5, 6]]),
        ("RANK", ([[5, 6], [7, 8]],), {}, 2),
        ("RANGE", (2, 9, 3), {}, [2, 5, 8]),
        ("ZEROS_LIKE", ([5, 6],), {}, [0, 0]),
        ("MAXIMUM", ([1, 5], [3, 4]), {}, [3, 5]),
        ("MINIMUM", ([1, 5], [3, 4]), {}, [1, 4]),
        ("FLOOR_MOD", ([7, -7], [2, 2]), {}, [1, 1]),
        ("SLICE", ([5, 6, 7], [1], [-1]), {}, [6, 7]),
        ("TILE", ([5, 6], [2]), {}, [5, 6, 5, 6]),
        ("TRANSPOSE", ([[5, 6]], [1, 0]), {}, [[5], [6]]),
        ("BROADCAST_TO", ([5], [3]), {}, [5, 5, 5]),
        ("FILL", ([3], 7), {}, [7, 7, 7]),
    ],
)
def test_folded_operators(m, kind, values, options, expected):
    inputs = [m.const(np.array(v, np.int32)) for v in values]
    m.output(integer(m, kind, inputs, np.shape(expected), **options))
    file = read(m.save())
    found = fold_constants(file.nodes[0], file.tensors)
    assert found is not None and found.dtype == np.int32 and found.tolist() == expected


def test_first_values_of_a_state_that_the_file_fills(m, equals_litert):
    """As an unrolled recurrent layer has them: a constant of as many rows as the input."""
    x = m.input((1, 3, 4, 2), 0.05, 4)
    size = integer(m, "PACK", [first_of_shape(m, x), *(numbers(m, n) for n in (3, 4, 2))], (4,), valuesCount=4)
    filled = m.node("FILL", [size, m.const(np.array(9, np.int8), 0.02, 3)], [m.tensor((1, 3, 4, 2), 0.02, 3)])
    equals_litert(m, m.op("ADD", [x, filled], (1, 3, 4, 2)))


def test_parts_that_do_not_fit_together(m):
    m.output(integer(m, "PACK", [numbers(m, 1, 2), numbers(m, 1, 2, 3)], (2, 2), valuesCount=2))
    file = read(m.save())
    assert fold_constants(file.nodes[0], file.tensors) is None


def test_what_is_not_known_is_not_folded(m):
    x = m.tensor((2,), dtype="INT32", name="sizes")
    m.graph.inputs.append(x)
    m.output(integer(m, "ADD", [x, numbers(m, 1, 2)], (2,)))
    path = m.save()
    file = read(path)
    assert fold_constants(file.nodes[0], file.tensors) is None
    assert [type(op) for op in import_tflite(path).ops] == [NumberBinary]
