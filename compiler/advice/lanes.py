"""Reductions that no instruction computes: along the lanes of an accumulator entry, or of several values at once.

Asked before lowering, where a block still says what it reduces; lowered, only its first statement would be refused.
"""

from __future__ import annotations

import math
from typing import Any

from ...hw.config import Config
from ...hw.errors import ScheduleError
from ..tvm_compat import PrimFunc, ir, s_tir, structural_walk, sym, tirx
from .products import REDUCED, name_of

_ACC = "local.acc"


def check_reductions(func: PrimFunc, cfg: Config) -> None:
    """Raise `ScheduleError`, which names a layout or unit that does, for a reduction that the ALU cannot compute."""
    blocks: list = []
    structural_walk(func.body, [(s_tir.SBlock, blocks.append)])
    for block in blocks:
        reduced = [axis for axis in block.iter_vars if int(axis.iter_type) == REDUCED and int(axis.dom.extent) > 1]
        if reduced and any(region.source.scope() == _ACC for region in block.writes):
            _check(block, reduced, cfg)


def _check(block: Any, reduced: list, cfg: Config) -> None:
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


def _moves(index: Any, var: Any) -> bool:
    form = list(sym.detect_linear_equation(index, [var]))
    return not form or not (isinstance(form[0], tirx.IntImm) and int(form[0].value) == 0)
