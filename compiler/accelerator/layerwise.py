"""The module of a target that leaves requantisation to the host: for configurations without the extension `requant`.

Every convolution of one group and every dense layer is a program of its own. Between two programs the host works in
plain layout (NCHW): it packs a layer's input into blocks, joins the four byte planes of its int32 accumulators, and
requantises. Biases are added on the device, corrected for the input's zero point. Padding has the value of
that zero point: LOADP writes it where the configuration has the extension `pad_value`, else the host pads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ...hw.config import Config
from ...hw.errors import CapacityError, EncodingError, ScheduleError
from ...runtime import layout
from ...runtime.executable import HostStep, LaunchStep
from .. import graph as g
from ..api import build
from ..graph.host_calls import host_calls
from ..limits import activations_refused
from ..schedule.conv2d import conv2d_of
from ..schedule.dense import dense_of
from ..schedule.epilogue import PLANES
from ..schedule.layer import scheduled_by
from ..target.module import Refusal
from ..target.steps import Steps


def refusal(op: g.Divisible, cfg: Config) -> str:
    """Reason why `cfg` cannot run the layer; empty if it can."""
    if op.shape.groups > 1:
        return f"it has {op.shape.groups} groups"
    if activations_refused(cfg):
        return activations_refused(cfg)
    if op.ternary:
        return f"{op.ternary} ternary channels: only whole networks run on unit ternary"
    limit = 1 << cfg.wgt_bits - 1
    low, high = int(op.weight.min()), int(op.weight.max())
    if low < -limit or high >= limit:
        return f"weights {low}..{high}: wgt_bits is {cfg.wgt_bits}, which holds {-limit}..{limit - 1}"
    return ""


def generate(steps: Steps, ops: Sequence[g.Divisible]) -> None:
    """Append the steps of layers, one after the other. Raises `Refusal` for those that do not fit the scratchpads."""
    refused = {}
    for op in ops:
        try:
            _layer(steps, op)
        except (CapacityError, EncodingError, ScheduleError) as exc:
            refused[op.name] = str(exc)
    if refused:
        raise Refusal(refused)


def _layer(steps: Steps, op: g.Divisible) -> None:
    """A convolution or dense layer: pack, launch, accumulators, requantise."""
    cfg, x, shape = steps.cfg, op.x.name, op.shape
    fill = op.x.zero_point if any(shape.pads) else 0
    if fill and "pad_value" not in cfg.extensions:
        top, left, bottom, right = shape.pads
        shape = replace(shape, h=shape.h + top + bottom, w=shape.w + left + right, pads=(0, 0, 0, 0))
        attrs = {"pads": [[0, 0], [0, 0], [top, bottom], [left, right]], "value": fill}
        x, fill = steps.host(f"{op.name}.pad", "pad", attrs, [x], (shape.n, shape.c, shape.h, shape.w)), 0
    images = len(op.x.shape) == 4
    ready, pack = (conv2d_of, layout.pack_weights) if images else (dense_of, layout.pack_dense_weights)
    options: dict[str, Any] = {"pad_value": fill} if images else {}
    scheduled = scheduled_by(steps.tiles, ready, cfg, shape, epilogue=[("add", "b")], planes=True, **options)
    program = build(scheduled, cfg, name=op.name)
    buffers = program.buffers
    blocks = {"batch": cfg.batch, "block": cfg.block_in}
    bind = {"x": steps.host(f"{op.name}.pack", "pack", blocks, [x], buffers["x"].shape)}
    for key, data in ("w", pack(op.weight, cfg)), ("b", layout.pack_bias(op.corrected_bias, cfg)):
        bind[key] = steps.declare(f"{op.name}.{key}", data.shape, str(data.dtype), "constant", data)
    for key in PLANES:
        bind[key] = steps.declare(f"{op.name}.{key}", buffers[key].shape, "int8")
    steps.steps.append(LaunchStep(op.name, program.finish(), bind, op.macs))
    n, c, *_ = op.output.shape
    planes, attrs = [bind[key] for key in PLANES], {"n": n, "c": c}
    acc = steps.host(f"{op.name}.acc", "accumulators", attrs, planes, op.output.shape, "int32")
    last = host_calls(op, steps.graph.contract)[-1]
    name = f"{op.name}.requantise"
    steps.steps.append(HostStep(name, last.name, [acc], [op.output.name], last.attrs, last.constants))
