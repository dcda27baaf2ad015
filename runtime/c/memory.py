"""Where everything of an executable lies in one piece of memory, as offsets from its start."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ...hw.errors import CapacityError, UnsupportedError
from ..executable import Executable
from ..steps import HostStep, LaunchStep, reads_writes

LINE = (
    64  # bytes; at least a line of the cache, so that data which the accelerator writes shares no line with other data
)
_MOST = 1 << 31  # bytes: offsets are uint32_t


@dataclass(frozen=True)
class Plan:
    """Offsets `at` by region of `Executable.memory_plan`, and by tensor that only the host uses.

    First comes `image`, uint8 (n,): instructions and constants; then up to `device` other data that the accelerator
    accesses; then up to `total` data that only the host accesses, including the `scratch` memory of its steps. The
    first `align` bytes are free, and a start address that is a multiple of `align` aligns all data.
    """

    at: dict[str, int]
    image: np.ndarray
    device: int
    total: int
    align: int
    scratch: int

    def launch(self, number: int) -> int:
        """Where the instructions of step `number` begin."""
        return self.at[f"{number}.insn"]


def plan(executable: Executable, scratch: int) -> Plan:
    """Place all; the steps of the host need `scratch` bytes.

    Raises `UnsupportedError` for elements narrower than a byte, `CapacityError` for more than 2 GB.
    """
    regions = executable.memory_plan()
    align = math.lcm(LINE, *(region.align for region in regions.values()))
    data = _constants(executable)
    at: dict[str, int] = {}
    end = align
    for name in sorted(regions, key=lambda name: name not in data and not name.endswith(".insn")):
        if name in data or name.endswith(".insn"):
            at[name], end = _place(end, regions[name])
    image = end
    shared = _temporary(executable)
    for name, region in regions.items():
        if name not in at and name not in shared:
            at[name], end = _place(end, region)
    most = end
    for names in _by_step(shared).values():
        after = end
        for name in names:
            at[name], after = _place(after, regions[name])
        most = max(most, after)
    device = -(-most // LINE) * LINE
    total = _host(executable, at, device)
    start = -(-total // LINE) * LINE
    total = start + scratch
    if total > _MOST:
        raise CapacityError(f"the network needs {total:,} bytes of memory; in C at most {_MOST:,} are possible")
    return Plan(at, _filled(executable, at, data, image), device, max(total, device), align, start)


def _place(end: int, region: tuple[int, int]) -> tuple[int, int]:
    """(offset, exclusive end) of a region of (bytes, alignment) that is placed from `end` on."""
    nbytes, align = region
    align = math.lcm(align, LINE)
    start = -(-end // align) * align
    return start, start + -(-max(nbytes, 1) // LINE) * LINE


def _constants(executable: Executable) -> dict[str, np.ndarray]:
    """The bytes of the regions that hold constants."""
    found: dict[str, np.ndarray] = {}
    for number, step in enumerate(executable.steps):
        if not isinstance(step, LaunchStep):
            continue
        for b in step.launch.buffers:
            if b.bits < 8 and b.name in step.bind:
                raise UnsupportedError(
                    f"step {step.name!r}: buffer {b.name!r} has elements of {b.bits} bits, which C output does not "
                    "pack; use a configuration with 8-bit inputs and outputs"
                )
            name = step.bind.get(b.name)
            tensor = None if name is None else executable.tensors[name]
            if tensor is not None and tensor.kind == "constant" and tensor.data is not None:
                found[executable.region(number, b)] = b.pack(tensor.data)
            elif b.data is not None:
                found[executable.region(number, b)] = b.data
    return found


def _temporary(executable: Executable) -> set[str]:
    """The regions that one launch alone uses while it runs."""
    return {
        executable.region(number, b)
        for number, step in enumerate(executable.steps)
        if isinstance(step, LaunchStep)
        for b in step.launch.buffers
        if b.kind == "temp"
    }


def _by_step(regions: set[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name in sorted(regions):
        found.setdefault(name.partition(".")[0], []).append(name)
    return found


def _filled(executable: Executable, at: Mapping[str, int], data: Mapping[str, np.ndarray], nbytes: int) -> np.ndarray:
    """Instructions, with addresses as if memory began at 0, and constants."""
    image = np.zeros(nbytes, np.uint8)
    for name, values in data.items():
        image[at[name] : at[name] + len(values)] = values
    for number, step in enumerate(executable.steps):
        if isinstance(step, LaunchStep):
            places = [at[executable.region(number, b)] for b in step.launch.buffers]
            words = np.ascontiguousarray(step.launch.relocate(places), "<u8").view(np.uint8).reshape(-1)
            image[at[f"{number}.insn"] :][: len(words)] = words
    return image


def _host(executable: Executable, at: dict[str, int], start: int) -> int:
    """Place tensors that only the host uses from `start` on, first fit, by their lifetimes; returns the end."""
    lives = host_lives(executable, at)
    placed: list[tuple[int, int, range]] = []
    for name in sorted(lives, key=lambda name: -executable.tensors[name].nbytes):
        size, life, offset = executable.tensors[name].nbytes, lives[name], start
        for low, high, other in sorted(placed, key=lambda item: item[0]):
            if other.start < life.stop and life.start < other.stop and low < offset + size:
                offset = max(offset, -(-high // LINE) * LINE)
        at[name] = offset
        placed.append((offset, offset + size, life))
    return max((high for _, high, _ in placed), default=start)


def host_lives(executable: Executable, at: Mapping[str, int]) -> dict[str, range]:
    """The steps during which each tensor outside device memory must last, inputs, outputs and constants aside."""
    used: dict[str, list[int]] = {}
    for number, step in enumerate(executable.steps):
        for name in {*reads_writes(step)[0], *reads_writes(step)[1]} if isinstance(step, HostStep) else ():
            used.setdefault(name, []).append(number)
    whole = range(len(executable.steps) + 1)
    kept = {state.next for state in executable.states}
    found = dict[str, range]()
    for tensor in executable.tensors.values():
        if tensor.name in at or tensor.kind not in ("temp", "state"):
            continue
        steps = used.get(tensor.name, [])
        if tensor.kind == "state" or tensor.name in kept:
            found[tensor.name] = whole
        elif steps:
            found[tensor.name] = range(min(steps), max(steps) + 1)
    return found


def staged(executable: Executable) -> Sequence[str]:
    """States that take the values of another state, which is overwritten at the same time."""
    return [t.name for t in executable.states if t.next != t.name and executable.tensors[t.next or ""].kind == "state"]
