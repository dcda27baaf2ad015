"""A kernel that is recorded with checks: what its author may forget is found by the statement that suffers from it."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...hw.errors import KernelError
from ...hw.isa import AluOp, Mem, depth, entry_bytes, room
from .language import Array, Kernel, Rows, Tile
from .recording import Recording
from .views import Product, View

_REMEDY = {
    Mem.ACC: "load them, set them to 0 (y[...] = 0), or replace them by a product (y[...] = x @ w)",
    Mem.PAR: "load parameters, or take k.parameters(...)",
}


class CheckedKernel(Kernel):
    """Raises `KernelError` for entries that are read before they are written, on chip and of buffers in DRAM.

    `finish` does so for an output that is not stored whole.
    """

    def __init__(self, rec: Recording, op: Any):
        super().__init__(rec, op)
        self._written: dict[Mem, np.ndarray] = {}
        self._stored: dict[str, np.ndarray] = {}  # entries of buffers that the kernel writes, by name

    @classmethod
    def of(cls, k: Kernel) -> CheckedKernel:
        """The same kernel with checks."""
        found = cls(k.rec, k.op)
        found._chip = k._chip
        return found

    def finish(self) -> None:
        """Raise `KernelError` where entries of the output were not stored."""
        out = self.output
        missing = out.size - int(self._entries_of(out.buffer.name, out)[_indices(out)].sum())
        if missing:
            stored = f"{out.size - missing} of the {out.size} entries of its output"
            raise KernelError(f"it stores {stored}: store the rest, too")

    def temporary(self, name: str, **extents: int) -> Array:
        """As of any kernel; what it holds is known from its stores on."""
        found = super().temporary(name, **extents)
        self._entries_of(found.buffer.name, found)
        return found

    def constant(self, mem: Mem, name: str, data: np.ndarray, *, kept: bool = False, **extents: int) -> Tile:
        """As of any kernel, of elements that are as large as entries of `mem`."""
        bits = 8 * data[0].nbytes if len(data) else 0
        allowed = [8 * entry_bytes(self.cfg, mem)]
        if mem is Mem.ACC:
            allowed.append(allowed[0] // 4)  # bytes, extended by their sign
        if bits not in allowed:
            raise KernelError(
                f"constant {name} {data.shape} {data.dtype}: an element of its first axis has {bits // 8} bytes, an "
                f"entry of {mem.name} {' or '.join(str(n // 8) for n in allowed)}; its lanes must be {self._lanes(mem)}"
            )
        found = super().constant(mem, name, data, kept=kept, **extents)
        self._write(found)
        return found

    def load(self, target: Tile, source: Array) -> Tile:
        """As of any kernel, of what was stored where `source` is a buffer of the kernel's own."""
        stored = self._stored.get(source.buffer.name)
        if stored is not None and not stored[_indices(source)].all():
            raise KernelError(f"{source} of {source.buffer.name} is loaded, but was never stored: store it first")
        found = super().load(target, source)
        self._write(target)
        return found

    def store(self, target: Array, y: Tile, par: Tile | None = None) -> None:
        """As of any kernel, of accumulators and parameters that were written."""
        self._read(y, par)
        super().store(target, y, par)
        entries = self._entries_of(target.buffer.name, target)
        entries[... if target.symbol else _indices(target)] = True

    def fill(self, target: Tile, source: Array, value: int) -> None:
        """As of any kernel."""
        super().fill(target, source, value)
        self._write(target)

    def zero(self, y: Tile) -> None:
        """As of any kernel."""
        super().zero(y)
        self._write(y)

    def multiply(self, y: Tile, product: Product, *, overwrite: bool = False) -> None:
        """As of any kernel, of operands that were written."""
        self._read(product.x, product.weights, None if overwrite else y)
        super().multiply(y, product, overwrite=overwrite)
        self._write(y)

    def combine(self, op: AluOp, y: Tile, value: Tile | int, over: str = "") -> None:
        """As of any kernel, of accumulators that were written."""
        self._read(y, value if isinstance(value, Tile) else None)
        super().combine(op, y, value, over)

    def _read(self, *views: Tile | None) -> None:
        for view in views:
            if view is None or depth(self.cfg, view.mem) == 0:
                continue
            missing = int((~self._of(view.mem)[self._on_chip(view)]).sum())
            if missing:
                remedy = _REMEDY.get(view.mem, "load them")
                what = f"{missing} of its entries in {view.mem.name} were never written"
                raise KernelError(f"{view} is read, but {what}: {remedy}")

    def _write(self, view: Tile) -> None:
        self._of(view.mem)[self._on_chip(view)] = True

    def _on_chip(self, view: Tile) -> np.ndarray:
        """The entries of a view, those of rows of weights that hold these."""
        found = _indices(view)
        if view.shifts is not None:
            found = (found[:, None] + view.shifts).reshape(-1)
        return np.unique(found // self.cfg.block_in) if isinstance(view, Rows) else found

    def _of(self, mem: Mem) -> np.ndarray:
        """Which entries of `mem` are written."""
        return self._written.setdefault(mem, np.zeros(room(self.cfg, mem), bool))

    def _entries_of(self, name: str, view: Array) -> np.ndarray:
        """Which entries of a buffer in DRAM are written."""
        size = view.buffer.nbytes // (self.cfg.batch * self.cfg.block_out * view.buffer.bits // 8)
        return self._stored.setdefault(name, np.zeros(size, bool))

    def _lanes(self, mem: Mem) -> str:
        cfg = self.cfg
        shapes = {Mem.WGT: (cfg.block_out, cfg.block_in), Mem.INP: (cfg.batch, cfg.block_in)}
        return str(shapes.get(mem, (cfg.batch, cfg.block_out)))


def _indices(view: View) -> np.ndarray:
    """The entries of a view."""
    found = np.full((1,) * max(1, len(view.axes)), view.base)
    for number, axis in enumerate(view.axes):
        steps = np.arange(axis.extent) * axis.step
        found = found + steps.reshape((-1,) + (1,) * (len(view.axes) - number - 1))
    return found.reshape(-1)
