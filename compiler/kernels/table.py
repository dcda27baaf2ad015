"""Which kernels compute an operator: the only table. Of those that fit, the one with the fewest cycles does."""

from __future__ import annotations

from ...hw.config import Config
from ...hw.errors import Unfit
from .. import cost
from .. import graph as g
from ..accelerator.recording import Recording
from . import language
from .channels import move_channels
from .language import Record
from .mean import mean_of_channels, mean_of_pixels
from .movement import concatenate, cut
from .pool import average_pool, max_pool, max_pool_sorted
from .repeat import repeat
from .resize import resize_bilinear
from .transposed_conv import conv_transpose

KERNELS: dict[type[g.Operator], tuple[Record, ...]] = {
    g.Mean: (mean_of_pixels, mean_of_channels),
    g.AveragePool: (mean_of_pixels, average_pool),
    g.ExactAveragePool: (mean_of_pixels, average_pool),
    g.MaxPool: (max_pool_sorted, max_pool),
    g.ResizeBilinear: (resize_bilinear,),
    g.QConvTranspose2d: (conv_transpose,),
    g.Concat: (move_channels, concatenate),
    g.StridedSlice: (move_channels, cut),
    g.Take: (move_channels, repeat),
    g.Pad: (move_channels,),
}


def kernels_of(op: g.Operator) -> tuple[Record, ...]:
    """The kernels of operators of this class; none where it has no row."""
    return next((KERNELS[kind] for kind in type(op).__mro__ if kind in KERNELS), ())


@cost.cached(512)
def chosen(op: g.Operator, cfg: Config) -> Record | None:
    """The kernel of `op` with the fewest cycles, the first of equal ones; None where none fits."""
    fitting = [record for record in kernels_of(op) if not language.why_not(record, op, cfg)]
    return (
        min(fitting, key=lambda record: language.cycles(record, op, cfg))
        if len(fitting) > 1
        else next(iter(fitting), None)
    )


def refusal(op: g.Operator, cfg: Config) -> str:
    """Reason why no kernel computes `op`, that of the last one; empty if one does."""
    return "" if chosen(op, cfg) else language.why_not(kernels_of(op)[-1], op, cfg)


def cycles(op: g.Operator, cfg: Config) -> float:
    """Cycles of `op` alone, by the timing model. Raises `Unfit` where no kernel computes it."""
    record = chosen(op, cfg)
    if record is None:
        raise Unfit(refusal(op, cfg))
    return language.cycles(record, op, cfg)


def lower(rec: Recording, op: g.Operator) -> None:
    """Record `op` by the chosen kernel. Raises `Unfit` where there is none."""
    record = chosen(op, rec.cfg)
    if record is None:
        raise Unfit(refusal(op, rec.cfg))
    language.lower(record, rec, op)
