"""Which values a configuration may have, and the sizes of buffers that it does not state.

A refusal names the nearest value that is allowed. An instruction indexes entries, so the words (hw/isa/) limit how deep
a buffer is; how many bytes that is depends on the size of an entry, so on `batch`, the blocks and the widths.
"""

from __future__ import annotations

import copy
import difflib
import math
import reprlib
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, TypeGuard, cast

from .errors import ConfigError
from .fields import EXTENSIONS, SMALLEST, Parameter, parameters
from .isa import Isa
from .units import COMPUTE_UNITS, RING, TERNARY_BANKS

if TYPE_CHECKING:
    from .config import Config


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
    """The legal sizes nearest to the sizes of `cfg`: of one buffer, or, where that is not enough, of several."""
    found: dict[str, tuple[int, int]] = {}
    for name in VTA_BYTES:
        size = getattr(cfg, name)
        smaller = (n for n in range(1, size.bit_length()) if not misfit(resized(cfg, {name: size >> n})))
        halvings = next((n for n in smaller if size >> n >= max(SMALLEST, 2 * _entry(cfg, name))), 0)
        if halvings:
            found[name] = halvings, size >> halvings
    fewest = min((n for n, _ in found.values()), default=0)
    if found:
        return " or ".join(_sized(cfg, name, size) for name, (n, size) in found.items() if n == fewest)
    sizes = {name: min(getattr(cfg, name), n * _entry(cfg, name)) for name, n in VTA_ENTRIES.items()}
    changed = [_sized(cfg, name, size) for name, size in sizes.items() if size != getattr(cfg, name)]
    return " and ".join(", ".join(changed).rsplit(", ", 1))


def resized(cfg: Config, sizes: Mapping[str, int]) -> Config:
    """`cfg` with buffers of `sizes`, unchecked."""
    other = copy.copy(cfg)
    for name, size in sizes.items():
        object.__setattr__(other, name, size)
    return other


def _sized(cfg: Config, name: str, size: int) -> str:
    return f"{name} = {size} ({size // _entry(cfg, name)} entries)"


def _entry(cfg: Config, name: str) -> int:
    """Bytes of one entry of the buffer of field `name`."""
    return getattr(cfg, f"{name.removesuffix('_bytes')}_entry_bytes")


def are_names(value: object) -> TypeGuard[Collection[str]]:
    """True for a list, a tuple or a set of texts."""
    if not isinstance(value, (list, tuple, set, frozenset)):
        return False
    return all(isinstance(name, str) for name in cast("Collection[object]", value))


def check_units(units: object) -> tuple[str, ...]:
    """The names of compute units in `units`, a list. Raises `ConfigError`."""
    if not are_names(units):
        raise ConfigError(f"Config.units = {_shown(units)}: must be a list of names; e.g. gemm")
    text = f"Config.units = {', '.join(units) or 'none'}"
    unknown = [name for name in units if name not in COMPUTE_UNITS]
    if unknown:
        raise ConfigError(f"{text}: unknown are {', '.join(unknown)}; known are {', '.join(COMPUTE_UNITS)}")
    if not units or next(iter(units)) != "gemm":
        raise ConfigError(f"{text}: must begin with gemm")
    if len(set(units)) < len(units):
        raise ConfigError(f"{text}: names a unit twice; nearest is {', '.join(dict.fromkeys(units))}")
    if len(units) > RING - 2:
        raise ConfigError(f"{text}: tokens join {RING - 2} compute units with load and store; use no more")
    return tuple(units)


def check_ranges(cfg: Config) -> None:
    """Raise `ConfigError` for a value of one field that no configuration has; sizes may be None."""
    for name, kind, wanted in (("name", str, "a printable text"), ("dsp_packing", bool, "true or false")):
        value = getattr(cfg, name)
        if not isinstance(value, kind) or not str(value).isprintable():
            raise ConfigError(f"Config.{name} = {_shown(value)}: must be {wanted}")
    for name, parameter in parameters(type(cfg)).items():
        value = getattr(cfg, name)
        if parameter.high and not (value is None and name in VTA_BYTES):
            _check_number(name, value, parameter)


