"""One launch of consecutive operators: its steps, the arena of its tensors, and caches that are its states."""

from __future__ import annotations

from collections.abc import Sequence

from ...hw.config import Config
from ...hw.errors import CapacityError, EncodingError, ScheduleError
from ...runtime import layout
from ...runtime.buffer import Buffer, Region
from ...runtime.executable import HostStep, LaunchStep, Tensor
from ...runtime.launch import ARENA
from .. import graph as g
from ..kernels import table
from ..kernels.cache import RowsJoined
from ..kernels.conv import host_step
from ..kernels.recording import Absorbed, AbsorbedPad, AbsorbedSlice, Recording, limits, packed_bytes, packed_shape
from ..memory import Lifetime, Plan, plan
from ..target.module import Refusal
from ..target.steps import Steps, wanted_from
from ..tir.placement import Placement
from .first_images import cheapest_layout, folds_in_launch


class NetworkLaunch:
    """The steps of one launch of `ops`, appended to `steps`."""

    def __init__(self, steps: Steps, ops: Sequence[g.Operator]):
        self.steps, self.ops, self.cfg = steps, ops, steps.cfg
        self.base = bases(ops)
        self.work = [op for op in ops if not is_view(op)]
        self.wanted = wanted_from(steps.graph, ops)
        name = self.work[0].name if len(self.work) == 1 else f"{self.work[0].name} to {self.work[-1].name}"
        self.rec = Recording(self.cfg, steps.graph.contract, name, steps.tiles)
        self.rec.placement = Placement(self.cfg, steps.resident)
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
        wrong = refused_states(self.steps.graph, self.ops)
        apart = [op for op in self.ops if isinstance(op, (Absorbed, g.HostImage)) and op.output in self.wanted]
        if wrong := wrong | {op.name: "its only reader runs elsewhere" for op in apart}:
            raise Refusal(wrong)
        self._plain()
        self._inputs()
        self._outputs()
        self._arena()
        refused = dict[str, str]()
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
        self.rec.program.pack_constants()
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
                self.steps.tensors[t.name] = state_of(self.steps.graph, t, self.cfg)
                self._bind_views(t.name, self._buffer(t.name, t.name, "state"))
            elif t.name not in self.rec.plain:
                readers = [op for op in self.ops if t in op.inputs]
                for op in readers:
                    if isinstance(op, g.QConv2d):
                        self._fold_input(op)
                if any(op.name not in self.rec.folded for op in readers):
                    self._pack_input(t)

    def _plain(self) -> None:
        """Bind inputs and outputs in host layout; the image of a longer cache stays in the launch."""
        for op in self.work:
            for t in op.plain:
                self.bind[self.rec.as_host(op, t).name] = t.name
            if isinstance(op, RowsJoined):
                image = self.rec.buffer(f"{op.name}.image", packed_shape(op.output.shape, self.cfg), kind="temp")
                self._bind_views(op.output.name, image)

    def _buffer(self, name: str, tensor: str, kind: str = "input") -> Buffer:
        """A new buffer of the launch, which is that tensor of the executable."""
        buffer = self.rec.buffer(name, self.steps.tensors[tensor].shape, kind=kind)
        self.bind[buffer.name] = tensor
        return buffer

    def _fold_input(self, op: g.QConv2d) -> None:
        """Bind the image of a convolution as it lies or laid out by the host, unless blocks of channels cost less."""
        source, order = self.steps.source(op.x)
        fold = cheapest_layout(op, self.cfg, nhwc=bool(order), planes=not order)
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
            blocks = {"batch": self.cfg.batch, "block": self.cfg.block_out, **order}
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
            whole = self.rec.buffer(ARENA, (arena.nbytes,), kind="temp")
            for b in arena.buffers:
                self._bind_views(b.name, Region(b.name, (b.nbytes,), whole=whole, start=arena.addresses[b.name]))
        tensors = {op.output.name: op.output for op in self.work}
        for name, (concat, channel) in reversed(members(self.steps.graph, self.ops, self.cfg).items()):
            self._bind_views(name, self.rec.part(concat.output, tensors[name], channel))
        readers = {op.name: op for op in self.work}
        for name, fold in folds_in_launch(self.ops, self.cfg).items():
            self.rec.folded[name] = fold, self.rec.activations[readers[name].x.name]

    def _bind_views(self, name: str, buffer: Buffer) -> None:
        """Use `buffer` for the tensor `name` and every view of it."""
        for other, base in self.base.items():
            if base == name:
                self.rec.activations[other] = buffer
        for op in self.slices:
            if self.base[op.output.name] == name:
                self.rec.activations[op.output.name] = self.rec.part(op.x, op.output, op.begin[1])

    def _unpack_output(self, t: g.Tensor) -> None:
        """Unpack an output; a view of an input is a view on the host, too, and a cache stays packed."""
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


def refused_states(graph: g.Graph, ops: Sequence[g.Operator]) -> dict[str, str]:
    """Why `ops` of `graph` cannot be in a launch, by name: symbols that are no inputs, caches that are no states."""
    inputs, found = {t.name for t in graph.inputs}, dict[str, str]()
    for op in ops:
        if (symbol := op.symbol) and symbol[0].name not in inputs:
            found[op.name] = f"{symbol[0].name!r} is no input of the network"
    reasons = {op.name: _not_in_place(graph, ops, op) for op in graph.of(g.Write) if op in ops}
    return found | {name: why for name, why in reasons.items() if why}


