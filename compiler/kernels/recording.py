"""Records many operators into one program: its activations and constants, and what stays on chip."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from ...hw.config import Config
from ...hw.errors import CapacityError, ScheduleError, Unfit
from ...hw.isa import Mem, depth
from ...runtime import layout
from ...runtime.buffer import Buffer, Region
from ...runtime.launch import UOP_BUFFER
from ...runtime.program import Program
from ...runtime.symbols import Symbol
from .. import cost
from .. import graph as g
from ..api import Scheduled, build_into
from ..graph import Names
from ..graph.integer_forms import Requant
from ..schedule.layer import Tiles, scheduled_by
from ..tir.placement import Placement
from ..tvm_compat import PrimFunc, Schedule
from .fold import Fold
from .views import place


class Recording:
    """A program to append operators to, whose activations are packed buffers.

    By names of tensors: packed `activations`, `plain` tensors in host layout (`Operator.plain`), `limits` of inputs
    that move addresses, and `padded`, paddings of channels that their reader adds. By names of operators: `folded`, the
    layouts and images of convolutions of few channels (compiler/kernels/fold.py), and `flags`, outputs of one entry of
    which a lane other than 0 says that a value is NaN. By content: the numbers of `tables` on chip, the latest last,
    and the places of constants that stay on chip, `kept`.
    """

    def __init__(self, cfg: Config, contract: str, name: str, tiles: Tiles | None = None):
        self.cfg, self.contract, self.tiles = cfg, contract, tiles
        self.program, self.placement, self._names = Program(cfg, name), Placement(cfg), Names((UOP_BUFFER,))
        self.activations: dict[str, Buffer] = {}
        self.folded: dict[str, tuple[Fold, Buffer]] = {}
        self.padded: dict[str, g.Pad] = {}
        self.tables: dict[bytes, int] = {}
        self.limits: dict[str, int] = {}
        self.kept: dict[tuple[Mem, bytes], range] = {}
        self.plain: dict[str, Buffer] = {}
        self.flags: dict[str, Buffer] = {}

    def buffer(self, name: str, shape: tuple[int, ...], bits: int = 8, **facts: Any) -> Buffer:
        """A new buffer named `name`, or a variant if that is taken: networks may use any names."""
        return self.program.buffer(self._names.unused(name), shape, bits, **facts)

    def constant(self, name: str, data: NDArray[np.integer]) -> Buffer:
        """A constant buffer of an int8, int32 or uint32 array."""
        signed = data.dtype.kind == "i"
        raw = np.ascontiguousarray(data).astype(data.dtype.newbyteorder("<")).view(np.uint8).reshape(-1)
        bits = 8 * data.dtype.itemsize
        return self.buffer(name, data.shape, bits, signed=signed, kind="constant", data=raw)

    def activation(self, op: g.Operator, t: g.Tensor, kind: str) -> Buffer:
        """A new packed buffer for `t`, an input or the output of `op`; several bytes are planes, the lowest first."""
        planes, shape = op.result_bytes if t is op.output else 1, packed_shape(t.shape, self.cfg)
        shape = (planes, *shape) if planes > 1 else shape
        self.activations[t.name] = self.buffer(t.name, shape, kind=kind)
        return self.activations[t.name]

    def as_host(self, op: g.Operator, t: g.Tensor) -> Buffer:
        """A new buffer in host layout for `t`, an input or the output of `op`."""
        kind, bits = "output" if t is op.output else "input", 8 * np.dtype(t.dtype).itemsize
        self.plain[t.name] = self.buffer(f"{op.name}.{kind}", t.shape, bits, signed=t.dtype != "uint8", kind=kind)
        return self.plain[t.name]

    def packed(self, t: g.Tensor) -> Buffer:
        """The packed buffer of `t`. Raises `ScheduleError` where that is not int8."""
        if t.dtype != "int8":
            raise ScheduleError("operands are not int8 in blocks of channels")
        return self.activations[t.name]

    def operand(self, op: g.Operator, k: int) -> Buffer:
        """The packed buffer of input `k`; a constant one is repeated to the output's shape.

        Raises `ScheduleError` for a constant that has another one, and for a buffer that is not int8.
        """
        t = op.inputs[k]
        if t.data is None:
            return self.packed(t)
        pairs = zip(t.data.shape[::-1], op.output.shape[::-1])
        if t.data.ndim > len(op.output.shape) or any(n not in (1, m) for n, m in pairs):
            raise ScheduleError(f"a constant of shape {t.data.shape} for a result of shape {op.output.shape}")
        whole = np.broadcast_to(t.data, op.output.shape)
        return self.constant(f"{op.name}.{t.name}", layout.pack_blocks(whole, self.cfg.batch, self.cfg.block_out))

    def symbol(self, t: g.Tensor, k: int = 0, *, step: int = 0, block: int = 1, within: int = 0) -> Symbol:
        """The symbol by which an address moves with element `k` of integer input `t`."""
        name = f"{t.name}[{k}]" if t.shape[0] > 1 else t.name
        return Symbol(name, self.limits[t.name], step, block, within)

    def part(self, t: g.Tensor, part: g.Tensor, channel: int) -> Region:
        """The region of `part`, channels of `t` from `channel` on, which begins a block; one batch of images."""
        whole, start = place(self.activations[t.name])
        shape = packed_shape(part.shape, self.cfg)
        start += channel // self.cfg.block_out * math.prod(shape[2:])
        return Region(part.name, shape, whole=whole, start=start)

    def parameters(self, name: str, **values: Any) -> Buffer:
        """A constant buffer of packed parameters; if all values are numbers, for one block of equal channels."""
        if not any(np.ndim(v) for key, v in values.items() if key != "contract"):
            values["bias"] = np.full(self.cfg.block_out, values["bias"])
        return self.constant(name, layout.pack_par(self.cfg, **values))

    def schedule(self, ready: Callable[..., Schedule], *args: object, **options: object) -> PrimFunc:
        """The function that a ready schedule makes of these arguments, in a tile of `tiles` or the cheapest one."""
        if self.tiles is None:
            return scheduled(ready, self.cfg, *args, **options)
        (func,) = scheduled_by(self.tiles, ready, self.cfg, *args, **options).mod.functions.values()
        return func

    def append(self, op: g.Operator, scheduled: Scheduled, buffers: Mapping[str, Buffer]) -> None:
        """Append the scheduled function that computes `op`; its output is parameter `out`."""
        build_into(self.program, scheduled, {**buffers, "out": self.packed(op.output)}, self.placement, name=op.name)


@cost.cached(256)  # a network has many layers of one shape
def scheduled(ready: Callable[..., Schedule], cfg: Config, *args: object, **options: object) -> PrimFunc:
    """The function that a ready schedule makes of these arguments, in the cheapest tile."""
    (func,) = ready(cfg, *args, **options).mod.functions.values()
    return func


def limits(ops: Sequence[g.Operator]) -> dict[str, int]:
    """How many values each symbol of `ops` may have, by the name of its tensor: numbers known when a run begins."""
    found: dict[str, int] = {}
    for t, limit in filter(None, (op.symbol for op in ops)):
        found[t.name] = min(limit, found.get(t.name, limit))
    return found


def own_rows(op: g.QConv2d | g.IntegerConv2d, cfg: Config) -> bool:
    """True if the convolution runs on DWGEMM: one output channel for every input channel."""
    return op.depthwise and len(op.weight) == op.groups and "depthwise" in cfg.extensions


def packed_shape(shape: tuple[int, ...], cfg: Config) -> tuple[int, ...]:
    """The shape of a packed activation (n, c, h, w) or (n, c); of more dimensions those before the last are rows."""
    n, c, *size = shape
    size = [math.prod(size[:-1]), size[-1]] if len(size) > 2 else size
    return (-(-n // cfg.batch), -(-c // cfg.block_out), *size, cfg.batch, cfg.block_out)


def packed_bytes(t: g.Tensor, cfg: Config) -> int:
    """Bytes of a tensor in blocks of channels; the elements of a vector are channels."""
    shape = t.shape if len(t.shape) > 1 else (1, *t.shape)
    return math.prod(packed_shape(shape, cfg)) * np.dtype(t.dtype).itemsize


def refuse(refused: object, reason: str) -> None:
    """Raise `Unfit` with the reason that a user reads, where `refused` is true."""
    if refused:
        raise Unfit(reason)


def need_layer(op: g.Linear) -> None:
    """Raise `Unfit` where weights exceed int8, or the input is a constant."""
    if op.x.data is not None:
        raise Unfit("its input is a constant")
    if op.weight.dtype != np.int8:
        raise Unfit(f"weights {op.weight.min()}..{op.weight.max()}: not within int8")


def channel_parameters(rec: Recording, op: g.Linear, bias: NDArray[np.int32] | np.integer) -> Buffer:
    """The parameters of a store of the accumulators of a layer: `bias` int32 (O,), requantisation and clamp.

    If `bias` is one number, they are those of one block of channels, whose scales must be equal.
    """
    values = zip(("multiplier", "exponent", "zero_point"), (*op.multipliers, op.zero_points))
    store = Requant(0, 0, 0, 0, op.low, op.high, op.contract or rec.contract)
    facts = asdict(store) | {name: value if np.ndim(bias) else int(value[0]) for name, value in values}
    return rec.parameters(f"{op.name}.par", **facts | {"bias": bias})


_Kind = TypeVar("_Kind", bound=g.Operator)


@dataclass(frozen=True, eq=False)
class Absorbed(g.Operator):
    """An operator whose work its only reader does, so that nothing computes it: the output lies in the input."""

    @property
    def viewed(self) -> g.Tensor:
        """The output."""
        return self.output


@dataclass(frozen=True, eq=False)
class AbsorbedPad(g.Pad, Absorbed):
    """A padding of channels that a sum makes."""


@dataclass(frozen=True, eq=False)
class AbsorbedSlice(g.StridedSlice, Absorbed):
    """A slice of channels that a depthwise convolution takes."""


def stand_in(kind: type[_Kind], op: g.Operator, **changes: Any) -> _Kind:
    """An operator of `kind` with the facts of `op`, but for `changes`."""
    return kind(**{**{each.name: getattr(op, each.name) for each in fields(op)}, **changes})


@dataclass(frozen=True, eq=False)
class AbsorbedRows(g.Take, Absorbed):
    """Rows of an image, each twice, that a convolution takes where they lie once."""


def whole_blocks(op: g.Concat, cfg: Config) -> bool:
    """True if every part of a concatenation of channels begins a block, so that it may be computed at its place."""
    parts = [t.shape[1] for t in op.inputs[:-1] if t.shape[1] % cfg.block_out]
    constant = any(t.data is not None for t in op.inputs)
    return op.axis == 1 and op.output.shape[0] <= cfg.batch and not parts and not constant


KEPT = 16  # the last one of so many parts of a scratchpad is for constants that stay


class OnChip:
    """The entries of scratchpads that a kernel takes: the least recently used ones, by `rec.placement`."""

    def __init__(self, rec: Recording):
        self.rec = rec
        self._taken, self._kept = list[tuple[Mem, int, int]](), list[tuple[Mem, int, int]]()

    @contextmanager
    def scope(self) -> Generator[None, None, None]:
        """Entries that are taken inside are free at the end, and count as used last."""
        taken, kept = len(self._taken), len(self._kept)
        try:
            yield
            for place in self._taken[taken:]:
                self.rec.placement.use(*place)
        finally:
            del self._taken[taken:], self._kept[kept:]

    def region(self, mem: Mem, size: int, low: int, high: int | None = None) -> int:
        """The first of `size` free entries within [low, high) of `mem`. Raises `Unfit` where there are none."""
        if size < 1:
            raise Unfit(f"0 entries of {mem.name}: they do not fit a step of the kernel")
        high = depth(self.rec.cfg, mem) if high is None else high
        try:
            base = self.rec.placement.region(mem, size, low, high, _of(mem, [*self._taken, *self._kept]))
        except CapacityError as exc:
            raise Unfit(str(exc)) from None
        self._taken.append((mem, base, size))
        return base

    def taken(self, mem: Mem, entry: int) -> bool:
        """Whether a tile or slots have this entry, in a scope that has not ended."""
        return any(entry in place for place in _of(mem, self._taken))

    def stays(self, mem: Mem, data: NDArray[np.integer]) -> tuple[int, bool]:
        """(First entry of constant `data`, whether it is there already): at the end of `mem`, if that has room.

        Raises `CapacityError` where nothing is free.
        """
        rec, key, size, entries = self.rec, (mem, data.tobytes()), len(data), depth(self.rec.cfg, mem)
        taken, found = _of(mem, self._taken), rec.kept.get(key, range(0))
        met = any(found.start < r.stop and r.start < found.stop for r in taken)
        there = key in rec.kept and not met and rec.placement.reserved(mem, found.start, size)
        if not there:
            low, apart = min(entries - size, entries - entries // KEPT), [*taken, *_of(mem, self._kept)]
            try:
                base = rec.placement.region(mem, size, low, entries, apart)
            except CapacityError:
                base = rec.placement.region(mem, size, 0, entries, apart)
            found = range(base, base + size)
            rec.placement.reserve(mem, base, size)
            others = {k: v for k, v in rec.kept.items() if k[0] != mem or v.stop <= base or found.stop <= v.start}
            rec.kept = {**others, key: found}
        self._kept.append((mem, found.start, size))
        return found.start, there

    def table(self, values: NDArray[np.integer]) -> tuple[int, bool]:
        """(Number of a table of 256 integers, whether it is there already): else it replaces the oldest one."""
        tables, content = self.rec.tables, values.tobytes()
        there = content in tables
        oldest = content if there else next(iter(tables), b"")
        number = tables.pop(oldest) if there or len(tables) == self.rec.cfg.tables else len(tables)
        tables[content] = number  # the latest last
        return number, there


def _of(mem: Mem, places: list[tuple[Mem, int, int]]) -> list[range]:
    return [range(base, base + size) for other, base, size in places if other is mem]
