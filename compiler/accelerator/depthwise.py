"""Depthwise convolutions that are requantised: as a schedule, or recorded with rows that stay on chip.

Both are programs of their own for the timing model once, and the faster one is taken: which it is depends on sizes that
no estimate has exactly, as those of the last loads and stores of small layers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ...hw.config import Config
from ...runtime.buffer import Buffer
from ...runtime.program import Program
from .. import cost
from .. import graph as g
from ..api import Scheduled, build, build_into
from ..conv_shape import ConvShape
from ..intrin import PAR_WORDS
from ..schedule.conv2d import conv2d_of
from ..schedule.depthwise import depthwise_of
from .direct import depthwise_rows
from .direct.depthwise_plan import RowPlan, plan_of
from .recording import Recording


def lower(
    rec: Recording, op: g.QConv2d | g.QDense, scheduled: Scheduled, buffers: Mapping[str, Buffer], pad_value: int = 0
) -> None:
    """Append a convolution of the buffers `x`, `w` and `par`, for which `scheduled` is the schedule."""
    plan = faster_rows(rec.cfg, op.shape, pad_value, scheduled, alone=False)
    if plan is None:
        rec.append(op, scheduled, buffers)
    else:
        out = {"out": rec.activations[op.output.name]}
        depthwise_rows.lower(rec, plan, {**buffers, **out}, pad_value)


def depthwise_program(cfg: Config, shape: ConvShape, pad_value: int = 0) -> Program:
    """The program of one layer, requantised: inputs `x`, `w` and `par`, packed as for `depthwise`; output `out`.

    Raises the errors of `depthwise`, and `UnsupportedError` for a configuration that has no circuit, as networks do.
    """
    scheduled = depthwise_of(cfg, shape, pad_value=pad_value, epilogue=[("requant", "par")])
    plan = faster_rows(cfg, shape, pad_value, scheduled, alone=True)
    if plan is None:
        return build(scheduled, cfg)
    rec = _recording(cfg)
    _rows(rec, plan, pad_value)
    return rec.program


@cost.cached(256)  # a network has many layers of one shape
def faster_rows(cfg: Config, shape: ConvShape, pad_value: int, scheduled: Scheduled, alone: bool) -> RowPlan | None:
    """The plan with rows that stay on chip; None where there is none, or where `scheduled` is as fast.

    A layer that is not `alone` is timed behind a 1x1 convolution, which hides what comes before the first products, and
    whose results come in an order of its own.
    """
    plan = plan_of(shape, cfg, pad_value)
    if plan is None:
        return None
    same = ConvShape(shape.n, shape.c, *shape.size, shape.c)
    before = None if alone else conv2d_of(cfg, same, epilogue=[("requant", "par")])
    rows = _cycles(cfg, before, lambda rec, x: _rows(rec, plan, pad_value, x))
    tiles = _cycles(cfg, before, lambda rec, x: _tiles(rec, scheduled, x))
    return plan if rows < tiles else None


def _cycles(cfg: Config, before: Scheduled | None, after: Callable[[Recording, Buffer | None], None]) -> int:
    """Cycles of a layer, with those of the one `before` whose output it takes, if any."""
    from ...sim.timing import predict

    rec = _recording(cfg)
    x = None if before is None else build_into(rec.program, before, {}, rec.placement, name="before")["out"]
    after(rec, x)
    return predict(rec.program, cfg, cost.timed_memory(cfg)).cycles


def _recording(cfg: Config) -> Recording:
    rec = Recording(cfg, "double", "depthwise")
    rec.program.uops_ahead = True
    return rec


def _tiles(rec: Recording, scheduled: Scheduled, x: Buffer | None) -> None:
    build_into(rec.program, scheduled, {} if x is None else {"x": x}, rec.placement, name="depthwise")


def _rows(rec: Recording, plan: RowPlan, pad_value: int, x: Buffer | None = None) -> None:
    cfg, shape, block = plan.cfg, plan.shape, plan.cfg.block_out
    images, entry = -(-shape.n // cfg.batch), (cfg.batch, block)
    buffers = {
        "x": x or rec.buffer("x", (images, plan.blocks, *shape.size, *entry), cfg.inp_bits),
        "w": rec.buffer("w", (plan.weights, block, block), cfg.wgt_bits),
        "par": rec.buffer("par", (plan.blocks, block, PAR_WORDS), 32, signed=False),
        "out": rec.buffer("out", (images, plan.blocks, *shape.output, *entry), kind="output"),
    }
    with rec.program.origin("depthwise"):
        depthwise_rows.lower(rec, plan, buffers, pad_value)
