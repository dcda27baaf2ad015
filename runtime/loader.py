"""Runs an executable on a device: loads it once, then runs it any number of times with new inputs."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..hw.errors import CapacityError, ExecutionError, FingerprintError, InputError, one_line
from ..hw.foreign import machine_memory
from ..hw.isa import INSN_BYTES
from .arrays import Array, Bytes
from .buffer import Buffer
from .contents import Contents
from .device import Device, Stats, open_device
from .hostops import HOST_OPS
from .launch import INSN_ALIGN, Launch
from .program import Program
from .schema import is_a
from .steps import HostStep, LaunchStep, Step, Tensor, chosen, reads_writes, sources
from .verify import check_depths

Input = Any  # an array of numpy or, by DLPack, of another library
Inputs = Mapping[str, Input]  # by name
Outputs = dict[str, Array]
_Places = dict[str, tuple[int, Buffer]]  # (address, buffer) of tensors in device memory


@dataclass
class StepReport:
    """One step of one run: where it ran (`device` or `host`), its counts, and wall-clock seconds.

    `steady`: its steady launch ran, which finds on chip what an earlier run left.
    """

    name: str
    where: str
    macs: int
    stats: Stats
    seconds: float
    steady: bool = False


@dataclass
class _Placed:
    """A launch in device memory: addresses of its instructions and buffers, address and buffer of each bound tensor.

    `fixed` are its patched instructions, uint64 (n, 2), with all symbols 0; `held` the patched instructions that are in
    memory, None after a failure.
    """

    launch: Launch
    address: int
    addresses: list[int]
    bound: _Places
    fixed: Array
    held: Array | None


class Loaded:
    """An executable in a device's memory: instructions, micro-ops and constants are written once, the rest is zero.

    Before a run, instructions whose addresses depend on its inputs are patched, if they change. Steady launches run
    where the launches that `device` ran last are those of this program, in their order; after anything else, and after
    runs with other steps, the launches load all again. State lasts from `run`
    to `run`, until `reset` or `clear`; a run that fails leaves it as it was, except states that are written in place.
    `reports` holds one `StepReport` per step of the last run, `stats` their sum.
    Raises `FingerprintError` where the program is for another configuration than the device's, or needs deeper queues
    or token channels, `CapacityError` where it does not fit.
    """

    def __init__(self, program: Contents | Program | Launch, device: Device):
        self.executable = _executable(program)
        self.device = device
        mine, its = self.executable.cfg, device.cfg
        if mine.fingerprint != its.fingerprint:
            raise FingerprintError(
                f"program {self.executable.name!r} is for {mine.name} (fingerprint {mine.fingerprint:016x}), "
                f"the device is {its.name} ({its.fingerprint:016x}); compile it for the device's configuration"
            )
        self._check_depths()
        need, memory = sum(t.nbytes for t in self.executable.tensors.values()), machine_memory()
        if need > memory:
            raise CapacityError(
                f"the tensors of program {self.executable.name!r} have {need:,} bytes, this machine's memory {memory:,}"
            )
        self.reports: list[StepReport] = []
        self._addresses: list[int] = []
        self._region_at: dict[str, int] = {}
        # the values of each state: on the host, or in the memory of the device, where the last run left them
        self._kept: dict[str, Array] = {}
        self._kept_there: _Places = {}
        self._regions = self.executable.memory_plan()
        self._in_place = _written_in_place(self.executable)
        self._changing: list[tuple[int, int]] = []  # (address, bytes) of the regions that are no constants
        self._latest: list[int] = []  # identities of the latest launches in their order, nothing between them
        self._starts = -1  # those of the device after them
        device.check_room(self._regions)
        try:
            steps = enumerate(self.executable.steps)
            self._placed = [self._place(k, step) if isinstance(step, LaunchStep) else None for k, step in steps]
            self._steady = [
                placed and self._place_steady(placed, step) for placed, step in zip(self._placed, self.executable.steps)
            ]
        except Exception:
            self.close()
            raise
        self.clear()

    def _check_depths(self) -> None:
        """Prove the launches again if the device's queues or token channels are shallower."""
        its = self.device.cfg
        for step in self.executable.steps:
            if not isinstance(step, LaunchStep):
                continue
            mine = step.launch.cfg
            if its.queue_depth >= mine.queue_depth and its.token_depth >= mine.token_depth:
                continue
            try:
                check_depths(step.launch, its)
                if step.steady is not None:
                    check_depths(step.steady, its)
            except ExecutionError as exc:
                raise FingerprintError(
                    f"step {step.name!r} is for {mine.name} (queue_depth {mine.queue_depth}, token_depth "
                    f"{mine.token_depth}), the device is {its.name} ({its.queue_depth} and {its.token_depth}); "
                    f"compile it for the device's configuration ({exc})"
                ) from None

    def __enter__(self) -> Loaded:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Free the device memory."""
        while self._addresses:
            self.device.free(self._addresses.pop())

    def clear(self) -> None:
        """Make memory as it was at first: all that runs change is zero. Every state gets its initial values."""
        for address, nbytes in self._changing:
            self.device.write(address, np.zeros(nbytes, np.uint8))
        self.reset()

    def reset(self) -> None:
        """Give every state its initial values."""
        self.state = {t.name: t.data for t in self.executable.states if t.data is not None}

    @property
    def state(self) -> dict[str, Array]:
        """The values of every state, by name, which the next run finds; they can be assigned.

        Assignment raises `InputError` where a state is missing or unknown, or its values do not fit.
        """
        host = dict(self._kept)
        return {t.name: np.array(self._fetch(t.name, host, self._kept_there)) for t in self.executable.states}

    @state.setter
    def state(self, values: Inputs) -> None:
        self._kept, self._kept_there = _checked("state", self.executable.states, values), {}

    @property
    def stats(self) -> Stats:
        """Counts of the last run."""
        return sum((r.stats for r in self.reports), Stats())

    def run(self, inputs: Inputs) -> Outputs:
        """Outputs by name. Raises `InputError` for a missing or unknown name, a wrong shape or dtype.

        The same for an input that addresses or the choice of steps depend on, where its value is out of range.
        """
        _check_names("input", self.executable.inputs, inputs)
        given = _checked("input", self.executable.entry(inputs), inputs)
        host = {t.name: t.data for t in self.executable.tensors.values() if t.data is not None} | given | self._kept
        running = {id(step): isinstance(step, LaunchStep) for step in chosen(self.executable.steps, given)}
        turn = [key for key, on_chip in running.items() if on_chip]
        self.reports = []
        on_device: _Places = dict(self._kept_there)
        for step, placed, steady in zip(self.executable.steps, self._placed, self._steady):
            if id(step) not in running:
                continue
            start, is_steady = time.perf_counter(), False
            if isinstance(step, LaunchStep):
                assert placed is not None
                at = turn.index(id(step))
                if self._on_chip([*turn[at:], *turn[:at]]) and steady is not None:
                    placed, is_steady = steady, True
                self._patch(placed, {symbol: int(given[name][k]) for symbol, (name, k) in sources(step, given).items()})
                stats = self._launch(placed, host, on_device)
                self._latest, self._starts = [*self._latest, id(step)][-len(turn) :], self.device.starts
                where = "device"
            else:
                arrays = [self._fetch(name, host, on_device) for name in step.inputs]
                results = _host(step, arrays, id(step) in self._in_place)
                host.update(zip(step.outputs, results))
                for name in step.outputs:
                    on_device.pop(name, None)
                stats, where = Stats(), "host"
            seconds = time.perf_counter() - start
            self.reports.append(StepReport(step.name, where, step.macs, stats, seconds, is_steady))
        outputs = {t.name: self._fetch(t.name, host, on_device) for t in self.executable.outputs}
        if self._in_place:  # which may be views of a state
            outputs = {name: np.array(values) for name, values in outputs.items()}
        self._keep(host, on_device)
        return outputs

    def _on_chip(self, before: list[int]) -> bool:
        """Whether the launches `before` were the last of the device; else none counts any more."""
        if self.device.starts != self._starts:
            self._latest = []
        return self._latest == before

    def _keep(self, host: Outputs, on_device: _Places) -> None:
        """Give every state its next values: on the device where they and their reader are, else on the host.

        All are read before any is written, because a state may be the next of another.
        """
        readers: _Places = {}
        for placed in self._placed:
            readers |= placed.bound if placed is not None else {}
        kept, moved, stays = Outputs(), dict[str, tuple[tuple[int, Buffer], Bytes]](), _Places()
        for state in self.executable.states:
            new, reader = state.next or "", readers.get(state.name)
            source = on_device.get(new)
            if source and new == state.name:  # written in place
                stays[new] = source
                continue
            if reader and source and (reader[1].bits, reader[1].signed) == (source[1].bits, source[1].signed):
                moved[state.name] = reader, self.device.read(source[0], source[1].nbytes)
            else:
                values = self._fetch(new, host, on_device)
                kept[state.name] = values if values is self._kept.get(state.name) else np.array(values)
        for reader, data in moved.values():
            self.device.write(reader[0], data)
        self._kept, self._kept_there = kept, {name: reader for name, (reader, _) in moved.items()} | stays

    def _fetch(self, name: str, host: Outputs, on_device: _Places) -> Array:
        if name in on_device:
            address, buffer = on_device[name]
            host[name] = buffer.unpack(self.device.read(address, buffer.nbytes))
        return host[name]

    def _launch(self, placed: _Placed, host: Outputs, on_device: _Places) -> Stats:
        for name, (address, buffer) in placed.bound.items():
            constant = self.executable.tensors[name].kind == "constant"
            if name in host and name not in on_device and not constant and buffer.kind in ("input", "state"):
                self.device.write(address, buffer.pack(host[name]))
        stats = self.device.run(placed.address, len(placed.launch.insn))
        for name, (address, buffer) in placed.bound.items():
            if buffer.kind in ("output", "state"):
                on_device[name] = (address, buffer)
        return stats

    def _patch(self, placed: _Placed, values: Mapping[str, int]) -> None:
        """Write the instructions that differ for these `values` of symbols from those in memory, neighbours at once."""
        wanted, at = placed.launch.patched(placed.fixed, values), placed.launch.patches.at
        held, placed.held = placed.held, None
        changed = np.arange(len(at)) if held is None else np.flatnonzero((wanted != held).any(axis=1))
        for stretch in np.split(changed, np.flatnonzero(np.diff(at[changed]) > 1) + 1):
            if len(stretch):
                self.device.write(placed.address + int(at[stretch[0]]) * INSN_BYTES, _bytes(wanted[stretch]))
        placed.held = wanted

    def _allocate(self, nbytes: int, align: int) -> int:
        self._addresses.append(self.device.allocate(nbytes, align))
        return self._addresses[-1]

    def _place(self, number: int, step: LaunchStep) -> _Placed:
        launch, addresses, bound = step.launch, list[int](), _Places()
        for buffer in launch.buffers:
            name, region = step.bind.get(buffer.name), self.executable.region(number, buffer)
            if region not in self._region_at:
                at = self._region_at[region] = self._allocate(*self._regions[region])
                tensor = None if name is None else self.executable.tensors[name]
                if tensor is not None and tensor.data is not None and tensor.kind == "constant":
                    self.device.write(at, buffer.pack(tensor.data))
                elif tensor is None and buffer.data is not None:
                    self.device.write(at, buffer.data)
                else:
                    self._changing.append((at, self._regions[region].nbytes))
            addresses.append(self._region_at[region])
            if name is not None:
                bound[name] = (addresses[-1], buffer)
        return self._write(launch, addresses, bound)

    def _place_steady(self, placed: _Placed, step: Step) -> _Placed | None:
        """The steady launch of `step`, with the buffers of its launch; None where it has none."""
        if not isinstance(step, LaunchStep) or step.steady is None:
            return None
        return self._write(step.steady, placed.addresses, placed.bound)

    def _write(self, launch: Launch, addresses: list[int], bound: _Places) -> _Placed:
        words = launch.relocate(addresses)
        address = self._allocate(launch.insn_bytes, INSN_ALIGN)
        self.device.write(address, _bytes(words))
        fixed = words[launch.patches.at]
        return _Placed(launch, address, addresses, bound, fixed, fixed)


def _bytes(words: Array) -> Array:
    """The instructions `words`, uint64 (n, 2), as they stand in memory."""
    return np.ascontiguousarray(words, "<u8").view(np.uint8).reshape(-1)


def _check_names(what: str, tensors: list[Tensor], values: object) -> None:
    if not is_a(values, Mapping):
        names = [f"{t.name!r}: ..." for t in tensors]
        kind = f"not {type(values).__name__}; {what}s are {{{', '.join(names)}}}"
        raise InputError(f"give the {what}s as one dictionary by name, {kind}"[:300])


def _checked(what: str, tensors: list[Tensor], values: Inputs) -> Outputs:
    """The `values` of `tensors` by name, which are the program's inputs or states."""
    wanted = {t.name: t for t in tensors}
    known = f"{what}s are {', '.join(wanted)}"
    _check_names(what, tensors, values)
    for name in values:
        if name not in wanted:
            raise InputError(f"no {what} is named {name!r}; {known}")
    for name in wanted:
        if name not in values:
            raise InputError(f"{what} {name!r} is missing; {known}")
    return {name: checked_input(tensor, values[name]) for name, tensor in wanted.items()}


