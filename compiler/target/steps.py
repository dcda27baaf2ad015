"""The steps of an executable in the making: modules append them, with the tensors between them.

Consecutive host steps are merged into one call, in which every value is read once and written once. A step is merged
with its predecessor if it has one input, is the only reader of it, and either moves values or computes each value by
itself (`STAGES`). Inside a call two changes of layout become one, and functions of int8 values one table.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from ...hw.config import Config
from ...runtime.executable import Executable
from ...runtime.hostops import CHECKS, HOST_OPS, LAYOUTS, STAGES, VALUE_BY_VALUE
from ...runtime.hostops.row import Operand
from ...runtime.steps import HostStep, LaunchStep, Tensor
from .. import graph as g
from ..graph import Names

if TYPE_CHECKING:
    from ..schedule.layer import Tiles


_TO_NCHW, _TO_NHWC = (0, 3, 1, 2), (0, 2, 3, 1)  # dimensions of the other layout
_TABLES = ("lookup", "rescale")  # functions from int8 to int8
_EVERY_VALUE = np.arange(-128, 128).astype(np.int8)
MOST_MERGED = 16


@dataclass
class _Stage:
    """One operator of a call: its attributes, constants included, its operand `x` and its result."""

    op: str
    attrs: dict
    x: Operand
    result: Operand = field(init=False)

    def __post_init__(self) -> None:
        self.result = HOST_OPS[self.op].result([self.x], self.attrs)


def merge(
    steps: Sequence[LaunchStep | HostStep], tensors: Mapping[str, Tensor]
) -> tuple[list[LaunchStep | HostStep], dict[str, tuple[HostStep, ...]]]:
    """(the steps, the merged ones by the name of their call). Only tensors of kind `temp` with one reader vanish."""
    reads = Counter(name for step in steps for name in _reads(step))
    reads += Counter(t.next for t in tensors.values() if t.next is not None)
    parts: dict[str, tuple[HostStep, ...]] = {}  # by the tensor that the last of them writes
    for step in steps:
        if isinstance(step, LaunchStep) or step.op not in STAGES or len(step.inputs) > 1:
            continue
        (source,), (output,) = step.inputs, step.outputs
        before = parts.get(source, ())
        if tensors[source].kind != "temp" or reads[source] > 1 or len(before) == MOST_MERGED:
            before = ()
        parts[output] = (*before, step)
        if before:
            del parts[source]
    chains = [found for found in parts.values() if len(found) > 1]
    gone = {id(step) for found in chains for step in found[:-1]}
    calls = {id(found[-1]): _call(found, tensors) for found in chains}
    merged = [calls.get(id(step), step) for step in steps if id(step) not in gone]
    return merged, {calls[id(found[-1])].name: found for found in chains}


def _reads(step: LaunchStep | HostStep) -> list[str]:
    return [*step.bind.values()] if isinstance(step, LaunchStep) else step.inputs


def _call(found: Sequence[HostStep], tensors: Mapping[str, Tensor]) -> HostStep:
    """One step that replaces `found`; it has the name of the last one that computes, else of the last one."""
    stages = []
    for step in found:
        t = tensors[step.inputs[0]]
        stages.append(_Stage(step.op, step.attrs | step.constants, Operand(t.shape, t.dtype)))
    for rewrite in (_read_nhwc, _write_nhwc, _one_table):
        stages = rewrite(stages)
    last, macs = found[-1], sum(step.macs for step in found)
    name = next((step.name for step in reversed(found) if step.op not in LAYOUTS), last.name)
    if len(stages) == 1:
        attrs = dict(stages[0].attrs)
        constants = {key: attrs.pop(key) for key, value in stages[0].attrs.items() if isinstance(value, np.ndarray)}
        return HostStep(name, stages[0].op, found[0].inputs, last.outputs, attrs, constants, macs)
    tables = [stage.attrs["table"] for stage in stages if stage.op == "lookup"]
    constants = {"tables": np.stack(tables)} if tables else {}
    listed, number = [], 0
    for stage in stages:
        listed.append([stage.op, {"table": number} if stage.op == "lookup" else stage.attrs])
        number += stage.op == "lookup"
    return HostStep(name, "chain", found[0].inputs, last.outputs, {"stages": listed}, constants, macs)


def _permutes(
    op: str, attrs: Mapping[str, object], shape: Sequence[int], result: Sequence[int], axes: Sequence[int]
) -> bool:
    """True if `op` transposes an image of `shape` by `axes`; a reshape does if all longer axes keep their order."""
    if op not in ("transpose", "reshape") or len(shape) != 4 or tuple(result) != tuple(shape[k] for k in axes):
        return False
    longer = [k for k in axes if shape[k] > 1]
    return attrs.get("axes") == [*axes] or (op == "reshape" and longer == sorted(longer))


def _read_nhwc(stages: list[_Stage]) -> list[_Stage]:
    """Drop the transposition of an NHWC image to NCHW before it is packed: pack it from NHWC."""
    for k, stage in enumerate(stages[:-1]):
        if not _permutes(stage.op, stage.attrs, stage.x.shape, stage.result.shape, _TO_NCHW):
            continue
        between = [s.op in (*VALUE_BY_VALUE, "take") for s in stages[k + 1 :]]
        last = k + 1 + (between.index(False) if False in between else len(between))
        if last == len(stages) or stages[last].op not in ("pack", "fold_windows") or "layout" in stages[last].attrs:
            continue
        found, x = stages[:k], stage.x
        for s in stages[k + 1 : last]:
            taken = {"indices": [s.attrs["indices"][axis] for axis in _TO_NHWC]} if s.op == "take" else s.attrs
            found.append(_Stage(s.op, taken, x))
            x = found[-1].result
        packing = stages[last]
        return [*found, _Stage(packing.op, packing.attrs | {"layout": "NHWC"}, x), *stages[last + 1 :]]
    return stages


def _write_nhwc(stages: list[_Stage]) -> list[_Stage]:
    """Drop transpositions of an unpacked image to NHWC, and its reshapes: unpack it to that layout and shape."""
    for k, stage in enumerate(stages):
        if stage.op != "unpack" or "layout" in stage.attrs:
            continue
        attrs, found, shape = dict(stage.attrs), [], stage.result.shape
        image = len(stage.x.shape) == 6 and shape == (attrs["n"], attrs["c"], *stage.x.shape[2:4])
        at = k + 1
        while at < len(stages) and (stages[at].op in VALUE_BY_VALUE or stages[at].op in ("transpose", "reshape")):
            mover = stages[at]
            if mover.op in VALUE_BY_VALUE:
                found.append(mover)
            elif image and _permutes(mover.op, mover.attrs, mover.x.shape, mover.result.shape, _TO_NHWC):
                attrs["layout"], image = "NHWC", False
                shape = mover.result.shape
            elif mover.op == "reshape":
                shape, image = mover.result.shape, False
            else:
                break
            at += 1
        attrs["shape"] = list(shape)
        unpacked = _Stage("unpack", attrs, stage.x)
        moved = [_Stage(s.op, s.attrs, Operand(shape, s.x.dtype)) for s in found]
        return [*stages[:k], unpacked, *moved, *stages[at:]]
    return stages


def _one_table(stages: list[_Stage]) -> list[_Stage]:
    """Replace consecutive functions of int8 values by one table of 256 values."""
    merged: list[_Stage] = []
    for stage in stages:
        if merged and stage.op in _TABLES and merged[-1].op in _TABLES:
            table = _EVERY_VALUE
            for one in (merged.pop(), stage):
                (table,) = HOST_OPS[one.op]([table], one.attrs)
                x = one.x
            merged.append(_Stage("lookup", {"table": table}, x))
        else:
            merged.append(stage)
    return merged


class Steps:
    """The steps of `graph` so far; the graph's tensors are declared under their names.

    `tiles` makes the ready schedules of modules that use some; None: each chooses its tile. `merged` are the host steps
    that `executable` made one call, by that call's name.
    """

    def __init__(self, graph: g.Graph, cfg: Config, tiles: Tiles | None = None, resident: bool = False):
        self.graph, self.cfg, self.tiles, self.resident = graph, cfg, tiles, resident
        self.tensors: dict[str, Tensor] = {}
        self._names = Names(s.tensor.name for s in graph.states)
        self.steps: list[LaunchStep | HostStep] = []
        self.merged: dict[str, tuple[HostStep, ...]] = {}
        for t in graph.inputs:
            self.declare(t.name, t.shape, t.dtype, "input")
        for t in (op.output for op in graph.ops):
            self.declare(t.name, t.shape, t.dtype, "output" if t in graph.outputs else "temp")
        for t in graph.constants:
            self.declare(t.name, t.shape, t.dtype, "constant", t.data)
        for s in graph.states:
            t = s.tensor
            self.tensors[t.name] = Tensor(t.name, t.shape, t.dtype, "state", s.initial, s.next.name)

    def executable(self) -> Executable:
        """The executable of all appended steps, with the tensors that they use."""
        self._keep_packed()
        self._drop_unread()
        self.steps, self.merged = merge(self.steps, self.tensors)
        used = {name for step in self.steps for name in _names(step)}
        used |= {t.next for t in self.tensors.values() if t.next is not None}
        kept = [t for name, t in self.tensors.items() if name in used or t.kind in ("input", "output", "state")]
        tensors = {t.name: t for t in self._in_order(kept)}
        return Executable(self.cfg, self.graph.name, tensors, self.steps, self.graph.contract)

    def _in_order(self, kept: list[Tensor]) -> list[Tensor]:
        """The tensors, outputs among them in the graph's order."""
        place = {t.name: k for k, t in enumerate(self.graph.outputs)}
        ours = iter(sorted((t for t in kept if t.name in place), key=lambda t: place[t.name]))
        return [next(ours) if t.name in place else t for t in kept]

    def _keep_packed(self) -> None:
        """Keep states in the device's layout where host steps only pack them, and unpack their next values."""
        for state in [t for t in self.tensors.values() if t.kind == "state"]:
            readers = [s for s in self.steps if state.name in _reads(s)]
            back = self._writer(state.next or "")
            if not readers or back is None or back.op != "unpack":
                continue
            if any(t.next == state.name for t in self.tensors.values()):
                continue
            packs = [s for s in readers if isinstance(s, HostStep) and s.op == "pack" and "layout" not in s.attrs]
            packed, (new,) = [s.outputs[0] for s in packs], back.inputs
            shapes = {self.tensors[name].shape for name in packed}
            if len(packs) < len(readers) or len(packed) > 1 or shapes != {self.tensors[new].shape}:
                continue
            (data,) = HOST_OPS["pack"]([np.asarray(state.data)], packs[0].attrs)
            t = self.tensors[packed[0]]
            self.tensors[t.name] = Tensor(t.name, t.shape, t.dtype, "state", data, new)
            del self.tensors[state.name]
            self.steps.remove(packs[0])

    def _drop_unread(self) -> None:
        """Drop host steps whose results nobody reads."""
        read = {name for name, t in self.tensors.items() if t.kind == "output"}
        read |= {t.next for t in self.tensors.values() if t.next is not None}
        kept = []
        for step in reversed(self.steps):
            if isinstance(step, LaunchStep) or step.op in CHECKS or not read.isdisjoint(step.outputs):
                kept.append(step)
                read.update(_names(step))
        self.steps = kept[::-1]

    def source(self, t: g.Tensor) -> tuple[str, dict[str, str]]:
        """(tensor to read `t` from, attributes with its layout): the NHWC image if a host step only transposed that."""
        step = self._writer(t.name)
        if step is not None and _permutes(step.op, step.attrs, self.tensors[step.inputs[0]].shape, t.shape, _TO_NCHW):
            return step.inputs[0], {"layout": "NHWC"}
        return t.name, {}

    def blocks_of(self, t: g.Tensor, shape: tuple[int, ...]) -> str | None:
        """The tensor of blocks of `shape` that an earlier launch made and that `t` is unpacked from; None without it.

        Lanes beyond the channels hold whatever the launch left there, as between operators of one launch. If the
        channels fill whole blocks, images and channels may be divided differently, with the same product.
        """
        step = self._writer(t.name)
        if step is None or step.op != "unpack" or step.attrs["shape"] != [*t.shape]:
            return None
        found, n, c = self.tensors[step.inputs[0]].shape, step.attrs["n"], step.attrs["c"]
        if found == shape:
            return step.inputs[0] if [n, c] == [*t.shape[:2]] else None
        (batch, block), whole = shape[-2:], not (c % shape[-1] or t.shape[1] % shape[-1])
        same = found[-2:] == (batch, block) and found[2:-2] == shape[2:-2] and n * c == t.shape[0] * t.shape[1]
        return step.inputs[0] if batch == 1 and whole and same else None

    def _writer(self, name: str) -> HostStep | None:
        return next((s for s in self.steps if isinstance(s, HostStep) and name in s.outputs), None)

    def declare(
        self, name: str, shape: tuple[int, ...], dtype: str, kind: str = "temp", data: np.ndarray | None = None
    ) -> str:
        """Declare a tensor and return its name: `name`, or a variant of it if the graph has a tensor of that name."""
        name = self._names.unused(name)
        self.tensors[name] = Tensor(name, shape, dtype, kind, data)
        return name

    def host(
        self, name: str, kind: str, attrs: dict, inputs: list[str], shape: tuple[int, ...], dtype: str = "int8"
    ) -> str:
        """Append a host step whose output is a new tensor of the step's name."""
        output = self.declare(name, shape, dtype)
        self.steps.append(HostStep(name, kind, inputs, [output], attrs))
        return output

    def kernels(self, op: g.Operator) -> None:
        """Append the host steps that compute `op`; the last one is named after it and counts its work."""
        inputs, calls = [t.name for t in op.inputs], op.calls(self.graph.contract)
        for call in calls[:-1]:  # only layers have several; the first gives the accumulators
            name = self.declare(f"{op.name}.acc", op.output.shape, call.dtype)
            self.steps.append(HostStep(name, call.name, inputs, [name], call.attrs, call.constants))
            inputs = [name]
        last, before = calls[-1], self._writer(inputs[0])
        name, attrs = last.name, last.attrs
        if name == "softmax" and before is not None and before.op == "unpack":
            name, attrs, inputs = "unpack_softmax", before.attrs | attrs, before.inputs
        self.steps.append(HostStep(op.name, name, inputs, [op.output.name], attrs, last.constants, op.macs))


def wanted_from(graph: g.Graph, ops: Sequence[g.Operator]) -> list[g.Tensor]:
    """Results of `ops` that other operators read or that `graph` returns, in order."""
    read = {t.name for op in graph.ops if op not in ops for t in op.inputs} | {t.name for t in graph.wanted}
    return [op.output for op in ops if op.output.name in read]


def _names(step: LaunchStep | HostStep) -> list[str]:
    return [*step.bind.values()] if isinstance(step, LaunchStep) else [*step.inputs, *step.outputs]
