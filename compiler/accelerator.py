"""The accelerator in a target: whole parts of a network in one launch, or layers one by one without `requant`."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..hw.config import Config
from ..hw.errors import CapacityError, EncodingError, ScheduleError
from ..runtime.buffer import Region
from ..runtime.executable import HostStep, LaunchStep
from . import graph as g
from . import planes
from .host import HostModel
from .lowering import elementwise, linear, pooling
from .lowering.folded import best_fold, host_step
from .lowering.recording import Fold, Recording, packed_shape
from .memory import Lifetime, Plan, plan
from .simplify import simplify
from .steps import Steps, wanted_from
from .target import ExecModule, Memory, Pattern, Refusal

CLOCK = 100e6  # Hz, of the PYNQ-Z1's accelerator
START = 2e-6  # seconds, assumed: registers written and polled for one launch
_ENTRY_ALIGN = 64
_MAX_PAD = 15  # what a padded load's fields hold

_LOWER: dict[type[g.Op], Callable] = {
    g.QConv2d: linear.lower,
    g.QDense: linear.lower,
    g.Add: elementwise.add,
    g.Requantize: elementwise.requantize,
    g.MaxPool: pooling.maximum,
    g.AveragePool: pooling.average,
    g.ExactAveragePool: pooling.exact_average,
    g.Mean: pooling.mean,
}


def _memories(cfg: Config) -> tuple[Memory, ...]:
    beat = cfg.axi_bits / 8
    return (
        Memory("inp", cfg.inp_bytes, beat, ("activations",)),
        Memory("wgt", cfg.wgt_bytes, beat, ("weights",)),
        Memory("acc", cfg.acc_bytes, beat, ("accumulators",)),
        Memory("DRAM", 512 << 20, beat, ("activations", "weights", "parameters")),
    )


class Accelerator(ExecModule):
    """Operators that follow each other become one launch: activations stay in its memory in blocks of channels.

    Needs the extensions `requant`, `acc8` and `pad_value`, int8 operands and blocks of one size.
    """

    name = "accelerator"

    def __init__(self, cfg: Config, host: HostModel | None = None):
        self.cfg, self.host = cfg, host or HostModel()
        self.memories, self.transformations = _memories(cfg), (simplify,)
        kinds = (*_LOWER, g.Reshape, g.Transpose)
        self.patterns = tuple(Pattern(kind.__name__, (kind,), self.refusal) for kind in kinds)

    def refusal(self, op: g.Op) -> str:
        """Why the module cannot run the operator; empty where it can."""
        if is_view(op):
            return ""
        checks = {g.QConv2d: _refuses_conv, g.Add: _refuses_binary, g.Pool: _refuses_pool, g.Mean: _refuses_mean}
        if isinstance(op, (g.Reshape, g.Transpose)):
            return "it moves elements"
        for kind, check in checks.items():
            if isinstance(op, kind) and (why := check(op, self.cfg)):
                return why
        return ""

    def seconds(self, ops: Sequence[g.Op]) -> float:
        """A roofline: visits of the array or the ALU, or bytes, whichever take longer, and a latency."""
        return sum(self._cycles(op) for op in ops) / CLOCK

    def _cycles(self, op: g.Op) -> float:
        if is_view(op):
            return 0.0
        cfg = self.cfg
        nbytes = sum(_packed_bytes(t, cfg) for t in (*op.inputs, op.output))
        visits = _packed_bytes(op.output, cfg) / cfg.block_out / cfg.batch
        if isinstance(op, g.Linear):
            taps, channels = op.weight[0, 0].size, op.weight.shape[1]
            if isinstance(op, g.QConv2d):
                channels *= linear.groups_per_part(op, cfg) if not linear.own_rows(op, cfg) else 1
            visits *= taps * -(-channels // cfg.block_in)
            nbytes += len(op.weight) * taps * channels
        elif isinstance(op, g.Pool):
            visits *= 2 * op.kernel[0] * op.kernel[1]
        else:
            visits *= 6
        return max(visits, nbytes / (cfg.axi_bits / 8)) + 200

    def transfer_seconds(self, t: g.Tensor) -> float:
        """The host's change of layout, and its share in starting a launch."""
        nbytes = t.nbytes + _packed_bytes(t, self.cfg)
        return self.host.moved_seconds(nbytes) + START

    def generate(self, steps: Steps, ops: Sequence[g.Op]) -> None:
        """Append packing, one launch, and unpacking of what others want."""
        _Launch(steps, ops).generate()


