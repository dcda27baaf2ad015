"""The contents of an executable: tensors and steps for one configuration, checked to fit together; its memory plan."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from ..hw.config import Config
from ..hw.errors import FingerprintError, InputError, ProgramError, UnsupportedError
from ..hw.isa import known_isa
from .arrays import Bytes
from .buffer import MOST_ALIGN, Buffer
from .device import Allocation, program_stats
from .hostops import HOST_OPS
from .hostops.row import Operand
from .launch import INSN_ALIGN, Launch, check_dram
from .schema import NAME, shown
from .steps import HostStep, LaunchStep, Step, Tensor, check_flow, entries, reads_writes, sources

_Contents = TypeVar("_Contents", bound="Contents")
_BOUND = ("input", "output", "state")  # kinds of buffers that stand for tensors


@dataclass(eq=False)
class Contents:
    """Ordered `steps` on `tensors`, for the configuration `cfg`.

    `contract` is the rounding contract of the network that it was compiled from. `entries` are the lists of inputs of
    a run, of which one is given. Raises `ProgramError` where a step names a tensor that does not exist, does not fit
    the buffer bound to it, or is read before a step wrote it, and where a host operator cannot process what its step
    holds; `UnsupportedError` for an operator that does not exist; `AccessError` for a launch that leaves its buffers.
    """

    cfg: Config
    name: str
    tensors: dict[str, Tensor]
    steps: list[Step]
    contract: str | None = None

    def __post_init__(self) -> None:
        self._check_names()
        self._elements: dict[str, tuple[str, int, bool]] = {}  # by tensor in device memory: step, bits, signed
        for step in self.steps:
            self._check_tensors(step)
            if isinstance(step, LaunchStep):
                self._check_launch(step)
            else:
                self._check_host(step)
        check_flow(self.tensors, self.steps)
        self.entries = entries(self.tensors, self.steps)
        self._same = _same_constants(self.steps)
        for name, region in self.memory_plan().items():
            if region.align > MOST_ALIGN:
                raise ProgramError(f"{name!r}: its buffers need an address that is a multiple of {region.align}")
        if not self.steps:
            raise ProgramError(f"program {self.name!r} has no steps: there is nothing to run")

    @classmethod
    def from_launch(cls: type[_Contents], launch: Launch) -> _Contents:
        """The contents of `launch` alone: every input, output and state buffer becomes a tensor of the same name.

        A symbol becomes an input of its name; states begin with zeros. The multiply-accumulates are counted from the
        GEMM micro-ops, padding included.
        """
        tensors = {name: Tensor(name, (1,), "int32", "input") for name in launch.patches.limits}
        bind = {b.name: b.name for b in launch.buffers if b.kind in _BOUND}
        for b in launch.buffers:
            if b.name in tensors:
                raise ProgramError(f"launch {launch.name!r}: {b.name!r} is a symbol and a buffer; rename one")
            if b.name in bind:
                dtype, kept = _dtypes(b)[0], b.kind == "state"
                data = np.zeros(b.shape, dtype) if kept else None
                tensors[b.name] = Tensor(b.name, b.shape, dtype, b.kind, data, b.name if kept else None)
        macs = program_stats(known_isa(launch.cfg), launch.insn).macs
        step = LaunchStep(launch.name, launch, bind, macs, {name: name for name in launch.patches.limits})
        return cls(launch.cfg, launch.name, tensors, [step])

    @property
    def launches(self) -> list[LaunchStep]:
        """The steps that run on the device."""
        return [step for step in self.steps if isinstance(step, LaunchStep)]

    @property
    def inputs(self) -> list[Tensor]:
        """The tensors that runs are given: of a program with several entries, the inputs of all."""
        return [t for t in self.tensors.values() if t.kind == "input"]

    def entry(self, names: Iterable[str]) -> list[Tensor]:
        """The list of `entries` with the inputs `names`; if there is a single list, this list.

        Raises `InputError` where there are several lists, and none has these names.
        """
        wanted = set(names)
        for inputs in self.entries:
            if len(self.entries) == 1 or {t.name for t in inputs} == wanted:
                return inputs
        known = "; or ".join(", ".join(t.name for t in inputs) for inputs in self.entries)
        raise InputError(f"inputs {', '.join(sorted(wanted)) or 'none'} given; program {self.name!r} takes {known}")

    @property
    def outputs(self) -> list[Tensor]:
        """The tensors that a run returns."""
        return [t for t in self.tensors.values() if t.kind == "output"]

    @property
    def states(self) -> list[Tensor]:
        """The tensors that keep their values from run to run."""
        return [t for t in self.tensors.values() if t.kind == "state"]

    def memory_plan(self) -> dict[str, Allocation]:
        """The regions of device memory that the program needs, by tensor name or by step number and buffer name."""
        regions: dict[str, Allocation] = {}
        for number, step in enumerate(self.steps):
            if isinstance(step, LaunchStep):
                regions[f"{number}.insn"] = Allocation(step.launch.insn_bytes, INSN_ALIGN)
                if step.steady is not None:
                    regions[f"{number}.steady"] = Allocation(step.steady.insn_bytes, INSN_ALIGN)
                for b in step.launch.buffers:
                    key = self.region(number, b)
                    before = regions.get(key, Allocation(0, 1))
                    regions[key] = Allocation(max(b.nbytes, before.nbytes), math.lcm(b.align, before.align))
        return regions

    def region(self, number: int, buffer: Buffer) -> str:
        """The key in `memory_plan` of `buffer` of step `number`; constants with equal bytes have one region."""
        step, key = self.steps[number], f"{number}.{buffer.name}"
        bound = step.bind.get(buffer.name) if isinstance(step, LaunchStep) else None
        return self._same.get(key, key) if bound is None else bound

    def _check_names(self) -> None:
        named: list[tuple[str, object]] = [("program", self.name)]
        for key, tensor in self.tensors.items():
            named.append(("tensor", tensor.name))
            if key != tensor.name:
                raise ProgramError(f"tensor {tensor.name!r} is declared as {key!r}")
        for step in self.steps:
            named.append(("step", step.name))
            if isinstance(step, LaunchStep):
                named += [("buffer", b.name) for b in step.launch.buffers]
        for what, name in named:
            if not NAME.allows(name):
                raise ProgramError(f"{what} name {shown(name)}: must be {NAME}")

    def _check_tensors(self, step: Step) -> None:
        """Check that the tensors of `step` exist, and that inputs on which it depends are single integers."""
        names = [*step.bind.values()] if isinstance(step, LaunchStep) else [*step.inputs, *step.outputs]
        values = [*sources(step, self.tensors).values()]
        values += [(step.when.tensor, 0)] if step.when else []
        for name in [*names, *(name for name, _ in values)]:
            if name not in self.tensors:
                raise ProgramError(f"step {step.name!r} names tensor {name!r}, which is not declared")
        elements = [*step.symbols.values()] if isinstance(step, LaunchStep) else []
        for name, k in values:
            tensor = self.tensors[name]
            shape = (max(k + 1, tensor.shape[0]),) if f"{name}[{k}]" in elements and tensor.shape else (1,)
            if (tensor.kind, tensor.dtype, tensor.shape) != ("input", "int32", shape):
                is_now = f"which is {tensor.kind}, {tensor.dtype} {tensor.shape}"
                raise ProgramError(f"step {step.name!r} depends on {name!r}, {is_now}; must be input, int32 {shape}")

    def _check_host(self, step: HostStep) -> None:
        if step.op not in HOST_OPS:
            known = ", ".join(sorted(HOST_OPS))
            raise UnsupportedError(f"step {step.name!r}: host operator {step.op!r} is unknown; known are {known}")
        at = f"step {step.name!r}: host operator {step.op!r}"
        if twice := sorted({*step.attrs} & {*step.constants}):
            raise ProgramError(f"{at}: {twice[0]!r} is an attribute and a constant")
        if len(step.outputs) != 1:
            raise ProgramError(f"{at}: {len(step.outputs)} outputs: must be 1")
        inputs = [Operand(t.shape, t.dtype) for t in (self.tensors[name] for name in step.inputs)]
        try:
            shape, dtype, _ = HOST_OPS[step.op].result(inputs, step.attrs | step.constants)
        except ProgramError as exc:
            raise ProgramError(f"{at}: {exc}") from None
        output = self.tensors[step.outputs[0]]
        if (output.shape, output.dtype) != (shape, dtype):
            is_now = f"output {output.name!r} is {output.dtype} {output.shape}"
            raise ProgramError(f"{at}: {is_now}, its result {dtype} {shape}")

    def _check_launch(self, step: LaunchStep) -> None:
        at, theirs = f"step {step.name!r}", step.launch.cfg
        if theirs.fingerprint != self.cfg.fingerprint:
            raise FingerprintError(
                f"{at} is for {theirs.name} ({theirs.fingerprint:016x}), "
                f"the program for {self.cfg.name} ({self.cfg.fingerprint:016x})"
            )
        buffers = {b.name: b for b in step.launch.buffers}
        for name, tensor_name in step.bind.items():
            if name not in buffers:
                raise ProgramError(f"{at} binds buffer {name!r}, which its launch does not have")
            buffer, tensor = buffers[name], self.tensors[tensor_name]
            if buffer.kind not in _BOUND:
                allowed = f"only {' and '.join(_BOUND)} buffers are bound"
                raise ProgramError(f"{at} binds buffer {name!r}, which is {buffer.kind}; {allowed}")
            if buffer.shape != tensor.shape or tensor.dtype not in _dtypes(buffer):
                raise ProgramError(
                    f"{at}: buffer {name!r} is {buffer.bits}-bit {buffer.shape}, "
                    f"tensor {tensor_name!r} is {tensor.dtype} {tensor.shape}"
                )
            if buffer.kind == "state" and tensor.next != tensor_name:
                is_now = f"{tensor.kind} {tensor_name!r}" + (f" with next {tensor.next!r}" if tensor.next else "")
                raise ProgramError(
                    f"{at}: buffer {name!r} is state and bound to {is_now}; it is written in place: bind a state whose "
                    "next is itself"
                )
            elements = step.name, buffer.bits, buffer.signed
            where, bits, signed = self._elements.setdefault(tensor_name, elements)
            if (buffer.bits, buffer.signed) != (bits, signed):  # they share device memory, so they have one size
                raise ProgramError(
                    f"{at}: tensor {tensor_name!r} has {buffer.bits}-bit elements in buffer {name!r}, "
                    f"{bits}-bit ones in step {where!r}; they must agree"
                )
        for buffer in buffers.values():
            if buffer.kind in ("input", "state") and buffer.name not in step.bind:
                raise ProgramError(f"{at}: no tensor is bound to its {buffer.kind} buffer {buffer.name!r}")
        limits = step.launch.patches.limits
        if step.symbols.keys() != limits.keys():
            names = f"{', '.join(limits) or 'none'}; those with a tensor are {', '.join(step.symbols) or 'none'}"
            raise ProgramError(f"{at}: its launch has the symbols {names}; name a tensor for each")
        for tensor_name in reads_writes(step)[1]:
            if list(step.bind.values()).count(tensor_name) > 1:
                raise ProgramError(f"{at}: tensor {tensor_name!r} is written, but bound to several buffers")
        check_dram(step.launch)
        if step.steady is not None:
            if [*map(id, step.steady.buffers)] != [*map(id, step.launch.buffers)] or theirs != step.steady.cfg:
                raise ProgramError(f"{at}: its steady launch has other buffers than its launch; both share theirs")
            its = step.steady.patches.limits
            if not its.items() <= limits.items():
                raise ProgramError(f"{at}: its steady launch has symbols {its}, its launch {limits}; compile it again")
            check_dram(step.steady)


def _same_constants(steps: Sequence[Step]) -> dict[str, str]:
    """The region of the first constant with the same bytes, by the region of each constant.

    Launches of one network for several contexts have the same weights, which would fill the memory several times.
    """
    sizes: dict[int, list[tuple[str, Bytes]]] = {}  # only constants of one size are compared
    for number, step in enumerate(steps):
        for b in step.launch.buffers if isinstance(step, LaunchStep) else ():
            if b.data is not None:
                sizes.setdefault(b.nbytes, []).append((f"{number}.{b.name}", b.data))
    if sum(isinstance(step, LaunchStep) for step in steps) < 2:
        return {}
    first: dict[bytes, str] = {}
    candidates = [constant for constants in sizes.values() if len(constants) > 1 for constant in constants]
    return {key: first.setdefault(hashlib.sha256(data.tobytes()).digest(), key) for key, data in candidates}


def _dtypes(buffer: Buffer) -> tuple[str, ...]:
    """The dtypes of a tensor that `buffer` may stand for; floats are taken as the bits of int32."""
    if buffer.bits < 32:
        return ("int8",) if buffer.signed else ("uint8",)
    integers = "int32" if buffer.signed else "uint32"
    return (integers, "float32") if buffer.kind == "input" else (integers,)
