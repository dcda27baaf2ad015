"""Operators on plain numbers: those that cannot be."""

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
    assert found().rows == 10


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
