"""Table of the host operators by name, and `chain`, which applies several of them.

A host step of an executable names one of `HOST_OPS`; it is called with the step's input arrays and its attributes
(JSON values and constant arrays), and returns the step's output. A step that does not comply with the operator's row
(row.py) is refused before anything runs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from ...hw.errors import ProgramError
from ..schema import Anything, Array, ListOf, shown
from ..steps import DTYPES
from . import (
    attention,
    deeploy,
    detection,
    dynamic,
    elementwise,
    floats,
    hybrid,
    int16,
    layers,
    movement,
    numbers,
    pooling,
    recurrent,
    reductions,
    resize,
    token_scales,
    two_bytes,
)
from .arrays import AnyArray, Attrs
from .c_calls import Value, Writer
from .row import HostOp, Operand, Operands

CHECKS = ("expect_numbers",)  # operators that only refuse inputs: they run although nothing reads their results
# the operators that `chain` may hold have one input, and move values or compute each by itself (softmax: by row)
VALUE_BY_VALUE = ("quantize", "dequantize", "recode", "rescale", "rescale_integers", "lookup", "cast", "narrow")
LAYOUTS = ("reshape", "transpose", "take", "pack", "fold_windows", "unpack", "unpack_planes")
STAGES = (*VALUE_BY_VALUE, *LAYOUTS, "softmax", "unpack_softmax")
_SUBJECTS = (
    elementwise,
    numbers,
    floats,
    movement,
    layers,
    pooling,
    resize,
    reductions,
    attention,
    token_scales,
    deeploy,
    recurrent,
    detection,
    dynamic,
    two_bytes,
    int16,
    hybrid,
)


def chain(x: AnyArray, *, stages: Sequence[tuple[str, Attrs]], tables: AnyArray | None = None) -> AnyArray:
    """`x` through operators of one input, each (name, attributes), applied to the result of its predecessor.

    The table of a `lookup` is a row of `tables`, int8 (number, 256).
    """
    for name, attrs in stages:
        (x,) = HOST_OPS[name]([x], _with_table(name, attrs, tables))
    return x


def _with_table(name: str, attrs: Attrs, tables: AnyArray | None) -> Attrs:
    """Attributes of a stage; a lookup's number of a table becomes the table. Raises `ProgramError`."""
    if name != "lookup":
        return attrs
    number, count = attrs.get("table"), 0 if tables is None else len(tables)
    if tables is None or type(number) is not int or not 0 <= number < count:
        raise ProgramError(f"table = {shown(number)}: must be the number of one of its {count} tables")
    return attrs | {"table": tables[number]}


def _is_stage(stage: Any) -> bool:
    pair: list[Any] = [*stage] if type(stage) in (list, tuple) else []
    return [*map(type, pair)] == [str, dict] and pair[0] in STAGES


def _stages(x: Operand, a: Attrs) -> Iterator[tuple[HostOp, Attrs, Operand]]:
    """(operator, attributes, result) of each stage. Raises `ProgramError` for one that is not allowed."""
    for k, stage in enumerate(a["stages"]):
        if not _is_stage(stage):
            raise ProgramError(
                f"stages: number {k}, {shown(stage)}, must be [operator, attributes], one of {', '.join(STAGES)}"
            )
        op, attrs = HOST_OPS[stage[0]], _with_table(stage[0], stage[1], a["tables"])
        x = op.result([x], attrs)
        yield op, attrs, x


def _chained(inputs: Operands, a: Attrs) -> Operand:
    """The result of the last stage; intermediate results are scratch."""
    results = [after for _, _, after in _stages(inputs[0], a)]
    scratch = max((max(x.scratch, math.prod(x.shape)) for x in results), default=0)
    return (results or inputs)[-1]._replace(scratch=scratch)


def _chain_in_c(w: Writer, inputs: Sequence[Value], output: Value, a: Attrs) -> None:
    """The stages in their order; results alternate between two addresses, and a reshape moves nothing."""
    (x,) = inputs
    moving: list[tuple[HostOp, Attrs, Value, Value]] = []
    before = x
    for op, attrs, after in _stages(Operand(x.shape, x.dtype), a):
        result = Value("", after.shape, after.dtype)
        if op.function is not movement.reshape:
            moving.append((op, attrs, before, result))
        before = result
    if not moving:
        movement.copy_whole(w, x, output)
        return
    sizes = [result.nbytes for *_, result in moving[:-1]]
    places = [w.scratch(max(sizes[k::2], default=0)) for k in (0, 1)]
    pointer = x.pointer
    for k, (op, attrs, before, result) in enumerate(moving):
        target = output.pointer if k == len(moving) - 1 else places[k % 2]
        op.write(w, [before._replace(pointer=pointer)], result._replace(pointer=target), attrs)
        pointer = target


_CHAIN = HostOp(
    chain, _chained, {"stages": ListOf(Anything(), most=16), "tables": Array(2, ("int8",))}, DTYPES, c=_chain_in_c
)
HOST_OPS: dict[str, HostOp] = {
    op.function.__name__: op for op in (_CHAIN, *(row for subject in _SUBJECTS for row in subject.ROWS))
}