class _Launch:
    """One launch of `ops`: buffers of what comes in and goes out, regions of one arena for what stays."""

    def __init__(self, steps: Steps, ops: Sequence[g.Op]):
        self.steps, self.ops = steps, ops
        self.cfg = steps.cfg
        self.base = _bases(ops)
        self.wanted = wanted_from(steps.graph, ops)
        name = ops[0].name if len(ops) == 1 else f"{ops[0].name} to {ops[-1].name}"
        self.rec = Recording(self.cfg, steps.contract, name)
        self.bind: dict[str, str] = {}

    def generate(self) -> None:
        """Append the steps."""
        computed = {op.output.name for op in self.ops}
        inputs = {t.name: t for op in self.ops for t in op.inputs if t.data is None and t.name not in computed}
        for t in inputs.values():
            readers = [op for op in self.ops if t in op.inputs]
            for op in readers:
                if isinstance(op, g.QConv2d) and (fold := best_fold(op, self.cfg)) is not None:
                    self._bring_folded(op, fold)
            if any(op.name not in self.rec.folded for op in readers):
                self._bring(t)
        self._buffers()
        work = [op for op in self.ops if not is_view(op)]
        refused = {}
        for op in work:
            try:
                lower(self.rec, op)
            except (CapacityError, EncodingError, ScheduleError) as exc:
                refused[op.name] = str(exc)
        if refused:
            raise Refusal(refused)
        if work:
            macs = sum(op.macs for op in work)
            self.steps.steps.append(LaunchStep(self.rec.program.name, self.rec.program.finish(), self.bind, macs))
        for t in self.wanted:
            self._fetch(t)

    def _bring_folded(self, op: g.QConv2d, fold: Fold) -> None:
        attrs, shape = host_step(op, fold, self.cfg)
        buffer = self.rec.program.buffer(f"{op.name}.x", shape, kind="input")
        self.bind[buffer.name] = self.steps.host(f"{op.name}.fold", "fold_columns", attrs, [op.x.name], shape)
        self.rec.folded[op.name] = fold, buffer

    def _bring(self, t: g.Tensor) -> None:
        shape = packed_shape(t.shape, self.cfg)
        blocks = {"batch": self.cfg.batch, "block": self.cfg.block_in}
        self.bind[t.name] = self.steps.host(f"{t.name}.pack", "pack", blocks, [t.name], shape)
        self._names(t.name, self.rec.program.buffer(t.name, shape, kind="input"))

    def _buffers(self) -> None:
        out = {self.base[t.name] for t in self.wanted}
        for op in self.ops:
            t = op.output
            if not is_view(op) and t.name in out:
                shape = packed_shape(t.shape, self.cfg)
                self.bind[t.name] = self.steps.declare(f"{t.name}.packed", shape, "int8")
                self._names(t.name, self.rec.program.buffer(t.name, shape, kind="output"))
        arena = arena_plan(self.steps.graph, self.ops, self.cfg)
        if not arena.buffers:
            return
        whole = self.rec.program.buffer("arena", (arena.nbytes,), kind="temp")
        for b in arena.buffers:
            self._names(b.name, Region(b.name, (b.nbytes,), kind="temp", whole=whole, start=arena.addresses[b.name]))

    def _names(self, name: str, buffer) -> None:
        for other, base in self.base.items():
            if base == name:
                self.rec.activations[other] = buffer

    def _fetch(self, t: g.Tensor) -> None:
        source = next(op.output for op in self.ops if op.output.name == self.base[t.name])
        attrs = {"n": source.shape[0], "c": source.shape[1], "shape": list(t.shape)}
        step = HostStep(f"{t.name}.unpack", "unpack", [self.bind[source.name]], [t.name], attrs)
        self.steps.steps.append(step)


def lower(rec: Recording, op: g.Op) -> None:
    """Append one operator to the program of `rec`."""
    next(function for kind, function in _LOWER.items() if isinstance(op, kind))(rec, op)


