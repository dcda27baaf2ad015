"""The accelerator in a target: whole parts of a network in one launch, or layers one by one without `requant`."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ...hw.config import Config
from ...hw.units import striped
from .. import cost
from .. import graph as g
from ..graph.pairs import pair_columns
from ..graph.simplify import moved_states, simplify
from ..limits import most_padding
from ..target.host import HostModel
from ..target.module import ExecModule, Memory, Pattern
from ..target.steps import Steps
from . import elementwise, layers, layerwise
from .arena import is_view, packed_bytes
from .direct import lookup, max_pool, repeat
from .network_launch import LOWER, NetworkLaunch
from .wide import split_weights


def _memories(cfg: Config) -> tuple[Memory, ...]:
    beat = float(cost.port_bytes(cfg))
    return (
        Memory("inp", cfg.inp_bytes, beat, ("activations",)),
        Memory("wgt", cfg.wgt_bytes, beat, ("weights",)),
        Memory("acc", cfg.acc_bytes, beat, ("accumulators",)),
        Memory("DRAM", 512 << 20, beat, ("activations", "weights", "parameters")),
    )


class Accelerator(ExecModule):
    """Consecutive operators become one launch: activations stay in its memory in blocks of channels.

    Needs the extensions `requant`, `acc8` and `pad_value`, int8 operands and blocks of one size.
    """

    name = "accelerator"

    def __init__(self, cfg: Config, host: HostModel | None = None):
        self.cfg, self.host = cfg, host or HostModel()
        self.memories = _memories(cfg)
        self.transformations = simplify, moved_states, self._narrow, self._pairs
        kinds = (*(kind for kind in LOWER if kind is not g.Lookup or lookup.possible(cfg)), g.Reshape, g.Transpose)
        self.patterns = tuple(Pattern(kind.__name__, (kind,), self.refusal) for kind in kinds)

    def _narrow(self, graph: g.Graph) -> g.Graph:
        return split_weights(graph, self.cfg)

    def _pairs(self, graph: g.Graph) -> g.Graph:
        cfg = self.cfg
        able = cfg.batch == 1 and cfg.block_in == cfg.block_out and "overwrite" in cfg.extensions
        return pair_columns(graph, cfg.block_in) if able else graph

    def refusal(self, op: g.Operator) -> str:
        """Reason why the module cannot run the operator; empty if it can."""
        if is_view(op):
            return ""
        if isinstance(op, g.Linear) and op.weight.dtype != np.int8:
            return f"weights {op.weight.min()}..{op.weight.max()}: not within int8"
        checks = {g.QConv2d: _refuses_conv, g.Pool: _refuses_pool, g.Mean: _refuses_mean}
        checks |= {
            g.Concat: _refuses_concat,
            g.StridedSlice: _refuses_slice,
            g.Binary: _refuses_binary,
            g.Pairwise: _refuses_binary,
            g.Take: repeat.refusal,
            g.Lookup: lookup.refusal,
        }
        if isinstance(op, (g.Reshape, g.Transpose)):
            return "it moves elements"
        for kind, check in checks.items():
            if isinstance(op, kind) and (why := check(op, self.cfg)):
                return why
        return ""

    def seconds(self, ops: Sequence[g.Operator]) -> float:
        """Roofline estimate: the longer of micro-ops and transfers, and the cost of a program."""
        return sum(self._cycles(op) for op in ops) / cost.CLOCK

    def _cycles(self, op: g.Operator) -> float:
        if is_view(op):
            return 0.0
        cfg = self.cfg
        nbytes = sum(packed_bytes(t, cfg) for t in (*op.inputs, op.output))
        micro_ops = packed_bytes(op.output, cfg) / cfg.block_out / cfg.batch
        if isinstance(op, g.Linear):
            taps, channels = op.weight[0, 0].size, op.weight.shape[1]
            if isinstance(op, g.QConv2d):
                channels *= layers.groups_per_part(op, cfg) if not layers.own_rows(op, cfg) else 1
            micro_ops *= taps * -(-channels // cfg.block_in)
            if isinstance(op, g.QConvTranspose2d):
                micro_ops /= math.prod(op.strides)
            nbytes += len(op.weight) * taps * channels
        elif isinstance(op, g.MaxPool) and (tiles := max_pool.tiles_of(op, cfg)) is not None:
            micro_ops = tiles.cycles
        elif isinstance(op, g.Pool):
            micro_ops *= cost.TAP * op.shape.taps
        elif isinstance(op, g.Lookup):
            micro_ops = lookup.cycles(int(micro_ops), cfg)
        elif isinstance(op, (g.Mul, g.Prelu)):
            micro_ops *= cost.PRODUCT
        else:
            micro_ops *= cost.ELEMENTWISE
        return cost.roofline(striped(cfg), micro_ops, nbytes) + cost.OPERATOR

    def transfer_seconds(self, t: g.Tensor) -> float:
        """The host's change of layout, and its share in starting a launch."""
        nbytes = t.nbytes + packed_bytes(t, self.cfg)
        return self.host.moved_seconds(nbytes) + cost.LAUNCH_SECONDS

    def generate(self, steps: Steps, ops: Sequence[g.Operator]) -> None:
        """Append packing, one launch, and unpacking of the tensors that others read."""
        if all(map(is_view, ops)):
            for op in ops:
                steps.kernels(op)
        else:
            NetworkLaunch(steps, ops).generate()


