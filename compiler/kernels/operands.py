"""What the author of a kernel hands to a statement: its kind, its numbers, the names of its axes, its place on chip."""

from __future__ import annotations

import re
from dataclasses import replace
from difflib import get_close_matches
from typing import Any

import numpy as np

from ...hw.errors import EncodingError, KernelError
from ...hw.isa import OPERATIONS, AluOp, Mem, room
from ..graph.integer_forms import Requant
from .checked import CheckedKernel
from .language import Array, Rows, Tile
from .recording import Recording
from .views import Product

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


class CheckedOperands(CheckedKernel):
    """Raises `KernelError` for operands of a wrong kind, and for names of axes that look misspelt.

    So it does for tiles whose place another tile took, or whose scope has ended. Raises `Unfit` for statements whose
    extension the configuration lacks.
    """

    def __init__(self, rec: Recording, op: Any):
        super().__init__(rec, op)
        self._claims, self._latest = 0, dict[Mem, np.ndarray]()  # how many places were taken; of each entry the latest

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

    def constant(self, mem: Mem, name: str, data: np.ndarray, *, kept: bool = False, **extents: int) -> Tile:
        """As of any kernel, of signed integers that are as wide as lanes."""
        widest = {Mem.INP: np.int8, Mem.WGT: np.int8, Mem.ACC: np.int32}.get(mem)
        if widest and (data.dtype.kind != "i" or data.itemsize > np.dtype(widest).itemsize):
            what = f"{mem.name} takes {widest.__name__}, values.astype(np.{widest.__name__})"
            raise KernelError(f"constant {name} is {data.dtype}: {what}")
        return super().constant(mem, name, data, kept=kept, **extents)

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

    def _latest_of(self, mem: Mem) -> np.ndarray:
        return self._latest.setdefault(mem, np.zeros(room(self.cfg, mem), int))

    def _span(self, tile: Tile) -> slice:
        """From its first to its last entry."""
        each = self.cfg.block_in if isinstance(tile, Rows) else 1
        last = tile.base + sum((axis.extent - 1) * axis.step for axis in tile.axes)
        last += 0 if tile.shifts is None else tile.shifts.max()
        return slice(tile.base // each, last // each + 1)

    def _in_place(self, *tiles: Tile) -> None:
        """Raise `KernelError` for tiles whose place is that of others now."""
        for tile in tiles:
            if not isinstance(tile, Tile):
                raise KernelError(f"a statement takes a tile, not '{type(tile).__name__}'")
            span, claim = self._span(tile), tile.claim
            if claim and not self._chip.taken(tile.mem, span.start):
                raise KernelError(f"{tile} is used behind its `with k.scope()`: use it inside, or take it before")
            if claim and (self._latest_of(tile.mem)[span] > claim).any():
                raise KernelError(
                    f"the place of {tile} in {tile.mem.name} was taken by a later tile: use it before the second next "
                    "`load` or `next`, or take more places, count= of k.slots, places= of k.banks"
                )


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
