"""Executables of one network for several contexts as one, which runs the steps of the smallest that suffices.

Those for one token at a time and for several are one, too, with an entry for each.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...hw.errors import ProgramError
from ...runtime.executable import Executable, HostStep, Tensor
from ...runtime.steps import Step, When

_KINDS = ("input", "output", "state")


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
        _compare(first, other, _KINDS)
    tensors: dict[str, Tensor] = {}
    steps: list[Step] = []
    for executable, begin, end in zip(executables, (0, *ends), ends):
        names = _added(tensors, executable, f"{begin}..{end - 1}")
        steps += [_in_range(step, names, When(tensor, begin, end)) for step in executable.steps]
    return Executable(first.cfg, first.name, tensors, steps, first.contract)


def with_entry(first: Executable, second: Executable, name: str) -> Executable:
    """The executable of both, which runs the steps of the one whose inputs it is given.

    All their steps depend on an input, those of one on another than those of the other. They have the same outputs and
    states. `name` is in those of the second's steps and tensors where the first has them, too. Raises `ProgramError`.
    """
    _compare(first, second, _KINDS[1:])
    tensors, taken = dict(first.tensors), {step.name for step in first.steps}
    names = _added(tensors, second, name)
    steps = [
        _renamed(step, f"{step.name}, {name}" if step.name in taken else step.name, names) for step in second.steps
    ]
    return Executable(first.cfg, first.name, tensors, [*first.steps, *steps], first.contract)


def _added(tensors: dict[str, Tensor], executable: Executable, label: str) -> dict[str, str]:
    """Add the executable's tensors to `tensors`, with the label where another has the name; their names there."""
    names = {}
    for name, found in executable.tensors.items():
        names[name] = name if name not in tensors or _same(tensors[name], found) else f"{name}, {label}"
        tensors.setdefault(names[name], replace(found, name=names[name]))
    return names


def _compare(first: Executable, other: Executable, kinds: tuple[str, ...]) -> None:
    """Raise `ProgramError` where the two are not of one network."""
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
    return replace(step, name=name, bind=bind)  # what symbols are is inputs, which keep their names
