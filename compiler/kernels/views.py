"""Tensors of a kernel with named axes: tiles on chip, and arrays in DRAM. Indexing works as in NumPy.

A view counts entries: one entry is what the accelerator moves or computes at once, a row of lanes for each image of the
batch. Its axes have names; two tensors that meet in a statement are matched by these.
"""

from __future__ import annotations

import math
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from itertools import accumulate
from types import EllipsisType
from typing import NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from ...hw.config import Config
from ...hw.errors import KernelError, Unfit
from ...hw.isa import AluOp, Mem
from ...runtime.buffer import Buffer, Region
from ...runtime.symbols import Symbol
from ..limits import limits

_Index = int | slice | EllipsisType
_View = TypeVar("_View", bound="View")


class Axis(NamedTuple):
    """One axis of a view: `extent` elements, `step` entries apart, between `pads` elements that a load adds."""

    name: str
    extent: int
    step: int
    pads: tuple[int, int] = (0, 0)


class Statements(Protocol):
    """What records the statements on views: a `Kernel` (compiler/kernels/language.py)."""

    cfg: Config

    def claimed(self, tile: Tile) -> Tile:
        """The tile, which takes its place from others."""
        ...

    def load(self, target: View, source: View) -> Tile:
        """Load an array to a tile."""
        ...

    def store(self, target: View, y: View, par: Tile | None = None) -> None:
        """Store accumulators to an array."""

    def zero(self, y: Tile) -> None:
        """Set accumulators to zero."""

    def multiply(self, y: Tile, product: Product, *, overwrite: bool = False) -> None:
        """Add a product to accumulators, or replace them by it."""

    def combine(self, op: AluOp, y: Tile, value: Tile | int, over: str = "") -> None:
        """Combine accumulators with a number or with accumulators."""

    def together(self) -> AbstractContextManager[None]:
        """Statements inside become one instruction."""
        ...