def _not_in_place(graph: g.Graph, ops: Sequence[g.Operator], op: g.Write) -> str:
    cache = op.x.name
    if not any((s.tensor.name, s.next.name) == (cache, op.output.name) for s in graph.states):
        return f"{cache!r} is no state that becomes its output"
    others = [s.tensor.name for s in graph.states if s.tensor.name != cache and s.next.name in (cache, op.output.name)]
    if others:
        return f"state {others[0]!r} takes its values, too"
    if sum(t.name == cache for other in graph.ops for t in other.inputs) > 1 or op.x in graph.outputs:
        return f"the values of {cache!r} before it are read, too"
    mine = {o.name for o in ops}
    if op.output in graph.outputs or any(op.output in o.inputs for o in graph.ops if o.name not in mine):
        return f"{op.output.name!r} is read elsewhere"
    return ""


def state_of(graph: g.Graph, cache: g.Tensor, cfg: Config) -> Tensor:
    """The state of an executable that holds `cache` in blocks of channels, and becomes what launches make of it."""
    initial = next(s.initial for s in graph.states if s.tensor.name == cache.name)
    packed = layout.pack_blocks(initial, cfg.batch, cfg.block_out)
    return Tensor(cache.name, packed_shape(cache.shape, cfg), "int8", "state", packed, cache.name)


_ALIGN = 64  # bytes: the alignment of a buffer


def is_view(op: g.Operator) -> bool:
    """True if the packed output lies in the packed input, so that nothing computes it."""
    return op.viewed is not None


def bases(ops: Sequence[g.Operator]) -> dict[str, str]:
    """Map every tensor of `ops` to the tensor whose packed bytes it shares."""
    base = {t.name: t.name for op in ops for t in op.inputs}
    for op in ops:
        base[op.output.name] = base[op.x.name] if is_view(op) or op.overwrites else op.output.name
    return base


def packed_as(ops: Sequence[g.Operator]) -> dict[str, g.Tensor]:
    """For each output, the tensor whose shape its packed bytes have: itself, or for a view the tensor of its input."""
    found: dict[str, g.Tensor] = {}
    for op in ops:
        found[op.output.name] = found.get(op.x.name, op.x) if op.viewed is op.x else op.output
    return found


def _parts(op: g.Operator, cfg: Config) -> Sequence[tuple[g.Tensor, int]]:
    """Inputs of `op` that may lie inside its output, with their first channel there.

    Where channels follow that do not begin a block, they take the lanes that the first input leaves empty.
    """
    parts = op.parts if op.output.shape[0] <= cfg.batch and op.output.dtype == "int8" else ()
    whole = all(t.data is None and channel % cfg.block_out == 0 for t, channel in parts)
    return parts if whole else [(t, channel) for t, channel in parts[:1] if t.data is None]


def members(graph: g.Graph, ops: Sequence[g.Operator], cfg: Config) -> dict[str, tuple[g.Operator, int]]:
    """Tensors that are computed inside the output of another operator, with their first channel there.

    Inputs from outside the launch, its outputs, and tensors that have a place already are copied instead.
    """
    base, work = bases(ops), [op for op in ops if not is_view(op)]
    inside = {op.output.name for op in work} & {*base.values()} - {base[t.name] for t in wanted_from(graph, ops)}
    found: dict[str, tuple[g.Operator, int]] = {}
    for op in work:
        for t, channel in _parts(op, cfg):
            if base[t.name] in inside:
                found.setdefault(base[t.name], (op, channel))
    return found


def arena_plan(graph: g.Graph, ops: Sequence[g.Operator], cfg: Config) -> Plan:
    """Plan the arena of a launch: packed activations that only `ops` of `graph` produce and read."""
    base, parts = bases(ops), members(graph, ops, cfg)

    def whole(t: g.Tensor) -> str:
        name = base[t.name]
        while name in parts:
            name = parts[name][0].output.name
        return name

    outside = {base[t.name] for t in wanted_from(graph, ops)}
    first: dict[str, int] = {}
    last: dict[str, int] = {}
    planned: dict[str, g.Operator] = {}
    for step, op in enumerate(op for op in ops if not is_view(op)):
        first.setdefault(whole(op.output), step)
        last |= {whole(t): step for t in op.tensors if t.data is None}
        if whole(op.output) == op.output.name not in outside:
            planned[op.output.name] = op
    sizes = {name: op.output.nbytes if op.unpacked else packed_bytes(op.output, cfg) for name, op in planned.items()}

    def replaced(op: g.Operator, size: int) -> tuple[str, ...]:
        """The tensors whose place the output may take, as its elements are made of those at their places."""
        names = dict.fromkeys(base[t.name] for t in op.inputs) if op.elementwise else ()
        return tuple(name for name in names if sizes.get(name) == size)

    times = ((name, size, first[name], last[name]) for name, size in sizes.items())
    return plan(Lifetime(*facts, _ALIGN, replaced(planned[facts[0]], facts[1])) for facts in times)