def _check_number(name: str, value: object, parameter: Parameter) -> None:
    """Raise `ConfigError` unless `value` is a number that `parameter` allows."""
    low, high = parameter.low, parameter.high
    ok = type(value) is int and low <= value <= high
    if type(value) is int and ok and not (parameter.powers and value & (value - 1)):
        return
    text = f"Config.{name} = {_shown(value)}: "
    if low == high:
        raise ConfigError(f"{text}must be {low}")
    if type(value) is not int:
        text += "must be an integer" + ("" if parameter.powers else f" from {low} to {high}")
        raise ConfigError(text + _nearest_to(value, parameter))
    if not parameter.powers:
        text += f"must be an integer from {low} to {high}"
    elif value < 1 or value & (value - 1):
        text += "must be a power of two"
    else:
        text += f"allowed are powers of two from {low} to {high}"
    raise ConfigError(text + _nearest_to(value, parameter))


def _nearest_to(value: object, parameter: Parameter) -> str:
    """The end of a refusal: the legal numbers on both sides of `value`, where that says a number."""
    try:
        number = float(value) if isinstance(value, (int, float, str)) and not isinstance(value, bool) else math.nan
    except (ValueError, OverflowError):
        number = math.nan
    if math.isnan(number):
        return ""
    low, high = parameter.low, parameter.high
    inside = int(min(max(number, low), high))
    below = 1 << inside.bit_length() - 1 if parameter.powers else inside
    above = 2 * below if parameter.powers else below + 1
    found = [below] if below == number or not low <= number <= high else [below, min(above, high)]
    return f"; nearest {'is' if len(found) == 1 else 'are'} {' and '.join(map(str, found))}"


def check_extension_names(names: Iterable[object], known: Iterable[str]) -> None:
    """Raise `ConfigError` for names that are no extension."""
    unknown = sorted(str(name) for name in names if name not in (known := sorted(known)))
    if unknown:
        near = difflib.get_close_matches(unknown[0], known, 1)
        raise ConfigError(
            f"Config.extensions = {', '.join(unknown)[:80]}: unknown; known are {', '.join(known)}"
            + (f"; nearest to {unknown[0]} is {near[0]}" if near else "")
        )


def check_field_names(values: Mapping[str, object], known: Iterable[str]) -> None:
    """Raise `ConfigError` for keys of `values` that are no field."""
    known = sorted(known)
    for key in values:
        if key not in known:
            near = difflib.get_close_matches(str(key), known, 3)
            rest = f"it has {', '.join(near)}" if near else "`tilewright config --help` lists the fields"
            raise ConfigError(f"Config has no field {_shown(key)}; {rest}")


def check_entries(cfg: Config) -> None:
    """Raise `ConfigError` for an entry that is not whole bytes."""
    elements = {"inp": "batch * block_in", "wgt": "block_in * block_out", "out": "batch * block_out"}
    for mem, product in elements.items():
        bits, width = getattr(cfg, f"{mem}_entry_bits"), getattr(cfg, f"{mem}_bits")
        if bits % 8:
            raise ConfigError(
                f"Config.{mem}_bits = {width}: an entry must be whole bytes, not {bits} bits; nearest are "
                f"{mem}_bits = {width * 8 // bits} and {product} = {8 // width}"
            )


def check_sizes(cfg: Config) -> None:
    """Raise `ConfigError` for a buffer that is too small for two entries, or an accumulator in every bank, or too deep
    for the instruction words."""
    for mem in ("inp", "wgt", "acc"):
        size, entry = getattr(cfg, f"{mem}_bytes"), getattr(cfg, f"{mem}_entry_bytes")
        if size < 2 * entry:
            raise ConfigError(
                f"Config.{mem}_bytes = {size}: must hold 2 entries of {entry} bytes; use at least {2 * entry}"
            )
    if cfg.acc_banks > cfg.acc_depth:
        raise ConfigError(
            f"Config.acc_banks = {cfg.acc_banks}: the {cfg.acc_depth} accumulators of {cfg.acc_bytes} bytes fill no "
            f"more than {cfg.acc_depth} banks; nearest is {cfg.acc_depth}"
        )
    why = misfit(cfg)
    if why:
        raise ConfigError(f"{why}; nearest is {nearest(cfg)}")


