"""Merges host steps that follow one another into one call, in which every value is read once and written once.

A step of one input that moves values, or computes each by itself, joins the step whose result it alone reads. What a
call does twice is done once: two changes of layout are one, functions of an int8 value are one table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from ...runtime.hostops import HOST_OPS, LAYOUTS, STAGES, VALUE_BY_VALUE, Operand
from ...runtime.steps import HostStep, LaunchStep, Tensor

_TO_NCHW, _TO_NHWC = (0, 3, 1, 2), (0, 2, 3, 1)
_TABLES = ("lookup", "rescale")  # of int8 values, to int8
_EVERY_VALUE = np.arange(-128, 128).astype(np.int8)
MOST_MERGED = 16


@dataclass
class _Stage:
    """One operator of a call: its attributes, constants among them, and what it reads."""

    op: str
    attrs: dict
    x: Operand
    result: Operand = field(init=False)

    def __post_init__(self) -> None:
        self.result = HOST_OPS[self.op].result([self.x], self.attrs)


def merge(
    steps: Sequence[LaunchStep | HostStep], tensors: Mapping[str, Tensor]
) -> tuple[list[LaunchStep | HostStep], dict[str, tuple[HostStep, ...]]]:
    """(the steps, those that were merged by the name of the call).

    Only tensors of kind `temp` with one reader vanish.
    """
    reads: dict[str, int] = {}
    for step in steps:
        for name in _reads(step):
            reads[name] = reads.get(name, 0) + 1
    for t in tensors.values():
        if t.next is not None:
            reads[t.next] = reads.get(t.next, 0) + 1
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
    """One step that does what `found` do, named after the last that computes, else after the last."""
    stages = []
    for step in found:
        t = tensors[step.inputs[0]]
        stages.append(_Stage(step.op, step.attrs | step.constants, Operand(t.shape, t.dtype)))
    for rewrite in (_read_nhwc, _write_nhwc, _one_table):
        stages = rewrite(stages)
    last, macs = found[-1], sum(step.macs for step in found)
    name = next((step.name for step in reversed(found) if step.op not in LAYOUTS), last.name)
    if len(stages) == 1:
        attrs = {key: value for key, value in stages[0].attrs.items() if not isinstance(value, np.ndarray)}
        constants = {key: value for key, value in stages[0].attrs.items() if isinstance(value, np.ndarray)}
        return HostStep(name, stages[0].op, found[0].inputs, last.outputs, attrs, constants, macs)
    tables = [stage.attrs["table"] for stage in stages if stage.op == "lookup"]
    constants = {"tables": np.stack(tables)} if tables else {}
    listed, number = [], 0
    for stage in stages:
        listed.append([stage.op, {"table": number} if stage.op == "lookup" else stage.attrs])
        number += stage.op == "lookup"
    return HostStep(name, "chain", found[0].inputs, last.outputs, {"stages": listed}, constants, macs)


def _order(stage: _Stage, axes: Sequence[int]) -> bool:
    """True if the stage brings the dimensions of an image in the order `axes`, and moves nothing else."""
    shape = stage.x.shape
    if len(shape) != 4 or stage.result.shape != tuple(shape[k] for k in axes):
        return False
    sizes = [k for k in axes if shape[k] > 1]
    return stage.attrs.get("axes") == [*axes] or (stage.op == "reshape" and sizes == sorted(sizes))


def _read_nhwc(stages: list[_Stage]) -> list[_Stage]:
    """Images that are brought to NCHW before they are packed are packed as they lie."""
    for k, stage in enumerate(stages[:-1]):
        if stage.op not in ("transpose", "reshape") or not _order(stage, _TO_NCHW):
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
    """Images that are brought to NHWC once they are unpacked are unpacked so, and shapes change on the way."""
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
            elif image and _order(mover, _TO_NHWC):
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
    """Functions of an int8 value that follow one another are one table of 256 values."""
    found: list[_Stage] = []
    for stage in stages:
        if found and stage.op in _TABLES and found[-1].op in _TABLES:
            table = _EVERY_VALUE
            for one in (found.pop(), stage):
                (table,) = HOST_OPS[one.op]([table], one.attrs)
                x = one.x
            found.append(_Stage("lookup", {"table": table}, x))
        else:
            found.append(stage)
    return found
