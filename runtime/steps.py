"""What an executable is made of: tensors, launches of the accelerator, and operators of the host."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from ..hw.errors import InputError, ProgramError
from .buffer import KINDS, MOST_BYTES, whole
from .launch import Launch
from .schema import MOST

_RANGES = 256  # in which different steps of a program run
DTYPES = ("int8", "uint8", "int16", "int32", "uint32", "int64", "float32", "bool")


@dataclass(eq=False)
class Tensor:
    """A named array between steps; `kind` is input, output, temp, constant (its values are in `data`) or state.

    A state keeps its values from run to run: the first one finds `data` there, and at the end of each it takes the
    values of the tensor named `next`. One whose `next` is itself takes what launches wrote to it in place.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    kind: str = "temp"
    data: np.ndarray | None = None
    next: str | None = None

    def __post_init__(self) -> None:
        self.shape = whole(f"tensor {self.name!r}: shape", self.shape)
        if min(self.shape, default=1) < 1:
            raise ProgramError(f"tensor {self.name!r}: shape {self.shape}: every dimension must be at least 1")
        if self.kind not in KINDS:
            raise ProgramError(f"tensor {self.name!r}: kind {self.kind!r} must be one of {', '.join(KINDS)}")
        if self.dtype not in DTYPES:
            raise ProgramError(f"tensor {self.name!r}: dtype {self.dtype!r} must be one of {', '.join(DTYPES)}")
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
    """The runs in which a step runs: those where the input `tensor`, int32 (1,), is in first..end-1."""

    tensor: str
    first: int
    end: int


@dataclass(eq=False)
class LaunchStep:
    """One start of the accelerator; `bind` maps names of the launch's buffers to names of tensors.

    `macs` are the layer's useful multiply-accumulates: spatial padding counts, padded channels do not. `symbols` maps
    the symbols of the launch to the inputs, int32 (1,), that are their values. `when`: in which runs it runs, None for
    all.
    """

    name: str
    launch: Launch
    bind: dict[str, str]
    macs: int = 0
    symbols: dict[str, str] = field(default_factory=dict)
    when: When | None = None


@dataclass(eq=False)
class HostStep:
    """One operator of `hostops.HOST_OPS` on the host; `attrs` are JSON values, `constants` arrays by attribute name.

    `when`: in which runs it runs, None for all.
    """

    name: str
    op: str
    inputs: list[str]
    outputs: list[str]
    attrs: dict = field(default_factory=dict)
    constants: dict[str, np.ndarray] = field(default_factory=dict)
    macs: int = 0
    when: When | None = None


Step = LaunchStep | HostStep


def reads_writes(step: Step) -> tuple[list[str], list[str]]:
    """The tensors that `step` reads, and those that it writes; a state in place is both."""
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

    Raises `ProgramError` where steps depend on different tensors, or there are gaps or more ranges than `_RANGES`.
    """
    conditions = [(step, step.when) for step in steps if step.when is not None]
    for step, when in conditions:
        if not 0 <= when.first < when.end <= MOST:
            found = f"step {step.name!r} runs where {when.tensor!r} is in {when.first}..{when.end - 1}"
            raise ProgramError(f"{found}: must be a range that is not empty, within 0..{MOST - 1}")
    tensors = sorted({when.tensor for _, when in conditions})
    if len(tensors) > 1:
        raise ProgramError(f"steps depend on {' and '.join(map(repr, tensors))}; they may depend on one input")
    edges = sorted({edge for _, when in conditions for edge in (when.first, when.end)})
    if len(edges) > _RANGES + 1:
        raise ProgramError(f"steps run in {len(edges) - 1} different ranges of {tensors[0]!r}; at most {_RANGES}")
    found = [When(tensors[0], first, end) for first, end in pairwise(edges)]
    for one in found:
        if not any(when.first <= one.first < when.end for _, when in conditions):
            known = f"no step runs where {one.tensor!r} is in {one.first}..{one.end - 1}, but others do below and above"
            raise ProgramError(f"{known}; close the gap")
    return found


def runs_in(step: Step, value: int | None) -> bool:
    """Whether `step` runs where the input that steps depend on has this value; None where none depends on any."""
    return step.when is None or value is None or step.when.first <= value < step.when.end


def chosen(steps: Sequence[Step], inputs: Mapping[str, np.ndarray]) -> list[Step]:
    """Those of `steps` that run for `inputs`, by name.

    Raises `InputError` where none was made for the value of an input that they depend on, or a symbol is out of range.
    """
    known, value = ranges(steps), None
    if known:
        name, value = known[0].tensor, int(inputs[known[0].tensor][0])
        _check_value(name, value, known[0].first, known[-1].end, "the program")
    found = [step for step in steps if runs_in(step, value)]
    for step in found:
        if isinstance(step, LaunchStep):
            for symbol, name in step.symbols.items():
                _check_value(name, int(inputs[name][0]), 0, step.launch.patches.limits[symbol], f"step {step.name!r}")
    return found


def _check_value(name: str, value: int, first: int, end: int, what: str) -> None:
    if not first <= value < end:
        allowed = f"{what} was made for {first}..{end - 1}"
        raise InputError(f"input {name!r}: value {value} given, {allowed}; give one of these, or compile for more")


def check_flow(tensors: Mapping[str, Tensor], steps: Sequence[Step]) -> None:
    """Check that every run writes what it reads, its outputs, and the next values of its states, before they are used.

    This holds for every value of the input that steps depend on. Raises `ProgramError`.
    """
    for found in ranges(steps) or [None]:
        try:
            _check_run(tensors, [step for step in steps if runs_in(step, found and found.first)])
        except ProgramError as exc:
            where = f", where {found.tensor!r} is in {found.first}..{found.end - 1}" if found else ""
            raise ProgramError(f"{exc}{where}") from None


def _check_run(tensors: Mapping[str, Tensor], steps: Sequence[Step]) -> None:
    given = ("input", "constant", "state")
    ready = {t.name for t in tensors.values() if t.kind in given}
    for step in steps:
        reads, writes = reads_writes(step)
        for name in reads:
            if name not in ready:
                raise ProgramError(f"step {step.name!r} reads tensor {name!r} before any step wrote it")
        for name in writes:
            if tensors[name].kind in given and not (isinstance(step, LaunchStep) and name in _bound(step, "state")):
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
    """What a state takes at the end of a run must be there, and fit it."""
    what = f"state {tensor.name!r} takes the values of {tensor.next!r}"
    new = tensors.get(tensor.next or "")
    if new is None:
        raise ProgramError(f"{what}, which is not declared")
    if new.name not in ready:
        raise ProgramError(f"{what}, which no step writes")
    if (new.shape, new.dtype) != (tensor.shape, tensor.dtype):
        found = f"{new.dtype} {new.shape}"
        raise ProgramError(f"{what}, which is {found}; it must be {tensor.dtype} {tensor.shape}")
