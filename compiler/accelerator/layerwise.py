"""The accelerator without the extension `requant`: layers one by one, requantised by the host.

Every convolution of one group and every dense layer is a program of its own. Between two programs the host works in
plain layout (NCHW): it packs a layer's input into blocks, joins the four byte planes of its int32 accumulators, and
requantises. Biases are added on the device, corrected for the input's zero point. LOADP writes padding of that zero
point where the configuration has the extension `pad_value`; else the host pads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...hw.config import Config
from ...hw.errors import CapacityError, EncodingError, ScheduleError
from ...hw.units import striped
from ...runtime import layout
from ...runtime.executable import HostStep, LaunchStep
from .. import cost
from .. import graph as g
from ..api import build
from ..limits import activations_refused
from ..schedule.conv2d import conv2d_of
from ..schedule.dense import dense_of
from ..schedule.epilogue import PLANES
from ..schedule.layer import scheduled_by
from ..target.host import HostModel
from ..target.module import ExecModule, Memory, Pattern, Refusal
from ..target.steps import Steps


def memories(cfg: Config) -> tuple[Memory, ...]:
    """The scratchpads of `cfg` and its DRAM, from the innermost level on."""
    beat = cost.port_rate(cfg)
    ternary = (Memory("twgt", cfg.twgt_bytes, beat, ("weights",)),) if "ternary" in cfg.units else ()
    return (
        Memory("inp", cfg.inp_bytes, beat, ("activations",)),
        Memory("wgt", cfg.wgt_bytes, beat, ("weights",)),
        *ternary,
        Memory("acc", cfg.acc_bytes, beat, ("accumulators",)),
        Memory("DRAM", 512 << 20, beat, ("activations", "weights", "parameters")),
    )


class LayerAccelerator(ExecModule):
    """Convolutions of one group and dense layers; the host requantises their accumulators."""

    name = "accelerator, layer by layer"

    def __init__(self, cfg: Config, host: HostModel | None = None):
        self.cfg, self.host = cfg, host or HostModel()
        self.memories = memories(cfg)
        self.patterns = tuple(Pattern(k.__name__, (k,), self.refusal) for k in (g.QConv2d, g.QDense))

    def refusal(self, op: g.Divisible) -> str:
        """Reason why the module cannot run the layer; empty if it can."""
        if op.shape.groups > 1:
            return f"it has {op.shape.groups} groups"
        if refused := activations_refused(self.cfg):
            return refused
        if op.ternary:
            return f"{op.ternary} ternary channels: only whole networks run on unit ternary"
        limit = 1 << self.cfg.wgt_bits - 1
        low, high = int(op.weight.min()), int(op.weight.max())
        if low < -limit or high >= limit:
            return f"weights {low}..{high}: wgt_bits is {self.cfg.wgt_bits}, which holds {-limit}..{limit - 1}"
        return ""

    def seconds(self, ops: Sequence[g.Operator]) -> float:
        """The longer of micro-ops and transfers, weights included, and the host's work on accumulators."""
        total = 0.0
        for op in ops:
            values = op.output.nbytes
            weights = op.weight.nbytes if isinstance(op, g.Linear) else 0
            moved = 4 * values + weights + sum(t.nbytes for t in op.inputs)
            cycles = cost.roofline(striped(self.cfg), op.macs / self.cfg.macs_per_cycle, moved) + cost.OPERATOR
            host = (self.host.byte * values + self.host.dispatch) / self.host.clock
            total += cycles / cost.CLOCK + host + cost.LAUNCH_SECONDS
        return total

    def transfer_seconds(self, t: g.Tensor) -> float:
        """The host's time to change the layout; the time of its call is part of the layer's."""
        return self.host.moved_byte * t.nbytes / self.host.clock

    def generate(self, steps: Steps, ops: Sequence[g.Divisible]) -> None:
        """Append the steps of each layer. Raises `Refusal` for layers that do not fit the scratchpads."""
        refused = dict[str, str]()
        for op in ops:
            try:
                _append(steps, op)
            except (CapacityError, EncodingError, ScheduleError) as exc:
                refused[op.name] = str(exc)
        if refused:
            raise Refusal(refused)


def _append(steps: Steps, op: g.Divisible) -> None:
    """A convolution or dense layer: pack, launch, join accumulators, requantise."""
    cfg, x, shape = steps.cfg, op.x.name, op.shape
    fill = op.x.zero_point if any(shape.pads) else 0
    if fill and "pad_value" not in cfg.extensions:
        top, left, bottom, right = shape.pads
        shape = replace(shape, h=shape.h + top + bottom, w=shape.w + left + right, pads=(0, 0, 0, 0))
        attrs = {"pads": [[0, 0], [0, 0], [top, bottom], [left, right]], "value": fill}
        x, fill = steps.host(f"{op.name}.pad", "pad", attrs, [x], (shape.n, shape.c, shape.h, shape.w)), 0
    images = len(op.x.shape) == 4
    ready, pack = (conv2d_of, layout.pack_weights) if images else (dense_of, layout.pack_dense_weights)
    options = {"pad_value": fill} if images else {}
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
    last = op.calls(steps.graph.contract)[-1]
    name = f"{op.name}.requantise"
    steps.steps.append(HostStep(name, last.name, [acc], [op.output.name], last.attrs, last.constants))
