"""Packed tensor layouts of the accelerator, and their packing and unpacking on the host (numpy only).

| tensor | plain | packed, `cb` = ceil(c / block) |
|---|---|---|
| activations | (n, c, h, w) or (n, h, w, c) | (ceil(n / batch), cb, h, w, batch, block) |
| dense activations | (n, c) | (ceil(n / batch), cb, batch, block) |
| convolution weights | (o, i, kh, kw) | (ceil(o / block_out), ceil(i / block_in), kh, kw, block_out, block_in) |
| dense weights | (o, i) | (ceil(o / block_out), ceil(i / block_in), block_out, block_in) |
| depthwise weights | (c, kh, kw) | (entries, block_out, block_in): rows (cb, kh, kw, block) back to back |
| weights of 4 bits | (..., block_out, block_in) | (..., entry bytes) |
| ternary weights | (o, i, kh, kw) | (ceil(o / (ternary_blocks * block_out)), ceil(i / block_in), kh, kw, entry bytes) |
| one value per channel (bias) | (o,) | (ceil(o / block_out), batch, block_out) |
| post-processing parameters (PAR) | (o,) each | uint32 (ceil(o / block_out), block_out, 3) |

Blocks that are not full are padded with zeros. Inputs of a layer use `block_in`, outputs `block_out`. All functions
raise `InputError` for a tensor of another rank.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from ..hw.config import GROUP_BITS, PAR_BYTES, TABLE_SIZE, TERNARY_BITS, Config
from ..hw.errors import InputError
from ..hw.isa import PAR
from ..hw.rounding import CONTRACTS
from .arrays import Array
from .buffer import pack_bits, unpack_bits

_SCALES = 1 << GROUP_BITS  # of a row of WGT4, from 0 on


def _rank(array: ArrayLike, rank: int, what: str) -> Array:
    array = np.asarray(array)
    if array.ndim != rank:
        raise InputError(f"{what} have shape {array.shape}; expected {rank} dimensions")
    return array


def _blocks(array: Array, axis: int, block: int) -> Array:
    """`array` with `axis` split in two, zero-padded to whole blocks."""
    count = -(-array.shape[axis] // block)
    extra = count * block - array.shape[axis]
    if extra:
        array = np.pad(array, [(0, extra if k == axis else 0) for k in range(array.ndim)])
    return array.reshape(*array.shape[:axis], count, block, *array.shape[axis + 1 :])


def _channels_first(x: Array, layout: str) -> Array:
    if layout not in ("NCHW", "NHWC"):
        raise InputError(f"layout {layout!r}: must be NCHW or NHWC")
    return x if layout == "NCHW" else x.transpose(0, 3, 1, 2)


def pack_blocks(x: Array, batch: int, block: int) -> Array:
    """Packed activations of `x`, (n, c, h, w) or (n, c), for the given batch and block sizes."""
    axes = (0, 2, 4, 5, 1, 3) if x.ndim == 4 else (0, 2, 1, 3)
    return np.ascontiguousarray(_blocks(_blocks(x, 1, block), 0, batch).transpose(axes))  # was n, batch, c, block, h, w


def pack_activations(x: ArrayLike, cfg: Config, *, block: int | None = None, layout: str = "NCHW") -> Array:
    """Packed activations of `x`; `block` is `cfg.block_in` unless given."""
    return pack_blocks(_channels_first(_rank(x, 4, "activations"), layout), cfg.batch, block or cfg.block_in)


def fold_windows(
    x: Array,
    *,
    rows: int,
    dilation: int,
    step: int,
    strips: int,
    group: int,
    offsets: Sequence[int],
    entries: int,
    top: int,
    left: int,
    value: int,
    block: int,
    layout: str = "NCHW",
) -> Array:
    """Entries of parts of windows, int8 (n, strips, entries, 1, block), of an image (n, c, h, w), or NHWC (n, h, w, c).

    Strip k is the bytes of the image's rows `k * step - top + i * dilation`, i below `rows`, from `left` columns before
    the image on: column by column, in a column row by row, in that channel by channel; `value` outside the image. Entry
    `g * len(offsets) + e` of a strip is its `block` bytes from `g * group + offsets[e]` on. Raises `InputError` for
    numbers that describe no strips.
    """
    least = {"rows": rows, "dilation": dilation, "step": step, "strips": strips, "group": group, "entries": entries}
    least |= {"block": block, "number of offsets": len(offsets)}
    for name, number, low in (*((k, v, 1) for k, v in least.items()), ("top", top, 0), ("left", left, 0)):
        if number < low:
            raise InputError(f"fold_windows: {name} = {number}: must be at least {low}")
    if min(offsets) < 0:
        raise InputError(f"fold_windows: offsets = {[*offsets]}: none may be negative")
    x = _channels_first(_rank(x, 4, "fold_windows: images"), layout)
    n, c, h, w = x.shape
    groups = -(-entries // len(offsets))
    columns = -(-(max(offsets) + groups * group + block) // (rows * c))
    strip = np.full((n, strips, columns, rows, c), value, x.dtype)
    inside = max(0, min(w, columns - left))
    for row in range(rows):
        first = row * dilation - top
        low, high = max(0, -(first // step)), min(strips, (h - 1 - first) // step + 1)
        for channel in range(c if low < high else 0):  # one by one: numpy's inner loop runs along the image's rows
            source = x[:, channel, first + low * step : first + (high - 1) * step + 1 : step, :inside]
            strip[:, low:high, left : left + inside, row, channel] = source
    strip = strip.reshape(n, strips, -1)
    out = np.empty((n, strips, entries, 1, block), x.dtype)
    for k, offset in enumerate(offsets):
        entry = out[:, :, k :: len(offsets), 0]
        # entries that overlap are copied in parts no longer than a group: cut into groups, a strip is a view of its
        # own size, where one of all windows would have more bytes than a 32-bit machine can address
        for lane in range(0, block, group):
            width, many = min(group, block - lane), entry.shape[2]
            source = strip[:, :, offset + lane :][:, :, : many * group].reshape(n, strips, many, group)
            entry[..., lane : lane + width] = source[..., :width]
    return out


def unpack_blocks(packed: Array, c: int, n: int | None = None, layout: str = "NCHW") -> Array:
    """The `c` channels (and first `n` rows or images) of packed activations, as (n, c, h, w) or (n, c).

    With `layout` NHWC images are (n, h, w, c), in the same pass.
    """
    batches, blocks, *_, batch, block = packed.shape
    if packed.ndim == 6 and layout == "NHWC":
        x = packed.transpose(0, 4, 2, 3, 1, 5).reshape(batches * batch, *packed.shape[2:4], blocks * block)
        return np.ascontiguousarray(x[:n, ..., :c])
    axes = (0, 4, 1, 5, 2, 3) if packed.ndim == 6 else (0, 2, 1, 3)
    x = packed.transpose(axes).reshape(batches * batch, blocks * block, *packed.shape[2:-2])
    return np.ascontiguousarray(x[:n, :c])


def unpack_activations(packed: ArrayLike, c: int, cfg: Config, *, n: int | None = None, layout: str = "NCHW") -> Array:
    """The `c` channels (and first `n` images) of packed activations; the block size is the last axis's."""
    return unpack_blocks(_rank(packed, 6, "packed activations"), c, n, layout)