def _executable(program: Contents | Program | Launch) -> Contents:
    if isinstance(program, Program):
        program = program.finish()
    if isinstance(program, Launch):
        return Contents.from_launch(program)
    if not is_a(program, Contents):
        kind = f"not {type(program).__name__}; load(path) opens a file, build(schedule, config) makes a program"
        raise InputError(f"what runs is an Executable, a Program or its launch, {kind}")
    return program


def _written_in_place(program: Contents) -> set[int]:
    """Identities of the steps that may overwrite a state, whose old values nothing else reads."""
    following = {t.name: t.next for t in program.states}
    read = {t.name for t in program.outputs} | {new for name, new in following.items() if new != name}
    found = dict[int, str]()
    for step in program.steps:
        names = reads_writes(step)[0]
        if isinstance(step, HostStep) and HOST_OPS[step.op].overwrites and following.get(names[0]) == step.outputs[0]:
            found[id(step)], *names = names
        read.update(names)
    return {step for step, state in found.items() if state not in read}


def _host(step: HostStep, arrays: list[Array], in_place: bool) -> list[Array]:
    try:
        return HOST_OPS[step.op](arrays, {**step.attrs, **step.constants}, in_place)
    except MemoryError as exc:
        text = " ".join(str(exc).split())
        raise CapacityError(f"step {step.name!r}: host operator {step.op!r} needs more memory ({text})") from None


