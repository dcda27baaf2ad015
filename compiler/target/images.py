"""The graph of a network for several images at once: the first dimension of every tensor is as many times larger."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

import numpy as np

from ...hw.errors import CapacityError, InputError, UnsupportedError
from ...runtime.executable import Executable
from ...sim.memory import CAPACITY
from .. import graph as g

T = TypeVar("T", bound=Mapping[str, np.ndarray])


def of_images(graph: g.Graph, count: int) -> g.Graph:
    """The graph of `count` inputs of `graph`, one behind the other in the first dimension of every tensor.

    Raises `InputError` for a count below 1, `CapacityError` for more than the memory of a device holds,
    `UnsupportedError` for a network with state, or with operators that do more with the first dimension than keep it,
    all of which it names.
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
    """Inputs of `of_images` from those of single images, `count` at a time; the last image fills up the last ones."""
    groups = [list(samples[k : k + count]) for k in range(0, len(samples), count)]
    if groups:
        groups[-1] += groups[-1][-1:] * (count - len(groups[-1]))
    return [{name: np.concatenate([one[name] for one in group]) for name in group[0]} for group in groups]


def apart(results: Sequence[T], count: int, images: int) -> list[dict[str, np.ndarray]]:
    """Outputs of each of `images` images, the inverse of `together`."""
    found = [{name: np.split(value, count)[k] for name, value in one.items()} for one in results for k in range(count)]
    return found[:images]
