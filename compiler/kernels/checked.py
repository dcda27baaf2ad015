"""Checks of kernels that users write: each statement says what its author forgot, and how to repair it.

They find entries that are read before they are written, numbers that do not fit, names of axes that look misspelt, and
tiles whose place another tile took. The kernels of the compiler are recorded without them.
"""

from __future__ import annotations

import re
from dataclasses import replace
from difflib import get_close_matches

import numpy as np
from numpy.typing import NDArray

from ...hw.errors import EncodingError, KernelError
from ...hw.isa import OPERATIONS, AluOp, Mem, room
from ..graph import Operator
from ..graph.integer_forms import Requant
from .language import Array, Kernel, Rows, Tile
from .recording import Recording
from .views import Product, View

_REMEDY = {
    Mem.ACC: "load them, set them to 0 (y[...] = 0), or replace them by a product (y[...] = x @ w)",
    Mem.PAR: "load parameters, or take k.parameters(...)",
}
_HINTS = {  # what to write, by what the text of an error has
    r"'Product'": "a product is the right side of y[...] = x @ w or y += x @ w; accumulators multiply by y *= z",
    r"'Array'": "an array is in DRAM: load it, k.load(tile, array)",
    r"'Requant'": "load it, k.parameters(Requant(...))",
    r"'ndarray'|numpy\.ndarray|an array with more": "k.matrices, k.rows and k.constant load arrays of NumPy",
    r"'Tile'": "tiles have +=, *=, >>=, <<= and methods, as y += -3 and y.maximum(0); y[...] = takes products and 0",
    r"'float'": "scale by y *= m and y >>= n, by y.rescale(par), or in the store, k.store(array, y, par)",
    r"'Custom' object": "give op=, an operator that has it",
    r"'(INP|WGT|ACC|PAR)'": "memories are Mem.INP, Mem.WGT, Mem.ACC and Mem.PAR",
}


def with_hint(text: str) -> str:
    """The text of an error, and what to write where the types that it names tell."""
    return next((f"{text}: {hint}" for words, hint in _HINTS.items() if re.search(words, text)), text)


class CheckedKernel(Kernel):
    """A kernel whose statements raise `KernelError` for mistakes of its author, and `Unfit` for missing extensions.

    Mistakes are entries of a scratchpad or of a buffer that are read before they are written, tiles whose place another
    tile took or whose scope has ended, numbers that do not fit, and names of axes that look misspelt. `finish` finds
    an output that is not stored whole.
    """

    def __init__(self, rec: Recording, op: Operator):
        super().__init__(rec, op)
        # which entries are written, of a scratchpad, and of a buffer that this kernel writes, by its name
        self._written: dict[Mem | str, NDArray[np.bool_]] = {}
        self._claims, self._latest = (
            0,
            dict[Mem, NDArray[np.int64]](),
        )  # how many places were taken; of each entry the latest

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

    def claimed(self, tile: Tile) -> Tile:
        """The tile, as the latest one in its place."""
        self._claims += 1
        self._latest_of(tile.mem)[self._span(tile)] = self._claims
        return replace(tile, claim=self._claims)

    def temporary(self, name: str, **extents: int) -> Array:
        """A new buffer, none of whose entries is written."""
        found = super().temporary(name, **extents)
        self._known(found)
        return found

    def constant(self, mem: Mem, name: str, data: NDArray[np.integer], *, kept: bool = False, **extents: int) -> Tile:
        """A constant, whose entries count as written, also where another kernel of the launch loaded it."""
        found = super().constant(mem, name, data, kept=kept, **extents)
        self._uses(found)
        return found

    def requant(self, store: Requant, name: str = "par", **channels: NDArray[np.integer]) -> Array:
        """Parameters in DRAM. Raises `KernelError` for numbers that they cannot hold."""
        try:
            return super().requant(store, name, **channels)
        except EncodingError as exc:
            raise KernelError(str(exc)) from exc

    def multiply(self, y: Tile, product: Product, *, overwrite: bool = False) -> None:
        """A product, of axes whose names do not look misspelt."""
        self.need(*["overwrite"] * overwrite, *["depthwise"] * isinstance(product.weights, Rows))
        _check_names(y, product.x, product.weights)
        super().multiply(y, product, overwrite=overwrite)

    def combine(self, op: AluOp, y: Tile, value: Tile | int | float, over: str = "") -> None:
        """An operation of the ALU with a tile or a number of 16 bits."""
        self.need(*OPERATIONS[op].extensions)
        if isinstance(value, Tile):
            _check_names(y, value)
        elif not isinstance(value, (int, np.integer)):
            raise KernelError(f"{op.name} of {y} takes a tile or an integer, not '{type(value).__name__}'")
        elif not -(1 << 15) <= value < 1 << 15:
            raise KernelError(f"{op.name} of {y} with {value}: must be within -32768 to 32767; y <<= n makes it larger")
        super().combine(op, y, value, over)

    def _uses(self, writes: View, *reads: View) -> None:
        """Raise `KernelError` for a statement on a tile without its place, or that reads what was not written."""
        for view in (writes, *reads):
            if isinstance(view, Tile) and view.claim:
                self._check_place(view)
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

    def _known(self, view: View) -> NDArray[np.bool_]:
        """Which entries are written, of the scratchpad or buffer that `view` is in."""
        if isinstance(view, Array):
            size = view.buffer.nbytes // (self.cfg.batch * self.cfg.block_out * view.buffer.bits // 8)
            return self._written.setdefault(view.buffer.name, np.zeros(size, bool))
        assert isinstance(view, Tile)
        return self._written.setdefault(view.mem, np.zeros(room(self.cfg, view.mem), bool))

    def _latest_of(self, mem: Mem) -> NDArray[np.int64]:
        return self._latest.setdefault(mem, np.zeros(room(self.cfg, mem), int))

    def _span(self, tile: Tile) -> slice:
        entries = _entries(tile)
        return slice(entries[0], entries[-1] + 1)

    def _check_place(self, tile: Tile) -> None:
        span = self._span(tile)
        if not self._chip.taken(tile.mem, span.start):
            raise KernelError(f"{tile} is used behind its `with k.scope()`: use it inside, or take it before")
        if (self._latest_of(tile.mem)[span] > tile.claim).any():
            raise KernelError(
                f"the place of {tile} in {tile.mem.name} was taken by a later tile: use it before the second next "
                "`load` or `next`, or take more places, count= of k.slots, places= of k.banks"
            )


def _entries(view: View) -> NDArray[np.int64]:
    """The entries of a view in rising order, those of rows of weights that hold these."""
    found = np.array([view.base])
    for axis in view.axes:
        found = np.add.outer(found, np.arange(axis.extent) * axis.step).reshape(-1)
    if isinstance(view, Tile) and view.shifts is not None:
        found = np.add.outer(found, view.shifts).reshape(-1)
    return np.unique(found // view.kernel.cfg.block_in if isinstance(view, Rows) else found)


def _check_names(y: Tile, *operands: Tile) -> None:
    """Raise `KernelError` where an axis is combined and one that looks like it is repeated."""
    combined = {a.name: a.extent for t in operands for a in t.axes if a.extent > 1 and a.name not in y.shape}
    for axis in y.axes:
        if not any(axis.name in t.shape for t in operands):
            alike = [name for name, extent in combined.items() if extent == axis.extent]
            for name in get_close_matches(axis.name, alike, 1):
                raise KernelError(
                    f"axis {name} is combined and {axis.name} of {y} repeated, both of {axis.extent}: give them one "
                    "name or, if they are two axes, names that differ more"
                )
