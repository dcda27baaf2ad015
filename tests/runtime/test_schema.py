"""Kinds of values: what they allow, and how a message says so."""

import numpy as np
import pytest

from tilewright.hw.errors import ProgramError
from tilewright.runtime.schema import (
    SHAPE,
    Anything,
    Array,
    Flag,
    Int,
    ListOf,
    MapOf,
    OneOf,
    Optional,
    Real,
    Text,
    check_fields,
    shown,
)

INT8 = Array(1, ("int8",), -3, 3)
KINDS = [
    (Int(1, 9), [1, 9], [0, 10, 1.0, True, None, "1", [1], np.int64(1)], "an integer from 1 to 9"),
    (Real(0.5, 2), [1, 0.5, 2.0], [0.4, 3, True, float("nan"), float("inf"), "1", None, 1 << 2000], "0.5 to 2"),
    (Flag(), [True, False], [0, 1, None, "true"], "true or false"),
    (OneOf(("a", 1)), ["a", 1], ["b", True, 1.0, None, []], "one of a, 1"),
    (Text(), ["", "conv 1", "größer", "層"], ["\n", "\x1b[2J", "a" * 10_001, None, 3, "\ud800"], "printable"),
    (Optional(Int(0)), [None, 3], [-1, False], "or null"),
    (ListOf(Int(1), 2), [[1, 2], (3, 4)], [[1], [1, 2, 3], [0, 1], [1, 1.5], {1: 2, 3: 4}, "12", None], "2 elements"),
    (SHAPE, [[], [1, 2]], [[0], [-1, 3], [1] * 9, [1 << 40]], "a list of an integer"),
    (MapOf(Flag()), [{}, {"a": True}], [[], {"a": 1}, {"\n": True}, {3: True}], "an object"),
    (Anything(), [None, 3, {}], [], "any value"),
    (
        INT8,
        [np.zeros(3, np.int8)],
        [np.zeros(3), np.zeros((1, 3), np.int8), np.full(3, 4, np.int8), np.zeros(0, np.int8), [1, 2], None],
        "an array, int8, of 1 dimensions, values from -3 to 3",
    ),
]


@pytest.mark.parametrize("kind, good, bad, text", KINDS, ids=[str(kind) for kind, *_ in KINDS])
def test_kinds(kind, good, bad, text):
    assert all(map(kind.allows, good))
    assert not [value for value in bad if kind.allows(value)]
    assert text in str(kind)


@pytest.mark.parametrize(
    "values, text",
    [
        ({"a": 0}, "a = 0: must be an integer from 1 to 9"),
        ({}, "a is missing: must be an integer from 1 to 9"),
        ({"a": 1, "c": 2}, "'c' is unknown; known are a, b"),
        ({"a": 1, "b": "x" * 500}, "b = 'xxx"),
    ],
)
def test_fields_are_named(values, text):
    with pytest.raises(ProgramError) as caught:
        check_fields(values, {"a": Int(1, 9), "b": Flag()}, frozenset({"b"}))
    assert str(caught.value).startswith(text) and len(str(caught.value)) < 200


def test_what_may_be_absent():
    check_fields({"a": 1}, {"a": Int(1, 9), "b": Flag()}, frozenset({"b"}))


def test_messages_stay_short():
    for value in (1 << 40000, "x" * 10000, [[1] * 1000] * 1000, {"a": {"b": "c" * 999}}, np.zeros(10000, np.int8)):
        assert len(shown(value)) < 1500
    assert shown(np.arange(3, dtype=np.int8)) == "int8 (3,), values from 0 to 2"
