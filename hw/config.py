"""The accelerator's configuration: one frozen value from which every width and depth derives."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from . import checks, fields, vta_config
from .errors import ConfigError
from .fields import Fields, Part
from .foreign import read_json
from .show import config_html, config_text
from .units import TERNARY_BANKS

ISA_VERSION = 1
# of the presets pynq_z1 and tiny, whose fingerprints stay
STANDARD_EXTENSIONS = frozenset({"overwrite", "pad_value", "acc8", "requant", "depthwise", "rescale"})
EXTENSIONS = frozenset(fields.EXTENSIONS)
UOP_BYTES = 4  # one micro-op
PAR_BYTES = 12  # post-processing parameters of one channel
TERNARY_BITS = 2  # a ternary weight: bit 0 non-zero, bit 1 sign
GROUP_BITS = 4  # of a weight of WGT4, and of the scale of its row
TABLE_SIZE = 256  # values of a table, one for each int8


@dataclass(frozen=True)
class Config(Fields):
    """Parameters of one accelerator; docs/configuration.md has a table of all of them.

    Fields `*_bytes` are sizes of scratchpads; `*_depth` and `*_entry_bytes` derive from them. One
    entry is what an instruction's index counts: `batch * block_in` inputs, `block_out * block_in`
    weights, `batch * block_out` accumulators or outputs, one micro-op, or the post-processing
    parameters (PAR) of one group of `block_out` channels. A size that is not given, or None, is VTA's,
    or less where the instruction words could not index as many entries (hw/checks.py).

    The fields of `Part.CIRCUIT` and `Part.LATER_CIRCUIT` describe the circuit only: programs do not depend on them, so
    they are not part of the `fingerprint`.

    Raises `ConfigError` for a value that no accelerator can have; the text names the field, the value,
    what is allowed and the nearest value that is.

    >>> import tilewright as tw
    >>> tw.Config(name="narrow", batch=1, block_in=16, block_out=16, axi_bits=32).macs_per_cycle
    256
    """

    def __post_init__(self) -> None:
        extensions: object = vars(self)["extensions"]
        if isinstance(extensions, str):
            raise ConfigError(f"Config.extensions = {extensions!r}: must be a set of names")
        object.__setattr__(self, "extensions", frozenset(self.extensions))
        object.__setattr__(self, "units", checks.check_units(self.units))
        checks.check_ranges(self)
        checks.check_extension_names(self.extensions, EXTENSIONS)
        checks.check_entries(self)
        absent = [name for name in checks.VTA_BYTES if getattr(self, name) is None]
        for name, size in checks.absent_sizes(self, absent).items():
            object.__setattr__(self, name, size)
        checks.check_array_clock(self)
        checks.check_extensions(self)
        checks.check_sizes(self)
        checks.check_ternary(self)

    def __repr__(self) -> str:
        return config_text(self)

    def _repr_html_(self) -> str:
        return config_html(self)

    def _entry_bits(self, mem: str) -> int:
        return {
            "inp": self.batch * self.block_in * self.inp_bits,
            "wgt": self.block_out * self.block_in * self.wgt_bits,
            "acc": self.lanes * self.acc_bits,
            "out": self.lanes * self.out_bits,
        }[mem]

    @property
    def lanes(self) -> int:
        """Values of one accumulator or output entry (`batch * block_out`)."""
        return self.batch * self.block_out

    @property
    def inp_entry_bits(self) -> int:
        """Bits of one input entry (`batch * block_in` values)."""
        return self._entry_bits("inp")

    @property
    def wgt_entry_bits(self) -> int:
        """Bits of one weight entry (`block_out * block_in` values, output channel major)."""
        return self._entry_bits("wgt")

    @property
    def acc_entry_bits(self) -> int:
        """Bits of one accumulator entry (`lanes` values)."""
        return self._entry_bits("acc")

    @property
    def out_entry_bits(self) -> int:
        """Bits of one output entry as STORE writes it (`lanes` values)."""
        return self._entry_bits("out")

    @property
    def twgt_entry_bits(self) -> int:
        """Bits of one entry of ternary weights (`ternary_blocks * block_out * block_in` values of 2 bits)."""
        return self.ternary_blocks * self.block_out * self.block_in * TERNARY_BITS

    @property
    def inp_entry_bytes(self) -> int:
        """Bytes of one input entry."""
        return self.inp_entry_bits // 8

    @property
    def wgt_entry_bytes(self) -> int:
        """Bytes of one weight entry."""
        return self.wgt_entry_bits // 8

    @property
    def twgt_entry_bytes(self) -> int:
        """Bytes of one entry of ternary weights."""
        return self.twgt_entry_bits // 8

    @property
    def wgt4_entry_bytes(self) -> int:
        """Bytes in DRAM of one entry of weights of 4 bits: a scale for each row, then the weights."""
        return self.block_out * (self.block_in + 1) * GROUP_BITS // 8

    @property
    def acc_entry_bytes(self) -> int:
        """Bytes of one accumulator entry."""
        return self.acc_entry_bits // 8

    @property
    def out_entry_bytes(self) -> int:
        """Bytes of one output entry in DRAM."""
        return self.out_entry_bits // 8

    @property
    def uop_entry_bytes(self) -> int:
        """Bytes of one micro-op."""
        return UOP_BYTES

    @property
    def par_entry_bytes(self) -> int:
        """Bytes of one PAR entry (`block_out` channels)."""
        return self.block_out * PAR_BYTES

    @property
    def table_words(self) -> int:
        """Values of a table that one PAR entry loads: its first 32-bit words, two per channel, up to a whole table."""
        return min(TABLE_SIZE, 2 * self.block_out)

    @property
    def table_entries(self) -> int:
        """PAR entries that a table takes."""
        return TABLE_SIZE // self.table_words

    @property
    def par_room(self) -> int:
        """PAR entries that a LOAD reaches: entries of parameters, then entries of tables with extension `lookup`."""
        tables = self.tables if "lookup" in self.extensions else 0
        return self.par_entries + tables * self.table_entries

    @property
    def uop_depth(self) -> int:
        """Micro-ops that the micro-op buffer holds."""
        return self.uop_bytes // UOP_BYTES

    @property
    def inp_depth(self) -> int:
        """Entries of the input scratchpad."""
        return self.inp_bytes // self.inp_entry_bytes

    @property
    def wgt_depth(self) -> int:
        """Entries of the weight scratchpad."""
        return self.wgt_bytes // self.wgt_entry_bytes

    @property
    def twgt_depth(self) -> int:
        """Entries of the scratchpad of ternary weights."""
        return 8 * self.twgt_bytes // self.twgt_entry_bits

    @property
    def acc_depth(self) -> int:
        """Entries of the accumulator scratchpad."""
        return self.acc_bytes // self.acc_entry_bytes

    @property
    def bank_depth(self) -> int:
        """Entries of one bank of the accumulator scratchpad."""
        return self.acc_depth // self.acc_banks

    @property
    def plane_depth(self) -> int:
        """Entries of one plane: a quarter of the accumulators has `ternary_blocks` of them, one for each block.

        A micro-op of unit `ternary` names an entry of the first plane; its other blocks are at the same place in the
        planes that follow.
        """
        return self.acc_depth // (TERNARY_BANKS * self.ternary_blocks)

    @property
    def macs_per_cycle(self) -> int:
        """Multiply-accumulates of one GEMM micro-op."""
        return self.batch * self.block_in * self.block_out

    @property
    def multipliers(self) -> int:
        """Multipliers of GEMM, each a DSP: two products share one with `dsp_packing`, and two halves of the inputs
        take turns at it with `array_clock` 2.
        """
        pairs = 2 if self.dsp_packing and self.block_out > 1 else 1
        return self.macs_per_cycle // pairs // self.array_clock

    @property
    def row_taps(self) -> int:
        """Most taps of a DWGEMM micro-op, and rows of weights that lie together for them; 1 without `depthwise_rows`.

        The multipliers of a channel hold that many, where two channels share an input.
        """
        return min(4, self.block_in // 2) if "depthwise_rows" in self.extensions else 1

    @property
    def fingerprint(self) -> int:
        """64-bit identity of everything that a program depends on."""
        facts: dict[str, object] = {"isa_version": ISA_VERSION}
        declared = fields.parameters(type(self))
        for name, value in self.to_dict().items():
            key = declared[name].key
            if not declared[name].part.circuit:
                facts[key or name] = getattr(self, key) if key else value
        text = json.dumps(facts, sort_keys=True, separators=(",", ":"))
        return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")

    def replace(self, **changes: object) -> Config:
        """A copy with `changes`; sizes stay as they are, and None as a size derives it anew.

        Raises `ConfigError` for an unknown field or an impossible value.
        """
        return Config.from_dict({**self.to_dict(), **changes})

    def every_field(self) -> dict[str, object]:
        """The value of every field in a form that JSON has."""
        return {f.name: _plain(getattr(self, f.name)) for f in dataclasses.fields(self)}

    def to_dict(self) -> dict[str, object]:
        """The fields as JSON-ready values; one that is new since the first version only where it is not its default."""
        declared = fields.parameters(type(self))
        defaults = {f.name: _plain(getattr(type(self), f.name)) for f in dataclasses.fields(self)}
        return {
            name: value
            for name, value in self.every_field().items()
            if declared[name].part not in (Part.LATER, Part.LATER_CIRCUIT) or value != defaults[name]
        }

    @staticmethod
    def from_dict(values: Mapping[str, object]) -> Config:
        """The configuration that `values` describe; fields that are absent take the defaults."""
        checks.check_field_names(values, (f.name for f in dataclasses.fields(Config)))
        extensions: object = values.get("extensions", ())
        if not checks.are_names(extensions):
            raise ConfigError(f"Config.extensions = {extensions!r}: must be a list of names")
        fields: dict[str, Any] = {**values, "extensions": frozenset(extensions)}
        return Config(**fields)

    @staticmethod
    def from_vta(text: str) -> Config:
        """The configuration that a VTA string such as `1x16_i8w8a32_15_15_18_17` names.

        Batch x block, widths, then log2 of the uop, inp, wgt and acc buffers in bytes; VTA's functional
        simulator also loads 8-bit accumulators, so the extension `acc8` is on where outputs have 8 bits.
        """
        return Config.from_dict(vta_config.string_fields(text))


def _plain(value: frozenset[str] | tuple[str, ...] | str | int) -> object:
    """`value` as JSON has it."""
    if isinstance(value, frozenset):
        return sorted(value)
    return list(value) if isinstance(value, tuple) else value


_PYNQ_Z1 = Config(
    name="pynq_z1",
    uop_bytes=1 << 14,
    wgt_bytes=1 << 17,
    acc_banks=2,
    dsp_packing=True,
    extensions=STANDARD_EXTENSIONS,
)
_TINY = Config(
    name="tiny",
    block_in=4,
    block_out=4,
    uop_bytes=1 << 10,
    inp_bytes=1 << 10,
    wgt_bytes=1 << 11,
    acc_bytes=1 << 11,
    par_entries=8,
    acc_banks=2,
    ppu_lanes=4,
    extensions=STANDARD_EXTENSIONS,
)
_PLUS = _PYNQ_Z1.replace(
    name="pynq_z1_plus", extensions=STANDARD_EXTENSIONS | {"depthwise_rows", "lookup", "lane_reduce"}
)

PRESETS: dict[str, Config] = {
    "vta": Config(name="vta", extensions=frozenset({"acc8"})),
    "pynq_z1": _PYNQ_Z1,
    "pynq_z1_lean": _PYNQ_Z1.replace(
        name="pynq_z1_lean", uop_bytes=1 << 12, inp_bytes=1 << 14, wgt_bytes=1 << 15, acc_bytes=1 << 14, queue_depth=8
    ),
    "pynq_z1_plus": _PLUS,
    "pynq_z1_resident": _PLUS.replace(name="pynq_z1_resident", wgt_bytes=1 << 18, par_entries=128),
    "pynq_z1_fast": _PYNQ_Z1.replace(
        name="pynq_z1_fast",
        block_out=32,
        wgt_bytes=1 << 18,
        load_ports=2,
        array_clock=2,
        extensions=STANDARD_EXTENSIONS - {"depthwise"},
    ),
    "pynq_z1_two": _PYNQ_Z1.replace(name="pynq_z1_two", units=("gemm", "ternary"), acc_banks=TERNARY_BANKS),
    "tiny": _TINY,
    "tiny_two": _TINY.replace(
        name="tiny_two",
        units=("gemm", "ternary"),
        acc_banks=TERNARY_BANKS,
        ternary_blocks=4,
        twgt_bytes=1 << 11,
    ),
}


def load_config(spec: str | os.PathLike[str] | Mapping[str, object] | Config) -> Config:
    """The configuration that `spec` names: a preset, a VTA string, a JSON file, or the fields themselves.

    File and fields may have the keys of VTA's vta_config.json.

    >>> import tilewright as tw
    >>> tw.load_config("tiny").replace(name="larger", wgt_bytes=4096).wgt_depth
    256

    Raises `ConfigError` for an unknown preset or impossible values, `FileError` for an unreadable file.
    """
    if isinstance(spec, Config):
        return spec
    if isinstance(spec, Mapping):
        return Config.from_dict(vta_config.json_fields(spec) if vta_config.is_vta(spec) else spec)
    try:
        spec = spec if isinstance(spec, str) else str(Path(spec))
    except TypeError:
        known = f"{', '.join(PRESETS)}, a .json file, a dict of fields, or a Config"
        raise ConfigError(f"configuration {spec!r}: must be {known}") from None
    if spec in PRESETS:
        return PRESETS[spec]
    if re.match(r"\d+x\d+_", spec):
        return Config.from_vta(spec)
    if not spec.endswith(".json"):
        raise ConfigError(f"unknown preset {spec!r:.80}; known are {', '.join(PRESETS)}, or give a .json file")
    values = read_fields(spec, "configuration", PRESETS)
    return load_config(values).replace(name=values.get("name", Path(spec).stem))


def read_fields(path: str, what: str, presets: Iterable[str]) -> dict[str, Any]:
    """The JSON object of fields in the file `path`, which describes a `what` that is none of `presets`.

    Raises `FileError` for a file that is missing or no JSON, `ConfigError` for one that holds something else.
    """
    values: object = read_json(path, f"a preset ({', '.join(presets)}) or a .json file with a {what}")
    if not isinstance(values, dict):
        raise ConfigError(f"{path}: a {what} is a JSON object of fields, not a {type(values).__name__}")
    return cast("dict[str, Any]", values)
