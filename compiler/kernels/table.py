"""The table of kernels by class of operator, and the choice among those that fit.

Three groups are tried in turn: users' kernels marked `first`, then all others, then `LAST_RESORT`. In the first group
with a kernel that fits, kernels within `_TIE_FACTOR` of the fewest added cycles count as equal, and of these the one
that is fastest in a launch of its own is chosen.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NamedTuple

from ...hw.config import Config
from ...hw.errors import Unfit
from .. import cost
from .. import graph as g
from . import language
from .attention import attention, rotary
from .cache import RowsJoined, RowsOut, heads_out, join_rows, write_columns, write_rows
from .conv import conv2d, dense, dense16, integer_conv2d, integer_dense, whole_image
from .elementwise import (
    constant_per_channel,
    leaky_relu,
    lookup,
    pair,
    prelu,
    prelu_of_channels,
    requantise,
    sum_of_two,
    weighted_sum,
)
from .fold import Fold
from .language import Record
from .matmul import product_of_images, product_on_alu, product_on_array
from .movement import concatenate, cut, gather, heads, join_channels, move_channels
from .norm import integer_norm, rms_norm
from .pool import average_pool, max_pool, max_pool_sorted, mean_of_channels, mean_of_pixels
from .quantise import quantise_image, recode_image
from .recording import Recording
from .resize import repeat, resize_bilinear
from .softmax import integer_softmax, softmax
from .transposed_conv import conv_transpose

KERNELS: dict[type[g.Operator], tuple[Record, ...]] = {
    g.Add: (constant_per_channel, weighted_sum, sum_of_two),
    g.Mul: (constant_per_channel, pair),
    g.SquaredDifference: (pair,),
    g.Maximum: (pair,),
    g.Prelu: (prelu,),
    g.NearestPrelu: (prelu_of_channels,),
    g.LeakyRelu: (lookup, leaky_relu),
    g.Lookup: (lookup,),
    g.Requantize: (lookup, requantise),
    g.Mean: (mean_of_pixels, mean_of_channels),
    g.AveragePool: (mean_of_pixels, average_pool),
    g.ExactAveragePool: (mean_of_pixels, average_pool),
    g.Gather: (gather,),
    g.RmsNorm: (rms_norm,),
    g.Rotate: (rotary,),
    g.WriteRows: (write_rows,),
    g.WriteColumns: (write_columns,),
    g.Attention: (attention,),
    g.ShiftMatMul: (product_of_images, product_on_array, product_on_alu),
    g.BatchMatMul: (product_of_images,),
    g.Heads: (heads,),
    g.IntegerNorm: (integer_norm,),
    g.IntegerSoftmax: (integer_softmax,),
    g.Softmax: (softmax,),
    g.MaxPool: (max_pool_sorted, max_pool),
    g.ResizeBilinear: (resize_bilinear,),
    g.QConv2d: (whole_image, conv2d),
    g.QDense: (dense,),
    g.QConvTranspose2d: (conv_transpose,),
    g.Dense16: (dense16,),
    g.IntegerConv2d: (integer_conv2d,),
    g.IntegerMatMul: (integer_dense,),
    g.QuantizeImage: (quantise_image,),
    g.RecodeImage: (recode_image,),
    RowsJoined: (join_rows,),
    RowsOut: (heads_out,),
    g.Concat: (join_channels, concatenate),
    g.StridedSlice: (move_channels, cut),
    g.Take: (move_channels, repeat),
    g.Pad: (move_channels,),
}

# Alone, chains on the ALU may seem faster than the multiplier array, whose weights a launch loads early.
LAST_RESORT = (sum_of_two,)
_TIE_FACTOR = 1.1


class Alternative(NamedTuple):
    """A kernel of a user, the classes of operators that it computes, and whether it is taken wherever it fits."""

    record: Record
    operators: tuple[type[g.Operator], ...]
    first: bool = False


_ALSO: ContextVar[tuple[Alternative, ...]] = ContextVar("alternatives", default=())


@contextmanager
def also(alternatives: Sequence[Alternative]) -> Generator[None, None, None]:
    """Within the context these kernels are tried, too, before the kernels of the table."""
    token = _ALSO.set((*alternatives, *_ALSO.get()))
    try:
        yield
    finally:
        _ALSO.reset(token)


def kernels_of(op: g.Operator) -> tuple[Record, ...]:
    """The kernels of operators of this class; none where it has no row, or for activations of 16 bits."""
    others = tuple(each.record for each in _ALSO.get() if isinstance(op, each.operators))
    if op.x.dtype == "int16":  # operators of both widths, of which the accelerator has int8
        return others
    return *others, *next((KERNELS[kind] for kind in type(op).__mro__ if kind in KERNELS), ())


def chosen(op: g.Operator, cfg: Config, fold: Fold | None = None) -> Record | None:
    """The kernel of `op`, chosen as the head of this module says; None where none fits.

    The image of a convolution is laid out as `fold` says.
    """
    first = frozenset(each.record for each in _ALSO.get() if each.first)
    return _chosen(op, cfg, fold, kernels_of(op), first)


@cost.cached(512)
def _chosen(
    op: g.Operator, cfg: Config, fold: Fold | None, kernels_of_op: tuple[Record, ...], first: frozenset[Record]
) -> Record | None:
    turns = [0 if record in first else 2 if record in LAST_RESORT else 1 for record in kernels_of_op]
    for turn in range(3):
        kernels = [record for record, its in zip(kernels_of_op, turns) if its == turn]
        fitting = [record for record in kernels if not language.why_not(record, op, cfg, fold)]
        if len(fitting) > 1:
            found = [language.added(record, op, cfg, fold) for record in fitting]
            alike = [record for record, cycles in zip(fitting, found) if cycles <= _TIE_FACTOR * min(found)]
            return min(alike, key=lambda record: language.cycles(record, op, cfg, fold))
        if fitting:
            return fitting[0]
    return None


def refusal(op: g.Operator, cfg: Config) -> str:
    """Reason why no kernel computes `op`, the one of the last kernel; empty if a kernel computes it."""
    kernels = kernels_of(op)
    if not kernels:
        return f"no kernel computes {type(op).__name__}{' of 16 bits' if op.x.dtype == 'int16' else ''}"
    return "" if chosen(op, cfg) else language.why_not(kernels[-1], op, cfg)


def cycles(op: g.Operator, cfg: Config, fold: Fold | None = None) -> float:
    """Cycles of a launch of `op`, by the timing model. Raises `Unfit` where no kernel computes it."""
    return language.cycles(_fitting(op, cfg, fold), op, cfg, fold)


def overlap(before: g.Operator, op: g.Operator, cfg: Config, folds: Mapping[str, Fold]) -> float:
    """Cycles that `op` takes less behind `before` than in a launch of its own; images are laid out as `folds` say.

    Raises `Unfit` where no kernel computes one of them.
    """
    layouts = ((one, folds.get(one.name)) for one in (before, op))
    first, second = (language.case_of(_fitting(one, cfg, fold), one, fold) for one, fold in layouts)
    return language.overlap(first, second, cfg)


def _fitting(op: g.Operator, cfg: Config, fold: Fold | None) -> Record:
    if record := chosen(op, cfg, fold):
        return record
    raise Unfit(refusal(op, cfg))


def lower(rec: Recording, op: g.Operator) -> None:
    """Record `op` by the chosen kernel. Raises `Unfit` where there is none."""
    fold, _ = rec.folded.get(op.name, (None, None))
    language.lower(_fitting(op, rec.cfg, fold), rec, op)
