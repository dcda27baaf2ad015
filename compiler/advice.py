"""Error messages for authors of schedules: one sentence per mistake, with the code to write instead.

`check` compares a block with a tensor intrinsic (scopes, dtypes, casts, loops, layouts) before TVM does, which would
print both. `check_function` refuses reductions that no instruction computes: along the lanes of an accumulator entry,
or of several values at once. Errors of TVM itself are in compiler/sentences.py, mistakes that only lowering finds in
compiler/tir.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NoReturn

from ..hw.config import Config
from ..hw.errors import ScheduleError
from .tvm_compat import Node, PrimFunc, Schedule, ir, s_tir, structural_equal, structural_walk, sym, tirx

REDUCED = 2  # the kind of an axis that is summed over
VTA_SUFFIX = "_buffer"  # VTA's scopes are local.inp_buffer and so on


@dataclass(frozen=True)
class Wanted:
    """Requirements of an intrinsic on one tensor.

    `role` is its part in the product, for messages; `scope` its scratchpad, and `name` the constant of
    compiler/intrin.py for that. `entry` is the shape of an entry, `steps` the distance in elements between the
    iterations of each innermost loop. `packing` names the functions of runtime/layout.py that make this layout.
    """

    role: str
    name: str
    scope: str
    dtype: str
    entry: tuple[int, int]
    steps: tuple[int, ...]
    packing: str = ""


@dataclass(frozen=True)
class Form:
    """The blocks of an intrinsic: `loops` are names and extents of the innermost loops, from outside to inside.

    The block adds the product of `factors` to `acc`; without factors it sets `acc` to 0.
    """

    loops: dict[str, int]
    acc: Wanted
    factors: tuple[Wanted, ...] = ()


def check(sch: Schedule, block: Node, form: Form) -> None:
    """Raise `ScheduleError`, in one sentence with the remedy, if `block` cannot become the intrinsic of `form`."""
    if not isinstance(sch.get(block), s_tir.SBlock):
        raise ScheduleError("tensorize takes a block, as sch.get_sblock(name) returns, not a loop")
    _Block(sch, block, form).check()


def scope_named(scope: str) -> str:
    """The mistake in `scope` where it is a name of VTA's; empty for other scopes."""
    if scope.startswith("local.") and scope.endswith(VTA_SUFFIX):
        return f"{scope!r} is VTA's name; write {scope.removesuffix(VTA_SUFFIX)!r}"
    return ""


