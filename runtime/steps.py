"""The parts of an executable: tensors, launches of the accelerator, host operators; and the flow between them."""

from __future__ import annotations

import math
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from ..hw.errors import InputError, ProgramError
from .arrays import Array
from .buffer import KINDS, MOST_BYTES, whole
from .launch import Launch
from .proof.certificate import Certificate
from .schema import MOST

_RANGES = 256  # in which different steps of a program run
_DIGITS = 9  # of the number of an element: tensors have no more
Attrs = dict[str, Any]  # of a host operator: JSON values
DTYPES = ("int8", "uint8", "int16", "int32", "uint32", "int64", "float32", "bool")


@dataclass(eq=False)
class Tensor:
    """A named array between steps; `kind` is input, output, temp, constant (its values are in `data`) or state.

    A state keeps its values from run to run: the first run finds `data`, and at the end of each run it takes the values
    of the tensor named `next`. A state whose `next` is itself is written in place by launches.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    kind: str = "temp"
    data: Array | None = None
    next: str | None = None

    def __post_init__(self) -> None:
        self.shape = whole(f"tensor {self.name!r}: shape", self.shape)
        if min(self.shape, default=1) < 1:
            raise ProgramError(f"tensor {self.name!r}: shape {self.shape}: every dimension must be at least 1")
        for name, value, known in (("kind", self.kind, KINDS), ("dtype", self.dtype, DTYPES)):
            if value not in known:
                raise ProgramError(f"tensor {self.name!r}: {name} {value!r} must be one of {', '.join(known)}")
        if self.nbytes > MOST_BYTES:
            raise ProgramError(f"tensor {self.name!r}: {self.nbytes:,} bytes; at most {MOST_BYTES:,} are allowed")
        keeps = self.kind in ("constant", "state")
        if keeps != (self.data is not None):
            needs = "needs data" if keeps else "takes no data; only constant and state tensors do"
            raise ProgramError(f"tensor {self.name!r}: kind {self.kind!r} {needs}")
        if (self.kind == "state") != (self.next is not None):
            needs = "needs next, the tensor whose values it takes" if self.next is None else "takes no next"
            raise ProgramError(f"tensor {self.name!r}: kind {self.kind!r} {needs}")
        if self.data is not None and (self.data.shape != self.shape or self.data.dtype != self.dtype):
            found = f"{self.data.dtype} {self.data.shape}"
            raise ProgramError(f"tensor {self.name!r}: data is {found}, must be {self.dtype} {self.shape}")

    @property
    def nbytes(self) -> int:
        """Bytes of the array."""
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize


class When(NamedTuple):
    """The runs in which a step runs: those where the input `tensor`, int32 (1,), is given, and in first..end-1."""

    tensor: str
    first: int
    end: int


@dataclass(eq=False)
class LaunchStep:
    """One start of the accelerator; `bind` maps names of the launch's buffers to names of tensors.

    `macs` are the layer's useful multiply-accumulates: spatial padding counts, padded channels do not. `symbols` maps
    the symbols of the launch to the inputs that are their values, int32 (1,), or elements of vectors, as `tokens[3]`.
    `when`: in which runs it runs, None for all. `certificate` is the proof of its launch, None where it has none.
    `steady` does the same as `launch` where the scratchpads hold what the run before left there, None where nothing is
    left out (runtime/steady.py); `steady_certificate` is its proof.
    """

    name: str
    launch: Launch
    bind: dict[str, str]
    macs: int = 0
    symbols: dict[str, str] = field(default_factory=dict[str, str])
    when: When | None = None
    certificate: Certificate | None = None
    steady: Launch | None = None
    steady_certificate: Certificate | None = None

    def which(self, steady: bool) -> Launch:
        """The steady launch, where one is there and `steady`; else `launch`."""
        return self.launch if self.steady is None or not steady else self.steady


@dataclass(eq=False)
class HostStep:
    """One operator of `hostops.HOST_OPS` on the host; `attrs` are JSON values, `constants` arrays by attribute name.

    `when`: in which runs it runs, None for all.
    """

    name: str
    op: str
    inputs: list[str]
    outputs: list[str]
    attrs: Attrs = field(default_factory=dict[str, Any])
    constants: dict[str, Array] = field(default_factory=dict[str, Array])
    macs: int = 0
    when: When | None = None


Step = LaunchStep | HostStep


def reads_writes(step: Step) -> tuple[list[str], list[str]]:
    """The tensors that `step` reads, and the tensors that it writes; a state in place is both."""
    if isinstance(step, HostStep):
        return step.inputs, step.outputs
    inputs, outputs, states = (_bound(step, kind) for kind in ("input", "output", "state"))
    return inputs + states, outputs + states


def _bound(step: LaunchStep, kind: str) -> list[str]:
    """The tensors that buffers of `kind` are bound to."""
    names = {b.name for b in step.launch.buffers if b.kind == kind}
    return [tensor for name, tensor in step.bind.items() if name in names]


def ranges(steps: Sequence[Step]) -> list[When]:
    """The ranges of values for which the same of `steps` run, ascending; none where all always run.

    The ranges of several inputs follow one another, because a run is given one of these inputs. Raises `ProgramError`
    where there are gaps, or more ranges than `_RANGES`.
    """
    conditions = [(step, step.when) for step in steps if step.when is not None]
    for step, when in conditions:
        if not 0 <= when.first < when.end <= MOST:
            found = f"step {step.name!r} runs where {when.tensor!r} is in {when.first}..{when.end - 1}"
            raise ProgramError(f"{found}: must be a range that is not empty, within 0..{MOST - 1}")
    whens = [when for _, when in conditions]
    return [one for name in dict.fromkeys(when.tensor for when in whens) for one in _ranges_of(name, whens)]


def _ranges_of(name: str, whens: Sequence[When]) -> list[When]:
    """The ranges of the input `name`."""
    conditions = [when for when in whens if when.tensor == name]
    edges = sorted({edge for when in conditions for edge in (when.first, when.end)})
    if len(edges) > _RANGES + 1:
        raise ProgramError(f"steps run in {len(edges) - 1} different ranges of {name!r}; at most {_RANGES}")
    parts = [When(name, first, end) for first, end in pairwise(edges)]
    for one in parts:
        if not any(when.first <= one.first < when.end for when in conditions):
            known = f"no step runs where {one.tensor!r} is in {one.first}..{one.end - 1}, but others do below and above"
            raise ProgramError(f"{known}; close the gap")
    return parts


def entries(tensors: Mapping[str, Tensor], steps: Sequence[Step]) -> list[list[Tensor]]:
    """The lists of inputs of which a run is inputs one: a single list of all, unless steps depend on several inputs.

    Then each list has one input that steps depend on, and the inputs that the steps of such a run read. Raises
    `ProgramError` where two lists are the same.
    """
    inputs = [t for t in tensors.values() if t.kind == "input"]
    choices = list(dict.fromkeys(step.when.tensor for step in steps if step.when is not None))
    if len(choices) < 2:
        return [inputs]
    readers: dict[str, set[str]] = {name: {name} for name in choices}  # by input: the choices with which it is read
    for step in steps:
        for name in [*reads_writes(step)[0], *(name for name, _ in sources(step, tensors).values())]:
            readers.setdefault(name, set()).update([step.when.tensor] if step.when else choices)
    lists = [[t for t in inputs if choice in readers.get(t.name, choices)] for choice in choices]
    names = [[t.name for t in entry] for entry in lists]
    for k, one in enumerate(names):
        if one in names[:k]:
            raise ProgramError(f"{' and '.join(choices)} choose steps, but runs with either have the inputs {one}")
    return lists


def sources(step: Step, known: Container[str]) -> dict[str, tuple[str, int]]:
    """(tensor, element) that holds the value of each symbol of `step`; `known` are the names of tensors."""
    return {key: _element(name, known) for key, name in step.symbols.items()} if isinstance(step, LaunchStep) else {}


def _element(name: str, known: Container[str]) -> tuple[str, int]:
    tensor, _, index = name.removesuffix("]").rpartition("[")
    if name in known or not (tensor in known and name.endswith("]") and index.isdecimal() and len(index) <= _DIGITS):
        return name, 0
    return tensor, int(index)


def runs_in(step: Step, values: Mapping[str, int]) -> bool:
    """Whether `step` runs where the inputs that steps depend on have these `values`; those not given are absent."""
    when = step.when
    return when is None or when.tensor in values and when.first <= values[when.tensor] < when.end


def turns(steps: Sequence[Step]) -> list[list[LaunchStep]]:
    """The launches of each kind of run, in their order: a single list, unless steps depend on an input."""
    values = [{one.tensor: one.first} for one in ranges(steps)] or [{}]
    return [[step for step in steps if isinstance(step, LaunchStep) and runs_in(step, each)] for each in values]


def chosen(steps: Sequence[Step], inputs: Mapping[str, Array]) -> list[Step]:
    """The steps that run for `inputs`, by name.

    Raises `InputError` where none was made for the value of an input that they depend on, or a symbol is out of range.
    """
    values = dict[str, int]()
    known = [one for one in ranges(steps) if one.tensor in inputs]
    if known:
        name = known[0].tensor
        values[name] = int(inputs[name][0])
        _check_value(name, values[name], known[0].first, known[-1].end, "the program")
    running = [step for step in steps if runs_in(step, values)]
    for step in running:
        if isinstance(step, LaunchStep):
            for symbol, (name, k) in sources(step, inputs).items():
                _check_value(name, int(inputs[name][k]), 0, step.launch.patches.limits[symbol], f"step {step.name!r}")
    return running


def _check_value(name: str, value: int, first: int, end: int, what: str) -> None:
    if not first <= value < end:
        allowed = f"{what} was made for {first}..{end - 1}"
        raise InputError(f"input {name!r}: value {value} given, {allowed}; give one of these, or compile for more")


def check_flow(tensors: Mapping[str, Tensor], steps: Sequence[Step]) -> None:
    """Check that every run writes what it reads, its outputs, and the next values of its states, before they are used.

    This holds for every value of the inputs that steps depend on. Raises `ProgramError`.
    """
    for found in ranges(steps) or [None]:
        try:
            values = {found.tensor: found.first} if found else {}
            _check_run(tensors, [step for step in steps if runs_in(step, values)])
        except ProgramError as exc:
            where = f", where {found.tensor!r} is in {found.first}..{found.end - 1}" if found else ""
            raise ProgramError(f"{exc}{where}") from None


def _check_run(tensors: Mapping[str, Tensor], steps: Sequence[Step]) -> None:
    filled = ("input", "constant", "state")
    ready = {t.name for t in tensors.values() if t.kind in filled}
    for step in steps:
        reads, writes = reads_writes(step)
        for name in reads:
            if name not in ready:
                raise ProgramError(f"step {step.name!r} reads tensor {name!r} before any step wrote it")
        for name in writes:
            if tensors[name].kind in filled and not (isinstance(step, LaunchStep) and name in _bound(step, "state")):
                raise ProgramError(
                    f"step {step.name!r} writes tensor {name!r}, which is {tensors[name].kind}; "
                    "only output and temp tensors are written, and states by buffers of kind state"
                )
        ready.update(writes)
    for tensor in tensors.values():
        if tensor.kind == "output" and tensor.name not in ready:
            raise ProgramError(f"no step writes output {tensor.name!r}")
        if tensor.kind == "state":
            _check_state(tensor, tensors, ready)


def _check_state(tensor: Tensor, tensors: Mapping[str, Tensor], ready: set[str]) -> None:
    """Check that the tensor whose values a state takes at the end of a run is there, and fits it."""
    what = f"state {tensor.name!r} takes the values of {tensor.next!r}"
    new = tensors.get(tensor.next or "")
    if new is None:
        raise ProgramError(f"{what}, which is not declared")
    if new.name not in ready:
        raise ProgramError(f"{what}, which no step writes")
    if (new.shape, new.dtype) != (tensor.shape, tensor.dtype):
        found = f"{new.dtype} {new.shape}"
        raise ProgramError(f"{what}, which is {found}; it must be {tensor.dtype} {tensor.shape}")
