"""A kernel that is recorded with checks: what its author may forget is found by the statement that suffers from it.

So are operands of a wrong kind, numbers that do not fit, names of axes that look misspelt, and places taken again.
"""

from __future__ import annotations

import re
from dataclasses import replace
from difflib import get_close_matches
from typing import Any

import numpy as np

from ...hw.errors import EncodingError, KernelError
from ...hw.isa import OPERATIONS, AluOp, Mem, entry_bytes, room
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
    """Raises `KernelError` for entries that are read before they are written, on chip and of buffers in DRAM.

    So it does for operands of a wrong kind, for numbers that do not fit, for names of axes that look misspelt, and for
    tiles whose place another tile took, or whose scope has ended. `finish` does so for an output that is not stored
    whole. Raises `Unfit` for statements whose extension the configuration lacks.
    """

    def __init__(self, rec: Recording, op: Any):
        super().__init__(rec, op)
        # which entries are written, of a scratchpad, and of a buffer that this kernel writes, by its name
        self._written: dict[Mem | str, np.ndarray] = {}
        self._claims, self._latest = 0, dict[Mem, np.ndarray]()  # how many places were taken; of each entry the latest

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

    def input(self, number: int) -> Array:
        """As of any kernel, of an operator that has so many inputs."""
        if not 0 <= number < len(self.op.inputs):
            raise KernelError(f"k.input({number}): the operator has {len(self.op.inputs)}, counted from 0")
        return super().input(number)

    def temporary(self, name: str, **extents: int) -> Array:
        """As of any kernel; what it holds is known from its stores on."""
        found = super().temporary(name, **extents)
        self._known(found)
        return found

    def constant(self, mem: Mem, name: str, data: np.ndarray, *, kept: bool = False, **extents: int) -> Tile:
        """As of any kernel, of signed integers that are as wide as lanes, in elements as large as entries of `mem`."""
        widest = {Mem.INP: np.int8, Mem.WGT: np.int8, Mem.ACC: np.int32}.get(mem)
        if widest and (data.dtype.kind != "i" or data.itemsize > np.dtype(widest).itemsize):
            what = f"{mem.name} takes {widest.__name__}, values.astype(np.{widest.__name__})"
            raise KernelError(f"constant {name} is {data.dtype}: {what}")
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

    def matrices(self, name: str, values: np.ndarray) -> Tile:
        """As of any kernel, of integers (count, lanes of the result, lanes of the input)."""
        return super().matrices(name, _integers(name, values, self.cfg.block_out, self.cfg.block_in))

    def rows(self, name: str, values: np.ndarray) -> Rows:
        """As of any kernel, of integers (count, lanes)."""
        return super().rows(name, _integers(name, values, self.cfg.block_out))

    def requant(self, store: Requant, name: str = "par", **channels: np.ndarray) -> Array:
        """As of any kernel, of numbers that parameters hold."""
        try:
            return super().requant(store, name, **channels)
        except EncodingError as exc:
            raise KernelError(str(exc)) from exc

    def load(self, target: Tile, source: Array) -> Tile:
        """As of any kernel."""
        if not isinstance(target, Tile) or not isinstance(source, Array):
            raise KernelError("k.load takes a tile, and then an array in DRAM, k.load(tile, k.input(0))")
        if not -128 <= source.fill <= 127:
            raise KernelError(f"{source} has padding of {source.fill}: must be within -128 to 127")
        self._in_place(target)
        return super().load(target, source)

    def store(self, target: Array, y: Tile, par: Tile | None = None) -> None:
        """As of any kernel."""
        if not isinstance(target, Array) or isinstance(y, Array):
            raise KernelError("k.store takes an array in DRAM, and then a tile, k.store(k.output, y)")
        self._in_place(y, *([] if par is None else [par]))
        super().store(target, y, par)

    def zero(self, y: Tile) -> None:
        """As of any kernel."""
        self._in_place(y)
        super().zero(y)

    def multiply(self, y: Tile, product: Product, *, overwrite: bool = False) -> None:
        """As of any kernel."""
        self.need(*["overwrite"] * overwrite, *["depthwise"] * isinstance(product.weights, Rows))
        self._in_place(y, product.x, product.weights)
        _check_names(y, product.x, product.weights)
        super().multiply(y, product, overwrite=overwrite)

    def combine(self, op: AluOp, y: Tile, value: Tile | int, over: str = "") -> None:
        """As of any kernel, with a tile or a number of 16 bits."""
        self.need(*OPERATIONS[op].extensions)
        if isinstance(value, Tile):
            self._in_place(value)
            _check_names(y, value)
        elif not isinstance(value, (int, np.integer)):
            raise KernelError(f"{op.name} of {y} takes a tile or an integer, not '{type(value).__name__}'")
        elif not -(1 << 15) <= value < 1 << 15:
            raise KernelError(f"{op.name} of {y} with {value}: must be within -32768 to 32767; y <<= n makes it larger")
        self._in_place(y)
        super().combine(op, y, value, over)

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

    def _latest_of(self, mem: Mem) -> np.ndarray:
        return self._latest.setdefault(mem, np.zeros(room(self.cfg, mem), int))

    def _span(self, tile: Tile) -> slice:
        """From its first to its last entry."""
        found = _entries(tile)
        return slice(found[0], found[-1] + 1)

    def _in_place(self, *tiles: Tile) -> None:
        """Raise `KernelError` for tiles whose place is that of others now."""
        for tile in tiles:
            if not isinstance(tile, Tile):
                raise KernelError(f"a statement takes a tile, not '{type(tile).__name__}'")
            if not tile.claim:
                continue
            span = self._span(tile)
            if not self._chip.taken(tile.mem, span.start):
                raise KernelError(f"{tile} is used behind its `with k.scope()`: use it inside, or take it before")
            if (self._latest_of(tile.mem)[span] > tile.claim).any():
                raise KernelError(
                    f"the place of {tile} in {tile.mem.name} was taken by a later tile: use it before the second next "
                    "`load` or `next`, or take more places, count= of k.slots, places= of k.banks"
                )


def _entries(view: View) -> np.ndarray:
    """The entries of a view in rising order, those of rows of weights that hold these."""
    found = np.array([view.base])
    for axis in view.axes:
        found = np.add.outer(found, np.arange(axis.extent) * axis.step).reshape(-1)
    if isinstance(view, Tile) and view.shifts is not None:
        found = np.add.outer(found, view.shifts).reshape(-1)
    return np.unique(found // view.kernel.cfg.block_in if isinstance(view, Rows) else found)


def _integers(name: str, values: np.ndarray, *lanes: int) -> np.ndarray:
    found = np.asarray(values)
    if found.shape[1:] != lanes or not found.size:
        raise KernelError(f"weights {name} {found.shape}: must be (count, {', '.join(map(str, lanes))})")
    if (found != np.round(found)).any():
        raise KernelError(f"weights {name} are no integers: round them, and scale the result when it is stored")
    return found


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
