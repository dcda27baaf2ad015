"""How a depthwise convolution is cut into parts whose input rows stay on chip in a ring (depthwise_rows.py)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import NamedTuple

from ....hw.config import Config
from ....hw.isa import Mem, depth
from ....hw.units import striped
from ....runtime import layout
from ... import cost
from ...conv_shape import ConvShape
from ...limits import limits, most_padding
from ...schedule.depthwise import reach

_PART = 512  # accumulators of a part at most: with more, products, stores and loads of several parts overlap less
_ENDS = 32  # accumulators of the first and the last part, about: nothing hides their loads, or their stores
_REST = {False: 4, True: 3}  # a part has at most this share of what is left, so that at the end stores do not lag


class Plane(NamedTuple):
    """`columns` output columns from `column` on, all rows, of one block of channels of one image."""

    image: int
    block: int
    column: int
    columns: int


class Piece(NamedTuple):
    """The output rows [first, end) of a plane."""

    plane: Plane
    first: int
    end: int

    @property
    def size(self) -> int:
        """Entries of the output."""
        return (self.end - self.first) * self.plane.columns


Part = tuple[Piece, ...]  # pieces of planes that follow each other, all but the first from their row 0 on


@dataclass(frozen=True)
class RowPlan:
    """A convolution in planes of at most `columns` output columns, and parts of at most `most` output rows.

    While one part is computed, the input rows of the next one find room beside its own. With `padded` a row of padding
    stands for all rows outside of the image; else products with those, which are 0, are left out.
    """

    shape: ConvShape
    cfg: Config
    columns: int
    most: int
    padded: bool

    @property
    def blocks(self) -> int:
        """Blocks of channels."""
        return -(-self.shape.c // self.cfg.block_out)

    @property
    def width(self) -> int:
        """Entries of an input row of the widest planes, padding included."""
        return self.shape.reach(1, self.columns)[1]

    @property
    def room(self) -> int:
        """Rows of `width` entries in INP, that of the padding included."""
        return self.cfg.inp_depth // self.width

    @property
    def pitch(self) -> int:
        """Rows of weights for a row of the kernel."""
        return layout.depthwise_pitch(self.cfg, self.shape.kernel[1])

    @property
    def weights(self) -> int:
        """Entries of all weights."""
        return -(-self.blocks * self.shape.kernel[0] * self.pitch // self.cfg.block_in)

    @cached_property
    def taps(self) -> list[tuple[int, int]]:
        """(first column of the kernel, number of columns) that one micro-op takes."""
        kw, most = self.shape.kernel[1], self.cfg.row_taps if self.shape.dilations[1] == 1 else 1
        return [(kx, min(most, kw - kx)) for kx in range(0, kw, most)]

    @cached_property
    def size(self) -> int:
        """Accumulators of the largest part."""
        return max(sum(piece.size for piece in part) for part in self)

    @property
    def slots(self) -> int:
        """Parts in each bank of accumulators.

        One where a part has no more than a plane, so that no store reads the bank that products write. Where it has
        more, stores wait for parameters more often, and products run ahead of them.
        """
        return 2 if self.several and 2 * self.size <= self.cfg.acc_depth // 2 else 1

    @cached_property
    def several(self) -> bool:
        """True where parts have several planes."""
        return self.most > self.shape.output[0]

    def source(self, y: int, ky: int) -> int | None:
        """The row of the image that output row `y` multiplies with row `ky` of the kernel; None outside of it."""
        row = y * self.shape.strides[0] - self.shape.pads[0] + ky * self.shape.dilations[0]
        return row if 0 <= row < self.shape.h else None

    def rows(self, first: int, end: int) -> range:
        """The rows of the image from the first to the last one that output rows [first, end) need."""
        (sy, _), top = self.shape.strides, self.shape.pads[0]
        return range(max(0, first * sy - top), min(self.shape.h, (end - 1) * sy - top + self.shape.span[0]))

    def __iter__(self) -> Iterator[Part]:
        rows, ends = self.shape.output[0], -(-_ENDS // self.columns)
        planes = list(self._planes())
        total, done = len(planes) * rows, 0
        while done < total:
            at, left = done % rows, total - done
            count = min(left, self.most, max(ends, int(done * self._growth)), max(ends, left // _REST[self.several]))
            inside = rows - at
            if count < inside:
                count = -(-inside // -(-inside // count))  # parts of about the same size
            else:
                count = inside + (count - inside) // rows * rows
            found = []
            for k in range(done // rows, -(-(done + count) // rows)):
                found.append(Piece(planes[k], max(0, done - k * rows), min(rows, done + count - k * rows)))
            yield tuple(found)
            done += count

    def _planes(self) -> Iterator[Plane]:
        images, ox = -(-self.shape.n // self.cfg.batch), self.shape.output[1]
        for image, block, column in product(range(images), range(self.blocks), range(0, ox, self.columns)):
            yield Plane(image, block, column, min(self.columns, ox - column))

    @cached_property
    def _growth(self) -> float:
        """Rows of a part for each one before it, so that it is loaded while these are computed.

        Where loads take longer than products, these wait for them in any case.
        """
        loaded = self.width * self.shape.strides[0] * self.cfg.inp_entry_bytes
        computed = self.shape.kernel[0] * len(self.taps) * self.columns / cost.moved(striped(self.cfg), loaded)
        return min(1.0, computed / 2) if computed > 1 else 1.0


@cost.cached(256)
def plan_of(shape: ConvShape, cfg: Config, pad_value: int = 0) -> RowPlan | None:
    """The plan of a convolution that is requantised; None where rows are not shared or `cfg` cannot keep them."""
    needed = {"depthwise", "overwrite", "requant"} | ({"pad_value"} if pad_value else set())
    if not needed <= cfg.extensions or cfg.block_in != cfg.block_out or cfg.block_in % cfg.row_taps:
        return None
    if shape.strides[0] >= shape.span[0] or max(shape.pads[1], shape.pads[3]) > most_padding(cfg):
        return None
    whole = RowPlan(shape, cfg, shape.output[1], 1, False)
    if whole.blocks * shape.kernel[0] * whole.pitch > reach(cfg, shape.kernel[1], shape.dilations[1]):
        return None
    if whole.blocks > depth(cfg, Mem.PAR):
        return None
    inside = [[whole.source(y, ky) is not None for ky in range(shape.kernel[0])] for y in range(shape.output[0])]
    padded = not all(map(any, inside)) or (pad_value != 0 and not all(map(all, inside)))
    wide = min(limits(cfg, "LOADP" if pad_value else "LOAD")["x_size"], limits(cfg, "STOREQ")["x_size"])
    for strips in range(1, shape.output[1] + 1):
        columns = -(-shape.output[1] // strips)
        if shape.reach(1, columns)[1] <= wide and (most := _most_rows(shape, cfg, columns, padded)):
            return RowPlan(shape, cfg, columns, most, padded) if _every_strip_sees(shape, columns) else None
    return None


def _every_strip_sees(shape: ConvShape, columns: int) -> bool:
    """False where some `columns` output columns see padding alone: a load without columns of the image makes none."""
    for column in range(0, shape.output[1], columns):
        begin = column * shape.strides[1] - shape.pads[1]
        end = begin + shape.reach(1, min(columns, shape.output[1] - column))[1]
        if begin >= shape.w or end <= 0:
            return False
    return True


def _most_rows(shape: ConvShape, cfg: Config, columns: int, padded: bool) -> int:
    """Output rows of a part, whole planes if it can have more than one; 0 where none fits."""
    room = max(0, cfg.inp_depth // shape.reach(1, columns)[1] - padded)
    accumulators = min(_PART, cfg.acc_depth // 4) // columns
    (oy, _), (sy, _), (span, _) = shape.output, shape.strides, shape.span
    planes = min(room // (2 * min(shape.h, (oy - 1) * sy + span)), accumulators // oy)
    return planes * oy or min(accumulators, oy, max(0, room + sy - span) // (2 * sy))
