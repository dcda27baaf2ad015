"""Epilogues: a chain of operations on accumulators, stored as int8 or byte planes.

`add`, `sub`, `mul`, `max`, `min`, `shr` and `shl` run on the ALU, with a number or a per-channel parameter. `rescale`,
also on the ALU, multiplies by a per-channel scale. `requant`, last in a chain, is part of the store: bias, scale, zero
point and clamp per channel; `requant_all` has one set for all channels. `runtime.layout.pack_par` packs the parameters
of these three.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from ...hw.config import Config
from ...hw.errors import ScheduleError
from ..intrin import ACC, PAR, PAR_WORDS, REQUANTISE, RESCALE
from ..tvm_compat import Node, te, tirx
from .tiling import Work

Stage = tuple[str, "int | str"]
PLANES = ("OUT0", "OUT1", "OUT2", "OUT3")

_OPS = {
    "add": tirx.Add,
    "sub": tirx.Sub,
    "mul": tirx.Mul,
    "max": tirx.Max,
    "min": tirx.Min,
    "shr": tirx.RShift,
    "shl": tirx.LShift,
}
STORES = ("requant", "requant_all")  # stages that are part of the store
PAR_OPS = ("rescale", *STORES)  # stages that read packed parameters


@dataclass
class Epilogue:
    """The stages after an accumulator tensor, as tensor expressions.

    `operands` are the per-channel parameters: int32 (channel blocks, batch, block) for the ALU, uint32 (channel blocks,
    block, 3) for `rescale` and `requant`, with one channel block for `requant_all`. `stages` are the names of the
    blocks on accumulators, in order, `readers` (block, scratchpad of its parameter), `shared` the readers whose
    parameter serves all channels.
    """

    operands: list
    stages: list[str]
    readers: list[tuple[str, str]]
    outputs: list
    shared: frozenset[str] = frozenset()

    def stored_after(self, stage: str | None) -> list[str]:
        """Names of the output blocks that read `stage` (None: the accumulators themselves)."""
        order: list[str | None] = [None, *self.stages]
        first = len(order) - len(self.outputs)  # each plane follows one stage; the last plane follows the last stage
        k = order.index(stage) - first
        return [self.outputs[k].op.name] if 0 <= k < len(self.outputs) else []


def plane_names(planes: bool | int) -> tuple[str, ...]:
    """Names of the stored byte planes: none, all (True), or the lowest 2 to 4. Raises `ScheduleError` for others."""
    if isinstance(planes, bool):
        return PLANES if planes else ()
    if planes not in range(2, len(PLANES) + 1):
        raise ScheduleError(f"planes = {planes!r}: must be True, False, or 2 to {len(PLANES)} bytes")
    return PLANES[:planes]


def alu_ops(chain: Sequence[Stage], planes: bool | int) -> int:
    """ALU operations per accumulator of an epilogue."""
    return len([op for op, _ in chain if op not in STORES]) + max(0, len(plane_names(planes)) - 1)


def with_epilogue(work: Work, chain: Sequence[Stage], planes: bool | int) -> Work:
    """`work` with the operations and operands of an epilogue."""
    operands, operations = len(accumulator_operands(chain)), alu_ops(chain, planes)
    packed = len(operand_names(chain)) - operands - sum(op == "requant_all" for op, _ in chain)
    return replace(work, operands=operands, packed=packed, alu_ops=operations, planes=len(plane_names(planes)) or 1)


def operand_names(chain: Sequence[Stage]) -> list[str]:
    """Names of the per-channel parameters of `chain`, each once."""
    return list(dict.fromkeys(value for _, value in chain if isinstance(value, str)))


def accumulator_operands(chain: Sequence[Stage]) -> list[str]:
    """Names of per-channel parameters that lie in accumulators."""
    packed = {value for op, value in chain if op in PAR_OPS}
    return [name for name in operand_names(chain) if name not in packed]


def check(chain: Sequence[Stage], taken: Sequence[str], planes: bool | int = False) -> None:
    """Raise `ScheduleError` for an unknown stage, or a parameter name that is taken."""
    for k, stage in enumerate(chain):
        if len(stage) != 2 or stage[0] not in (*_OPS, *PAR_OPS) or not isinstance(stage[1], (int, str)):
            raise ScheduleError(
                f"epilogue stage {stage!r}: must be one of {', '.join(_OPS)} with a number or a name, or "
                f"{' or '.join(PAR_OPS)} with a name"
            )
        if stage[0] in PAR_OPS and not isinstance(stage[1], str):
            raise ScheduleError(f"epilogue stage {stage!r}: must name packed parameters, not a number")
        if stage[0] in STORES and (planes or k + 1 < len(chain)):
            raise ScheduleError(f"epilogue stage {stage!r}: must be the last one, without planes")
        if stage == ("mul", 0):
            raise ScheduleError("epilogue stage ('mul', 0): the result would always be 0; leave it out")
    clash = set(operand_names(chain)) & {*taken, "out", *PLANES}
    if clash:
        raise ScheduleError(f"epilogue parameter {sorted(clash)[0]!r}: the name is taken; choose another")


def build(acc, chain: Sequence[Stage], planes: bool | int, cfg: Config, blocks: int) -> Epilogue:
    """The epilogue of accumulators `acc`, whose dimensions are (n, channel blocks, ..., batch, block)."""
    scales = {other: 1 if op == "requant_all" else blocks for op, other in chain if op in PAR_OPS}
    operands = {}
    for name in operand_names(chain):
        packed, plain = (scales.get(name, 1), cfg.block_out, PAR_WORDS), (blocks, cfg.batch, cfg.block_out)
        operands[name] = te.placeholder(*((packed, "uint32") if name in scales else (plain, "int32")), name)
    stages: list[str] = []
    readers: list[tuple[str, str]] = []
    last = acc
    for k, (op, other) in enumerate(chain):  # one tensor per stage: TVM would rewrite a whole expression
        if op in STORES and isinstance(other, str):
            readers.append(("out", PAR))
            out = _stage(last, op, operands[other], "out")
            shared = frozenset({"out"} if op == "requant_all" else ())
            return Epilogue(list(operands.values()), stages, readers, [out], shared)
        stages.append(f"{op}{k}")
        if isinstance(other, str):
            readers.append((stages[-1], PAR if op == "rescale" else ACC))
        last = _stage(last, op, operands[other] if isinstance(other, str) else other, stages[-1])
    if not planes:
        return Epilogue(list(operands.values()), stages, readers, [low_byte(last, "out")])
    outputs = []
    for k, name in enumerate(plane_names(planes)):
        if k:
            stages.append(f"byte{k}")
            last = _stage(last, "shr", 8, stages[-1])
        outputs.append(low_byte(last, name))
    return Epilogue(list(operands.values()), stages, readers, outputs)


def scaled(op: str, value, par, channel: Callable, *axes):
    """The expression of stage `op` of PAR_OPS on `value`, with the parameters `par` of `channel(axes)`: block, lane."""
    dtype, name = ("int8", REQUANTISE) if op in STORES else ("int32", RESCALE)
    words = [par[(*channel(axes), k)] for k in range(PAR_WORDS)]
    return tirx.call_extern(dtype, name, value(*axes), *words)


def apply(op: str, value, other, axes):
    """The expression `op(value, other)` of an ALU stage; `other` is a number or a tensor, read at `axes`."""
    return _OPS[op](value, tirx.const(other, "int32") if isinstance(other, int) else other(*axes))


def _stage(tensor, op: str, other, name: str):
    if op in PAR_OPS:

        def channel(axes):
            return 0 if op == "requant_all" else axes[1], axes[-1]

        return te.compute(tensor.shape, partial(scaled, op, tensor, other, channel), name=name)

    def value(*axes):
        return apply(op, tensor(*axes), other, (axes[1], *axes[-2:]))

    return te.compute(tensor.shape, value, name=name)


def low_byte(tensor: Node, name: str) -> Node:
    """Block `name` with the lowest byte of each element of `tensor`, int8."""
    return te.compute(tensor.shape, lambda *axes: tensor(*axes).astype("int8"), name=name)
