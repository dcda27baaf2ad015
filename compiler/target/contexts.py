"""Executables of one network for several contexts as one, which runs the steps of the smallest that suffices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...hw.errors import ProgramError
from ...runtime.executable import Executable, HostStep, Tensor
from ...runtime.steps import Step, When

_SHARED = ("input", "output", "state")


def join(executables: Sequence[Executable], tensor: str, ends: Sequence[int]) -> Executable:
    """The executable that runs the steps of `executables[k]` where the input `tensor` is below `ends[k]`.

    `tensor` is int32 (1,), and `ends` ascend: each is used from the end of the one before it, the first from 0. All
    have the same inputs, outputs and states; equal constants are stored and loaded once. Raises `ProgramError`.
    """
    if not executables or len(executables) != len(ends) or any(a >= b for a, b in zip((0, *ends), ends)):
        found = f"{len(executables)} executables, ends {', '.join(map(str, ends)) or 'none'}"
        raise ProgramError(f"{found}: must be as many of each, at least one, and ends must ascend from 1 on")
    first, *others = executables
    for other in others:
        _compare(first, other)
    tensors: dict[str, Tensor] = {}
    steps: list[Step] = []
    for executable, begin, end in zip(executables, (0, *ends), ends):
        names = {}
        for name, found in executable.tensors.items():
            names[name] = name if name not in tensors or _same(tensors[name], found) else f"{name}, {begin}..{end - 1}"
            tensors.setdefault(names[name], replace(found, name=names[name]))
        steps += [_renamed(step, names, When(tensor, begin, end)) for step in executable.steps]
    return Executable(first.cfg, first.name, tensors, steps)


def _compare(first: Executable, other: Executable) -> None:
    """Raise `ProgramError` where the two are not of one network."""
    ours, theirs = ({t.name: t for t in e.tensors.values() if t.kind in _SHARED} for e in (first, other))
    for name in {**ours, **theirs}:
        if name not in ours or name not in theirs or not _same(ours[name], theirs[name]):
            kind = (ours | theirs)[name].kind
            raise ProgramError(f"{kind} {name!r} is not the same in all executables; join those of one network")


def _same(a: Tensor, b: Tensor) -> bool:
    if (a.shape, a.dtype, a.kind, a.next) != (b.shape, b.dtype, b.kind, b.next):
        return False
    return a.data is b.data or (a.data is not None and b.data is not None and a.data.tobytes() == b.data.tobytes())


def _renamed(step: Step, names: dict[str, str], when: When) -> Step:
    """`step` on the tensors of the new `names`, which runs `when` the input is in its range."""
    if step.when is not None:
        raise ProgramError(f"step {step.name!r} already runs in some contexts only; join executables without those")
    name = f"{step.name}, {when.first}..{when.end - 1}"
    if isinstance(step, HostStep):
        inputs, outputs = ([names[one] for one in some] for some in (step.inputs, step.outputs))
        return replace(step, name=name, inputs=inputs, outputs=outputs, when=when)
    bind, symbols = ({key: names[one] for key, one in some.items()} for some in (step.bind, step.symbols))
    return replace(step, name=name, bind=bind, symbols=symbols, when=when)