def _refuses_conv(op: g.QConv2d, cfg: Config) -> str:
    if max(op.pads) > most_padding(cfg):
        return f"padding {op.pads}: at most {most_padding(cfg)}"
    return ""


def _refuses_binary(op: g.Binary | g.Pairwise, cfg: Config) -> str:
    if len(op.output.shape) not in (2, 4):
        return f"{len(op.output.shape)} dimensions"
    wrong = [t.shape for t in op.inputs if t.data is None and t.shape != op.output.shape]
    return f"operand of shape {wrong[0]} is broadcast" if wrong else ""


def _refuses_concat(op: g.Concat, cfg: Config) -> str:
    n, *_ = op.output.shape
    known = (1, 2, 3) if len(op.output.shape) == 4 else (1,)
    if op.axis not in known or len(op.output.shape) not in (2, 4) or n > cfg.batch or op.output.dtype != "int8":
        return f"{op.output.dtype} {op.output.shape} along axis {op.axis}"
    if op.axis > 1:
        if any(t.data is not None for t in op.inputs):
            return "a constant part"
        return _refuses_copies(sum(_copies(op.output, t, cfg) for t in op.inputs))
    parts = [t.shape[1] for t in op.inputs[:-1] if t.shape[1] % cfg.block_in]
    if parts or any(t.data is not None for t in op.inputs):
        return f"{parts[0]} channels are not whole blocks" if parts else "a constant part"
    return ""


def _refuses_slice(op: g.StridedSlice, cfg: Config) -> str:
    if len(op.x.shape) != 4 or op.x.dtype != "int8" or op.x.shape[0] > cfg.batch or op.output.shape[0] != op.x.shape[0]:
        return f"{op.x.dtype} {op.x.shape} to {op.output.shape}"
    if any(step != 1 and n > 1 for step, n in zip(op.strides, op.output.shape)):
        return f"steps of {op.strides}"
    if op.begin[1] % cfg.block_in:
        return f"channels from {op.begin[1]} on: blocks have {cfg.block_in}"
    return _refuses_copies(_copies(op.x, op.output, cfg))


def _copies(whole: g.Tensor, part: g.Tensor, cfg: Config) -> int:
    return len([*elementwise.pieces(whole.shape, (0,) * 4, part.shape, cfg)])


def _refuses_copies(count: int) -> str:
    return f"{count} copies: at most {elementwise.MOST_COPIES}" if count > elementwise.MOST_COPIES else ""


def _refuses_pool(op: g.Pool, cfg: Config) -> str:
    if max(op.pads) > most_padding(cfg):
        return f"padding {op.pads}: at most {most_padding(cfg)}"
    if isinstance(op, g.ExactAveragePool) and any(op.pads):
        return "windows of different numbers of elements"
    return ""


def _refuses_mean(op: g.Mean, cfg: Config) -> str:
    return "" if len(op.x.shape) == 4 and set(op.axes) == {2, 3} else f"mean over axes {op.axes}"


class LayerAccelerator(ExecModule):
    """Convolutions and dense layers one by one; the host requantises their accumulators (layerwise.py)."""

    name = "accelerator, layer by layer"

    def __init__(self, cfg: Config, host: HostModel | None = None):
        self.cfg, self.host = cfg, host or HostModel()
        self.memories = _memories(cfg)
        self.patterns = tuple(Pattern(k.__name__, (k,), self.refusal) for k in (g.QConv2d, g.QDense))

    def refusal(self, op: g.Operator) -> str:
        """Reason why the module cannot run the layer; empty if it can."""
        return layerwise.refusal(op, self.cfg)

    def seconds(self, ops: Sequence[g.Operator]) -> float:
        """The longer of micro-ops and transfers, weights included, and the host's work on accumulators."""
        total = 0.0
        for op in ops:
            values = op.output.nbytes
            micro_ops = op.macs / self.cfg.macs_per_cycle
            weights = op.weight.nbytes if isinstance(op, g.Linear) else 0
            moved = 4 * values + weights + sum(t.nbytes for t in op.inputs)
            cycles = cost.roofline(striped(self.cfg), micro_ops, moved) + cost.OPERATOR
            host = (self.host.byte * values + self.host.dispatch) / self.host.clock
            total += cycles / cost.CLOCK + host + cost.LAUNCH_SECONDS
        return total

    def transfer_seconds(self, t: g.Tensor) -> float:
        """The host's change of layout."""
        return self.host.moved_byte * t.nbytes / self.host.clock  # the dispatch is counted with the layer

    def generate(self, steps: Steps, ops: Sequence[g.Operator]) -> None:
        """Append the steps of each layer."""
        layerwise.generate(steps, ops)