def pack_dense_activations(x: ArrayLike, cfg: Config, *, block: int | None = None) -> Array:
    """Packed activations of a dense layer from `x`; `block` is `cfg.block_in` unless given."""
    return pack_blocks(_rank(x, 2, "dense activations"), cfg.batch, block or cfg.block_in)


def unpack_dense_activations(packed: ArrayLike, c: int, *, n: int | None = None) -> Array:
    """The `c` features (and first `n` rows) of packed activations of a dense layer."""
    return unpack_blocks(_rank(packed, 4, "packed dense activations"), c, n)


def pack_weights(w: ArrayLike, cfg: Config, *, layout: str = "OIHW") -> Array:
    """Packed convolution weights of `w`; `layout` is OIHW or OHWI."""
    return _weights(w, cfg.block_out, cfg.block_in, layout)


def _weights(w: ArrayLike, rows: int, columns: int, layout: str) -> Array:
    """Weights (output blocks, input blocks, kh, kw, rows, columns) of `w`."""
    w = _rank(w, 4, "weights")
    if layout not in ("OIHW", "OHWI"):
        raise InputError(f"layout {layout!r}: must be OIHW or OHWI")
    w = w if layout == "OIHW" else w.transpose(0, 3, 1, 2)
    w = _blocks(_blocks(w, 1, columns), 0, rows)  # o, rows, i, columns, kh, kw
    return np.ascontiguousarray(w.transpose(0, 2, 4, 5, 1, 3))


def pack_dense_weights(w: ArrayLike, cfg: Config) -> Array:
    """Packed weights of a dense layer from `w`."""
    w = _blocks(_blocks(_rank(w, 2, "dense weights"), 1, cfg.block_in), 0, cfg.block_out)
    return np.ascontiguousarray(w.transpose(0, 2, 1, 3))


