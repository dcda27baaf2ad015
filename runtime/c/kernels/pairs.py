"""Operators on two arrays that broadcast."""

from __future__ import annotations

from collections.abc import Sequence

from ..statements import Value, Writer, spread, type_of

ORDERS = {"less": 1, "equal": 2, "greater": 4, "less_equal": 3, "greater_equal": 6, "not_equal": 13}


def pair_walk(w: Writer, inputs: Sequence[Value], output: Value, unit: int = 1) -> str:
    """A plan through the elements of all inputs, spread onto the shape of the output."""
    return w.walk(output.shape, *(spread(x.shape, output.shape, unit) for x in inputs))


def _pair(w: Writer, function: str, inputs: Sequence[Value], output: Value, numbers: Sequence[int]) -> None:
    pointers = [x.pointer for x in inputs]
    w.call(function, *pointers, output.pointer, pair_walk(w, inputs, output), w.array("numbers", numbers))


def add(w: Writer, inputs: Sequence[Value], output: Value, a: dict) -> None:
    """Its numbers are data."""
    numbers = [*a["zero_points"], *a["multipliers"], *a["exponents"], a["sign"], a["shift"], *_clamp(a)]
    _pair(w, "tw_add", inputs, output, numbers)


def _clamp(a: dict) -> tuple[int, int]:
    return a.get("low", -128), a.get("high", 127)


def multiply(w: Writer, inputs: Sequence[Value], output: Value, a: dict) -> None:
    """As `add`."""
    _pair(w, "tw_multiply", inputs, output, [*a["zero_points"], a["multiplier"], a["exponent"], *_clamp(a)])


def divide(w: Writer, inputs: Sequence[Value], output: Value, a: dict) -> None:
    """As `add`."""
    _pair(w, "tw_divide", inputs, output, [*a["zero_points"], a["multiplier"], a["exponent"], *_clamp(a)])


def prelu(w: Writer, inputs: Sequence[Value], output: Value, a: dict) -> None:
    """As `add`."""
    _pair(w, "tw_prelu", inputs, output, [*a["zero_points"], *a["multipliers"], *a["exponents"]])


def squared_difference(w: Writer, inputs: Sequence[Value], output: Value, a: dict) -> None:
    """As `add`."""
    numbers = [*a["zero_points"], *a["multipliers"], *a["exponents"], a["shift"]]
    _pair(w, "tw_squared_difference", inputs, output, numbers)


def maximum(w: Writer, inputs: Sequence[Value], output: Value, a: dict) -> None:
    """One function finds both extremes."""
    x, y = (value.pointer for value in inputs)
    w.call("tw_extreme", x, y, output.pointer, pair_walk(w, inputs, output), 1)


def minimum(w: Writer, inputs: Sequence[Value], output: Value, a: dict) -> None:
    """As `maximum`."""
    x, y = (value.pointer for value in inputs)
    w.call("tw_extreme", x, y, output.pointer, pair_walk(w, inputs, output), -1)


def lookup_pair(w: Writer, inputs: Sequence[Value], output: Value, a: dict) -> None:
    """The table is data."""
    x, y = inputs
    table = w.array("table", a["table"], "int8")
    plan = pair_walk(w, inputs, output)
    w.call("tw_lookup_pair", x.pointer, type_of(x), y.pointer, type_of(y), output.pointer, plan, table)


def compare_int8(w: Writer, inputs: Sequence[Value], output: Value, a: dict) -> None:
    """The comparison is the orders that it accepts."""
    numbers = w.array("numbers", [*a["zero_points"], *a["multipliers"], *a["exponents"]])
    x, y = (value.pointer for value in inputs)
    plan = pair_walk(w, inputs, output)
    w.call("tw_compare_int8", x, y, output.pointer, plan, numbers, ORDERS[a["function"]] & 7)


def compare(w: Writer, inputs: Sequence[Value], output: Value, a: dict) -> None:
    """As `compare_int8`; numbers with NaN are not equal."""
    x, y = inputs
    plan = pair_walk(w, inputs, output)
    w.call("tw_compare", x.pointer, y.pointer, type_of(x), output.pointer, plan, ORDERS[a["function"]])


def select(w: Writer, inputs: Sequence[Value], output: Value, a: dict) -> None:
    """Pieces of one element."""
    condition, x, y = inputs
    steps = [spread(v.shape, output.shape, v.width) for v in inputs]
    plan = w.walk(output.shape, *steps)
    w.call("tw_select", condition.pointer, x.pointer, y.pointer, output.pointer, output.width, plan)
