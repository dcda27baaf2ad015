"""Operators on plain numbers: those that cannot be, and their work."""

import numpy as np
import pytest

from tilewright.compiler import graph as g
from tilewright.compiler.graph.operators import Tensor
from tilewright.hw.errors import InputError


def t(name, *shape, dtype="float32"):
    return Tensor(name, shape, dtype)


def b(name):
    return t(name, 2, dtype="bool")


def found(boxes=(1, 9, 4), scores=(1, 9, 4), rows=11, scale=5.0, classes=3, anchors=9):
    """Detections of at most five boxes, two classes each."""
    facts = {"most": 5, "classes_per_box": 2, "per_class": 4, "each_class": False, "score": 0.3, "overlap": 0.5}
    known = np.ones((anchors, 4), np.float32)
    y = t("y", 1, rows, 6)
    return g.Detections(
        "d", (t("x", *boxes), t("s", *scores)), y, known, (1.0, 1.0, 1.0, scale), classes=classes, **facts
    )


def dense(x, y):
    return g.NumberDense("d", (x,), y, np.ones((5, 4), np.float32), np.ones(5, np.float32))


def test_the_work_of_a_dense_layer():
    assert dense(t("x", 2, 3, 4), t("y", 2, 3, 5)).macs == 2 * 3 * 4 * 5


def test_rows_of_detections():
    assert found().rows == found(classes=4).rows == 10


@pytest.mark.parametrize(
    "text, make",
    [
        ("NumberFunction 'f': whether", lambda: g.NumberFunction("f", (t("x", 2, dtype="int8"),), t("y", 2), "abs")),
        ("NumberFunction 'f': the output", lambda: g.NumberFunction("f", (t("x", 2),), t("y", 3), "abs")),
        (
            "NumberReduce 'r': the output's type",
            lambda: g.NumberReduce("r", (t("x", 2, 3),), t("y", 2, dtype="int32"), "sum", (1,)),
        ),
        ("NumberReduce 'r': the output's shape", lambda: g.NumberReduce("r", (t("x", 2, 3),), t("y", 3), "sum", (1,))),
        ("NumberDense 'd': the number of features", lambda: dense(t("x", 2, 3), t("y", 2, 5))),
        ("NumberDense 'd': the output's shape", lambda: dense(t("x", 2, 4), t("y", 2, 4))),
        ("NumberDense 'd': the types", lambda: dense(t("x", 2, 4, dtype="int8"), t("y", 2, 5))),
        ("NumberBinary 'b': the number", lambda: g.NumberBinary("b", (t("x", 2),), t("y", 2), "add")),
        ("NumberBinary 'b': the types", lambda: g.NumberBinary("b", (t("x", 2),) * 2, t("y", 2, dtype="int32"), "add")),
        ("NumberBinary 'b': shapes", lambda: g.NumberBinary("b", (t("x", 2), t("z", 3)), t("y", 2), "add")),
        ("Detections 'd': the boxes' shape", lambda: found(boxes=(1, 9, 5))),
        ("Detections 'd': the anchors", lambda: found(anchors=8)),
        ("Detections 'd': the scores' shape", lambda: found(scores=(1, 8, 4))),
        ("Detections 'd': whether there are scores", lambda: found(classes=5)),
        ("Detections 'd': the smallest count", lambda: found(classes=0)),
        ("Detections 'd': whether scales", lambda: found(scale=0.0)),
        ("Detections 'd': the output's shape", lambda: found(rows=10)),
        ("NumberResize 'r': the number of dim", lambda: g.NumberResize("r", (t("x", 2, 3),), t("y", 2, 4))),
        ("NumberResize 'r': the numbers of im", lambda: g.NumberResize("r", (t("x", 1, 2, 3, 3),), t("y", 1, 3, 3, 3))),
        (
            "NumberResize 'r': the types",
            lambda: g.NumberResize("r", (t("x", 1, 2),), t("y", 1, 2, dtype="int8")),
        ),
        (
            "Compare 'c': whether",
            lambda: g.Compare("c", (t("x", 2, dtype="uint8"),) * 2, t("y", 2), "less"),
        ),
        ("Compare 'c': the types", lambda: g.Compare("c", (t("x", 2),) * 2, t("y", 2), "less")),
        ("Select 's': the number", lambda: g.Select("s", (b("x"), t("y", 2)), t("z", 2))),
        ("Select 's': the condition's", lambda: g.Select("s", (t("x", 2), t("y", 2), t("y", 2)), t("z", 2))),
        (
            "Select 's': the types",
            lambda: g.Select("s", (b("x"), t("y", 2), t("y", 2)), t("z", 2, dtype="int8")),
        ),
        ("Select 's': the output", lambda: g.Select("s", (b("x"), t("y", 2), t("y", 2)), t("z", 3))),
        ("Cast 'c': the output's shape", lambda: g.Cast("c", (t("x", 2),), t("y", 3))),
        ("Gather 'g': whether positions", lambda: g.Gather("g", (t("x", 2), t("z", 3)), t("y", 3), 0)),
        ("Gather 'g': the output", lambda: g.Gather("g", (t("x", 2), t("z", 3, dtype="int32")), t("y", 2), 0)),
        ("Gather 'g': whether the axis", lambda: g.Gather("g", (t("x", 2), t("z", 3, dtype="int32")), t("y", 3), 1)),
        (
            "GatherNd 'g': whether positions fit",
            lambda: g.GatherNd("g", (t("x", 2), t("z", 3, 2, dtype="int32")), t("y", 3)),
        ),
    ],
)
def test_impossible_operators(text, make):
    with pytest.raises(InputError) as caught:
        make()
    assert text in str(caught.value)


