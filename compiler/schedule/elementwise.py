"""The ready schedule of element-wise chains on the ALU: arithmetic on tensors of equal shape, entry by entry.

`_Entries` ranks the tiles (numbers of entries): it has its own cost model.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from ...hw.config import Config
from ...hw.errors import CapacityError, ScheduleError
from .. import cost
from ..conv_shape import ConvShape
from ..intrin import ACC, PAR, PAR_WORDS
from ..tile import MAX_VTHREADS, Tile
from ..tvm_compat import Schedule, te
from . import epilogue as ep
from .layer import OnAlu, TileSearch
from .tiling import Work, sizes

_NO_STAGES: Mapping[str, Sequence[ep.Stage]] = {}


def elementwise(
    cfg: Config,
    entries: int,
    chain: Sequence[ep.Stage],
    *,
    operands: Mapping[str, Sequence[ep.Stage]] = _NO_STAGES,
    dtype: str = "int32",
    tile: int | None = None,
    vthreads: int = 2,
    search: TileSearch | None = None,
) -> Schedule:
    """The schedule of `chain` applied to tensor `x`, e.g. `[("add", "y"), ("shr", 1), ("max", 0)]`.

    A stage is add, sub, mul, max, min, shr or shl with a number (16 bits) or the name of another tensor. All tensors
    have the shape (entries, batch, block_out); any packed tensor with blocks of `block_out` can be viewed in this
    shape. `dtype` is int32, or int8 (which needs the extension `acc8`). `operands` are chains on `x` and on the named
    tensors, computed before `chain`.

    A stage `rescale`, or at the end `requant`, takes parameters of one block of channels, uint32 (1, block_out, 3),
    for every entry. For example, `operands={"x": [("shl", 19)], "y": [("rescale", "r")]}` and `chain=[("add", "y"),
    ("requant", "q")]` is the sum of two tensors of different scale.

    Parameters of the program: inputs `x` and the names in stages, in order, output `out`, int8 (the low 8 bits, unless
    requantised). `tile` is the number of entries per tile, not necessarily a divisor (default: the choice of
    `search`, else the cheapest).

    Raises `ScheduleError` for an impossible chain or tile, `CapacityError` if no tile fits.
    """
    stages = [*(stage for each in operands.values() for stage in each), *chain]
    for each in (*operands.values(), chain):
        ep.check(each, ("x",))
    names = ep.accumulator_operands(stages)
    _check(operands, names, dtype, entries, tile, vthreads)
    shape = (entries, cfg.batch, cfg.block_out)
    tensors = {name: te.placeholder(shape, dtype, name) for name in ("x", *names)}
    packed = [name for name in ep.operand_names(stages) if name not in names]
    scales = {name: te.placeholder((1, cfg.block_out, PAR_WORDS), "uint32", name) for name in packed}
    work = _ChainTensors({name: _loaded(tensor) for name, tensor in tensors.items()}, scales)
    for name, each in operands.items():
        work.append(name, each, f"{name}_")
    out = work.append("x", chain, "")
    func = te.create_prim_func([*tensors.values(), *scales.values(), out])
    whole = ConvShape(entries * cfg.batch, cfg.block_out, 1, 1, cfg.block_out, groups=cfg.block_out)
    operations = len([op for op, _ in stages if op != "requant"])
    size = replace(Work.of(whole, cfg, depthwise=True), operands=len(names), alu_ops=operations)
    entry_bytes = cfg.acc_entry_bytes // (4 if dtype == "int8" else 1)
    layer = _Entries(cfg, func, size, partial(_arrange, work), entry_bytes)
    threads = min(vthreads, entries)
    return layer.scheduled(tile if tile is None else _entries(tile, threads), threads, search)


def _entries(tile: int, vthreads: int) -> Tile:
    return Tile(n=tile, thread="n", vthreads=vthreads)


@dataclass(frozen=True)
class _Entries(OnAlu):
    """Entries of accumulators; `operands` + 1 tensors are loaded.

    `entry_bytes` is the size of a tensor's entry in DRAM.
    """

    entry_bytes: int

    def ranked(self, vthreads: int) -> Iterable[tuple[Tile, float]]:
        cfg, work = self.cfg, self.work
        largest, tiles = _largest(cfg, work, vthreads), []
        for size in {largest, *map(int, sizes(work.n, divisors_only=False))}:
            steps = -(-work.n // size)
            if size == largest or (size < largest and steps >= vthreads):
                # Loads into accumulators wait for the ALU, and the ALU for their first data.
                loads = (1 + work.operands) * cost.transfer(cfg, size * self.entry_bytes) + cost.round_trip()
                store = cost.transfer(cfg, size * cfg.out_entry_bytes) + cost.round_trip()
                step = loads + work.alu_ops * cost.computed(size)
                cycles = steps * cost.overlapped(step, store, vthreads) + step + store
                tiles.append((_entries(size, vthreads), cycles))
        return sorted(tiles, key=lambda pair: (pair[1], -pair[0].n))


def _check(operands, names: Sequence[str], dtype: str, entries: int, tile: int | None, vthreads: int) -> None:
    for name in operands:
        if name not in ("x", *names):
            raise ScheduleError(f"elementwise: operand {name!r} must be one of {', '.join(('x', *names))}")
    if any(op == "requant" for each in operands.values() for op, _ in each):
        raise ScheduleError("elementwise: only the chain may end with requant, not an operand")
    if dtype not in ("int8", "int32"):
        raise ScheduleError(f"elementwise: dtype {dtype!r} must be int8 or int32")
    if not 1 <= vthreads <= MAX_VTHREADS:
        raise ScheduleError(f"elementwise: vthreads = {vthreads}: must be 1 to {MAX_VTHREADS}")
    if entries < 1 or (tile is not None and tile < 1):
        raise ScheduleError(f"elementwise: entries = {entries}, tile = {tile}: must be at least 1")


def _largest(cfg: Config, work: Work, vthreads: int) -> int:
    read = min(cfg.acc_depth, cfg.inp_depth) // (vthreads * max(1, work.operands))  # see Storage.read_by_alu
    tile = min(-(-work.n // vthreads), cfg.acc_depth // (vthreads * (1 + work.operands)), read)
    if tile < 1:
        raise CapacityError(f"elementwise: {1 + work.operands} tensors do not fit the accumulators of {cfg.name}")
    return tile


class _ChainTensors:
    """Tensor expressions of the stages: `blocks` of accumulators in order, `readers` of packed parameters."""

    def __init__(self, loaded: dict, scales: dict):
        self.tensors, self.scales = loaded, scales
        self.blocks = [tensor.op.name for tensor in loaded.values()]
        self.readers: list[str] = []

    def append(self, name: str, chain: Sequence[ep.Stage], prefix: str):
        """Apply `chain` to the tensor `name`, replace it, and return it; without a prefix it is the output."""
        last = self.tensors[name]
        for k, (op, other) in enumerate(chain):
            block = "out" if op == "requant" else f"{prefix}{op}{k}"
            self.blocks.append(block)
            if op in ep.PAR_OPS:
                self.readers.append(block)
                value = partial(ep.scaled, op, last, self.scales[other], lambda axes: (0, axes[-1]))
            else:
                value = partial(_applied, op, last, self.tensors[other] if isinstance(other, str) else other)
            last = te.compute(last.shape, value, name=block)
        if not prefix and last.op.name != "out":
            self.blocks.append("out")
            last = ep.low_byte(last, "out")
        self.tensors[name] = last
        return last


def _applied(op: str, tensor, other, *axes):
    return ep.apply(op, tensor(*axes), other, axes)


def _loaded(tensor):
    return te.compute(tensor.shape, lambda *axes: tensor(*axes).astype("int32"), name=f"{tensor.op.name}_loaded")


def _arrange(work: _ChainTensors, sch: Schedule, tile: Tile) -> None:
    thread, loop, _ = sch.split(sch.get_loops(sch.get_sblock("out"))[0], [tile.vthreads, None, tile.n])
    if tile.vthreads > 1:
        sch.bind(thread, "vthread.x")
    for name in work.readers:
        sch.cache_read(sch.get_sblock(name), 1, PAR)  # stays before all loops
    for name in reversed([block for block in work.blocks if block != "out"]):
        block = sch.get_sblock(name)
        sch.set_scope(block, 0, ACC)
        sch.compute_at(block, loop, preserve_unit_loops=True)