def _what(tensor: Tensor) -> str:
    return f"{'state' if tensor.kind == 'state' else 'input'} {tensor.name!r}"


def _as_numpy(tensor: Tensor, array: Input) -> Array:
    if is_a(array, np.ndarray) or not hasattr(array, "__dlpack__"):
        try:
            return np.asarray(array)
        except ValueError as exc:  # nested lists of unequal lengths
            raise InputError(f"{_what(tensor)}: is no array of shape {tensor.shape} ({one_line(exc)[:80]})") from None
    try:
        return np.from_dlpack(array)
    except (BufferError, RuntimeError, TypeError) as exc:  # on a GPU, or of a dtype that numpy does not have
        reason = f"numpy cannot read this {type(array).__name__} ({one_line(exc)[:100]})"
        raise InputError(f"{_what(tensor)}: {reason}; copy it to the CPU, as {tensor.dtype}") from None


def checked_input(tensor: Tensor, array: Input) -> Array:
    """`array`, numpy's or of another library by DLPack, as the dtype of `tensor`; integers that float32 has are taken.

    Raises `InputError` where shape, dtype or values do not fit, or the array is not in this machine's memory.
    """
    array = _as_numpy(tensor, array)
    if array.shape != tensor.shape:
        raise InputError(f"{_what(tensor)}: shape {array.shape} given, {tensor.shape} expected")
    dtype = np.dtype(tensor.dtype)
    if np.can_cast(array.dtype, dtype, "safe"):
        return array.astype(dtype)
    if array.dtype.kind in "iu" and dtype == np.float32 and np.array_equal(array.astype(dtype), array):
        return array.astype(dtype)
    if array.dtype.kind not in "iu" or dtype.kind not in "iu":
        raise InputError(f"{_what(tensor)}: dtype {array.dtype} given, {dtype} expected")
    info = np.iinfo(dtype)
    if array.size and (array.min() < info.min or array.max() > info.max):
        raise InputError(f"{_what(tensor)}: values {array.min()}..{array.max()} do not fit {dtype}")
    return array.astype(dtype)


def run(program: Contents | Program | Launch, inputs: Inputs, device: str | Device = "model") -> tuple[Outputs, Stats]:
    """(outputs by name, counts) of one run of `program` on `device`, a name or an open device.

    Inputs by name are numpy's arrays, or any that have DLPack, like PyTorch's tensors. Raises as `Loaded`.

    >>> import tilewright as tw
    >>> images = np.load("examples/digits/inputs.npz")["inputs"]
    >>> outputs, stats = tw.run(tw.load("examples/digits/digits.onnx"), {"image": images[0]}, "timing")
    >>> outputs["logits"].shape, stats.cycles > 1000
    ((1, 10), True)
    """
    executable = _executable(program)
    if not hasattr(device, "cfg") and not isinstance(device, str):
        if not is_a(inputs, Mapping):
            _check_names("input", executable.inputs, (inputs, device))
        raise InputError(f"device is of type {type(device).__name__}: give a name, as 'model', or an open device")
    if isinstance(device, str):
        device = open_device(device, executable.cfg)
    with Loaded(executable, device) as loaded:
        outputs = loaded.run(inputs)
        return outputs, loaded.stats
