"""Depthwise convolutions that are requantised: as a schedule, or recorded with rows that stay on chip.

Both are programs of their own for the timing model once, the latter with parts of several planes, of one and of a
quarter of one, and the fastest is taken: which it is depends on sizes that no estimate has exactly, as those of the
last loads and stores.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

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
from ..tvm_compat import Schedule
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

    A layer that is not `alone` is timed between two 1x1 convolutions: the first hides what comes before its products,
    and gives its results in an order of its own; the loads of the second wait for the last stores of the layer.
    """
    plan = plan_of(shape, cfg, pad_value)
    if plan is None:
        return None
    sizes = () if alone else (shape.size, shape.output)
    around = [
        conv2d_of(cfg, ConvShape(shape.n, shape.c, *size, shape.c), epilogue=[("requant", "par")]) for size in sizes
    ]
    best, least = None, _cycles(cfg, around, lambda rec, x: _tiles(rec, scheduled, x))
    rows = shape.output[0]
    for most in sorted({plan.most, *(n for n in (rows, rows // 4) if 0 < n < plan.most)}, reverse=True):
        each = replace(plan, most=most)
        cycles = _cycles(cfg, around, lambda rec, x, each=each: _rows(rec, each, pad_value, x))
        if cycles < least:
            best, least = each, cycles
    return best


def _cycles(cfg: Config, around: list[Schedule], layer: Callable[[Recording, Buffer | None], Buffer]) -> int:
    """Cycles of a layer, with those of the first of `around`, whose output it takes, and of the second behind it."""
    from ...sim.timing import predict

    rec, x = _recording(cfg), None
    for before in around[:1]:
        x = build_into(rec.program, before, {}, rec.placement, name="before")["out"]
    x = layer(rec, x)
    for after in around[1:]:
        build_into(rec.program, after, {"x": x}, rec.placement, name="after")
    return predict(rec.program, cfg, cost.timed_memory(cfg)).cycles


def _recording(cfg: Config) -> Recording:
    rec = Recording(cfg, "double", "depthwise")
    rec.program.uops_ahead = True
    return rec


def _tiles(rec: Recording, scheduled: Scheduled, x: Buffer | None) -> Buffer:
    found = build_into(rec.program, scheduled, {} if x is None else {"x": x}, rec.placement, name="depthwise")
    return found["out"]


def _rows(rec: Recording, plan: RowPlan, pad_value: int, x: Buffer | None = None) -> Buffer:
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
    return buffers["out"]
