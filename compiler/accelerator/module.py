"""The accelerator in a target: consecutive operators of a network are one launch.

Configurations without the extension `requant` run layers one by one instead (compiler/accelerator/layerwise.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from ...hw.config import Config
from .. import cost
from .. import graph as g
from ..graph.simplify import moved_states, pair_columns, simplify
from ..kernels import table
from ..kernels.cache import RowsJoined
from ..kernels.fold import Fold
from ..kernels.recording import Absorbed, AbsorbedPad, AbsorbedRows, AbsorbedSlice, packed_bytes
from ..target.host import HostModel
from ..target.module import ExecModule, Pattern
from ..target.steps import Steps
from .first_images import folds_of, host_images
from .heads_in_lanes import heads_in_lanes, rows_out
from .launch import NetworkLaunch, is_view
from .layerwise import memories
from .rewrites import HostRows, absorb, split_steps, split_weights, successive
from .sequences import as_images, multiplies_images


class Accelerator(ExecModule):
    """The module `accelerator`: activations of a launch stay in its memory in blocks of channels.

    Needs the extensions `requant`, `acc8` and `pad_value`, int8 operands, and `block_out` a multiple of `block_in`.
    `kernels` are tried beside those of compiler/kernels/table.py.
    """

    name = "accelerator"
    kept = (g.IntegerNorm, g.IntegerSoftmax, RowsJoined)

    def __init__(self, cfg: Config, host: HostModel | None = None, kernels: Sequence[table.Alternative] = ()):
        self.cfg, self.host, self.kernels = cfg, host or HostModel(), tuple(kernels)
        self.memories = memories(cfg)
        self._plain, self._written = set[str](), set[str]()  # what launches read, and write, as the host has it
        self._folds = dict[str, Fold]()
        rewrites = heads_in_lanes, as_images, split_weights, absorb, host_images
        lanes, images, narrow, absorbed, reals = (partial(rewrite, cfg=cfg) for rewrite in rewrites)
        before = lanes, images, simplify, moved_states, successive, narrow, self._pairs, absorbed
        self.transformations = *before, partial(split_steps, pays=self._pays), reals, self._outputs
        kinds = [*table.KERNELS, g.Reshape, g.Transpose, g.Lanes]
        others = dict.fromkeys(kind for each in self.kernels for kind in each.operators)
        kinds += [kind for kind in others if not any(issubclass(kind, known) for known in kinds)]
        padded = Pattern("padded sum", (AbsorbedPad, g.Add), lambda pad, op: self.refusal(op))
        sliced = Pattern("convolution of a slice", (AbsorbedSlice, g.QConv2d), lambda cut, op: self.refusal(op))
        twice = Pattern("convolution of rows twice", (AbsorbedRows, g.QConv2d), lambda rows, op: self.refusal(op))
        self.patterns = (padded, sliced, twice, *(Pattern(kind.__name__, (kind,), self.refusal) for kind in kinds))

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
        return pair_columns(graph, cfg.block_in) if multiplies_images(cfg) else graph

    def _pays(self, own: g.Dense16) -> bool:
        """True if the accelerator computes the products of an LSTM's hidden values faster than the host."""
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
        """The time of each in a launch of its own, by the timing model."""
        cycles = [table.cycles(op, self.cfg, self._folds.get(op.name)) for op in ops if not is_view(op)]
        return sum(cycles) / cost.CLOCK

    def overlap_seconds(self, before: g.Operator, op: g.Operator) -> float:
        """The time that both take less in one launch, by the timing model."""
        return table.overlap(before, op, self.cfg, self._folds) / cost.CLOCK

    def transfer_seconds(self, t: g.Tensor) -> float:
        """The host's time to change the layout, and to start a launch; 0 where the launch reads it unpacked."""
        if t.name in self._plain:
            return 0.0
        nbytes = t.nbytes + packed_bytes(t, self.cfg)
        return self.host.moved_seconds(nbytes) + cost.LAUNCH_SECONDS

    def output_seconds(self, t: g.Tensor) -> float:
        """As `transfer_seconds`; 0 where the launch writes it unpacked."""
        return 0.0 if t.name in self._written else self.transfer_seconds(t)

    def generate(self, steps: Steps, ops: Sequence[g.Operator]) -> None:
        """Append packing, one launch, and unpacking of the tensors that others read."""
        if all(map(is_view, ops)):
            for op in ops:
                steps.kernels(op)
        else:
            NetworkLaunch(steps, ops).generate()