def check_ternary(cfg: Config) -> None:
    """Raise `ConfigError` where banks, planes or weights do not suit unit `ternary`."""
    if "ternary" not in cfg.units:
        return
    if cfg.acc_banks != TERNARY_BANKS:
        raise ConfigError(
            f"Config.acc_banks = {cfg.acc_banks}: unit ternary needs {TERNARY_BANKS}, so that each unit finds a bank; "
            "use that"
        )
    if cfg.twgt_entry_bits % 8:
        raise ConfigError(
            f"Config.ternary_blocks = {cfg.ternary_blocks}: an entry of ternary weights must be whole bytes, not "
            f"{cfg.twgt_entry_bits} bits; use at least {cfg.ternary_blocks * 8 // cfg.twgt_entry_bits}"
        )
    least = 2 * TERNARY_BANKS * cfg.ternary_blocks
    if cfg.acc_depth < least:
        raise ConfigError(
            f"Config.acc_bytes = {cfg.acc_bytes}: unit ternary needs planes of 2 entries, so {least} of them; use at "
            f"least {least * cfg.acc_entry_bytes}"
        )
    for what, size in (("at least 2 entries", 2), ("no more entries than wgt_bytes", cfg.wgt_depth)):
        if (cfg.twgt_depth < 2) if size == 2 else (cfg.twgt_depth > size):
            raise ConfigError(
                f"Config.twgt_bytes = {cfg.twgt_bytes}: must hold {what}, whose index a micro-op has; nearest is "
                f"{size * cfg.twgt_entry_bytes}"
            )


def check_array_clock(cfg: Config) -> None:
    """Raise `ConfigError` for a block without two inputs that take turns at a multiplier."""
    if cfg.array_clock == 2 and cfg.block_in < 2:
        raise ConfigError(
            "Config.array_clock = 2: two halves of the inputs share the multipliers, so block_in must be at least 2, "
            f"not {cfg.block_in}; nearest is array_clock = 1"
        )


def check_extensions(cfg: Config) -> None:
    """Raise `ConfigError` for an extension whose requirements the other fields do not meet."""
    for name, row in EXTENSIONS.items():
        if name in cfg.extensions and row.extends and row.extends not in cfg.extensions:
            raise ConfigError(f"Config.extensions = {name}: needs {row.extends} too, {row.why}; add {row.extends}")
    if "depthwise" in cfg.extensions and cfg.block_in != cfg.block_out:
        raise ConfigError(
            f"Config.extensions = depthwise: needs block_in and block_out to be equal; they are {cfg.block_in} and "
            f"{cfg.block_out}; nearest are {cfg.block_in} and {cfg.block_in}, {cfg.block_out} and {cfg.block_out}, or "
            "leave depthwise out"
        )
    if "depthwise_rows" in cfg.extensions:
        _check_rows(cfg)
    if "wgt4" in cfg.extensions:
        for name, fits, wanted in (
            ("wgt_bits", cfg.wgt_bits == 8, "8"),
            ("block_in", cfg.block_in >= 4, "4 or more"),
            ("block_out", cfg.block_out >= 2, "2 or more"),
        ):
            if not fits:
                raise ConfigError(
                    f"Config.extensions = wgt4: needs {name} = {wanted}, not {getattr(cfg, name)}; set that or leave "
                    "wgt4 out"
                )
    for name, moved in (("acc8", "loads"), ("requant", "stores")):
        if name in cfg.extensions and cfg.out_bits != 8:
            raise ConfigError(
                f"Config.extensions = {name}: {moved} bytes, so it needs out_bits = 8, not {cfg.out_bits}; "
                f"set that or leave {name} out"
            )


def _check_rows(cfg: Config) -> None:
    """Raise `ConfigError` unless DWGEMM can take several taps."""
    if cfg.row_taps < 2:
        raise ConfigError(
            f"Config.extensions = depthwise_rows: needs blocks of 4 or more, not block_in = {cfg.block_in}; "
            "use blocks of 4 or leave depthwise_rows out"
        )
    if cfg.inp_depth < cfg.row_taps:
        raise ConfigError(
            f"Config.inp_bytes = {cfg.inp_bytes}: extension depthwise_rows reads {cfg.row_taps} entries at once; use "
            f"at least {cfg.row_taps * cfg.inp_entry_bytes}"
        )


def _shown(value: object) -> str:
    return reprlib.repr(value) if not isinstance(value, str) else repr(value[:60])
