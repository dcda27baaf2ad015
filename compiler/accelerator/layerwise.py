"""The module of a target that leaves requantisation to the host: for configurations without the extension `requant`.

Every convolution of one group and every dense layer is a program of its own. Between two programs the host works in
plain layout (NCHW): it packs a layer's input into blocks, joins the four byte planes of its int32 accumulators, and
requantises. Biases are added on the device, corrected for the input's zero point. Padding has the value of
that zero point: LOADP writes it where the configuration has the extension `pad_value`, else the host pads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ...hw.config import Config
from ...hw.errors import CapacityError, EncodingError, ScheduleError
from ...runtime import layout
from ...runtime.executable import HostStep, LaunchStep
from ...runtime.program import Program
from .. import graph as g
from ..api import build
from ..graph.host_calls import host_calls
from ..limits import activations_refused
from ..schedule.conv2d import conv2d_of
from ..schedule.dense import dense_of
from ..schedule.epilogue import PLANES
from ..schedule.layer import Tiles, scheduled_by
from ..target.module import Refusal
from ..target.steps import Steps


def refusal(op: g.Operator, cfg: Config) -> str:
    """Reason why `cfg` cannot run the layer; empty if it can."""
    if isinstance(op, g.QConv2d) and op.groups > 1:
        return f"it has {op.groups} groups"
    if activations_refused(cfg):
        return activations_refused(cfg)
    assert isinstance(op, g.Divisible)
    if op.ternary:
        return f"{op.ternary} ternary channels: only whole networks run on unit ternary"
    limit = 1 << cfg.wgt_bits - 1
    low, high = int(op.weight.min()), int(op.weight.max())
    if low < -limit or high >= limit:
        return f"weights {low}..{high}: wgt_bits is {cfg.wgt_bits}, which holds {-limit}..{limit - 1}"
    return ""


def generate(steps: Steps, ops: Sequence[g.Operator]) -> None:
    """Append the steps of layers, one after the other. Raises `Refusal` for those that do not fit the scratchpads."""
    refused = {}
    for op in ops:
        assert isinstance(op, (g.QConv2d, g.QDense))
        try:
            _layer(steps, op)
        except (CapacityError, EncodingError, ScheduleError) as exc:
            refused[op.name] = str(exc)
    if refused:
        raise Refusal(refused)


def _layer(steps: Steps, op: g.QConv2d | g.QDense) -> None:
    """A convolution or dense layer: pack, launch, accumulators, requantise."""
    cfg, x, shape, on_host = steps.cfg, op.x.name, op.x.shape, _pads_on_host(op, steps.cfg)
    if on_host and isinstance(op, g.QConv2d):
        top, left, bottom, right = op.pads
        shape = (*shape[:2], shape[2] + top + bottom, shape[3] + left + right)
        attrs = {"pads": [[0, 0], [0, 0], [top, bottom], [left, right]], "value": op.x.zero_point}
        x = steps.host(f"{op.name}.pad", "pad", attrs, [x], shape)
    program = layer_program(op, cfg, padded=on_host, tiles=steps.tiles)
    buffers = program.buffers
    blocks = {"batch": cfg.batch, "block": cfg.block_in}
    bind = {"x": steps.host(f"{op.name}.pack", "pack", blocks, [x], buffers["x"].shape)}
    for key, data in layer_constants(op, cfg).items():
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


def _pads_on_host(op: g.Linear, cfg: Config) -> bool:
    padded = isinstance(op, g.QConv2d) and any(op.pads)
    return padded and op.x.zero_point != 0 and "pad_value" not in cfg.extensions


def layer_program(
    op: g.QConv2d | g.QDense, cfg: Config, *, padded: bool = False, tiles: Tiles | None = None
) -> Program:
    """The program of one layer: buffers `x`, `w`, `b` (biases), and the accumulators' bytes `OUT0` to `OUT3`.

    With `padded` the input arrives padded.
    """
    shape, after = op.shape, {"epilogue": [("add", "b")], "planes": True}
    if isinstance(op, g.QDense):
        return build(scheduled_by(tiles, dense_of, cfg, shape, **after), cfg, name=op.name)
    if padded:
        top, left, bottom, right = shape.pads
        shape = replace(shape, h=shape.h + top + bottom, w=shape.w + left + right, pads=(0, 0, 0, 0))
    fill = op.x.zero_point if any(shape.pads) else 0
    return build(scheduled_by(tiles, conv2d_of, cfg, shape, pad_value=fill, **after), cfg, name=op.name)


def layer_constants(op: g.Linear, cfg: Config) -> dict[str, np.ndarray]:
    """Packed weights `w` and biases `b` of a layer's program."""
    pack = layout.pack_weights if isinstance(op, g.QConv2d) else layout.pack_dense_weights
    return {"w": pack(op.weight, cfg), "b": layout.pack_bias(op.corrected_bias, cfg)}
