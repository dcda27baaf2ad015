"""Sums, products and extremes of two tensors, rectifiers, changes of quantisation, concatenations and slices."""

from __future__ import annotations

from .. import graph as g
from ..graph.integer_forms import OperandForm, Requant, rescaling_store, sum_form, weighted_form
from ..kernels import language
from ..kernels.gate import gate
from ..schedule.elementwise import elementwise
from ..schedule.epilogue import Stage
from .direct import lookup, slopes, weighted_sum
from .recording import Recording, entries, scale_parameters, store_parameters
from .rows import affine, pairs


def add(rec: Recording, op: g.Add) -> None:
    """Append a sum or difference: on the multiplier array, or as chains on both operands; the store requantises."""
    if (values := pairs.values_of(op, rec.cfg)) is not None:
        pairs.lower(rec, op, values)
        return
    if (line := affine.line_of(op, rec.cfg)) is not None:
        affine.lower(rec, op, line)
        return
    if weighted_sum.possible(rec.cfg) and (weights := weighted_form(op)) is not None:
        weighted_sum.lower(rec, op, weights)
        return
    form = sum_form(op)
    buffers = {"x": rec.operand(op, 0), "y": rec.operand(op, 1)}
    chains: dict[str, list[Stage]] = {}
    for name, operand in (("x", form.x), ("y", form.y)):
        chains[name] = _chain(operand, f"scale_{name}")
        if operand.scale is not None:
            buffers[f"scale_{name}"] = scale_parameters(rec, op, name, operand.scale)
    buffers["par"] = store_parameters(rec, op, form.store)
    last = [("add" if form.sign > 0 else "sub", "y"), ("requant", "par")]
    rec.append(op, rec.schedule(elementwise, entries(rec, op.output), last, operands=chains, dtype="int8"), buffers)


def multiply(rec: Recording, op: g.Mul) -> None:
    """Append a product: offsets, the ALU's multiplication, and a requantising store."""
    if (line := affine.line_of(op, rec.cfg)) is not None:
        affine.lower(rec, op, line)
        return
    if not language.why_not(gate, op, rec.cfg):
        language.lower(gate, rec, op)
        return
    if (values := pairs.values_of(op, rec.cfg)) is not None:
        pairs.lower(rec, op, values)
        return
    multiplier, exponent = op.multipliers
    store = Requant(0, multiplier, exponent, op.output.zero_point, op.low, op.high)
    chains = {name: _chain(OperandForm(-t.zero_point), "") for name, t in zip("xy", op.inputs)}
    last = [("mul", "y"), ("requant", "par")]
    scheduled = rec.schedule(elementwise, entries(rec, op.output), last, operands=chains, dtype="int8")
    buffers = {"x": rec.operand(op, 0), "y": rec.operand(op, 1), "par": store_parameters(rec, op, store)}
    rec.append(op, scheduled, buffers)


def squared_difference(rec: Recording, op: g.SquaredDifference) -> None:
    """Append the squares of differences from one value per pixel."""
    values = pairs.values_of(op, rec.cfg)
    assert values is not None  # else the module refuses it
    pairs.lower(rec, op, values)


def extreme(rec: Recording, op: g.Maximum) -> None:
    """Append the larger or the smaller value of each pair, int8 as they are."""
    last = [("min" if isinstance(op, g.Minimum) else "max", "y")]
    buffers = {"x": rec.operand(op, 0), "y": rec.operand(op, 1)}
    rec.append(op, rec.schedule(elementwise, entries(rec, op.output), last, dtype="int8"), buffers)


def prelu(rec: Recording, op: g.Prelu) -> None:
    """Append a rectifier with slopes: what is above the zero point, and the product of what is below it, each rescaled.

    One of the two is 0, and stays 0: their sum is the other.
    """
    x, alpha = op.inputs
    buffers = {"x": rec.operand(op, 0), "y": rec.operand(op, 0), "slope": rec.operand(op, 1)}
    chains: dict[str, list[Stage]] = {"slope": _chain(OperandForm(-alpha.zero_point), "")}
    chains["x"] = [*_chain(OperandForm(-x.zero_point), ""), ("max", 0), ("rescale", "scale_x")]
    chains["y"] = [*_chain(OperandForm(-x.zero_point), ""), ("min", 0), ("mul", "slope"), ("rescale", "scale_y")]
    for name, scale in zip("xy", op.multipliers):
        buffers[f"scale_{name}"] = scale_parameters(rec, op, name, scale)
    buffers["par"] = store_parameters(rec, op, Requant(0, 1 << 30, 1, op.output.zero_point))
    last = [("add", "y"), ("requant", "par")]
    rec.append(op, rec.schedule(elementwise, entries(rec, op.output), last, operands=chains, dtype="int8"), buffers)


def leaky(rec: Recording, op: g.LeakyRelu) -> None:
    """Append a rectifier with a slope below the zero point: a look-up, or the larger of two lines."""
    (lookup.lower if lookup.possible(rec.cfg) else slopes.lower)(rec, op)


def requantize(rec: Recording, op: g.Requantize) -> None:
    """Append a change of quantisation: a store, or a look-up where no store rounds so."""
    store = rescaling_store(op)
    if store is None:
        lookup.lower(rec, op)
        return
    scheduled = rec.schedule(elementwise, entries(rec, op.output), [("requant", "par")], dtype="int8")
    rec.append(op, scheduled, {"x": rec.operand(op, 0), "par": store_parameters(rec, op, store)})


def _chain(operand: OperandForm, scale: str) -> list[Stage]:
    offset: list[Stage] = [("add", operand.offset)] if operand.offset else []
    shift: list[Stage] = [("shl", operand.shift)] if operand.shift else []
    return offset + shift + ([] if operand.scale is None else [("rescale", scale)])
