"""Sizes of the buffers: those that a configuration does not state, and the nearest that fit the instruction words.

An instruction indexes entries, so the words (hw/isa/) limit how deep a buffer is; how many bytes that is depends on the
size of an entry, so on `batch`, the blocks and the widths.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from .errors import ConfigError
from .isa import Isa

if TYPE_CHECKING:
    from .config import Config

SMALLEST = 64  # bytes
# field -> VTA's size in bytes; with VTA's blocks and widths these are 8192, 2048, 1024 and 2048 entries
VTA_BYTES = {"uop_bytes": 1 << 15, "inp_bytes": 1 << 15, "wgt_bytes": 1 << 18, "acc_bytes": 1 << 17}
VTA_ENTRIES = {"uop_bytes": 8192, "inp_bytes": 2048, "wgt_bytes": 1024, "acc_bytes": 2048}


def absent_sizes(cfg: Config, absent: Iterable[str]) -> dict[str, int]:
    """Bytes of the buffers `absent`, fields of `cfg` that are not stated.

    VTA's, if the words can index them together with the stated ones. Else VTA's, or as many entries as VTA has where
    these take fewer bytes; that always fits where nothing is stated.
    """
    sizes = {name: VTA_BYTES[name] for name in absent}
    if not sizes or not misfit(resized(cfg, sizes)):
        return sizes
    return {name: min(size, VTA_ENTRIES[name] * _entry(cfg, name)) for name, size in sizes.items()}


def misfit(cfg: Config) -> str:
    """Why the instruction words cannot index the buffers of `cfg`; "" where they can."""
    try:
        Isa(cfg)
    except ConfigError as exc:
        return str(exc)
    return ""


def nearest(cfg: Config) -> str:
    """The sizes nearest to those of `cfg` that the words can index: of one buffer, or else of several."""
    found: dict[str, tuple[int, int]] = {}
    for name in VTA_BYTES:
        size = getattr(cfg, name)
        smaller = (n for n in range(1, size.bit_length()) if not misfit(resized(cfg, {name: size >> n})))
        halvings = next((n for n in smaller if size >> n >= max(SMALLEST, 2 * _entry(cfg, name))), 0)
        if halvings:
            found[name] = halvings, size >> halvings
    fewest = min((n for n, _ in found.values()), default=0)
    if found:
        return " or ".join(_shown(cfg, name, size) for name, (n, size) in found.items() if n == fewest)
    sizes = {name: min(getattr(cfg, name), n * _entry(cfg, name)) for name, n in VTA_ENTRIES.items()}
    changed = [_shown(cfg, name, size) for name, size in sizes.items() if size != getattr(cfg, name)]
    return " and ".join(", ".join(changed).rsplit(", ", 1))


def resized(cfg: Config, sizes: Mapping[str, int]) -> Config:
    """`cfg` with buffers of `sizes`, unchecked."""
    other = copy.copy(cfg)
    for name, size in sizes.items():
        object.__setattr__(other, name, size)
    return other


def _shown(cfg: Config, name: str, size: int) -> str:
    return f"{name} = {size} ({size // _entry(cfg, name)} entries)"


def _entry(cfg: Config, name: str) -> int:
    """Bytes of one entry of the buffer of field `name`."""
    return getattr(cfg, f"{name.removesuffix('_bytes')}_entry_bytes")
