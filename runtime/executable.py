"""Executables: ordered steps of a device and its host on named tensors. A `.tw` file holds one (docs/files.md)."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..hw.config import Config
from ..hw.errors import (
    AccessError,
    CertificateError,
    FileError,
    FingerprintError,
    InputError,
    ProgramError,
    UnsupportedError,
    one_line,
)
from ..hw.foreign import read_regular
from ..hw.isa import known_isa
from ..hw.show import table
from . import manifest
from .buffer import MOST_ALIGN, Buffer
from .device import program_stats
from .files import atomic_write
from .hostops import HOST_OPS
from .hostops.row import Operand
from .launch import INSN_ALIGN, Launch, check_dram
from .schema import NAME, shown
from .steps import HostStep, LaunchStep, Step, Tensor, check_flow, entries, reads_writes, sources

if TYPE_CHECKING:
    from .device import Device, Stats

_BOUND = ("input", "output", "state")  # kinds of buffers that stand for tensors


class Allocation(NamedTuple):
    """Bytes of device memory, at an address that is a multiple of `align`."""

    nbytes: int
    align: int


@dataclass(eq=False)
class Executable:
    """Ordered `steps` on `tensors`, for the configuration `cfg`; `on` is the device of runs that name none.

    Raises `ProgramError` where a step names a tensor that does not exist, does not fit the buffer bound to it, or is
    read before a step wrote it, and where a host operator cannot process what its step holds; `UnsupportedError` for
    an operator that does not exist; `AccessError` for a launch that leaves its buffers.

    >>> import tilewright as tw
    >>> digits = tw.compile("examples/digits/digits.onnx")
    >>> [tensor.shape for tensor in digits.inputs]
    [(1, 1, 8, 8)]
    >>> digits(np.load("examples/digits/inputs.npz")["inputs"][0])["logits"].shape
    (1, 10)
    """

    cfg: Config
    name: str
    tensors: dict[str, Tensor]
    steps: list[Step]
    contract: str | None = None  # the rounding contract of the network that it was compiled from
    on: str | Device = "model"  # not in a .tw file

    def __post_init__(self) -> None:
        self._check_names()
        self._widths: dict[str, tuple[str, int, bool]] = {}  # of tensors in device memory: a step, bits, signed
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

    @property
    def launches(self) -> list[LaunchStep]:
        """The steps that run on the device."""
        return [step for step in self.steps if isinstance(step, LaunchStep)]

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
            whole = (max(k + 1, tensor.shape[0]),) if f"{name}[{k}]" in elements and tensor.shape else (1,)
            if (tensor.kind, tensor.dtype, tensor.shape) != ("input", "int32", whole):
                found = f"which is {tensor.kind}, {tensor.dtype} {tensor.shape}"
                raise ProgramError(
                    f"step {step.name!r} depends on {tensor.name!r}, {found}; must be input, int32 {whole}"
                )

    def _check_host(self, step: HostStep) -> None:
        if step.op not in HOST_OPS:
            known = ", ".join(sorted(HOST_OPS))
            raise UnsupportedError(f"step {step.name!r}: host operator {step.op!r} is unknown; known are {known}")
        at = f"step {step.name!r}: host operator {step.op!r}"
        both = sorted({*step.attrs} & {*step.constants})
        if both or len(step.outputs) != 1:
            found = f"{both[0]!r} is an attribute and a constant" if both else f"{len(step.outputs)} outputs: must be 1"
            raise ProgramError(f"{at}: {found}")
        inputs = [Operand(t.shape, t.dtype) for t in (self.tensors[name] for name in step.inputs)]
        try:
            shape, dtype, _ = HOST_OPS[step.op].result(inputs, step.attrs | step.constants)
        except ProgramError as exc:
            raise ProgramError(f"{at}: {exc}") from None
        output = self.tensors[step.outputs[0]]
        if (output.shape, output.dtype) != (shape, dtype):
            found = f"output {output.name!r} is {output.dtype} {output.shape}"
            raise ProgramError(f"{at}: {found}, its result {dtype} {shape}")

    def _check_launch(self, step: LaunchStep) -> None:
        if step.launch.cfg.fingerprint != self.cfg.fingerprint:
            raise FingerprintError(
                f"step {step.name!r} is for {step.launch.cfg.name} ({step.launch.cfg.fingerprint:016x}), "
                f"the program for {self.cfg.name} ({self.cfg.fingerprint:016x})"
            )
        buffers = {b.name: b for b in step.launch.buffers}
        for name, tensor_name in step.bind.items():
            if name not in buffers:
                raise ProgramError(f"step {step.name!r} binds buffer {name!r}, which its launch does not have")
            buffer, tensor = buffers[name], self.tensors[tensor_name]
            if buffer.kind not in _BOUND:
                raise ProgramError(
                    f"step {step.name!r} binds buffer {name!r}, which is {buffer.kind}; only {' and '.join(_BOUND)} "
                    "buffers are bound"
                )
            if buffer.shape != tensor.shape or tensor.dtype not in _dtypes(buffer):
                raise ProgramError(
                    f"step {step.name!r}: buffer {name!r} is {buffer.bits}-bit {buffer.shape}, "
                    f"tensor {tensor_name!r} is {tensor.dtype} {tensor.shape}"
                )
            if buffer.kind == "state" and tensor.next != tensor_name:
                found = f"{tensor.kind} {tensor_name!r}" + (f" with next {tensor.next!r}" if tensor.next else "")
                raise ProgramError(
                    f"step {step.name!r}: buffer {name!r} is state and bound to {found}; it is written in place: bind "
                    "a state whose next is itself"
                )
            self._check_width(step, buffer, tensor_name)
        for buffer in buffers.values():
            if buffer.kind in ("input", "state") and buffer.name not in step.bind:
                found = f"{buffer.kind} buffer {buffer.name!r}"
                raise ProgramError(f"step {step.name!r}: no tensor is bound to its {found}")
        limits = step.launch.patches.limits
        if step.symbols.keys() != limits.keys():
            found = f"{', '.join(limits) or 'none'}; those with a tensor are {', '.join(step.symbols) or 'none'}"
            raise ProgramError(f"step {step.name!r}: its launch has the symbols {found}; name a tensor for each")
        for tensor_name in reads_writes(step)[1]:
            if list(step.bind.values()).count(tensor_name) > 1:
                raise ProgramError(
                    f"step {step.name!r}: tensor {tensor_name!r} is written, but bound to several buffers"
                )
        check_dram(step.launch)

    def _check_width(self, step: LaunchStep, buffer: Buffer, tensor_name: str) -> None:
        """Check that the buffers of a tensor, which share device memory, have the same elements and so one size."""
        where, bits, signed = self._widths.setdefault(tensor_name, (step.name, buffer.bits, buffer.signed))
        if (buffer.bits, buffer.signed) != (bits, signed):
            raise ProgramError(
                f"step {step.name!r}: tensor {tensor_name!r} has {buffer.bits}-bit elements in buffer {buffer.name!r}, "
                f"{bits}-bit ones in step {where!r}; they must agree"
            )

    def __repr__(self) -> str:
        launches = len(self.launches)
        lists = [", ".join(f"{t.name} {t.dtype} {t.shape}" for t in some) for some in (*self.entries, self.outputs)]
        ends = [", or ".join(lists[:-1]), lists[-1]]
        steps = f"{len(self.steps)} steps, {launches} on the device"
        if self.states:
            steps += f", {sum(t.nbytes for t in self.states):,} bytes of state"
        return f"Executable({self.name!r}, {self.cfg.name}, {steps}: {ends[0] or 'no inputs'} -> {ends[1]})"

    def _repr_html_(self) -> str:
        rows = []
        for step in self.steps:
            launch = isinstance(step, LaunchStep)
            count = len(step.launch.insn) if isinstance(step, LaunchStep) else ""
            rows.append((step.name, "device" if launch else f"host, {step.op}", step.macs, count))
        return table(repr(self), ("step", "where", "MACs", "instructions"), rows)

    def run(
        self, inputs: Mapping[str, Any] | Any, on: str | Device | None = None
    ) -> tuple[dict[str, np.ndarray], Stats]:
        """(outputs by name, counts) of one run on a device, a name or an open one, by default that of `self.on`.

        `inputs` are arrays by name, or the array itself where there is one input. Raises as `Loaded` and its `run`;
        `Loaded` runs many inputs faster, because it loads the program once. Where the program has state, the run starts
        from the initial one, and what it leaves is dropped; `Loaded` keeps it for its next run.
        """
        from .loader import run

        if not isinstance(inputs, Mapping):
            names = [t.name for t in self.inputs]
            if len(names) != 1:
                raise InputError(
                    f"one array given; {self.name!r} has the inputs {', '.join(names) or 'none'}: name them"
                )
            inputs = {names[0]: inputs}
        return run(self, inputs, self.on if on is None else on)

    def __call__(self, inputs: Mapping[str, Any] | Any, on: str | Device | None = None) -> dict[str, np.ndarray]:
        """The outputs of `run`."""
        return self.run(inputs, on)[0]

    @property
    def inputs(self) -> list[Tensor]:
        """The tensors to supply for a run; of a program with several entries, those of all."""
        return [t for t in self.tensors.values() if t.kind == "input"]

    def entry(self, names: Iterable[str]) -> list[Tensor]:
        """The inputs of the entry that these names are the inputs of.

        Where steps depend on different inputs, each of them is an entry: `entries` has the inputs of each. Raises
        `InputError` where there are several, and none has these.
        """
        given = set(names)
        found = [entry for entry in self.entries if {t.name for t in entry} == given]
        if not found and len(self.entries) > 1:
            known = "; or ".join(", ".join(t.name for t in entry) for entry in self.entries)
            raise InputError(f"inputs {', '.join(sorted(given)) or 'none'} given; program {self.name!r} takes {known}")
        return found[0] if found else self.entries[0]

    def first_entry(self) -> Executable:
        """The program of the first entry alone, as it would be without the others."""
        if len(self.entries) == 1:
            return self
        chosen = next(step.when.tensor for step in self.steps if step.when)
        steps = [step for step in self.steps if step.when is None or step.when.tensor == chosen]
        used = {name for step in steps for names in reads_writes(step) for name in names}
        used |= {name for step in steps if isinstance(step, LaunchStep) for name in step.bind.values()}
        used |= {t.name for t in self.entries[0]} | {t.next for t in self.states if t.next}
        kept = {name: t for name, t in self.tensors.items() if name in used or t.kind in ("output", "state")}
        return Executable(self.cfg, self.name, kept, steps, self.contract)

    @property
    def outputs(self) -> list[Tensor]:
        """The tensors that a run returns."""
        return [t for t in self.tensors.values() if t.kind == "output"]

    @property
    def states(self) -> list[Tensor]:
        """The tensors that keep their values from run to run."""
        return [t for t in self.tensors.values() if t.kind == "state"]

    @staticmethod
    def from_launch(launch: Launch) -> Executable:
        """The executable of `launch` alone: every input, output and state buffer becomes a tensor of the same name.

        A symbol becomes an input of its name; states begin with zeros. Its multiply-accumulates are those of the GEMM
        micro-ops, padding included: what a schedule computes is not known.
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
        return Executable(launch.cfg, launch.name, tensors, [step])

    def save(self, path: str | Path) -> None:
        """Write the `.tw` file, atomically. Raises `FileError`."""
        data = self.to_bytes()
        with atomic_write(path) as temporary:
            temporary.write_bytes(data)

    def to_bytes(self) -> bytes:
        """The contents of the `.tw` file."""
        memory = {name: region._asdict() for name, region in self.memory_plan().items()}
        return manifest.write(manifest.Contents(self.cfg, self.name, self.tensors, self.steps, self.contract), memory)

    @staticmethod
    def load(path: str | Path, most: int | None = None) -> Executable:
        """Read a `.tw` file, which may unpack to `most` bytes, by default `files.default_limit`.

        Raises `FileError` where it is missing, damaged, too large or not a `.tw` file, `AccessError` where a launch
        leaves its buffers, `CertificateError` where a certificate is that of another launch.
        """
        return Executable.from_bytes(read_regular(path, "a .tw file", most), str(path), most=most)

    @staticmethod
    def from_bytes(data: bytes, name: str, *, most: int | None = None) -> Executable:
        """The program in `data`, the contents of the `.tw` file `name`, which may unpack to `most` bytes.

        Raises as `load` does.
        """
        try:
            return Executable(*manifest.read(data, name, most))
        except FileError:
            raise
        except AccessError as exc:
            raise AccessError(f"{name}: {exc}", exc.index) from None
        except CertificateError as exc:
            raise CertificateError(f"{name}: {exc}") from None
        except Exception as exc:  # damaged bytes make zipfile, zlib, json and numpy raise errors of any kind
            raise FileError(f"{name}: not a tilewright program, or a damaged one ({one_line(exc)})") from None

    def check_config(self, cfg: Config | None, source: object) -> None:
        """Raise `FingerprintError` if the program, read from `source`, is not one for `cfg`; None stands for any."""
        if cfg is not None and cfg.fingerprint != self.cfg.fingerprint:
            raise FingerprintError(
                f"{source} was compiled for {self.cfg.name} (fingerprint {self.cfg.fingerprint:016x}), not for "
                f"{cfg.name} ({cfg.fingerprint:016x}); leave the configuration out or compile again"
            )

    def memory_plan(self) -> dict[str, Allocation]:
        """The regions of device memory that the program needs, by tensor name or by step number and buffer name."""
        regions: dict[str, Allocation] = {}
        for number, step in enumerate(self.steps):
            if isinstance(step, LaunchStep):
                regions[f"{number}.insn"] = Allocation(step.launch.insn_bytes, INSN_ALIGN)
                for b in step.launch.buffers:
                    key = self.region(number, b)
                    before = regions.get(key, Allocation(0, 1))
                    regions[key] = Allocation(max(b.nbytes, before.nbytes), math.lcm(b.align, before.align))
        return regions

    def region(self, number: int, buffer: Buffer) -> str:
        """The region of `memory_plan` that `buffer` of the launch of step `number` has; equal constants have one."""
        step, key = self.steps[number], f"{number}.{buffer.name}"
        bound = step.bind.get(buffer.name) if isinstance(step, LaunchStep) else None
        return self._same.get(key, key) if bound is None else bound


def _same_constants(steps: Sequence[Step]) -> dict[str, str]:
    """The region of the first constant with the same bytes, by the region of each other one.

    Launches of one network for several contexts have the same weights, which would fill the memory several times.
    """
    sizes: dict[int, list[tuple[str, np.ndarray]]] = {}
    for number, step in enumerate(steps):
        for b in step.launch.buffers if isinstance(step, LaunchStep) else ():
            if b.data is not None:
                sizes.setdefault(b.nbytes, []).append((f"{number}.{b.name}", b.data))
    if sum(isinstance(step, LaunchStep) for step in steps) < 2:
        return {}
    first: dict[bytes, str] = {}
    found = {}
    for some in sizes.values():
        for key, data in some if len(some) > 1 else ():
            found[key] = first.setdefault(hashlib.sha256(data.tobytes()).digest(), key)
    return found


def _dtypes(buffer: Buffer) -> tuple[str, ...]:
    if buffer.bits == 32:
        whole = "int32" if buffer.signed else "uint32"
        return (whole, "float32") if buffer.kind == "input" else (whole,)
    return ("int8",) if buffer.signed else ("uint8",)