class _Block:
    def __init__(self, sch: Schedule, block: Node, form: Form):
        self.form, self.node = form, sch.get(block)
        self.name, self.store = self.node.name_hint, self.node.body
        around = [sch.get(loop) for loop in sch.get_loops(block)]
        self.outer, self.inner = around[: -len(form.loops)], around[-len(form.loops) :]

    def check(self) -> None:
        self._check_statement()
        loads = self._factors()
        self._check_loops()
        self._check_order()
        self._check_swapped(loads)
        self._check_tensor(self.store.buffer, self.store.indices, self.form.acc, 0)
        for k, (load, wanted) in enumerate(zip(loads, self.form.factors)):
            self._check_tensor(load.source, load.indices, wanted, k)

    def _refuse(self, text: str) -> NoReturn:
        raise ScheduleError(f"block {self.name!r}: {text}")

    def _check_statement(self) -> None:
        if not isinstance(self.store, tirx.BufferStore):
            self._refuse("is not one statement; tensorize the block of the product, before other schedule primitives")
        loads: list = []
        structural_walk(self.store.value, [(ir.TensorLoad, loads.append)])
        for load in loads:
            dtype = str(load.source.ty.dtype)
            if load.source.same_as(self.store.buffer) or dtype == "int8" or not self.form.factors:
                continue
            shift = "subtract 128 on the host and add 128 * sum(w) to the bias" if dtype == "uint8" else "quantise it"
            self._refuse(f"{name_of(load.source)} is {dtype}; the GEMM unit multiplies int8: {shift}")
        dtype = str(self.store.buffer.ty.dtype)
        if dtype != self.form.acc.dtype:
            self._refuse(f"{name_of(self.store.buffer)} is {dtype}; accumulators are int32: cast both factors to int32")

    def _factors(self) -> list:
        """The loads of the product's factors; none for a reset."""
        value = self.store.value
        if not self.form.factors:
            if not isinstance(value, tirx.IntImm) or int(value.value) != 0:
                self._refuse("a reset stores 0 to accumulators; pass the block that decompose_reduction returns")
            return []
        if not isinstance(value, tirx.Add) or not self._is_target(value.a):
            self._refuse("must add a product to its accumulator, as te.sum(x * w) does: acc = acc + x * w")
        product = value.b
        if isinstance(product, tirx.Cast) or not isinstance(product, tirx.Mul):
            self._refuse(_CASTS if isinstance(product, tirx.Cast) else f"adds no product of two tensors; {_CASTS}")
        return [self._factor(factor) for factor in (product.a, product.b)]

    def _factor(self, factor: Node) -> Node:
        if isinstance(factor, (tirx.Sub, tirx.Add)):
            self._refuse(
                "a zero point is subtracted inside the product: multiply x itself, subtract zp * sum(w) in the bias, "
                "and pad with pad_value = zp"
            )
        if not isinstance(factor, tirx.Cast) or str(factor.ty.dtype) != "int32":
            self._refuse(_CASTS)
        if not isinstance(factor.value, ir.TensorLoad):
            self._refuse(_CASTS)
        return factor.value

    def _is_target(self, expr: Node) -> bool:
        if not isinstance(expr, ir.TensorLoad) or not expr.source.same_as(self.store.buffer):
            return False
        return all(structural_equal(a, b) for a, b in zip(expr.indices, self.store.indices))

    def _check_loops(self) -> None:
        wanted = tuple(self.form.loops.values())
        found = tuple(int(loop.extent) for loop in self.inner)
        if found == wanted:
            return
        order = ", ".join(self.form.loops)
        remedy = f"split the loops by {wanted} and reorder these innermost"
        summed = math.prod(int(axis.dom.extent) for axis in self.node.iter_vars if int(axis.iter_type) == REDUCED)
        if len(wanted) == 3 and summed < wanted[2]:
            remedy += f"; a sum over {summed} needs zeros up to {wanted[2]}, with which runtime/layout.py packs"
        self._refuse(f"innermost loops have extents {found}, the intrinsic needs {wanted} ({order}): {remedy}")

    def _check_order(self) -> None:
        steps = self._steps(self.store.buffer, self.store.indices)
        wanted = self.form.acc.steps
        if steps is not None and not self._alike(steps, wanted) and sorted(steps) == sorted(wanted):
            names = ", ".join(self.form.loops)
            self._refuse(f"innermost loops are in another order than {names}: sch.reorder(..., {names})")

    def _check_swapped(self, loads: Sequence[Node]) -> None:
        if len(loads) != 2:
            return
        first, second = (self._steps(load.source, load.indices) for load in loads)
        inp, wgt = self.form.factors
        if first is None or second is None:
            return
        crossed = [self._scope(load.source) for load in loads] == [wgt.scope, inp.scope]
        swapped = self._alike(first, wgt.steps) and self._alike(second, inp.steps)
        if swapped and (crossed or not self._alike(first, inp.steps)):
            a, b = (name_of(load.source) for load in loads)
            self._refuse(f"operands are swapped: write {b} * {a}, the input first, then the weights")

    def _check_tensor(self, tensor: Node, indices: Sequence[Node], wanted: Wanted, position: int) -> None:
        name, scope = name_of(tensor), self._scope(tensor)
        if scope != wanted.scope:
            into = f"{wanted.role} must be in {wanted.scope}"
            if named := scope_named(scope):
                self._refuse(f"{name}: scope {named} ({wanted.name} of tilewright.compiler.intrin)")
            place = "in DRAM" if scope in ("", "global") else f"in {scope}"
            way = f"sch.cache_read({self._before}, {position}, {wanted.name})"
            if not wanted.packing:
                way = f"sch.set_scope({self._before}, 0, {wanted.name})"
            kind = "operand " if wanted.packing else ""
            self._refuse(f"{kind}{name} is {place}, {into}: use {way} before decompose_reduction")
        steps = self._steps(tensor, indices)
        if steps is None or self._alike(steps, wanted.steps) and self._aligned(tensor, indices, wanted):
            return
        self._refuse_layout(tensor, steps, wanted)

    def _refuse_layout(self, tensor: Node, steps: tuple[int, ...], wanted: Wanted) -> NoReturn:
        name, (rows, columns) = name_of(tensor), wanted.entry
        shape = tuple(int(n) for n in tensor.ty.shape)
        packed = wanted.packing or "runtime/layout.py has the packed layouts"
        if len(steps) == 3 and wanted.steps[0] == 0 and self._alike(steps, (0, 1, rows)):
            self._refuse(
                f"weights {name} must be (block_out, block_in), found (block_in, block_out): pack them with {packed}"
            )
        whole = f"(..., {rows}, {columns})"
        if wanted.packing and rows == 1:  # depthwise weights
            whole = f"(n, {columns}, {columns}), whose row (block * kh + y) * pitch + x has a block of channels"
        elif len(shape) == 2:
            whole = str((*(-(-n // size) for n, size in zip(shape, wanted.entry)), rows, columns))
        self._refuse(
            f"{name} {shape} does not lie in entries of {rows}x{columns} adjacent elements: lay it out as {whole}, "
            f"with {packed}"
        )

    @property
    def _before(self) -> str:
        """The name of the block before `decompose_reduction`."""
        return self.name.removesuffix("_update")

    @staticmethod
    def _scope(tensor: Node) -> str:
        return str(tensor.scope())

    def _alike(self, steps: Sequence[int], wanted: Sequence[int]) -> bool:
        """True if the steps are equal for all loops with several iterations."""
        extents = self.form.loops.values()
        return all(a == b for a, b, extent in zip(steps, wanted, extents) if extent > 1)

    def _steps(self, tensor: Node, indices: Sequence[Node]) -> tuple[int, ...] | None:
        """Elements between the iterations of each innermost loop; None where they are not constant."""
        return self._along(tensor, indices, self.inner)

    def _aligned(self, tensor: Node, indices: Sequence[Node], wanted: Wanted) -> bool:
        """True if the outer loops step by whole entries, or if an index is not linear in them: TVM checks that."""
        steps = self._along(tensor, indices, self.outer)
        size = math.prod(wanted.entry)
        return steps is None or not any(step % size for step, loop in zip(steps, self.outer) if not _once(loop))

    def _along(self, tensor: Node, indices: Sequence[Node], loops: Sequence[Node]) -> tuple[int, ...] | None:
        realize = self.inner[-1].body
        if not isinstance(realize, s_tir.SBlockRealize):
            return None
        flat, shape = tirx.const(0, "int32"), [int(n) for n in tensor.ty.shape]
        for k, index in enumerate(indices):
            flat = flat + index * math.prod(shape[k + 1 :])
        steps = [0] * len(loops)
        for axis, value in zip(self.node.iter_vars, realize.iter_values):
            parts = _coefficients(value, [loop.loop_var for loop in loops])
            if parts is None:
                return None
            if any(parts):  # an index may depend on other axes in any way
                weight = _coefficients(flat, [axis.var])
                if weight is None:
                    return None
                steps = [step + weight[0] * part for step, part in zip(steps, parts)]
        return tuple(steps)


def _once(loop: Node) -> bool:
    return isinstance(loop.extent, tirx.IntImm) and int(loop.extent.value) == 1


def _coefficients(expr: Node, variables: Sequence[Node]) -> list[int] | None:
    """The factors of `variables` in `expr`; None where it is not linear in them."""
    if not variables:
        return []
    form = list(sym.detect_linear_equation(expr, list(variables)))
    if len(form) != len(variables) + 1 or not all(isinstance(c, tirx.IntImm) for c in form[:-1]):
        return None
    return [int(c.value) for c in form[:-1]]


def name_of(tensor: Node) -> str:
    """The tensor's name without the scope that TVM appends."""
    return re.split(r"_local[._]", str(tensor.name))[0]


_CASTS = 'the product must be of two casts to int32: x.astype("int32") * w.astype("int32")'


_ACC = "local.acc"


def check_function(func: PrimFunc, cfg: Config) -> None:
    """Raise `ScheduleError`, which names what to write instead, for a function without a schedule, a reduction that the
    ALU cannot compute, or accumulators that are copied to DRAM as they are.
    """
    blocks: list = []
    allocated: list = []
    structural_walk(
        func.body, [(s_tir.SBlock, blocks.append), (tirx.AllocBuffer, lambda op: allocated.append(op.buffer))]
    )
    allocated += [buffer for block in blocks for buffer in block.alloc_buffers]
    on_chip = any(buffer.scope() not in ("", "global") for buffer in allocated)
    if not on_chip and any(len(block.reads) for block in blocks):
        raise ScheduleError(
            "the function has no tensor on chip, so it is not scheduled: give it to Schedule and cache_read, set_scope "
            "and tensorize_gemm (docs/schedules.md), or take a ready schedule: dense, conv2d, depthwise, pool, "
            "elementwise"
        )
    for block in blocks:
        _check_copy(block, allocated)
        reduced = [axis for axis in block.iter_vars if int(axis.iter_type) == REDUCED and int(axis.dom.extent) > 1]
        if reduced and any(region.source.scope() == _ACC for region in block.writes):
            _check_reduction(block, reduced, cfg)


def _check_copy(block: Node, allocated: Sequence[Node]) -> None:
    """A block of `cache_write`, where the tensor was meant to lie in local.acc."""
    store = block.body
    if not isinstance(store, tirx.BufferStore) or not isinstance(store.value, ir.TensorLoad):
        return
    to, source = store.buffer, store.value.source
    if source.scope() == _ACC and to.scope() in ("", "global") and any(to.same_as(buffer) for buffer in allocated):
        raise ScheduleError(
            f"block {block.name_hint!r}: copies {name_of(to)} from local.acc to DRAM as int32, which STORE does not: "
            f"write sch.set_scope({name_of(to)}, 0, ACC) in place of cache_write"
        )


def instead_of(expr: Node) -> str:
    """What to write for `expr`, which is no operation of the accelerator; empty where nothing special is known."""
    parts: list = []
    structural_walk(expr, [(ir.Expr, parts.append)])
    if any(str(part.ty.dtype).startswith("float") for part in parts if hasattr(part.ty, "dtype")):
        return "scales are integers: mul and >>, or REQUANTISE, whose scales layout.pack_par packs; floats on the host"
    if isinstance(expr, (tirx.FloorDiv, tirx.FloorMod, tirx.Div, tirx.Mod)):
        divisor = int(expr.b.value) if isinstance(expr.b, tirx.IntImm) else 0
        shift = divisor.bit_length() - 1
        if divisor < 1 or divisor != 1 << shift:
            return "the ALU has no division: mul and >>, or on the host"
        rounds = "" if isinstance(expr, (tirx.FloorDiv, tirx.FloorMod)) else ", which rounds down"
        if isinstance(expr, (tirx.FloorMod, tirx.Mod)):
            return f"the remainder is x - ((x >> {shift}) << {shift}){rounds}, in stages of one operation each"
        return f"write >> {shift} in place of the division by {divisor}{rounds}"
    if isinstance(expr, tirx.Select) or (isinstance(expr, ir.Call) and "if_then_else" in expr.op.name):
        return (
            "write ReLU as te.max(x, 0), leaky ReLU as te.max(x, x >> 3), abs as te.max(x, -x), of stages of their own"
        )
    return ""


def _check_reduction(block: Node, reduced: list, cfg: Config) -> None:
    name = block.name_hint.split("_local.")[0]
    if len(block.writes) > 1:
        raise ScheduleError(
            f"block {name!r}: reduces {len(block.writes)} values at once, as argmax does, the ALU only one: take the "
            "max of value * n + index with the reduced axis across entries, or leave it to the host"
        )
    loads: list = []
    structural_walk(block.body, [(ir.TensorLoad, loads.append)])
    for load in loads:
        if load.source.scope() != _ACC:
            continue  # a product of inputs and weights is GEMM's
        shape = tuple(int(n) for n in load.source.ty.shape)
        for k, index in enumerate(load.indices):
            step = math.prod(shape[k + 1 :])
            if step < cfg.lanes and any(_moves(index, axis.var) for axis in reduced):
                tensor = name_of(load.source)
                raise ScheduleError(
                    f"block {name!r}: reduces along the lanes of an accumulator entry (axis {k} of {tensor} {shape}), "
                    f"which the ALU cannot: transpose {tensor} so that axis {k} is across entries, outside the last "
                    f"(..., {cfg.batch}, {cfg.block_out}); or leave it to the host"
                )


def _moves(index: Node, var: Node) -> bool:
    form = list(sym.detect_linear_equation(index, [var]))
    return not form or not (isinstance(form[0], tirx.IntImm) and int(form[0].value) == 0)
