"""A kernel that is recorded with checks: what its author may forget is found by the statement that suffers from it."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...hw.errors import KernelError
from ...hw.isa import Mem, entry_bytes, room
from .language import Array, Kernel, Rows, Tile
from .recording import Recording
from .views import View

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
        # which entries are written, of a scratchpad, and of a buffer that this kernel writes, by its name
        self._written: dict[Mem | str, np.ndarray] = {}

    @classmethod
    def of(cls, k: Kernel) -> CheckedKernel:
        """The same kernel with checks."""
        found = cls(k.rec, k.op)
        found._chip = k._chip
        found._known(found.output)
        return found

    def finish(self) -> None:
        """Raise `KernelError` where entries of the output were not stored."""
        out = self.output
        missing = out.size - int(self._known(out)[_entries(out)].sum())
        if missing:
            stored = f"{out.size - missing} of the {out.size} entries of its output"
            raise KernelError(f"it stores {stored}: store the rest, too")

    def temporary(self, name: str, **extents: int) -> Array:
        """As of any kernel; what it holds is known from its stores on."""
        found = super().temporary(name, **extents)
        self._known(found)
        return found

    def constant(self, mem: Mem, name: str, data: np.ndarray, *, kept: bool = False, **extents: int) -> Tile:
        """As of any kernel, of elements that are as large as entries of `mem`."""
        cfg, size = self.cfg, data[0].nbytes if len(data) else 0
        allowed = [entry_bytes(cfg, mem)]
        if mem is Mem.ACC:
            allowed.append(allowed[0] // 4)  # bytes, extended by their sign
        if size not in allowed:
            shapes = {Mem.WGT: (cfg.block_out, cfg.block_in), Mem.INP: (cfg.batch, cfg.block_in)}
            raise KernelError(
                f"constant {name} {data.shape} {data.dtype}: an element of its first axis has {size} bytes, an entry "
                f"of {mem.name} {' or '.join(map(str, allowed))}; its lanes must be "
                f"{shapes.get(mem, (cfg.batch, cfg.block_out))}"
            )
        found = super().constant(mem, name, data, kept=kept, **extents)
        self._uses(found)  # also where it stays from another kernel
        return found

    def _uses(self, writes: View, *reads: View) -> None:
        """Raise `KernelError` for a statement that reads what was not written before."""
        for view in reads:
            if isinstance(view, Array) and view.buffer.name not in self._written:
                continue  # an input, or a constant
            missing = int((~self._known(view)[_entries(view)]).sum())
            if missing and isinstance(view, Array):
                raise KernelError(f"{view} of {view.buffer.name} is loaded, but was never stored: store it first")
            if missing and isinstance(view, Tile):
                what = f"{missing} of its entries in {view.mem.name} were never written"
                raise KernelError(f"{view} is read, but {what}: {_REMEDY.get(view.mem, 'load them')}")
        anywhere = isinstance(writes, Array) and writes.symbol is not None
        self._known(writes)[... if anywhere else _entries(writes)] = True

    def _known(self, view: View) -> np.ndarray:
        """Which entries are written, of the scratchpad or buffer that `view` is in."""
        if isinstance(view, Array):
            size = view.buffer.nbytes // (self.cfg.batch * self.cfg.block_out * view.buffer.bits // 8)
            return self._written.setdefault(view.buffer.name, np.zeros(size, bool))
        assert isinstance(view, Tile)
        return self._written.setdefault(view.mem, np.zeros(room(self.cfg, view.mem), bool))


def _entries(view: View) -> np.ndarray:
    """The entries of a view, those of rows of weights that hold these."""
    found = np.array([view.base])
    for axis in view.axes:
        found = np.add.outer(found, np.arange(axis.extent) * axis.step).reshape(-1)
    if isinstance(view, Tile) and view.shifts is not None:
        found = np.add.outer(found, view.shifts).reshape(-1)
    return np.unique(found // view.kernel.cfg.block_in) if isinstance(view, Rows) else found
