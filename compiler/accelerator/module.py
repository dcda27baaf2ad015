"""The accelerator in a target: whole parts of a network in one launch, or layers one by one without `requant`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from ...hw.config import Config
from ...hw.units import striped
from .. import cost
from .. import graph as g
from ..graph.simplify import moved_states, pair_columns, simplify
from ..kernels import table
from ..kernels.cache import RowsJoined
from ..kernels.fold import Fold
from ..kernels.recording import Absorbed, AbsorbedPad, AbsorbedSlice, packed_bytes
from ..target.host import HostModel
from ..target.module import ExecModule, Memory, Pattern
from ..target.steps import Steps
from . import layerwise
from .first_images import folds_of, quantised_images
from .heads_in_lanes import heads_in_lanes, rows_out
from .launch import NetworkLaunch, is_view
from .rewrites import HostRows, absorb, split_steps, split_weights, successive
from .sequences import as_images


def _memories(cfg: Config) -> tuple[Memory, ...]:
    beat = cost.port_rate(cfg)
    ternary = (Memory("twgt", cfg.twgt_bytes, beat, ("weights",)),) if "ternary" in cfg.units else ()
    return (
        Memory("inp", cfg.inp_bytes, beat, ("activations",)),
        Memory("wgt", cfg.wgt_bytes, beat, ("weights",)),
        *ternary,
        Memory("acc", cfg.acc_bytes, beat, ("accumulators",)),
        Memory("DRAM", 512 << 20, beat, ("activations", "weights", "parameters")),
    )


class Accelerator(ExecModule):
    """Consecutive operators become one launch: activations stay in its memory in blocks of channels.

    Needs the extensions `requant`, `acc8` and `pad_value`, int8 operands and blocks of one size.
    """

    name = "accelerator"
    kept = (g.IntegerNorm, g.IntegerSoftmax, RowsJoined)

    def __init__(self, cfg: Config, host: HostModel | None = None, kernels: Sequence[table.Alternative] = ()):
        self.cfg, self.host, self.kernels = cfg, host or HostModel(), tuple(kernels)
        self.memories = _memories(cfg)
        self._plain, self._written = set[str](), set[str]()  # what launches read, and write, as the host has it
        self._folds = dict[str, Fold]()
        rewrites = heads_in_lanes, as_images, split_weights, absorb, quantised_images
        lanes, images, narrow, absorbed, reals = (partial(rewrite, cfg=cfg) for rewrite in rewrites)
        before = lanes, images, simplify, moved_states, successive, narrow, self._pairs, absorbed
        self.transformations = *before, partial(split_steps, pays=self._pays), reals, self._outputs
        kinds = [kind for kind in table.KERNELS if kind is not g.Lookup or {"lookup", "acc8"} <= cfg.extensions]
        kinds += [g.Reshape, g.Transpose, g.Lanes]
        others = dict.fromkeys(kind for each in self.kernels for kind in each.operators)
        kinds += [kind for kind in others if not any(issubclass(kind, known) for known in kinds)]
        padded = Pattern("padded sum", (AbsorbedPad, g.Add), lambda pad, op: self.refusal(op))
        sliced = Pattern("convolution of a slice", (AbsorbedSlice, g.QConv2d), lambda cut, op: self.refusal(op))
        self.patterns = (padded, sliced, *(Pattern(kind.__name__, (kind,), self.refusal) for kind in kinds))

    def _outputs(self, graph: g.Graph) -> g.Graph:
        """Outputs that a launch can write as rows are not unpacked (heads_in_lanes.py)."""
        found = rows_out(graph, self.cfg)
        self._written = {op.output.name for op in found.ops if op.output in op.plain}
        self._plain = {t.name for op in found.ops for t in op.inputs if t in op.plain}
        self._folds = folds_of(found, self.cfg)
        return found

    def _pairs(self, graph: g.Graph) -> g.Graph:
        """Images of few channels between convolutions hold two columns in an entry (compiler/graph/simplify.py)."""
        cfg = self.cfg
        able = cfg.batch == 1 and cfg.block_in == cfg.block_out and "overwrite" in cfg.extensions
        return pair_columns(graph, cfg.block_in) if able else graph

    def _pays(self, own: g.Dense16) -> bool:
        """True if the accelerator is the faster one for the products of an LSTM's hidden values."""
        moved = self.transfer_seconds(own.x) + self.transfer_seconds(own.output)
        return not self.refusal(own) and self.seconds((own,)) + moved < self.host.seconds(own)

    def refusal(self, op: g.Operator) -> str:
        """Reason why the module cannot run the operator; empty if it can."""
        if isinstance(op, Absorbed):
            return "its only reader is not beside it"
        if isinstance(op, HostRows):
            return "the host lays out images of few channels, with rows twice for weights beyond int8"
        if is_view(op):
            return ""
        if op.rearranges and not table.kernels_of(op):
            return "it moves elements"
        return table.refusal(op, self.cfg)

    def seconds(self, ops: Sequence[g.Operator]) -> float:
        """By the timing model."""
        cycles = [table.cycles(op, self.cfg, self._folds.get(op.name)) for op in ops if not is_view(op)]
        return sum(cycles) / cost.CLOCK

    def overlap_seconds(self, before: g.Operator, op: g.Operator) -> float:
        """By the timing model."""
        return table.overlap(before, op, self.cfg, self._folds) / cost.CLOCK

    def transfer_seconds(self, t: g.Tensor) -> float:
        """The host's change of layout, and its share in starting a launch."""
        if t.name in self._plain:
            return 0.0
        nbytes = t.nbytes + packed_bytes(t, self.cfg)
        return self.host.moved_seconds(nbytes) + cost.LAUNCH_SECONDS

    def output_seconds(self, t: g.Tensor) -> float:
        """Nothing where a launch writes it as the host has it, beside the blocks that others read."""
        return 0.0 if t.name in self._written else self.transfer_seconds(t)

    def generate(self, steps: Steps, ops: Sequence[g.Operator]) -> None:
        """Append packing, one launch, and unpacking of the tensors that others read."""
        if all(map(is_view, ops)):
            for op in ops:
                steps.kernels(op)
        else:
            NetworkLaunch(steps, ops).generate()


class LayerAccelerator(ExecModule):
    """Convolutions and dense layers one by one; the host requantises their accumulators (layerwise.py)."""

    name = "accelerator, layer by layer"

    def __init__(self, cfg: Config, host: HostModel | None = None):
        self.cfg, self.host = cfg, host or HostModel()
        self.memories = _memories(cfg)
        self.patterns = tuple(Pattern(k.__name__, (k,), self.refusal) for k in (g.QConv2d, g.QDense))

    def refusal(self, op: g.Divisible) -> str:
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

    def generate(self, steps: Steps, ops: Sequence[g.Divisible]) -> None:
        """Append the steps of each layer."""
        layerwise.generate(steps, ops)