def pack_four_bits(entries: ArrayLike, cfg: Config) -> Array:
    """Entries of WGT4, uint8 (..., cfg.wgt4_entry_bytes), of packed weights `entries`, (..., block_out, block_in).

    Each row is the smallest scale from 1 to 15 that all of its weights are multiples of, by -8 to 7. Raises
    `InputError` where a row has no such scale, where blocks are not those of `cfg`, and where it lacks extension wgt4.
    """
    _need_four_bits(cfg)
    entries = np.asarray(entries)
    if entries.shape[-2:] != (block := (cfg.block_out, cfg.block_in)) or entries.dtype.kind not in "iu":
        raise InputError(f"weights of 4 bits are {entries.dtype} {entries.shape}: must be integers (..., {block})")
    low, high = entries.min(-1), entries.max(-1)
    divisor, scales = np.gcd.reduce(entries.astype(np.int16), axis=-1), np.zeros(low.shape, np.int16)
    for scale in range(_SCALES - 1, 0, -1):
        scales[(divisor % scale == 0) & (low >= -8 * scale) & (high <= 7 * scale)] = scale
    if not scales.all():
        at = tuple(np.argwhere(scales == 0)[0].tolist())
        row = entries[at]
        raise InputError(
            f"weights of 4 bits: row {at}, from {row.min()} to {row.max()}, is no scale from 1 to {_SCALES - 1} times "
            "integers from -8 to 7; round it to one, or load it as WGT"
        )
    values = entries // scales[..., None]
    nibbles = np.concatenate([scales, values.reshape(*scales.shape[:-1], cfg.block_out * cfg.block_in)], axis=-1)
    return pack_bits(nibbles, GROUP_BITS).reshape(*nibbles.shape[:-1], cfg.wgt4_entry_bytes)


def unpack_four_bits(entries: Array, cfg: Config) -> Array:
    """The weights, int8 (..., block_out, block_in), that loads of WGT4 make of `entries`, uint8 (..., entry bytes).

    Raises `InputError` for entries of another size, and where `cfg` lacks extension wgt4.
    """
    _need_four_bits(cfg)
    if entries.shape[-1:] != (cfg.wgt4_entry_bytes,):
        raise InputError(f"entries of WGT4 are {entries.shape}: must be (..., {cfg.wgt4_entry_bytes}) for {cfg.name}")
    nibbles = unpack_bits(entries.reshape(-1), GROUP_BITS).reshape(*entries.shape[:-1], 2 * cfg.wgt4_entry_bytes)
    scales, values = nibbles[..., : cfg.block_out] & _SCALES - 1, nibbles[..., cfg.block_out :]
    return values.reshape(*scales.shape, cfg.block_in) * scales[..., None]


def _need_four_bits(cfg: Config) -> None:
    if "wgt4" not in cfg.extensions:
        raise InputError(
            f"weights of 4 bits need extension wgt4, which {cfg.name} lacks; choose a configuration with it"
        )


def pack_ternary_weights(w: ArrayLike, cfg: Config, *, layout: str = "OIHW") -> Array:
    """Entries of TWGT, uint8 (..., cfg.twgt_entry_bytes), of convolution weights `w`; `layout` is OIHW or OHWI.

    Channel `t * block_out + c` of an entry is channel c of block t. Raises `InputError` for a weight that is not -1, 0
    or 1, and where `cfg` has no unit `ternary`.
    """
    if "ternary" not in cfg.units:
        raise InputError(f"ternary weights need unit ternary, which {cfg.name} lacks; choose a configuration with it")
    w = np.asarray(w)
    wrong = np.argwhere((w < -1) | (w > 1) | (w != np.trunc(w)))
    if len(wrong):
        at = tuple(wrong[0].tolist())
        raise InputError(f"ternary weight {w[at]} at {at}: must be -1, 0 or 1")
    packed = _weights(w, cfg.ternary_blocks * cfg.block_out, cfg.block_in, layout)
    return pack_bits(packed, TERNARY_BITS).reshape(*packed.shape[:-2], cfg.twgt_entry_bytes)


