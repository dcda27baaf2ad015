"""One launch of consecutive operators: buffers of its inputs and outputs, and an arena for the tensors between."""

from __future__ import annotations

from collections.abc import Sequence

from ...hw.errors import CapacityError, EncodingError, ScheduleError
from ...runtime.buffer import Buffer, Region
from ...runtime.executable import HostStep, LaunchStep
from .. import graph as g
from ..kernels import table
from ..kernels.fold import fold_in_place
from ..kernels.folded_conv import host_step
from ..kernels.recording import Recording, limits, packed_shape
from ..kernels.stand_ins import Absorbed, AbsorbedPad, AbsorbedSlice, RowsJoined
from ..target.module import Refusal
from ..target.steps import Steps, wanted_from
from . import states
from .arena import arena_plan, bases, is_view, members, packed_as
from .first_images import fold_of


class NetworkLaunch:
    """The steps of one launch of `ops`, appended to `steps`."""

    def __init__(self, steps: Steps, ops: Sequence[g.Operator]):
        self.steps, self.ops, self.cfg = steps, ops, steps.cfg
        self.base = bases(ops)
        self.work = [op for op in ops if not is_view(op)]
        self.wanted = wanted_from(steps.graph, ops)
        name = self.work[0].name if len(self.work) == 1 else f"{self.work[0].name} to {self.work[-1].name}"
        self.rec = Recording(self.cfg, steps.graph.contract, name, steps.tiles)
        self.rec.padded = {op.output.name: op for op in ops if isinstance(op, AbsorbedPad)}
        self.slices = [op for op in ops if isinstance(op, AbsorbedSlice)]
        self.rec.limits = limits(ops)
        self.rec.program.uops_ahead = True
        self.packed_as = packed_as(ops)
        self.caches = {op.x.name for op in ops if isinstance(op, g.Write)}
        self.bind: dict[str, str] = {}
        self.packed: dict[str, str] = {}  # by the names of the launch's outputs

    def generate(self) -> None:
        """Append packing, the launch, and unpacking.

        Raises `Refusal` for operators that do not fit the scratchpads, for paddings and slices whose reader runs
        elsewhere, and for caches that cannot be written in place.
        """
        wrong = states.refused(self.steps.graph, self.ops)
        apart = [op for op in self.ops if isinstance(op, (Absorbed, g.QuantizeImage)) and op.output in self.wanted]
        if wrong := wrong | {op.name: "its only reader runs elsewhere" for op in apart}:
            raise Refusal(wrong)
        self._plain()
        self._inputs()
        self._outputs()
        self._arena()
        self._quantised()
        refused = {}
        for op in self.work:
            try:
                with self.rec.program.origin(op.name, op.macs):
                    table.lower(self.rec, op)
            except (CapacityError, EncodingError, ScheduleError) as exc:
                refused[op.name] = str(exc)
        if refused:
            raise Refusal(refused)
        for name, flags in self.rec.flags.items():
            self.bind[flags.name] = self.steps.declare(f"{name}.flags", flags.shape, "int8")
        macs = sum(op.macs for op in self.work)
        launch = self.rec.program.finish()
        symbols = {name: name for name in launch.patches.limits}
        self.steps.steps.append(LaunchStep(self.rec.program.name, launch, self.bind, macs, symbols))
        for name, flags in self.rec.flags.items():
            self.steps.host(f"{name}.numbers", "expect_numbers", {}, [self.bind[flags.name]], flags.shape)
        for t in self.wanted:
            self._unpack_output(t)

    def _inputs(self) -> None:
        computed = {op.output.name for op in self.ops}
        inputs = {t.name: t for op in self.ops for t in op.inputs if t.data is None and t.name not in computed}
        for t in (inputs[name] for name in inputs if name not in self.rec.limits):
            if t.name in self.caches:
                self._state(t)
            elif t.name not in self.rec.plain:
                readers = [op for op in self.ops if t in op.inputs]
                for op in readers:
                    if isinstance(op, g.QConv2d):
                        self._fold_input(op)
                if any(op.name not in self.rec.folded for op in readers):
                    self._pack_input(t)

    def _plain(self) -> None:
        """Read inputs and write outputs as the host has them; the image of a longer cache stays in the launch."""
        for op in self.work:
            for t in op.plain:
                self.bind[self.rec.as_host(op, t).name] = t.name
            if isinstance(op, RowsJoined):
                image = self.rec.buffer(f"{op.name}.image", packed_shape(op.output.shape, self.cfg), kind="temp")
                self._bind_views(op.output.name, image)

    def _quantised(self) -> None:
        """Convolutions read what the launch makes of images of float32 values as it lies."""
        images = {op.output.name for op in self.work if isinstance(op, g.QuantizeImage)}
        for op in self.work:
            if isinstance(op, g.QConv2d) and op.x.name in images and (fold := fold_in_place(op, self.cfg)):
                self.rec.folded[op.name] = fold, self.rec.activations[op.x.name]

    def _buffer(self, name: str, tensor: str, kind: str = "input") -> Buffer:
        """A new buffer of the launch, which is that tensor of the executable."""
        buffer = self.rec.buffer(name, self.steps.tensors[tensor].shape, kind=kind)
        self.bind[buffer.name] = tensor
        return buffer

    def _state(self, cache: g.Tensor) -> None:
        """Read and write `cache` in place."""
        self.steps.tensors[cache.name] = states.state_of(self.steps.graph, cache, self.cfg)
        self._bind_views(cache.name, self._buffer(cache.name, cache.name, "state"))

    def _fold_input(self, op: g.QConv2d) -> None:
        """Read the image of `op` as it lies, or let the host lay it out; neither if blocks of channels cost less."""
        source, order = self.steps.source(op.x)
        fold = fold_of(op, self.cfg, nhwc=bool(order))
        if fold is None:
            return
        if not fold.in_place:
            attrs, shape = host_step(op, fold, self.cfg)
            source = self.steps.host(f"{op.name}.fold", "fold_windows", attrs | order, [source], shape)
        self.rec.folded[op.name] = fold, self._buffer(f"{op.name}.x", source)

    def _pack_input(self, t: g.Tensor) -> None:
        shape = packed_shape(t.shape, self.cfg)
        if (packed := self.steps.blocks_of(t, shape)) is None:
            source, order = self.steps.source(t)
            if len(t.shape) > 4:
                image = (*t.shape[:2], *shape[2:4])
                source = self.steps.host(f"{t.name}.image", "reshape", {"shape": list(image)}, [t.name], image)
            blocks = {"batch": self.cfg.batch, "block": self.cfg.block_in, **order}
            packed = self.steps.host(f"{t.name}.pack", "pack", blocks, [source], shape)
        self._bind_views(t.name, self._buffer(t.name, packed))

    def _outputs(self) -> None:
        out = {self.base[t.name] for t in self.wanted}
        for op in self.work:
            t = op.output
            if t.name in out and t.name not in self.rec.plain:
                buffer = self.rec.activation(op, t, "output")
                self.bind[buffer.name] = self.steps.declare(f"{t.name}.packed", buffer.shape, "int8")
                self.packed[t.name] = self.bind[buffer.name]
                self._bind_views(t.name, buffer)

    def _arena(self) -> None:
        arena = arena_plan(self.steps.graph, self.ops, self.cfg)
        if arena.buffers:
            whole = self.rec.buffer("arena", (arena.nbytes,), kind="temp")
            for b in arena.buffers:
                self._bind_views(b.name, Region(b.name, (b.nbytes,), whole=whole, start=arena.addresses[b.name]))
        tensors = {op.output.name: op.output for op in self.work}
        for name, (concat, channel) in reversed(members(self.steps.graph, self.ops, self.cfg).items()):
            self._bind_views(name, self.rec.part(concat.output, tensors[name], channel))

    def _bind_views(self, name: str, buffer: Buffer) -> None:
        """Use `buffer` for the tensor `name` and every view of it."""
        for other, base in self.base.items():
            if base == name:
                self.rec.activations[other] = buffer
        for op in self.slices:
            if self.base[op.output.name] == name:
                self.rec.activations[op.output.name] = self.rec.part(op.x, op.output, op.begin[1])

    def _unpack_output(self, t: g.Tensor) -> None:
        """Unpack `t`; a view of an input is a view on the host, too, and a cache stays as it is."""
        base, steps = self.base[t.name], self.steps
        if base in self.caches or base in self.rec.plain:
            return
        if base not in self.packed:
            view = next(op for op in self.ops if op.output.name == t.name)
            if isinstance(view, g.Lanes):
                steps.kernels(view)
            else:
                steps.steps.append(HostStep(f"{t.name}.view", "reshape", [base], [t.name], {"shape": list(t.shape)}))
            return
        source, packed = self.packed_as[t.name], self.packed[base]
        if source.name != base:
            shape = packed_shape(source.shape, self.cfg)
            packed = steps.host(f"{t.name}.image", "reshape", {"shape": list(shape)}, [packed], shape)
        attrs = {"n": source.shape[0], "c": source.shape[1], "shape": list(t.shape)}
        kind = "unpack" if t.dtype == "int8" else "unpack_planes"
        steps.steps.append(HostStep(f"{t.name}.unpack", kind, [packed], [t.name], attrs))
