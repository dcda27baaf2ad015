"""What happens to accumulators before they are stored: a chain of ALU operations, then int8 or byte planes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...hw.config import Config
from ...hw.errors import ScheduleError
from ..tvm_compat import te, tirx

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


@dataclass
class Epilogue:
    """The stages after an accumulator tensor, as tensor expressions.

    `operands` are the per-channel parameters, int32 (channel blocks, batch, block); `stages` the names of the blocks
    on accumulators in order, and of those `readers` are the ones that read a parameter.
    """

    operands: list
    stages: list[str]
    readers: list[str]
    outputs: list

    def stored_after(self, stage: str | None) -> list[str]:
        """Names of the output blocks that read `stage` (None: the accumulators themselves)."""
        order: list[str | None] = [None, *self.stages]
        first = len(order) - len(self.outputs)  # each plane follows one stage, the last one the last
        k = order.index(stage) - first
        return [self.outputs[k].op.name] if 0 <= k < len(self.outputs) else []


def alu_ops(chain: Sequence[Stage], planes: bool) -> int:
    """ALU operations per accumulator of an epilogue."""
    return len(chain) + 3 * planes


def operand_names(chain: Sequence[Stage]) -> list[str]:
    """Names of the per-channel parameters of `chain`, each once."""
    return list(dict.fromkeys(value for _, value in chain if isinstance(value, str)))


def check(chain: Sequence[Stage], taken: Sequence[str]) -> None:
    """Raise `ScheduleError` for a stage that is no operation, or a parameter name that is taken."""
    for stage in chain:
        if len(stage) != 2 or stage[0] not in _OPS or not isinstance(stage[1], (int, str)):
            raise ScheduleError(f"epilogue stage {stage!r}: must be one of {', '.join(_OPS)} with a number or a name")
        if stage == ("mul", 0):
            raise ScheduleError("epilogue stage ('mul', 0): nothing of what is computed would be left")
    clash = set(operand_names(chain)) & {*taken, "out", *PLANES}
    if clash:
        raise ScheduleError(f"epilogue parameter {sorted(clash)[0]!r}: the name is taken; choose another")


def build(acc, chain: Sequence[Stage], planes: bool, cfg: Config, blocks: int) -> Epilogue:
    """The epilogue of accumulators `acc`, whose dimensions are (n, channel blocks, ..., batch, block)."""
    shape = (blocks, cfg.batch, cfg.block_out)
    operands = {name: te.placeholder(shape, "int32", name) for name in operand_names(chain)}
    stages: list[str] = []
    last = acc
    for k, (op, other) in enumerate(chain):  # one stage each: TVM would rewrite a whole expression
        stages.append(f"{op}{k}")
        last = _stage(last, op, operands[other] if isinstance(other, str) else other, stages[-1])
    readers = [name for name, (_, other) in zip(stages, chain) if isinstance(other, str)]
    if not planes:
        out = te.compute(acc.shape, lambda *axes: last(*axes).astype("int8"), name="out")
        return Epilogue(list(operands.values()), stages, readers, [out])
    outputs = []
    for k, name in enumerate(PLANES):
        if k:
            stages.append(f"byte{k}")
            last = _stage(last, "shr", 8, stages[-1])
        outputs.append(_low_byte(last, name))
    return Epilogue(list(operands.values()), stages, readers, outputs)


def apply(op: str, value, other, axes):
    """The expression `op(value, other)`; `other` is a number or a tensor, read at `axes`."""
    return _OPS[op](value, tirx.const(other, "int32") if isinstance(other, int) else other(*axes))


def _stage(tensor, op: str, other, name: str):
    def value(*axes):
        return apply(op, tensor(*axes), other, (axes[1], *axes[-2:]))

    return te.compute(tensor.shape, value, name=name)


def _low_byte(tensor, name: str):
    return te.compute(tensor.shape, lambda *axes: tensor(*axes).astype("int8"), name=name)
