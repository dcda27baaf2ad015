"""Element-wise chains on the ALU."""

from __future__ import annotations

from collections.abc import Sequence

from ...hw.config import Config
from ...hw.errors import CapacityError, ScheduleError
from ..intrin import ACC
from ..tile import MAX_VTHREADS
from ..tvm_compat import Schedule, te
from . import epilogue as ep


def elementwise(
    cfg: Config,
    entries: int,
    chain: Sequence[ep.Stage],
    *,
    dtype: str = "int32",
    tile: int | None = None,
    vthreads: int = 2,
) -> Schedule:
    """The schedule of `chain` applied to tensor `x`, e.g. `[("add", "y"), ("shr", 1), ("max", 0)]`.

    A stage is add, sub, mul, max, min, shr or shl with a number (16 bits) or the name of another tensor. All
    tensors have the shape (entries, batch, block_out); any packed tensor with blocks of `block_out` can be seen so.
    `dtype` is int32, or int8 (which needs the extension `acc8`).

    Parameters of the program: inputs `x` and the named tensors in order, output `out`, int8 (the low 8 bits). `tile`
    is the number of entries per tile (default: what fits), not necessarily a divisor.

    Raises `ScheduleError` for an impossible chain or tile, `CapacityError` where no tile fits.
    """
    ep.check(chain, ("x",))
    names = ep.operand_names(chain)
    if dtype not in ("int8", "int32"):
        raise ScheduleError(f"elementwise: dtype {dtype!r} must be int8 or int32")
    if not 1 <= vthreads <= MAX_VTHREADS:
        raise ScheduleError(f"elementwise: vthreads = {vthreads}: must be 1 to {MAX_VTHREADS}")
    if entries < 1 or (tile is not None and tile < 1):
        raise ScheduleError(f"elementwise: entries = {entries}, tile = {tile}: must be at least 1")
    vthreads = min(vthreads, entries)
    if tile is None:
        operands = min(cfg.acc_depth, cfg.inp_depth) // (vthreads * max(1, len(names)))  # see Storage.read_by_alu
        tile = min(-(-entries // vthreads), cfg.acc_depth // (vthreads * (1 + len(names))), operands)
    if tile < 1:
        raise CapacityError(f"elementwise: {1 + len(names)} tensors do not fit the accumulators of {cfg.name}")
    tensors = {name: te.placeholder((entries, cfg.batch, cfg.block_out), dtype, name) for name in ("x", *names)}
    loaded = {name: _loaded(tensor) for name, tensor in tensors.items()}
    last, stages = loaded["x"], []
    for k, (op, other) in enumerate(chain):
        stages.append(f"{op}{k}")
        last = _stage(last, op, loaded[other] if isinstance(other, str) else other, stages[-1])
    out = te.compute(last.shape, lambda *axes: last(*axes).astype("int8"), name="out")
    sch = Schedule(te.create_prim_func([*tensors.values(), out]))
    share = -(-entries // (tile * vthreads))
    thread, loop, _ = sch.split(sch.get_loops(sch.get_sblock("out"))[0], [vthreads, share, tile])
    if vthreads > 1:
        sch.bind(thread, "vthread.x")
    for name in [*reversed(stages), *(f"{name}_loaded" for name in tensors)]:
        block = sch.get_sblock(name)
        sch.set_scope(block, 0, ACC)
        sch.compute_at(block, loop, preserve_unit_loops=True)
    return sch


def _loaded(tensor):
    return te.compute(tensor.shape, lambda *axes: tensor(*axes).astype("int32"), name=f"{tensor.op.name}_loaded")


def _stage(tensor, op: str, other, name: str):
    return te.compute(tensor.shape, lambda *axes: ep.apply(op, tensor(*axes), other, axes), name=name)
