"""Variants of a network: for several images (`of_images`), for blocks of tokens, for texts of different lengths.

Each variant is a graph. `join` and `with_entry` make one executable of the executables of several variants; at run time
it chooses the steps by its inputs. Limits: networks that mix images, or that are no step of a language model, have no
such variants.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple, TypeVar

import numpy as np

from ...hw.errors import CapacityError, InputError, ProgramError, UnsupportedError
from ...runtime.executable import Executable, HostStep, Tensor
from ...runtime.steps import Step, When
from ...sim.memory import CAPACITY
from .. import graph as g
from ..graph import Graph

T = TypeVar("T", bound=Mapping[str, np.ndarray])


def of_images(graph: g.Graph, count: int) -> g.Graph:
    """The graph of `count` inputs of `graph`, concatenated in the first dimension of every tensor.

    Raises `InputError` for a count below 1, `CapacityError` for more than the memory of a device holds,
    `UnsupportedError` for a network with state, or for operators that mix images, all of which it names.
    """
    if not isinstance(count, int) or count < 1:
        raise InputError(f"batch {count!r}: must be an integer of at least 1")
    if count == 1:
        return graph
    if graph.states:
        raise UnsupportedError(f"network {graph.name!r}: keeps values from one input to the next; use batch 1")
    mixed = [f"{type(op).__name__} {op.name!r}" for op in graph.ops if not op.apart]
    if mixed:
        raise UnsupportedError(f"network {graph.name!r}: batch {count}: {', '.join(mixed)} may mix images; use batch 1")
    _check_room(graph, count)
    larger: dict[str, g.Tensor] = {}

    def taken(t: g.Tensor) -> g.Tensor:
        if t.data is not None:
            return t
        return larger.setdefault(t.name, replace(t, shape=(count * t.shape[0], *t.shape[1:])))

    ops = tuple(replace(op, inputs=tuple(map(taken, op.inputs)), output=taken(op.output)) for op in graph.ops)
    return replace(graph, inputs=tuple(map(taken, graph.inputs)), outputs=tuple(map(taken, graph.outputs)), ops=ops)


def _check_room(graph: g.Graph, count: int) -> None:
    """Raise `CapacityError` where a simulated device has no room for the inputs and results, or for one tensor alone.

    A board has less, and the rest of a program needs room, too: loading it says so.
    """
    largest = max((op.output for op in graph.ops), key=lambda t: t.nbytes, default=None)
    each, what = sum(t.nbytes for t in (*graph.inputs, *graph.outputs)), "inputs and results take"
    if largest is not None and largest.nbytes > each:
        each, what = largest.nbytes, f"{largest.name!r} takes"
    if count * each > CAPACITY:
        raise CapacityError(
            f"network {graph.name!r}: batch {count}: {what} {each:,} bytes of each image, and the memory has "
            f"{CAPACITY:,}; use batch {CAPACITY // each} or less"
        )


def of_one(executable: Executable, count: int) -> Executable:
    """`executable`, a program of `count` images, with inputs and outputs of one: to read files by, not to run."""
    one = copy.copy(executable)
    ends = {t.name for t in (*executable.inputs, *executable.outputs)}
    one.tensors = {
        name: replace(t, shape=(t.shape[0] // count, *t.shape[1:])) if name in ends else t
        for name, t in executable.tensors.items()
    }
    one.entries = [[one.tensors[t.name] for t in entry] for entry in executable.entries]
    return one


def together(samples: Sequence[T], count: int) -> list[dict[str, np.ndarray]]:
    """Inputs of `of_images`, `count` of the images `samples` each; copies of the last image complete the last group."""
    groups = [list(samples[k : k + count]) for k in range(0, len(samples), count)]
    if groups:
        groups[-1] += groups[-1][-1:] * (count - len(groups[-1]))
    return [{name: np.concatenate([one[name] for one in group]) for name in group[0]} for group in groups]


def apart(results: Sequence[T], count: int, images: int) -> list[dict[str, np.ndarray]]:
    """The outputs of each of `images` images, from `results` of `count` images each: the inverse of `together`."""
    split = [{name: np.split(value, count) for name, value in group.items()} for group in results]
    outputs = [{name: values[k] for name, values in group.items()} for group in split for k in range(count)]
    return outputs[:images]


TOKENS, BLOCK = "tokens", "block"  # inputs of a block: int32 (T,); int32 (1,), the number of blocks before it


def in_blocks(graph: g.Graph, count: int) -> g.Graph | None:
    """The graph of a block of `count` tokens, whose output belongs to the last token; None for other networks.

    It exists for a step of a language model: two inputs of one number, the token (a row of a constant table) and the
    position, and operators on single rows or caches.
    """
    names = _inputs(graph)
    if names is None or not _divides(graph, count) or {TOKENS, BLOCK} & {op.output.name for op in graph.ops}:
        return None
    token, position = names
    renamed = {token: g.Tensor(TOKENS, (count,), "int32"), position: g.Tensor(BLOCK, (1,), "int32")}
    last = _last_rows(graph)
    ops: list[g.Operator] = []
    for op in graph.ops:
        inputs = tuple(renamed.get(t.name, t) for t in op.inputs)
        ops.append(replace(op, inputs=inputs) if op.name in last else op.of_tokens(inputs, count))
        renamed[op.output.name] = output = ops[-1].output
        if any(op.output in other.inputs for other in graph.ops if other.name in last) and op.name not in last:
            row = replace(output, name=f"{output.name}.last", shape=(1, *output.shape[1:]))
            ops.append(g.StridedSlice(row.name, (output,), row, (count - 1, 0), (1, 1)))
            renamed[op.output.name] = row
    outputs = tuple(renamed[t.name] for t in graph.outputs)
    states = tuple(replace(s, next=renamed[s.next.name]) for s in graph.states)
    inputs = renamed[token], renamed[position]
    return replace(graph, inputs=inputs, outputs=outputs, ops=tuple(ops), states=states)


def _inputs(graph: g.Graph) -> tuple[str, str] | None:
    """The names of the inputs that are the token and the position; None where there are others."""
    tokens, positions = set[str](), set[str]()
    for op in graph.ops:
        if op.symbol is not None:
            (positions if op.x.data is None else tokens).add(op.symbol[0].name)
        elif not op.apart or len(op.output.shape) != 2 or op.output.shape[0] != 1:
            return None
    known = {t.name for t in graph.inputs}
    if len(tokens) != 1 or len(positions) != 1 or tokens | positions != known or len(known) != 2:
        return None
    wrong = [t for t in graph.inputs if (t.shape, t.dtype) != ((1,), "int32")]
    return None if wrong else (tokens.pop(), positions.pop())


def _divides(graph: g.Graph, count: int) -> bool:
    """True if no block of `count` tokens is in two parts of a cache."""
    return all(op.run % count == 0 for op in graph.of(g.Write))


def _last_rows(graph: g.Graph) -> set[str]:
    """The names of the operators at the end that need the last row alone: a chain, to the only output."""
    last = set[str]()
    if len(graph.outputs) != 1:
        return last
    wanted = graph.outputs[0]
    producers = {op.output.name: op for op in graph.ops}
    while True:
        op = producers.get(wanted.name)
        readers = [other for other in graph.ops if wanted in other.inputs]
        operands = [] if op is None else [t for t in op.inputs if t.data is None]
        if op is None or not op.apart or len(operands) != 1 or len(readers) > 1:
            return last
        last.add(op.name)
        (wanted,) = operands


SHORTEST = 64  # positions that the first of the graphs reads; each of the others reads twice as many


class Contexts(NamedTuple):
    """Graphs of a network for shorter texts: `graphs[k]` reads the positions below `ends[k]`, with equal results there.

    The last graph is the network itself. `position` is the input with the position in the text.
    """

    position: str
    ends: tuple[int, ...]
    graphs: tuple[Graph, ...]


def in_contexts(graph: Graph) -> Contexts | None:
    """The graphs of a network for texts of doubling lengths; None without attention or an input for the position."""
    attention = [op for op in graph.ops if op.seen]
    positions, inputs = {op.inputs[-1].name for op in attention}, {t.name for t in graph.inputs}
    if len(positions) != 1 or not positions <= inputs:
        return None
    whole = min(op.seen for op in attention)
    ends = [SHORTEST << k for k in range(whole.bit_length()) if SHORTEST << k < whole]
    return Contexts(positions.pop(), (*ends, whole), (*(_reading(graph, end) for end in ends), graph))


def _reading(graph: Graph, seen: int) -> Graph:
    return replace(graph, ops=tuple(replace(op, seen=seen) if op.seen else op for op in graph.ops))


_KINDS = ("input", "output", "state")


def join(executables: Sequence[Executable], tensor: str, ends: Sequence[int]) -> Executable:
    """The executable that runs the steps of `executables[k]` if the input `tensor` is in [`ends[k - 1]`, `ends[k]`).

    `tensor` is int32 (1,), `ends` ascend, and the first range begins with 0. Equal constants are stored and loaded
    once. Raises `ProgramError` if inputs, outputs or states differ.
    """
    if not executables or len(executables) != len(ends) or any(a >= b for a, b in zip((0, *ends), ends)):
        found = f"{len(executables)} executables, ends {', '.join(map(str, ends)) or 'none'}"
        raise ProgramError(f"{found}: must be as many of each, at least one, and ends must ascend from 1 on")
    first, *others = executables
    for other in others:
        _compare(first, other, _KINDS)
    tensors: dict[str, Tensor] = {}
    steps: list[Step] = []
    for executable, begin, end in zip(executables, (0, *ends), ends):
        names = _added(tensors, executable, f"{begin}..{end - 1}")
        steps += [_in_range(step, names, When(tensor, begin, end)) for step in executable.steps]
    return Executable(first.cfg, first.name, tensors, steps, first.contract)


def with_entry(first: Executable, second: Executable, name: str) -> Executable:
    """The executable with the steps of both, of which a run executes those whose inputs it is given.

    Every step depends on an input (`When`); the two executables have different ones. Steps and tensors of `second`
    whose names `first` has get the suffix `name`. Raises `ProgramError` if outputs or states differ.
    """
    _compare(first, second, _KINDS[1:])
    tensors, taken = dict(first.tensors), {step.name for step in first.steps}
    names = _added(tensors, second, name)
    steps = [
        _renamed(step, f"{step.name}, {name}" if step.name in taken else step.name, names) for step in second.steps
    ]
    return Executable(first.cfg, first.name, tensors, [*first.steps, *steps], first.contract)


def _added(tensors: dict[str, Tensor], executable: Executable, label: str) -> dict[str, str]:
    """Add the executable's tensors to `tensors`, with `label` behind names of others. Returns the new names."""
    names = {}
    for name, tensor in executable.tensors.items():
        names[name] = name if name not in tensors or _same(tensors[name], tensor) else f"{name}, {label}"
        tensors.setdefault(names[name], replace(tensor, name=names[name]))
    return names