def arena_plan(graph: g.Graph, ops: Sequence[g.Op], cfg: Config) -> Plan:
    """The arena of a launch: packed activations that `ops` of `graph` compute for each other alone."""
    base = _bases(ops)
    outside = {base[t.name] for t in wanted_from(graph, ops)}
    work = [op for op in ops if not is_view(op)]
    last = {}
    for step, op in enumerate(work):
        last |= {base[t.name]: step for t in op.inputs if t.data is None}
    found = []
    for step, op in enumerate(work):
        t = op.output
        if t.name not in outside:
            places = ()
            if isinstance(op, (g.Add, g.Requantize)):
                names = dict.fromkeys(base[i.name] for i in op.inputs if i.data is None)
                inside = {b.name for b in found}
                places = tuple(name for name in names if name in inside)
            nbytes = _packed_bytes(t, cfg)
            found.append(Lifetime(t.name, nbytes, step, last.get(t.name, step), _ENTRY_ALIGN, places))
    return plan(found)


def is_view(op: g.Op) -> bool:
    """Whether the packed output has the same bytes as the packed input: no rows, no columns, all channels in order."""
    if not isinstance(op, (g.Reshape, g.Transpose)) or op.output.dtype != "int8":
        return False
    shapes = [t.shape for t in (op.x, op.output)]
    return all(len(s) in (2, 4) and s[0] * s[1] == op.x.nbytes for s in shapes) and shapes[0][0] == shapes[1][0]


def _bases(ops: Sequence[g.Op]) -> dict[str, str]:
    """For every tensor of `ops`: the one whose packed bytes are its own."""
    base = {t.name: t.name for op in ops for t in op.inputs}
    for op in ops:
        base[op.output.name] = base[op.x.name] if is_view(op) else op.output.name
    return base


def _packed_bytes(t: g.Tensor, cfg: Config) -> int:
    n, c, *size = t.shape if len(t.shape) > 1 else (1, *t.shape)
    pixels = 1
    for extent in size:
        pixels *= extent
    return -(-n // cfg.batch) * cfg.batch * -(-c // cfg.block_in) * cfg.block_in * pixels


def _refuses_conv(op: g.QConv2d, cfg: Config) -> str:
    if max(op.pads) > _MAX_PAD:
        return f"padding {op.pads}: at most {_MAX_PAD}"
    return ""


def _refuses_binary(op: g.Add, cfg: Config) -> str:
    if len(op.output.shape) not in (2, 4):
        return f"{len(op.output.shape)} dimensions"
    wrong = [t.shape for t in op.inputs if t.data is None and t.shape != op.output.shape]
    return f"operand of shape {wrong[0]} is repeated" if wrong else ""


def _refuses_pool(op: g.Pool, cfg: Config) -> str:
    if max(op.pads) > _MAX_PAD:
        return f"padding {op.pads}: at most {_MAX_PAD}"
    if isinstance(op, g.ExactAveragePool) and any(op.pads):
        return "windows of different numbers of elements"
    return ""


def _refuses_mean(op: g.Mean, cfg: Config) -> str:
    return "" if len(op.x.shape) == 4 and set(op.axes) == {2, 3} else f"mean over axes {op.axes}"


class LayerAccelerator(ExecModule):
    """Convolutions and dense layers one by one; the host requantises their accumulators (compiler/planes.py)."""

    name = "accelerator, layer by layer"

    def __init__(self, cfg: Config, host: HostModel | None = None):
        self.cfg, self.host = cfg, host or HostModel()
        self.memories = _memories(cfg)
        self.patterns = tuple(Pattern(k.__name__, (k,), self.refusal) for k in (g.QConv2d, g.QDense))

    def refusal(self, op: g.Op) -> str:
        """Why the module cannot run the layer; empty where it can."""
        return planes.refusal(op, self.cfg)

    def seconds(self, ops: Sequence[g.Op]) -> float:
        """The array's visits, and the host's work on the accumulators."""
        total = 0.0
        for op in ops:
            values = op.output.nbytes
            visits = op.macs / self.cfg.macs_per_cycle
            cycles = max(visits, (4 * values + sum(t.nbytes for t in op.inputs)) / (self.cfg.axi_bits / 8)) + 200
            total += cycles / CLOCK + (self.host.byte * values + self.host.dispatch) / self.host.clock + START
        return total

    def transfer_seconds(self, t: g.Tensor) -> float:
        """The host's change of layout."""
        return self.host.moved_byte * t.nbytes / self.host.clock  # the dispatch is counted with the layer

    def generate(self, steps: Steps, ops: Sequence[g.Op]) -> None:
        """Append the steps of each layer."""
        planes.generate(steps, ops)