@dataclass(frozen=True, eq=False)
class View:
    """Entries from `base` on, in `axes` from the outermost in. Wrong indices and axes raise `KernelError`."""

    kernel: Statements
    base: int
    axes: tuple[Axis, ...]

    def __post_init__(self) -> None:
        names = [axis.name for axis in self.axes]
        if len(set(names)) < len(names):
            what = "two of them have one name; `merged` takes a new one first, x.merged('pixel', 'h', 'w')"
            raise KernelError(f"axes {', '.join(names)}: {what}")

    @property
    def shape(self) -> dict[str, int]:
        """The extent of each axis by its name."""
        return {axis.name: axis.extent for axis in self.axes}

    @property
    def size(self) -> int:
        """The number of entries."""
        return math.prod(axis.extent for axis in self.axes)

    def axis(self, name: str) -> Axis:
        """The axis of that name."""
        found = next((axis for axis in self.axes if axis.name == name), None)
        if found is None:
            raise KernelError(f"{self} has no axis {name}; its axes are {', '.join(self.shape) or 'none'}")
        return found

    def __str__(self) -> str:
        return f"{type(self).__name__.lower()} ({', '.join(f'{a.name} {a.extent}' for a in self.axes)})"

    def __getitem__(self: _View, key: _Index | tuple[_Index, ...]) -> _View:
        """The part that `key` chooses: an index or a slice for each of the first axes, after `...` of the last axes."""
        parts = key if isinstance(key, tuple) else (key,)
        keys = [part for part in parts if not isinstance(part, EllipsisType)]
        if len(keys) > len(self.axes):
            raise KernelError(f"{self} is indexed with {len(keys)} indices: it has {len(self.axes)} axes")
        if len(keys) < len(parts):
            at = next(number for number, part in enumerate(parts) if isinstance(part, EllipsisType))
            keys[at:at] = [slice(None)] * (len(self.axes) - len(keys))
        base, axes = self.base, list[Axis]()
        for axis, part in zip(self.axes, [*keys, *[slice(None)] * (len(self.axes) - len(keys))]):
            if part == slice(None):
                axes.append(axis)
            elif any(axis.pads):
                raise KernelError(f"{self}: {axis.name} has padding, which a load adds: take the window last")
            elif isinstance(part, slice):
                if part.step is not None and part.step < 1:
                    raise KernelError(f"{self}[{axis.name} ::{part.step}]: steps must be at least 1")
                begin, end, step = part.indices(axis.extent)
                if end <= begin or (part.stop or 0) > axis.extent:
                    raise KernelError(f"{self}[{axis.name} {part.start}:{part.stop}]: outside, or without entries")
                base += begin * axis.step
                axes.append(Axis(axis.name, -(-(end - begin) // step), axis.step * step))
            else:
                if not 0 <= part < axis.extent:
                    raise KernelError(f"{self}[{axis.name} {part}]: must be 0 to {axis.extent - 1}")
                base += part * axis.step
        found = object.__new__(type(self))  # as `replace`, in less time: names stay different
        found.__dict__.update(self.__dict__, base=base, axes=tuple(axes))
        return found

    def at(self: _View, **keys: _Index) -> _View:
        """The part that an index or a slice chooses of each of these axes, by name."""
        for name in keys:
            self.axis(name)
        return self[tuple(keys.get(axis.name, slice(None)) for axis in self.axes)]

    def named(self: _View, **names: str) -> _View:
        """The same entries with other names of axes, `old=new`."""
        for name in names:
            self.axis(name)
        return replace(self, axes=tuple(axis._replace(name=names.get(axis.name, axis.name)) for axis in self.axes))

    def merged(self: _View, into: str, *names: str) -> _View:
        """The same entries with the adjacent axes `names`, by default all, as one axis `into`, if steps are equal."""
        names = names or tuple(self.shape)
        for name in names:
            self.axis(name)
        first = next((k for k, axis in enumerate(self.axes) if axis.name == names[0]), 0)
        parts = self.axes[first : first + len(names)]
        if tuple(axis.name for axis in parts) != names:
            raise KernelError(f"{self}: axes {', '.join(names)} are not beside each other")
        real = [axis for axis in parts if axis.extent > 1]
        if any(any(axis.pads) for axis in parts):
            raise KernelError(f"{self} has padding, which a load adds: take the window last")
        if any(outer.step != inner.step * inner.extent for outer, inner in zip(real, real[1:])):
            raise KernelError(f"{self}: axes {', '.join(names)} are not one piece of memory")
        one = Axis(into, math.prod(axis.extent for axis in parts), real[-1].step if real else 1)
        return replace(self, axes=(*self.axes[:first], one, *self.axes[first + len(names) :]))

    def split(self: _View, name: str, **extents: int) -> _View:
        """The same entries with axis `name` as several axes of `extents`."""
        axis = self.axis(name)
        if math.prod(extents.values()) != axis.extent or any(axis.pads):
            raise KernelError(f"{self}: axis {name} cannot be split into {extents}")
        at = self.axes.index(axis)
        return replace(self, axes=(*self.axes[:at], *dense(extents, axis.step), *self.axes[at + 1 :]))

    def parts(self: _View, size: int) -> list[_View]:
        """Its parts of `size` elements along the first axis; the last one may have fewer."""
        return [self[part] for part in cuts(self.axes[0].extent, size)]

    def dense(self) -> bool:
        """True where the entries follow one another without gaps."""
        inner = 1
        for axis in reversed(self.axes):
            if axis.extent > 1 and axis.step != inner:
                return False
            inner *= axis.extent
        return True


def cuts(extent: int, size: int) -> list[slice]:
    """The parts of `size` elements of an axis; the last one may have fewer."""
    return [slice(first, min(first + size, extent)) for first in range(0, extent, size)]


def equal_parts(extent: int) -> list[int]:
    """The sizes of tiles that cut `extent` into 1, 2, 3, ... equal parts, the largest first."""
    return sorted({-(-extent // count) for count in range(1, extent + 1)}, reverse=True)


def every(first: int, count: int, step: int) -> slice:
    """The slice of `count` elements, `step` apart, from element `first` on."""
    if count < 1 or first < 0:
        raise KernelError(f"{count} elements from {first} on: at least one, from 0 on")
    return slice(first, first + (count - 1) * step + 1, step)


def dense(extents: dict[str, int], step: int = 1) -> tuple[Axis, ...]:
    """Axes of `extents` whose entries follow one another, `step` apart."""
    axes = list[Axis]()
    for name, extent in reversed(extents.items()):
        axes.insert(0, Axis(name, extent, step))
        step *= extent
    return tuple(axes)


def place(buffer: Buffer) -> tuple[Buffer, int]:
    """(buffer that is allocated, first byte in it) of a buffer or a region of one."""
    if isinstance(buffer, Region) and buffer.whole is not None:
        return buffer.whole, buffer.start
    return buffer, 0


@dataclass(frozen=True, eq=False)
class Array(View):
    """Entries of a DRAM buffer, which `symbol` moves by a value known when a run begins; padding has value `fill`."""

    buffer: Buffer
    symbol: Symbol | None = None
    fill: int = 0

    def moved(self, symbol: Symbol | None) -> Array:
        """The same entries, moved by `symbol` in each run."""
        return replace(self, symbol=symbol)

    @property
    def address(self) -> tuple[Buffer, int]:
        """(buffer that is allocated, the byte of it at which the entries begin)."""
        (whole, start), cfg = place(self.buffer), self.kernel.cfg
        return whole, start + self.base * cfg.batch * cfg.block_out * self.buffer.bits // 8

    def shares(self, other: Array) -> bool:
        """True where both begin at the same byte, as an operator's result does that is computed in its place."""
        return self.address == other.address

    def repeated(self, **extent: int) -> Array:
        """The same entries, several times, along a new outermost axis."""
        ((name, count),) = extent.items()
        return replace(self, axes=(Axis(name, count, 0), *self.axes))

    def window(self, fill: int = 0, **ranges: tuple[int, int]) -> Array:
        """Elements in `ranges`, (first, count) by the name of the axis; elements outside are padding of `fill`.

        Raises `Unfit` where all are outside.
        """
        keys, pads = dict[str, slice](), dict[str, tuple[int, int]]()
        for name, (first, count) in ranges.items():
            extent = self.axis(name).extent
            before, after = pads[name] = max(0, -first), max(0, first + count - extent)
            if before + after >= count:
                raise Unfit(
                    f"{count} elements of {name} from {first} on lie in the padding alone: the {extent} begin at 0"
                )
            keys[name] = slice(first + before, first + count - after)
        found = self.at(**keys)
        axes = tuple(axis._replace(pads=pads.get(axis.name, axis.pads)) for axis in found.axes)
        return replace(found, axes=axes, fill=fill if any(map(any, pads.values())) else 0)

    @property
    def padded(self) -> dict[str, int]:
        """The extents with the padding."""
        return {axis.name: axis.extent + sum(axis.pads) for axis in self.axes}

    def rows(self, own: str = "") -> tuple[Axis, Axis] | None:
        """The axes of one transfer, rows and entries of a row; None where it takes several transfers.

        Axis `own`, if it has several elements, becomes the axis of rows.
        """
        merged, one = list[Axis](), Axis("", 1, 1)
        for axis in self.axes:
            if axis.extent == 1 and not any(axis.pads):
                continue
            before = merged[-1] if merged else one
            apart = any(before.pads) or any(axis.pads) or own in (before.name, axis.name)
            if merged and before.step == axis.step * axis.extent and not apart:
                merged[-1] = Axis(axis.name, before.extent * axis.extent, axis.step)
            else:
                merged.append(axis)
        if merged and (merged[-1].step != 1 or merged[-1].name == own):
            merged.append(one)
        if len(merged) > 2:
            return None
        rows, columns = [one] * (2 - len(merged)) + merged
        far = rows.extent > 1 and rows.step > limits(self.kernel.cfg, "LOAD")["x_stride"]
        return None if far else (rows, columns)


@dataclass(frozen=True, eq=False)
class Tile(View):
    """Entries of the scratchpad `mem`: inputs, weights, accumulators or parameters.

    Statements on accumulators read as NumPy: `y[...] = x @ w` and `y += x @ w` are products of inputs `x` with weights
    `w`, `y[...] = 0` sets to zero, `+=`, `*=` and `>>=` combine with a number or with other accumulators, `<<=` with a
    number. Axes are matched by name: the operand is repeated along axes of `y` that it does not have, and combined
    along axes that `y` does not have. Sums with 0, products with 1 and shifts by 0 record nothing. Unlike NumPy, an
    operand that shares entries with `y` is read while these change. `shifts` are the moves of `each`, `claim` numbers
    the tiles of a kernel with checks (compiler/kernels/checked.py).
    """

    mem: Mem
    shifts: NDArray[np.int64] | None = None
    claim: int = 0

    def each(self, **indices: NDArray[np.int64]) -> Tile:
        """The view moved by each of `indices`, arrays of one length, along these axes: a micro-op for each move.

        In a product all views that `each` made move together.
        """
        shifts = sum(self.axis(name).step * np.asarray(index) for name, index in indices.items())
        return replace(self, shifts=np.asarray(shifts))

    def reshaped(self, **extents: int) -> Tile:
        """The first entries, with axes of these extents."""
        return self.merged("entry")[: math.prod(extents.values())].split("entry", **extents)

    def __matmul__(self, weights: View) -> Product:
        """Inputs times weights, matrix by matrix, on GEMM or, of weights in TWGT, on unit `ternary`."""
        return Product(self, tile_of(weights))

    def __mul__(self, rows: View) -> Product:
        """Inputs times rows of weights, lane by lane."""
        return Product(self, tile_of(rows), by_lane=True)

    def pieces(self, *extents: dict[str, int]) -> tuple[Tile, ...]:
        """Adjacent tiles of these axes, from the first entry on."""
        sizes = [math.prod(each.values()) for each in extents]
        if not self.dense() or sum(sizes) > self.size:
            raise KernelError(f"{self} is no one piece of {sum(sizes)} entries")
        starts = accumulate(sizes, initial=self.base)
        return tuple(replace(self, base=start, axes=dense(each)) for start, each in zip(starts, extents))

    def rows(self, **extents: int) -> Rows:
        """The rows of these weights, for products lane by lane, with axes of these extents."""
        count, lanes = math.prod(extents.values()), self.kernel.cfg.block_in
        if self.mem is not Mem.WGT or not self.dense() or count > self.size * lanes:
            raise KernelError(f"{self} has no {count} rows of weights that follow one another")
        return Rows(self.kernel, self.base * lanes, dense(extents), Mem.WGT, claim=self.claim)

    def __setitem__(self, key: _Index | tuple[_Index, ...], value: Product | Tile | int) -> None:
        part = self[key]
        if isinstance(value, Product):
            self.kernel.multiply(part, value, overwrite=True)
        elif isinstance(value, Tile):
            if (value.mem, value.base, value.axes) != (part.mem, part.base, part.axes):
                how = "y[...] = x @ k.identity() of the same inputs, or y[...] = 0 and y += z"
                raise KernelError(f"accumulators are copied by a product with the identity, {how}")
        elif value == 0:
            self.kernel.zero(part)
        else:
            how = "load an array; set to 0, and add a number"
            raise KernelError(f"accumulators are set to a product or to 0, not to {value}: {how}")

    def __iadd__(self, value: Product | Tile | int) -> Tile:
        if isinstance(value, Product):
            self.kernel.multiply(self, value)
            return self
        return self.alu(AluOp.ADD, value, 0)

    def __imul__(self, value: Tile | int) -> Tile:
        return self.alu(AluOp.MUL, value, 1)

    def __irshift__(self, value: Tile | int) -> Tile:
        return self.alu(AluOp.SHR, value, 0)

    def __ilshift__(self, bits: int) -> Tile:
        return self.alu(AluOp.SHR, -bits, 0)

    def maximum(self, value: Tile | int, over: str = "") -> Tile:
        """Become the larger one of itself and `value`, element by element; `over` is the order of loops of `add`."""
        return self.alu(AluOp.MAX, value, over=over)

    def minimum(self, value: Tile | int) -> Tile:
        """Become the smaller one of itself and `value`, element by element."""
        return self.alu(AluOp.MIN, value)

    def add(self, value: Tile | int, over: str = "") -> Tile:
        """As `+=`, with the loops over the axes `over`, from the outermost in."""
        return self.alu(AluOp.ADD, value, over=over)

    def rescale(self, par: Tile) -> Tile:
        """Multiply by the scale of the parameters `par`, rounded by their contract (extension `rescale`)."""
        if par.mem is not Mem.PAR or par.size != 1:
            raise KernelError(f"{par} scales no accumulators: it takes one entry of parameters")
        return self.alu(AluOp.RESCALE, par.base)

    def lookup(self, table: int) -> Tile:
        """Replace each lane by its function value in the table of that number (extension `lookup`)."""
        return self.alu(AluOp.LOOKUP, table)

    def sum_along(self, axis: str) -> Tile:
        """The first part along `axis`, which becomes the sum of all parts; the others change."""
        return self._folded(AluOp.ADD, axis)

    def max_along(self, axis: str) -> Tile:
        """The first part along `axis`, which becomes the largest of all parts; the others change."""
        return self._folded(AluOp.MAX, axis)

    def _folded(self, op: AluOp, axis: str) -> Tile:
        """Combine the parts by halves, so that an operation seldom waits for the one before."""
        at = [a.name for a in self.axes].index(self.axis(axis).name)
        part, count = (slice(None),) * at, self.axes[at].extent
        while count > 1:
            half = count // 2
            self[(*part, slice(half))].alu(op, self[(*part, slice(count - half, count))])
            count -= half
        return self[(*part, 0)]

    def sum_lanes(self) -> Tile:
        """Every lane becomes the sum of all lanes of its entry (extension `lane_reduce`)."""
        return self.alu(AluOp.REDUCE, 0)

    def max_lanes(self) -> Tile:
        """Every lane becomes the largest lane of its entry (extension `lane_reduce`)."""
        return self.alu(AluOp.REDUCE, 1)

    def alu(self, op: AluOp, value: Tile | int, neutral: int | None = None, *, over: str = "") -> Tile:
        """Combine with `value` by `op`; with the number `neutral` nothing changes, and nothing is recorded."""
        if isinstance(value, Tile) or value != neutral:
            self.kernel.combine(op, self, value, over)
        return self


def tile_of(view: View) -> Tile:
    """The view, an operand of a statement. Raises `KernelError` where it is no tile."""
    if not isinstance(view, Tile):
        raise KernelError(f"a statement takes a tile, not '{type(view).__name__}'")
    return view


@dataclass(frozen=True, eq=False)
class Rows(Tile):
    """Rows of weights, `block_in` to an entry of the scratchpad: `base` and steps count rows."""


@dataclass(frozen=True)
class Product:
    """Inputs `x` times `weights`, summed along the axes that the result does not have.

    `by_lane` multiplies lane by lane with rows of weights (extension `depthwise`). `order` names axes in the order of
    their loops, from the outermost in, by default first the axes of the result. `taps` products of adjacent inputs and
    adjacent rows are added at once (extension `depthwise_rows`, only by lane).
    """

    x: Tile
    weights: Tile
    by_lane: bool = False
    order: str = ""
    taps: int = 1

    def with_taps(self, taps: int) -> Product:
        """The same product with so many adjacent inputs and rows of weights at once."""
        return replace(self, taps=taps)

    def at(self, **keys: _Index) -> Product:
        """The product of the parts of both operands that `keys` choose, an index or a slice by the name of the axis."""
        x, weights = (t.at(**{name: keys[name] for name in keys.keys() & t.shape}) for t in (self.x, self.weights))
        left = {*x.shape, *weights.shape}
        order = " ".join(name for name in self.order.split() if name in left or name not in keys)
        return replace(self, x=x, weights=weights, order=order)

    def over(self, order: str) -> Product:
        """The same product with loops in this order of axes."""
        return replace(self, order=order)
