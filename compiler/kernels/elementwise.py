"""Element-wise operators by schedules of the ALU."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from .. import graph as g
from ..graph.integer_forms import OperandForm, Requant, rescaling_store, sum_form
from ..schedule.elementwise import elementwise
from ..schedule.epilogue import Stage
from .language import Kernel, Unfit, by_shape


class _Operand(NamedTuple):
    """Input `number` of the operator, brought to `form`; `stages` come before its RESCALE."""

    number: int
    form: OperandForm = OperandForm()
    stages: tuple[Stage, ...] = ()


def need_one_shape(op: g.Operator) -> None:
    """Raise `Unfit` unless operands and output are vectors or images of one shape; constants are broadcast."""
    shape = op.output.shape
    if len(shape) not in (2, 4):
        raise Unfit(f"{len(shape)} dimensions")
    for t in op.inputs:
        if t.data is None and t.shape != shape:
            raise Unfit(f"operand of shape {t.shape} is broadcast")


def sum_of_two(k: Kernel, op: g.Add) -> None:
    """A sum or difference: chains on both operands, and a requantising store."""
    if any(t.name in k.rec.padded for t in op.inputs):
        raise Unfit("an operand has fewer channels")
    form = sum_form(op)
    last = [("add" if form.sign > 0 else "sub", "y")]
    _schedule(k, op, {"x": _Operand(0, form.x), "y": _Operand(1, form.y)}, last, form.store)


@by_shape(lambda op: ())
def product_of_two(k: Kernel, op: g.Mul) -> None:
    """A product: offsets, the ALU's multiplication, and a requantising store."""
    operands = {name: _Operand(i, OperandForm(-t.zero_point)) for i, (name, t) in enumerate(zip("xy", op.inputs))}
    store = Requant(0, *op.multipliers, op.output.zero_point, op.low, op.high)
    _schedule(k, op, operands, [("mul", "y")], store)


def extreme(k: Kernel, op: g.Maximum) -> None:
    """The larger or the smaller value of each pair, int8 as they are."""
    last = [("min" if isinstance(op, g.Minimum) else "max", "y")]
    _schedule(k, op, {"x": _Operand(0), "y": _Operand(1)}, last)


def prelu(k: Kernel, op: g.Prelu) -> None:
    """What is above the zero point, and the product of what is below it, each rescaled, and their sum.

    One of the two is 0, and stays 0.
    """
    (x, alpha), (above, below) = op.inputs, op.multipliers
    operands = {
        "slope": _Operand(1, OperandForm(-alpha.zero_point)),
        "x": _Operand(0, OperandForm(-x.zero_point, scale=above), (("max", 0),)),
        "y": _Operand(0, OperandForm(-x.zero_point, scale=below), (("min", 0), ("mul", "slope"))),
    }
    _schedule(k, op, operands, [("add", "y")], Requant(0, 1 << 30, 1, op.output.zero_point))


@by_shape(lambda op: rescaling_store(op) is None)
def requantise(k: Kernel, op: g.Requantize) -> None:
    """A change of quantisation that a requantising store rounds as the operator does."""
    need_one_shape(op)
    store = rescaling_store(op)
    if store is None:
        raise Unfit("no store rounds its ties to even")
    _schedule(k, op, {"x": _Operand(0)}, [], store)


def _schedule(
    k: Kernel,
    op: g.Operator,
    operands: dict[str, _Operand],
    last: Sequence[Stage],
    store: Requant | None = None,
) -> None:
    """Append the stages `last` on the operands, tensors of these names, and the requantising store."""
    rescaled = any(operand.form.scale for operand in operands.values())
    k.need("acc8", *["requant"] * (store is not None), *["rescale"] * rescaled)
    need_one_shape(op)
    buffers = {name: k.rec.operand(op, operand.number) for name, operand in operands.items()}
    chains = dict[str, list[Stage]]()
    for name, (_, form, stages) in operands.items():
        chains[name] = [("add", form.offset)] if form.offset else []
        chains[name] += [("shl", form.shift)] if form.shift else []
        chains[name] += stages
        if form.scale is not None:
            chains[name].append(("rescale", f"scale_{name}"))
            buffers[f"scale_{name}"] = k.requant(Requant(0, *form.scale, 0), f"scale_{name}").buffer
    if store is not None:
        last = [*last, ("requant", "par")]
        buffers["par"] = k.requant(store).buffer
    scheduled = k.rec.schedule(elementwise, k.output.size, last, operands=chains, dtype="int8")
    k.rec.append(op, scheduled, buffers)
