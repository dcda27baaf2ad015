"""Host steps as calls of the C functions in sources/.

`call(step, tensors, pointers)` gives a `Call`:

- `statements`: they compute the step in this order. `str(statement)` is a line of C, `f(x, y, 3);`, or, where a
  function finds values that are not allowed (a position outside its table, NaN), `if (!f(...)) return TW_BAD_INPUT;`:
  the function around it returns int. `statement.function` is declared in tw_host.h.
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
from pathlib import Path

from ...hw.errors import ProgramError, UnsupportedError
from ..hostops import HOST_OPS
from ..hostops.c_calls import Call, Value, Writer
from ..steps import HostStep, Tensor

FOLDER = Path(__file__).parent / "sources"
HEADER = "tw_host.h"
SHARED = ("tw_fixed.c", "tw_walk.c")
# a public function of a file: its comment and definition
_DEFINED = re.compile(r"^((?:/\*(?:(?!\*/).)*\*/\n)?)((?:void|int) (tw_\w+)\([^{]*\)) \{", re.MULTILINE | re.DOTALL)
_SOURCES = {path.name: path.read_text("utf-8") for path in sorted(FOLDER.glob("*.c"))}
# the functions that statements name, by file; they call functions of the shared files
FUNCTIONS = {
    file: tuple(name for _, _, name in _DEFINED.findall(text)) for file, text in _SOURCES.items() if file not in SHARED
}


def call(step: HostStep, tensors: Mapping[str, Tensor], pointers: Mapping[str, str]) -> Call:
    """The step as C. Raises `UnsupportedError`, which names the step, where its operator has no C kernel."""
    inputs = [_value(tensors[name], pointers[name]) for name in step.inputs]
    output = _value(tensors[step.outputs[0]], pointers[step.outputs[0]])
    writer = Writer()
    try:
        HOST_OPS[step.op].write(writer, inputs, output, step.attrs | step.constants)
    except UnsupportedError as exc:
        raise UnsupportedError(f"step {step.name!r}: {exc}") from None
    files = [file for file, names in FUNCTIONS.items() if {s.function for s in writer.statements} & {*names}]
    sources = sorted({*files, *SHARED})
    return Call(tuple(writer.statements), writer.data, writer.most, tuple(sources))


def _value(tensor: Tensor, pointer: str) -> Value:
    return Value(pointer, tensor.shape, tensor.dtype)


def source(name: str) -> str:
    """The text of a file of sources/, of the header with the declarations of all functions.

    Raises `ProgramError` for a name that is not one of them.
    """
    if name in _SOURCES:
        return _SOURCES[name]
    if name != HEADER:
        raise ProgramError(f"source {name!r}: must be {HEADER} or one of {', '.join(FUNCTIONS)}")
    declared = list[str]()
    for file in FUNCTIONS:
        found = "".join(f"{comment}{head};\n" for comment, head, _ in _DEFINED.findall(_SOURCES[file]))
        declared.append(f"/* ---- {file} ---- */\n\n{found}\n")
    text, end = (FOLDER / HEADER).read_text("utf-8"), "#endif\n"
    return text.removesuffix(end) + "".join(declared) + end