X = g.Tensor("x", (1, 4, 6, 6), "float32")


def y(*shape, dtype="float32"):
    return g.Tensor("y", shape, dtype)


def weights(*shape):
    return np.ones(shape, np.float32), np.zeros(shape[0], np.float32)


def lstm(units, hidden, features):
    """An LSTM on (3, 2, 4) that gives (3, 2, units)."""
    shapes = (4 * hidden, features), (4 * hidden, hidden), (4 * hidden,)
    w, r, b = (np.ones(shape, np.float32) for shape in shapes)
    return g.FloatLstm("op", (y(3, 2, 4),), y(3, 2, units), w, r, b)


WRONG = {
    "the conversion is": lambda: g.FloatFunction("op", (X,), y(1, 4, 6, 6, dtype="int8"), "Exp"),
    "the output's shape is": lambda: g.FloatFunction("op", (X,), y(1, 4, 6), "Exp"),
    "the number of operands is": lambda: g.FloatBinary("op", (X,), X, "Add"),
    "the number of elements of the output is": lambda: g.FloatReduce("op", (X,), y(4, 2), "ReduceSum", (2, 3)),
    "whether the axis exists is": lambda: g.FloatSoftmax("op", (X,), y(1, 4, 6, 6), 4),
    "the number of rows of the second operand is": lambda: g.FloatMatMul("op", (X, y(5, 2)), y(1, 4, 6, 2)),
    "the weights' shapes is": lambda: lstm(5, 5, 3),
    "the output's shape is \\(3, 2, 6": lambda: lstm(6, 5, 4),
    "the number of input channels is": lambda: g.FloatConv2d("op", (X,), y(1, 2, 6, 6), *weights(2, 3, 1, 1)),
    "FloatMaxPool 'op': the output's shape": lambda: g.FloatMaxPool("op", (X,), y(1, 4, 3, 3), (2, 2)),
    "the number of output channels is": lambda: g.FloatConvTranspose2d("op", (X,), y(1, 3, 6, 6), *weights(4, 2, 1, 1)),
}


@pytest.mark.parametrize("text", WRONG)
def test_what_does_not_fit_is_refused(text):
    with pytest.raises(InputError, match=text):
        WRONG[text]()


def test_work():
    assert g.FloatConv2d("op", (X,), y(1, 2, 6, 6), *weights(2, 4, 1, 1)).macs == 2 * 4 * 36
    assert g.FloatConvTranspose2d("op", (X,), y(1, 2, 7, 7), *weights(4, 2, 2, 2)).macs == 4 * 36 * 8
    assert lstm(5, 5, 4).macs == 3 * 2 * 20 * 9
    assert g.FloatMatMul("op", (X, y(6, 5)), y(1, 4, 6, 5)).macs == 4 * 6 * 5 * 6
