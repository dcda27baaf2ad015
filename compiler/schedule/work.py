"""The work of a schedule in blocks of the packed layout, which the tile search estimates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...hw.config import Config
from ...hw.errors import ScheduleError
from ..conv_shape import ConvShape


@dataclass(frozen=True)
class Work:
    """A convolution in blocks of the packed layout, and the operations and operands of its epilogue.

    `n`, `co` and `ci` count blocks. Each output block of a `depthwise` work has its own input block, its weights,
    if any, stay on chip, and `ci` is 1. `operands` are per-channel tensors of the epilogue in
    accumulators, `packed` those in PAR, `alu_ops` its operations, `planes` the stores per tile.
    A micro-op takes `row_taps` taps of a kernel row; packed depthwise weights have `pitch` rows for each, 0 for as many
    as taps.
    """

    shape: ConvShape
    n: int
    co: int
    ci: int
    depthwise: bool = False
    operands: int = 0
    packed: int = 0
    alu_ops: int = 0
    planes: int = 1
    row_taps: int = 1
    pitch: int = 0

    @classmethod
    def of(cls, shape: ConvShape, cfg: Config, *, depthwise: bool = False) -> Work:
        """The work of `shape` without an epilogue; with `depthwise` every output channel reads one input channel.

        Raises `ScheduleError` for what is no configuration.
        """
        if not isinstance(cfg, Config):
            raise ScheduleError(
                f"configuration {cfg!r}: must be a Config, as load_config of tilewright.hw.config makes"
            )
        ci = 1 if depthwise else -(-shape.c // cfg.block_in)
        return cls(shape, -(-shape.n // cfg.batch), -(-shape.o // cfg.block_out), ci, depthwise)

    @property
    def oy(self) -> int:
        """Output rows."""
        return self.shape.output[0]

    @property
    def ox(self) -> int:
        """Output columns."""
        return self.shape.output[1]

    @property
    def vector(self) -> bool:
        """True for the products of one vector: every weight is used once."""
        return self.n * self.oy * self.ox == 1 and not self.depthwise

    @property
    def issues(self) -> int:
        """Micro-ops of one output block that read one input block."""
        kh, kw = self.shape.kernel
        return kh * -(-kw // self.row_taps)

    @property
    def weight_rows(self) -> int:
        """Rows of weights of one block of channels of a `depthwise` work."""
        kh, kw = self.shape.kernel
        return kh * (self.pitch or kw)

    def inputs(self, oy: Any, ox: Any) -> tuple[Any, Any]:
        """Input rows and columns that a tile needs on chip, without the rows that a kernel of one row skips."""
        rows, columns = self.shape.reach(oy, ox)
        return (oy if self.shape.kernel[0] == 1 else rows), columns
