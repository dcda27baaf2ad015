"""Which nodes of a .tflite file the delegate takes, in which parts, and why not the others; the graph of a part.

A part is cut out of the file that has been read: its operators, and the tensors at its ends. It goes through the
importer and the compiler as a network does, so that nothing of an operator is read from the interpreter.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace

import numpy as np

from ...hw.errors import InputError, UnsupportedError
from .. import graph as g
from ..frontend.tflite.file import OPERATOR_NAMES, ModelFile
from ..frontend.tflite.importer import import_file
from .abi import Context, array, ints
from .native import Given

STATEFUL = ("CALL_ONCE", "VAR_HANDLE", "READ_VARIABLE", "ASSIGN_VARIABLE")
_TAKEN = ("INT8", "UINT8", "INT16", "INT32")  # types of tensors


def check_claim(claim: Collection[str] | None) -> frozenset[str] | None:
    """The operators to take, None for all. Raises `InputError` for a name that no operator has."""
    if claim is None:
        return None
    names = frozenset([claim] if isinstance(claim, str) else claim)
    for name in sorted(names - OPERATOR_NAMES):
        raise InputError(f"claim: {name!r} is no operator of TFLite; name them as CONV_2D or FULLY_CONNECTED")
    return names


def cut(file: ModelFile, given: Given) -> ModelFile:
    """The part of a file; where it needs a constant, this stays one."""
    inputs = tuple(k for k in given.inputs if k >= 0 and file.tensors[k].data is None)
    nodes = [file.nodes[n] for n in given.nodes]
    return replace(file, tensors=list(file.tensors), nodes=nodes, inputs=inputs, outputs=given.outputs)


def import_part(file: ModelFile, given: Given, runtime: str) -> g.Graph:
    """The graph of a part, whose dense layers round as those of `runtime`. Raises `UnsupportedError`.

    LiteRT's dense layers round once, all others twice; TensorFlow Lite Micro's round twice.
    """
    graph = import_file(cut(file, given))
    if runtime == "tflm":
        return graph
    ops = (replace(op, contract="single") if isinstance(op, g.QDense) else op for op in graph.ops)
    return replace(graph, ops=tuple(ops))


def ends(file: ModelFile, nodes: Iterable[int], *, every: bool = False) -> Given:
    """`nodes` with the tensors that they need from others, and those that others, or the network's user, need.

    With `every` the outputs are all that they compute.
    """
    nodes = tuple(sorted(nodes))
    made = [k for n in nodes for k in file.nodes[n].outputs]
    needed = dict.fromkeys(k for n in nodes for k in file.nodes[n].inputs)
    inputs = [k for k in needed if k >= 0 and k not in made and file.tensors[k].data is None]
    inside = set(nodes)
    read = {k for n, node in enumerate(file.nodes) if n not in inside for k in node.inputs} | set(file.outputs)
    return Given(nodes, tuple(inputs), tuple(k for k in made if every or k in read))


def grouped(file: ModelFile, taken: Collection[int]) -> list[tuple[int, ...]]:
    """The nodes of `taken` in the groups that the interpreter makes of them.

    It goes through the plan again and again: a group begins with the first node whose inputs are there, taken or not,
    and gets every other one of its kind whose inputs are there by then.
    """
    ready = {k for k, info in enumerate(file.tensors) if info.data is not None or info.variable} | {-1}
    ready |= set(file.inputs)
    left, groups = list(range(len(file.nodes))), []
    while left:
        kind, group = None, []
        grown = True
        while grown:
            grown = False
            for n in list(left):
                node = file.nodes[n]
                if not ready.issuperset(node.inputs) or (kind is not None and (n in taken) != kind):
                    continue
                kind, grown = n in taken, True
                group.append(n)
                left.remove(n)
                ready.update(node.outputs)
        if not group:  # a damaged file, which the interpreter refuses
            break
        if kind:
            groups.append(tuple(sorted(group)))
    return groups


def refusal(file: ModelFile, number: int, claim: frozenset[str] | None) -> str:
    """Why the delegate does not take a node; empty where it can."""
    node = file.nodes[number]
    if claim is not None and node.kind not in claim:
        return f"not among the claimed operators, {', '.join(sorted(claim))}"
    tensors = [file.tensors[k] for k in (*node.inputs, *node.outputs) if k >= 0]
    if node.kind in STATEFUL or any(t.variable for t in tensors):
        return "keeps a variable, which stays with the interpreter"
    computed = [t for t in tensors if t.data is None]
    for t in computed:
        if t.type not in _TAKEN:
            return f"has tensor {t.name!r} of type {t.type.lower()}; {', '.join(_TAKEN).lower()} are taken"
    try:
        import_file(cut(file, ends(file, [number])))
    except (UnsupportedError, InputError) as exc:
        return str(exc).removeprefix(f"{file.path}: ")
    return ""


def check_same(file: ModelFile, context: Context, nodes: Collection[int]) -> None:
    """Raise `InputError` unless the interpreter's `nodes` are the file's: operators, tensors and constants."""
    for n in nodes:
        mine, (node, registration) = file.nodes[n], context.node(n)
        its = tuple(ints(node.inputs)), tuple(ints(node.outputs))
        if registration.builtin_code != mine.code or its != (mine.inputs, mine.outputs):
            raise _other(file, f"operator {n} is not {mine.name!r}")
    for k in sorted({k for n in nodes for k in (*file.nodes[n].inputs, *file.nodes[n].outputs) if k >= 0}):
        info, t = file.tensors[k], context.tensor(k)
        if tuple(ints(t.dims)) != info.shape:
            raise _other(file, f"tensor {info.name!r} has shape {tuple(ints(t.dims))}, not {info.shape}")
        if info.scale.size == 1 and (t.scale, t.zero_point) != (info.scale[0], info.zero_point[0]):
            raise _other(file, f"tensor {info.name!r} has another scale or zero point")
        if info.data is not None and t.data and t.bytes == info.data.nbytes:
            theirs = array(t, info.data.dtype, info.shape)
            if not np.array_equal(theirs.view(np.uint8), info.data.view(np.uint8)):
                raise _other(file, f"constant {info.name!r} has other values")


def _other(file: ModelFile, what: str) -> InputError:
    return InputError(f"the interpreter has another network than {file.path}: {what}; give the delegate the same file")