def _compare(first: Executable, other: Executable, kinds: tuple[str, ...]) -> None:
    """Raise `ProgramError` unless the tensors of these `kinds` are equal."""
    ours, theirs = ({t.name: t for t in e.tensors.values() if t.kind in kinds} for e in (first, other))
    for name in {**ours, **theirs}:
        if name not in ours or name not in theirs or not _same(ours[name], theirs[name]):
            kind = (ours | theirs)[name].kind
            raise ProgramError(f"{kind} {name!r} is not the same in all executables; join those of one network")


def _same(a: Tensor, b: Tensor) -> bool:
    if (a.shape, a.dtype, a.kind, a.next) != (b.shape, b.dtype, b.kind, b.next):
        return False
    return a.data is b.data or (a.data is not None and b.data is not None and a.data.tobytes() == b.data.tobytes())


def _in_range(step: Step, names: dict[str, str], when: When) -> Step:
    """`step` on the tensors of the new `names`, which runs `when` the input is in its range."""
    if step.when is not None:
        raise ProgramError(f"step {step.name!r} already runs in some contexts only; join executables without those")
    return replace(_renamed(step, f"{step.name}, {when.first}..{when.end - 1}", names), when=when)


def _renamed(step: Step, name: str, names: dict[str, str]) -> Step:
    """`step` with another name, on the tensors of the new `names`."""
    if isinstance(step, HostStep):
        inputs, outputs = ([names[one] for one in some] for some in (step.inputs, step.outputs))
        return replace(step, name=name, inputs=inputs, outputs=outputs)
    bind = {key: names[one] for key, one in step.bind.items()}
    return replace(step, name=name, bind=bind)  # symbols are inputs, which keep their names
