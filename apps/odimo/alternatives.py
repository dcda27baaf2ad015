"""What an output channel of a layer chooses between: two compute units, or two types of layer on one of them.

With `UNIT` channels are int8 on GEMM, or ternary on the other unit. With `TYPE` all are int8, and one is either that of
a standard convolution, which reads all input channels, or that of a depthwise one, which reads its own.
"""

from __future__ import annotations

from dataclasses import dataclass

from .mapping import UNITS

UNIT, TYPE = "unit", "type"
MIN_COST = "min-cost"


@dataclass(frozen=True)
class Alternatives:
    """A choice: `names` of the two sides, and the fixed choices that stand beside the searches.

    The first of `baselines` has every channel on the first side, the second on the second.
    """

    names: tuple[str, str]
    baselines: tuple[str, ...]


ALTERNATIVES = {
    UNIT: Alternatives((UNITS[0], UNITS[1]), ("all-8bit", "all-ternary", "io-8bit", MIN_COST)),
    TYPE: Alternatives(("conv", "depthwise"), ("all-conv", "all-depthwise", MIN_COST)),
}
