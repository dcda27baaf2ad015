"""Host steps as calls of the C functions in sources/.

`call(step, tensors, pointers)` gives a `Call`:

- `statements`: in this order they do what the step does. `str(statement)` is a line of C, `f(x, y, 3);`, or, where a
  function finds values that are not allowed (a position outside its table, NaN), `if (!f(...)) return TW_BAD_INPUT;`:
  the function around it returns int. `statement.function` is declared in sources/tw_host.h.
- `data`: constant arrays by the names that the arguments have for them, flat, of dtypes int8, uint8, int16, int32,
  int64 or float32: each becomes `static const int32_t walk_0123456789ab[] = {...};`. Equal arrays have equal names in
  all steps, so that the arrays of a program are the union of those of its steps.
- `scratch`: bytes that must be free behind the pointer `uint8_t *scratch`, aligned to 8 bytes, while the statements
  run. Several steps may use the same ones.
- `sources`: the files of sources/ that have the functions and what they call.

`pointers` are C expressions, by name of a tensor: `void *`, or a pointer to its dtype (bool: uint8_t); arrays are
aligned to their elements. A step's output overlaps neither an input nor the scratch memory, with one exception: where
the output of `write_rows` or `write_columns` has the same expression as the cache, it is written in place.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

from ...hw.errors import ProgramError, UnsupportedError
from ..hostops import HOST_OPS
from ..hostshapes import Operand
from ..steps import HostStep, Tensor
from . import kernels
from .statements import Call, Translation, Value, Writer

FOLDER = Path(__file__).parent / "sources"
HEADER = "tw_host.h"
SHARED = ("tw_fixed.c", "tw_walk.c")
# the functions that statements name, by file; they call those of the files that are shared
FUNCTIONS = {
    path.name: tuple(re.findall(r"^\w+ (tw_\w+)\(", path.read_text("utf-8"), re.MULTILINE))
    for path in sorted(FOLDER.glob("*.c"))
    if path.name not in SHARED
}
_MODULES = [vars(import_module(f"{kernels.__name__}.{found.name}")) for found in iter_modules(kernels.__path__)]
# a function of kernels/ with the name of a host operator writes its statements
TRANSLATIONS: dict[str, Translation] = {
    name: module[name] for module in _MODULES for name in HOST_OPS if name in module
}


def call(step: HostStep, tensors: Mapping[str, Tensor], pointers: Mapping[str, str]) -> Call:
    """The step as C. Raises `UnsupportedError`, which names the step, where its operator has no C kernel."""
    inputs = [_value(tensors[name], pointers[name]) for name in step.inputs]
    output = _value(tensors[step.outputs[0]], pointers[step.outputs[0]])
    writer = Writer()
    try:
        translate(writer, step.op, inputs, output, step.attrs | step.constants)
    except UnsupportedError as exc:
        raise UnsupportedError(f"step {step.name!r}: {exc}") from None
    files = [file for file, names in FUNCTIONS.items() if {s.function for s in writer.statements} & {*names}]
    sources = sorted({*files, *SHARED})
    return Call(tuple(writer.statements), writer.data, writer.most, tuple(sources))


def _value(tensor: Tensor, pointer: str) -> Value:
    return Value(pointer, tensor.shape, tensor.dtype)


def translate(writer: Writer, op: str, inputs: list[Value], output: Value, attrs: dict) -> None:
    """Write the operator `op`. Raises `UnsupportedError` where it has no C kernel."""
    if op == "chain":
        _chain(writer, inputs[0], output, **attrs)
        return
    if op not in TRANSLATIONS:
        raise UnsupportedError(f"host operator {op!r} has no C kernel; run the program with Python")
    top = writer.top
    TRANSLATIONS[op](writer, inputs, output, attrs)
    writer.top = top


def _chain(writer: Writer, x: Value, output: Value, *, stages: list, tables=None) -> None:
    """The stages, one after the other; results alternate between two places, and a reshape moves nothing."""
    found: list[tuple[str, dict, Operand, Operand]] = []
    now = Operand(x.shape, x.dtype)
    for name, attrs in stages:
        held = attrs | {"table": tables[attrs["table"]]} if name == "lookup" and tables is not None else attrs
        after = HOST_OPS[name].result([now], held)
        if name != "reshape":
            found.append((name, held, now, after))
        now = after
    if not found:
        translate(writer, "reshape", [x], output, {"shape": output.shape})
        return
    sizes = [Value("", after.shape, after.dtype).nbytes for *_, after in found[:-1]]
    places = [writer.scratch(max(sizes[k::2], default=0)) for k in (0, 1)]
    pointer = x.pointer
    for k, (name, attrs, before, after) in enumerate(found):
        target = output.pointer if k == len(found) - 1 else places[k % 2]
        source = Value(pointer, before.shape, before.dtype)
        translate(writer, name, [source], Value(target, after.shape, after.dtype), attrs)
        pointer = target


def source(name: str) -> str:
    """The text of a file of sources/. Raises `ProgramError` for a name that is not one of them."""
    path = FOLDER / name
    if name != HEADER and name not in (*FUNCTIONS, *SHARED):
        raise ProgramError(f"source {name!r}: must be {HEADER} or one of {', '.join(FUNCTIONS)}")
    return path.read_text(encoding="utf-8")
