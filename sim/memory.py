"""Memory on the host: fields of encoded instructions, a cache with a limit, and a device's memory as an array."""

from __future__ import annotations

from bisect import insort
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Generic, TypeVar

import numpy as np

from ..hw.errors import AccessError, CapacityError, InputError
from ..hw.isa import INSN_BYTES, Field
from ..runtime.device import Allocation, check_fits


def put(words: np.ndarray, declared: Field, value: int) -> None:
    """Write the low bits of `value` to a field of the instruction `words`, uint64 (2,), in place."""
    at, low = divmod(declared.lo, 64)
    mask = (1 << declared.bits) - 1
    words[at] = int(words[at]) & ~(mask << low) | (value & mask) << low


V = TypeVar("V")


class Lru(Generic[V]):
    """Values by key; the least recently used are dropped when the total cost exceeds `limit`.

    A value that costs more than `limit` by itself is returned but not kept.
    """

    def __init__(self, limit: int):
        self.limit, self.cost = limit, 0
        self._items: OrderedDict[Hashable, tuple[V, int]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._items)

    def get(self, key: Hashable, make: Callable[[], V], cost: Callable[[V], int]) -> V:
        """The value of `key`; where it is absent, the result of `make`, kept at `cost(value)`."""
        item = self._items.get(key)
        if item is not None:
            self._items.move_to_end(key)
            return item[0]
        value = make()
        price = cost(value)
        if price <= self.limit:
            self._items[key] = value, price
            self.cost += price
            while self.cost > self.limit:
                self.cost -= self._items.popitem(last=False)[1][1]
        return value

    def clear(self) -> None:
        """Drop all values."""
        self._items.clear()
        self.cost = 0


CAPACITY = 1 << 31  # bytes of simulated devices, unless they are told
PAGE = 4096  # page 0 stays unused, so that address 0 is never valid


def program_bytes(image: np.ndarray, insn_address: int, insn_count: int) -> bytes:
    """The instructions at byte address `insn_address` of `image`, uint8 (n,).

    Raises `AccessError` for an address between instructions, or where they are not all in `image`.
    """
    if insn_address % INSN_BYTES:
        raise AccessError(f"instructions at {insn_address:#x}: the address must be a multiple of {INSN_BYTES}")
    end = insn_address + insn_count * INSN_BYTES
    if insn_address < 0 or insn_count < 0 or end > len(image):
        raise AccessError(f"{insn_count} instructions at {insn_address:#x} are outside DRAM, 0..{len(image) - 1:#x}")
    return image[insn_address:end].tobytes()


def first_fit(used: Sequence[tuple[int, int]], nbytes: int, align: int) -> int:
    """The first address after page 0 that is a multiple of `align` and starts `nbytes` (at least 1) outside of `used`.

    `used` are regions (start, end) sorted by address.
    """
    end = PAGE
    for start, stop in used:
        if -(-end // align) * align + max(nbytes, 1) <= start:
            break
        end = stop
    return -(-end // align) * align


class DeviceMemory:
    """`bytes`, uint8 (n,), whose index is the address. Allocation is first fit; it grows up to `capacity` bytes."""

    def __init__(self, capacity: int):
        self.starts = 0  # of the device
        self.capacity, self.bytes = capacity, np.zeros(min(capacity, 1 << 20), np.uint8)
        self._used: list[tuple[int, int]] = []  # (start, end), in the order of addresses
        self._fresh = PAGE  # memory from here on was never allocated, so it is still zero

    def check_room(self, regions: Mapping[str, Allocation]) -> None:
        """Raise `CapacityError` where `regions` need more than the free bytes; fragmentation is not considered."""
        check_fits(regions, self.capacity - PAGE - self._held(), "device memory")

    def allocate(self, nbytes: int, align: int) -> int:
        """The address of `nbytes` of zeroed memory, a multiple of `align`. Raises `CapacityError` when full."""
        if nbytes < 0 or align < 1:
            raise InputError(f"cannot allocate {nbytes} bytes aligned to {align}")
        address = first_fit(self._used, nbytes, align)
        stop = address + max(nbytes, 1)
        if stop > self.capacity:
            raise CapacityError(
                f"{nbytes} bytes do not fit the device memory: {self._held()} of {self.capacity} bytes are in use"
            )
        self._grow(stop)
        self.bytes[address : min(stop, self._fresh)] = 0
        self._fresh = max(self._fresh, stop)
        insort(self._used, (address, stop))
        return address

    def free(self, address: int) -> None:
        """Free the memory that `allocate` returned."""
        used = [span for span in self._used if span[0] != address]
        if len(used) == len(self._used):
            raise InputError(f"address {address:#x} was not allocated")
        self._used = used

    def write(self, address: int, data: np.ndarray) -> None:
        """Copy `data`, uint8 (n,), to memory."""
        self._span(address, len(data))[...] = data

    def read(self, address: int, nbytes: int) -> np.ndarray:
        """A copy of memory, uint8 (nbytes,)."""
        return self._span(address, nbytes).copy()

    def _held(self) -> int:
        return sum(stop - start for start, stop in self._used)

    def _span(self, address: int, nbytes: int) -> np.ndarray:
        if address < 0 or nbytes < 0 or address + nbytes > len(self.bytes):
            raise AccessError(f"{nbytes} bytes at {address:#x} are outside memory, 0..{len(self.bytes) - 1:#x}")
        return self.bytes[address : address + nbytes]

    def _grow(self, size: int) -> None:
        old = self.bytes
        if size > len(old):
            self.bytes = np.zeros(min(self.capacity, max(size, 2 * len(old))), np.uint8)
            self.bytes[: len(old)] = old
