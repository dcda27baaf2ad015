"""Which operators stay in float, because no 8 bits hold their results."""

import pytest

from tilewright.apps.quantise.meter import Node
from tilewright.apps.quantise.ranges import wide


def nodes(text: str) -> list[Node]:
    """Operators from lines `result = Kind operand ...`; capitals are constants."""
    found = []
    for line in text.strip().splitlines():
        result, _, kind, *operands = line.split()
        found.append(Node(result, kind, operands, [result]))
    return found


LAYER_NORM = """
    x = Conv image W
    mean = ReduceMean x
    centred = Sub x mean
    square = Mul centred centred
    variance = ReduceMean square
    safe = Add variance EPSILON
    deviation = Sqrt safe
    normal = Div centred deviation
    scaled = Mul normal GAMMA
    shifted = Add scaled BETA
    y = MatMul shifted V
    sum = Add x y
"""
JAX_NORM = """
    x = Conv image W
    sum = ReduceSum x
    mean = Mul sum N
    centred = Sub x mean
    square_of_mean = Mul mean mean
    square = Mul x x
    mean_of_squares = ReduceSum square
    variance = Sub mean_of_squares square_of_mean
    deviation = Sqrt variance
    inverse = Reciprocal deviation
    factor = Mul inverse GAMMA
    y = Mul centred factor
    z = Add y BETA
"""
GELU = """
    x = Conv image W
    part = Mul x C
    square = Mul x part
    cube = Mul x square
    sum = Add x cube
    scaled = Mul sum D
    tanh = Tanh scaled
    gate = Add tanh ONE
    y = Mul x gate
    z = Conv y V
"""
SOFTMAX = """
    x = MatMul image W
    largest = ReduceMax x
    difference = Sub x largest
    power = Exp difference
    total = ReduceSum power
    y = Div power total
    z = MatMul y V
"""
TFLITE_NORM = """
    x = CONV_2D image W
    mean = MEAN x
    centred = SUB x mean
    square = SQUARE centred
    variance = MEAN square
    inverse = RSQRT variance
    y = MUL centred inverse
    z = RESHAPE y SHAPE
"""
PLAIN = """
    x = Conv image W
    gate = Sigmoid x
    swish = Mul x gate
    other = Conv swish V
    product = Mul swish other
    half = Div product TWO
    sum = Add half x
    y = Relu sum
"""
SPECTRUM = """
    real = Conv image W
    imaginary = Conv image V
    a = Mul real real
    b = Mul imaginary imaginary
    power = Add a b
    y = Log power
    z = Conv y U
"""


@pytest.mark.parametrize(
    ("text", "in_float"),
    [
        (LAYER_NORM, "square variance safe deviation normal"),
        (JAX_NORM, "sum mean centred square_of_mean square mean_of_squares variance deviation inverse factor y"),
        (GELU, "part square cube sum scaled tanh"),  # the gate has values from 0 to 2
        (SOFTMAX, "power total y"),
        (TFLITE_NORM, "square variance inverse y"),
        (SPECTRUM, "a b power y"),
        (PLAIN, ""),
    ],
    ids="layer_norm jax_norm gelu softmax tflite_norm spectrum plain".split(),
)
def test_expressions_with_wide_results_stay_in_float(text, in_float):
    last = text.strip().splitlines()[-1].split()[0]
    assert wide(nodes(text), [last]) == {*in_float.split()}
