"""VTA's descriptions of an accelerator, as fields of ours: its configuration string and its vta_config.json."""

from __future__ import annotations

import re
from collections.abc import Mapping

from .errors import ConfigError

_LARGEST_LOG = 30
_IGNORED = {
    "TARGET": "ignored: the board that VTA is for",
    "HW_VER": "ignored: VTA's version",
    **dict.fromkeys(("GEMM_II", "TALU_II"), "ignored: the pipelining of VTA's circuit"),
}
# key of the file -> our field, the log2 of whose value it is
_LOGS = {
    "LOG_INP_WIDTH": "inp_bits",
    "LOG_WGT_WIDTH": "wgt_bits",
    "LOG_ACC_WIDTH": "acc_bits",
    "LOG_BATCH": "batch",
    "LOG_UOP_BUFF_SIZE": "uop_bytes",
    "LOG_INP_BUFF_SIZE": "inp_bytes",
    "LOG_WGT_BUFF_SIZE": "wgt_bytes",
    "LOG_ACC_BUFF_SIZE": "acc_bytes",
}
_OUT, _BLOCK, _BLOCKS = "LOG_OUT_WIDTH", "LOG_BLOCK", {"LOG_BLOCK_IN": "block_in", "LOG_BLOCK_OUT": "block_out"}
_KNOWN = (*_IGNORED, *_LOGS, _OUT, _BLOCK, *_BLOCKS)


def string_fields(text: str) -> dict[str, object]:
    """The fields that a VTA string such as `1x16_i8w8a32_15_15_18_17` states; it is the name, too.

    Batch x block, widths, then log2 of the uop, inp, wgt and acc buffers in bytes. Raises `ConfigError` for other text.
    """
    match = re.fullmatch(r"(\d{1,9})x(\d{1,9})_i(\d{1,9})w(\d{1,9})a(\d{1,9})" + r"_(\d{1,9})" * 4, text)
    if not match:
        raise ConfigError(
            f"{text[:80]!r} is not a VTA configuration; expected BATCHxBLOCK_iNwNaN_UOP_INP_WGT_ACC, "
            "e.g. 1x16_i8w8a32_15_15_18_17"
        )
    batch, block, inp, wgt, acc, *logs = map(int, match.groups())
    if max(logs) > _LARGEST_LOG:
        raise ConfigError(f"{text!r}: a buffer of 2**{max(logs)} bytes; the last four numbers are log2 of bytes")
    sizes = dict(zip(("uop_bytes", "inp_bytes", "wgt_bytes", "acc_bytes"), (1 << n for n in logs)))
    widths = {"inp_bits": inp, "wgt_bits": wgt, "acc_bits": acc, "out_bits": inp}
    blocks = {"name": text, "batch": batch, "block_in": block, "block_out": block}
    return {**blocks, **widths, **sizes, "extensions": _extensions(inp)}


def is_vta(values: Mapping[str, object]) -> bool:
    """True where the JSON object `values` has keys of VTA's vta_config.json."""
    return any(key in _KNOWN or str(key).startswith("LOG_") for key in values)


def json_fields(values: Mapping[str, object]) -> dict[str, object]:
    """The fields that the object of a vta_config.json states.

    LOG_BLOCK is the size of both blocks; older files have LOG_BLOCK_IN and LOG_BLOCK_OUT instead. LOG_OUT_WIDTH is
    LOG_INP_WIDTH where it is absent, as in VTA. TARGET, HW_VER, GEMM_II and TALU_II say nothing about programs and are
    ignored. Raises `ConfigError` for unknown and missing keys, and values that are no log2.
    """
    unknown = [str(key) for key in values if key not in _KNOWN]
    if unknown:
        known = ", ".join(_KNOWN[len(_IGNORED) :])
        raise ConfigError(f"a VTA configuration has no key {', '.join(unknown)[:60]}; its keys are {known}")
    if _BLOCK in values and any(key in values for key in _BLOCKS):
        raise ConfigError(f"a VTA configuration states {_BLOCK}, or {' and '.join(_BLOCKS)}; remove one of the two")
    blocks = _BLOCKS if any(key in values for key in _BLOCKS) else {_BLOCK: ""}
    missing = [key for key in (*_LOGS, *blocks) if key not in values]
    if missing:
        raise ConfigError(f"a VTA configuration needs {', '.join(missing)}; VTA's own has LOG_BLOCK 4, for example")
    sizes = {key: _power(key, value) for key, value in values.items() if key not in _IGNORED}
    fields: dict[str, object] = {name: sizes[key] for key, name in _LOGS.items()}
    fields |= {name: sizes.get(key, sizes.get(_BLOCK)) for key, name in _BLOCKS.items()}
    out = sizes.get(_OUT, sizes["LOG_INP_WIDTH"])
    return fields | {"out_bits": out, "extensions": _extensions(out)}


def keys() -> dict[str, str]:
    """The keys of a vta_config.json and what they mean here."""
    logs = {key: f"log2 of `{name}`" for key, name in _LOGS.items()}
    logs |= {_OUT: "log2 of `out_bits`; absent: as LOG_INP_WIDTH", _BLOCK: "log2 of `block_in` and of `block_out`"}
    return logs | {key: f"log2 of `{name}`, in older files" for key, name in _BLOCKS.items()} | _IGNORED


def _power(key: str, value: object) -> int:
    if type(value) is not int or not 0 <= value <= _LARGEST_LOG:
        raise ConfigError(f"{key} = {str(value)[:40]}: must be the log2 of a number, from 0 to {_LARGEST_LOG}")
    return 1 << value


def _extensions(out_bits: int) -> list[str]:
    """`acc8`, as VTA's functional simulator also loads 8-bit accumulators, where outputs have 8 bits."""
    return ["acc8"] if out_bits == 8 else []