def depthwise_pitch(cfg: Config, kw: int) -> int:
    """Rows of packed depthwise weights from one row of a kernel of width `kw` to the next.

    With `depthwise_rows` it is filled up to whole groups of `cfg.row_taps`, as DWGEMM reads them with several taps.
    """
    return -(-kw // cfg.row_taps) * cfg.row_taps if kw > 1 else kw


def pack_depthwise_weights(w: ArrayLike, cfg: Config, *, layout: str = "CHW") -> Array:
    """Packed depthwise weights of `w`, int8 (entries, block_out, block_in); `layout` is CHW or HWC.

    Row ((group * kh + y) * pitch + x) of DWGEMM holds the weights of kernel position (y, x) of the channels of `group`;
    the pitch is kw, or `depthwise_pitch`. The rest of a pitch and of the last entry are zeros.
    """
    w = _rank(w, 3, "depthwise weights")
    if layout not in ("CHW", "HWC"):
        raise InputError(f"layout {layout!r}: must be CHW or HWC")
    if cfg.block_in != cfg.block_out:
        raise InputError(f"depthwise weights need equal blocks; {cfg.name} has {cfg.block_in} and {cfg.block_out}")
    w = w if layout == "CHW" else w.transpose(2, 0, 1)
    w = np.pad(w, ((0, 0), (0, 0), (0, depthwise_pitch(cfg, w.shape[2]) - w.shape[2])))
    rows = _blocks(w, 0, cfg.block_out).transpose(0, 2, 3, 1).reshape(-1, cfg.block_out)
    return np.ascontiguousarray(_blocks(rows, 0, cfg.block_out))


def pack_par(
    cfg: Config,
    *,
    bias: ArrayLike,
    multiplier: ArrayLike,
    exponent: ArrayLike,
    zero_point: ArrayLike,
    low: ArrayLike,
    high: ArrayLike,
    contract: str,
) -> Array:
    """PAR entries, uint32 (ceil(o / block_out), block_out, 3), of one value per channel, (o,), or scalars for all.

    At least one parameter is an array. Raises `InputError` for an unknown contract, for values that are not integers of
    equal length, or `low` above `high`, `EncodingError` for a value outside its field.
    """
    if contract not in CONTRACTS:
        raise InputError(f"contract {contract!r}: must be one of {', '.join(CONTRACTS)}")
    values = {"bias": bias, "multiplier": multiplier, "exponent": exponent, "zero_point": zero_point}
    values = {key: np.asarray(v) for key, v in {**values, "low": low, "high": high}.items()}
    shapes = {v.shape for v in values.values() if v.ndim}
    if len(shapes) != 1 or len(shape := shapes.pop()) != 1 or any(v.dtype.kind not in "iu" for v in values.values()):
        found = ", ".join(f"{key} {v.dtype} {v.shape}" for key, v in values.items())
        raise InputError(f"parameters are {found}: must be integers, one per channel or one for all")
    above = np.flatnonzero(np.broadcast_to(values["low"] > values["high"], shape))
    if len(above):
        raise InputError(f"parameters of channel {above[0]}: low must not be above high")
    words = PAR.encode(shape[0], **values, mode=CONTRACTS.index(contract)).astype("<u8").view("<u4")
    return np.ascontiguousarray(_blocks(words[:, : PAR_BYTES // 4], 0, cfg.block_out)).astype(np.uint32)


def pack_table(values: ArrayLike, cfg: Config) -> Array:
    """PAR entries, uint32 (table_entries, block_out, 3), of a table for LOOKUP: int32 `values` (256,), -128's first.

    Raises `InputError` for another shape, or values beyond int32.
    """
    values = np.asarray(values)
    if values.shape != (TABLE_SIZE,) or values.dtype.kind not in "iu":
        raise InputError(f"a table is {values.dtype} {values.shape}: must be {TABLE_SIZE} integers")
    wide = values.astype(np.int64)
    if (wide != wide.astype(np.int32)).any():
        raise InputError(f"a table has values from {wide.min()} to {wide.max()}: must be within int32")
    out = np.zeros((cfg.table_entries, cfg.par_entry_bytes // 4), np.uint32)
    out[:, : cfg.table_words] = wide.astype(np.int32).view(np.uint32).reshape(cfg.table_entries, -1)
    return out.reshape(cfg.table_entries, cfg.block_out, -1)


def pack_bias(b: ArrayLike, cfg: Config) -> Array:
    """int32 values per output channel, repeated over the batch."""
    b = _blocks(_rank(b, 1, "biases"), 0, cfg.block_out).astype(np.int32)
    return np.ascontiguousarray(np.repeat(b[:, None, :], cfg.batch, axis=1))


def joined_planes(planes: Array) -> Array:
    """The integers whose lowest bytes are int8 `planes`, lowest first, with the sign of the last: (2 to 4, ...).

    Two make int16, more int32.
    """
    if len(planes) not in (2, 3, 4):
        raise InputError(f"{len(planes)} byte planes: must be 2 to 4")
    joined = planes[-1].astype(np.int16 if len(planes) == 2 else np.int32)
    for plane in planes[-2::-1]:
        joined = joined << 8 | plane.view(np.uint8)
    return joined


def planes_to_int32(planes: Sequence[Array]) -> Array:
    """The int32 tensor whose bytes, lowest first, are the four int8 `planes`."""
    if len(planes) != 4:
        raise InputError(f"{len(planes)} byte planes: an int32 tensor needs 4")
    return joined_planes(np.stack([np.asarray(p, np.int8) for p in planes]))
