"""The accelerator's configuration: one frozen value from which every width and depth derives."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
from dataclasses import dataclass, field
from pathlib import Path

from .errors import ConfigError, FileError
from .show import config_html, config_text
from .units import COMPUTE_UNITS, RING

ISA_VERSION = 1
# of the presets pynq_z1 and tiny, whose fingerprints stay
STANDARD_EXTENSIONS = frozenset({"overwrite", "pad_value", "acc8", "requant", "depthwise", "rescale"})
EXTENSIONS = STANDARD_EXTENSIONS
UOP_BYTES = 4  # one micro-op
PAR_BYTES = 12  # post-processing parameters of one channel

_POWERS = {
    "batch": (1, 64),
    "block_in": (1, 256),
    "block_out": (1, 256),
    "inp_bits": (4, 8),
    "wgt_bits": (2, 8),
    "acc_bits": (32, 32),
    "out_bits": (4, 8),
    "uop_bytes": (64, 1 << 20),
    "inp_bytes": (64, 1 << 24),
    "wgt_bytes": (64, 1 << 24),
    "acc_bytes": (64, 1 << 24),
    "par_entries": (1, 1024),
    "acc_banks": (1, 2),
    "axi_bits": (32, 512),
    "load_ports": (1, 4),
    "store_ports": (1, 4),
    "queue_depth": (4, 1024),
    "ppu_lanes": (1, 64),
}

# Fields by how they enter the canonical JSON of the fingerprint: always, under these names; never, as they describe the
# circuit alone. Any other field, so every new one, enters it and a file only where it differs from its default: the
# fingerprints and files of configurations that do without it stay as they are.
_ALWAYS = {
    **{name: name for name in ("batch", "block_in", "block_out", "inp_bits", "wgt_bits", "acc_bits", "out_bits")},
    **{f"{mem}_bytes": f"{mem}_depth" for mem in ("uop", "inp", "wgt", "acc")},
    "par_entries": "par_entries",
    "extensions": "extensions",
}
_NEVER = frozenset({"name", "acc_banks", "axi_bits", "load_ports", "store_ports", "queue_depth", "token_depth"})
_NEVER |= {"ppu_lanes", "dsp_packing"}


@dataclass(frozen=True)
class Config:
    """Parameters of one accelerator.

    Sizes in bytes are those of the scratchpads; `*_depth` and `*_entry_bytes` derive from them. One
    entry is what an instruction's index counts: `batch * block_in` inputs, `block_out * block_in`
    weights, `batch * block_out` accumulators or outputs, one micro-op, or the post-processing
    parameters (PAR) of one group of `block_out` channels.

    `extensions` names additions to the base instruction set (see `EXTENSIONS` and docs/isa.md), `units`
    the compute units (see hw/units.py), gemm first. The fields from `acc_banks` on describe the circuit
    only: programs do not depend on them, so they are not part of the `fingerprint`.

    Raises `ConfigError` for a value that no accelerator can have; the text names the field, the value
    and what is allowed.

    >>> import tilewright as tw
    >>> tw.Config(name="narrow", batch=1, block_in=16, block_out=16, axi_bits=32).macs_per_cycle
    256
    """

    name: str = "custom"
    batch: int = 1
    block_in: int = 16
    block_out: int = 16
    inp_bits: int = 8
    wgt_bits: int = 8
    acc_bits: int = 32
    out_bits: int = 8
    uop_bytes: int = 1 << 15
    inp_bytes: int = 1 << 15
    wgt_bytes: int = 1 << 18
    acc_bytes: int = 1 << 17
    par_entries: int = 64
    extensions: frozenset[str] = field(default=frozenset())
    units: tuple[str, ...] = ("gemm",)
    acc_banks: int = 1
    axi_bits: int = 64
    load_ports: int = 1
    store_ports: int = 1
    queue_depth: int = 64
    token_depth: int = 1023
    ppu_lanes: int = 8
    dsp_packing: bool = False

    def __post_init__(self) -> None:
        if isinstance(self.extensions, str):
            raise ConfigError(f"Config.extensions = {self.extensions!r}: must be a set of names")
        object.__setattr__(self, "extensions", frozenset(self.extensions))
        self._check_units()
        self._check_ranges()
        self._check_formats()

    def _check_units(self) -> None:
        if not isinstance(self.units, (list, tuple)) or not all(isinstance(name, str) for name in self.units):
            raise ConfigError(f"Config.units = {self.units!r}: must be a list of names")
        object.__setattr__(self, "units", tuple(self.units))
        text = f"Config.units = {', '.join(self.units) or 'none'}"
        unknown = [name for name in self.units if name not in COMPUTE_UNITS]
        if unknown:
            raise ConfigError(f"{text}: unknown are {', '.join(unknown)}; known are {', '.join(COMPUTE_UNITS)}")
        if self.units[:1] != ("gemm",):
            raise ConfigError(f"{text}: must begin with gemm")
        if len(set(self.units)) < len(self.units):
            raise ConfigError(f"{text}: names a unit twice")
        if len(self.units) > RING - 2:
            raise ConfigError(f"{text}: tokens join {RING - 2} compute units with load and store; use no more")

    def _check_ranges(self) -> None:
        if not isinstance(self.name, str) or not self.name.isprintable():
            raise ConfigError(f"Config.name = {self.name!r}: must be a printable text")
        for key, (low, high) in _POWERS.items():
            value = getattr(self, key)
            if type(value) is not int:
                raise ConfigError(f"Config.{key} = {value!r}: must be an integer")
            if value < 1 or value & (value - 1):
                raise ConfigError(f"Config.{key} = {value}: must be a power of two")
            if not low <= value <= high:
                raise ConfigError(f"Config.{key} = {value}: allowed are powers of two from {low} to {high}")
        if type(self.token_depth) is not int or not 1 <= self.token_depth <= 65535:
            raise ConfigError(f"Config.token_depth = {self.token_depth!r}: must be an integer from 1 to 65535")
        if not isinstance(self.dsp_packing, bool):
            raise ConfigError(f"Config.dsp_packing = {self.dsp_packing!r}: must be true or false")
        unknown = sorted(map(str, self.extensions - EXTENSIONS))
        if unknown:
            raise ConfigError(
                f"Config.extensions = {', '.join(unknown)}: unknown; known are {', '.join(sorted(EXTENSIONS))}"
            )

    def _check_formats(self) -> None:
        for mem in ("inp", "wgt", "acc"):
            size, entry = getattr(self, f"{mem}_bytes"), getattr(self, f"{mem}_entry_bytes")
            if getattr(self, f"{mem}_entry_bits") % 8:
                raise ConfigError(f"Config.{mem}_bits = {getattr(self, f'{mem}_bits')}: an entry must be whole bytes")
            if size < 2 * entry:
                raise ConfigError(
                    f"Config.{mem}_bytes = {size}: must hold 2 entries of {entry} bytes; use at least {2 * entry}"
                )
        if self.out_entry_bits % 8:
            raise ConfigError(f"Config.out_bits = {self.out_bits}: an entry must be whole bytes")
        self._check_extensions()
        from .isa import Isa  # the formats are declared there; they decide whether the depths fit

        Isa(self)

    def _check_extensions(self) -> None:
        if "depthwise" in self.extensions and self.block_in != self.block_out:
            raise ConfigError(
                f"Config.extensions = depthwise: needs block_in and block_out to be equal; "
                f"they are {self.block_in} and {self.block_out}"
            )
        for name, moved in (("acc8", "loads"), ("requant", "stores")):
            if name in self.extensions and self.out_bits != 8:
                raise ConfigError(
                    f"Config.extensions = {name}: {moved} bytes, so it needs out_bits = 8, not {self.out_bits}"
                )
        if "rescale" in self.extensions and "requant" not in self.extensions:
            raise ConfigError("Config.extensions = rescale: needs requant too, which loads its parameters")

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
    def inp_entry_bytes(self) -> int:
        """Bytes of one input entry."""
        return self.inp_entry_bits // 8

    @property
    def wgt_entry_bytes(self) -> int:
        """Bytes of one weight entry."""
        return self.wgt_entry_bits // 8

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
    def acc_depth(self) -> int:
        """Entries of the accumulator scratchpad."""
        return self.acc_bytes // self.acc_entry_bytes

    @property
    def bank_depth(self) -> int:
        """Entries of one bank of the accumulator scratchpad."""
        return self.acc_depth // self.acc_banks

    @property
    def macs_per_cycle(self) -> int:
        """Multiply-accumulates of one GEMM micro-op."""
        return self.batch * self.block_in * self.block_out

    @property
    def fingerprint(self) -> int:
        """64-bit identity of everything that a program depends on."""
        facts: dict[str, object] = {"isa_version": ISA_VERSION}
        for name, value in self.to_dict().items():
            if name not in _NEVER:
                key = _ALWAYS.get(name, name)
                facts[key] = value if key == name else getattr(self, key)
        text = json.dumps(facts, sort_keys=True, separators=(",", ":"))
        return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")

    def replace(self, **changes: object) -> Config:
        """A copy with `changes`. Raises `ConfigError` for an unknown field or an impossible value."""
        return Config.from_dict({**self.to_dict(), **changes})

    def to_dict(self) -> dict[str, object]:
        """The fields as JSON-ready values; one that is new since the first version only where it is not its default."""
        found: dict[str, object] = {}
        for f in dataclasses.fields(self):
            value = getattr(self, f.name)
            if f.name in _ALWAYS or f.name in _NEVER or value != f.default:
                found[f.name] = _plain(value)
        return found

    @staticmethod
    def from_dict(values: dict) -> Config:
        """The configuration that `values` describe; fields that are absent take the defaults."""
        known = {f.name for f in dataclasses.fields(Config)}
        for key in values:
            if key not in known:
                raise ConfigError(f"Config has no field {key!r}; it has {', '.join(sorted(known))}")
        ext = values.get("extensions", ())
        if not isinstance(ext, (list, tuple, set, frozenset)) or not all(isinstance(e, str) for e in ext):
            raise ConfigError(f"Config.extensions = {ext!r}: must be a list of names")
        return Config(**{**values, "extensions": frozenset(ext)})

    @staticmethod
    def from_vta(text: str) -> Config:
        """The configuration that a VTA string such as `1x16_i8w8a32_15_15_18_17` names.

        Batch x block, widths, then log2 of the uop, inp, wgt and acc buffers in bytes; VTA's functional
        simulator also loads 8-bit accumulators, so the extension `acc8` is on where outputs have 8 bits.
        """
        match = re.fullmatch(r"(\d{1,9})x(\d{1,9})_i(\d{1,9})w(\d{1,9})a(\d{1,9})" + r"_(\d{1,9})" * 4, text)
        if not match:
            raise ConfigError(f"{text!r} is not a VTA configuration; expected BATCHxBLOCK_iNwNaN_UOP_INP_WGT_ACC")
        batch, block, inp, wgt, acc, *logs = map(int, match.groups())
        if max(logs) > 30:
            raise ConfigError(f"{text!r}: a buffer of 2**{max(logs)} bytes; the last four numbers are log2 of bytes")
        sizes = dict(zip(("uop_bytes", "inp_bytes", "wgt_bytes", "acc_bytes"), (1 << n for n in logs)))
        widths = {"inp_bits": inp, "wgt_bits": wgt, "acc_bits": acc, "out_bits": inp}
        extensions = frozenset({"acc8"}) if inp == 8 else frozenset()
        return Config(text, batch, block, block, **widths, **sizes, extensions=extensions)


def _plain(value: object) -> object:
    """`value` as JSON has it."""
    if isinstance(value, frozenset):
        return sorted(value)
    return list(value) if isinstance(value, tuple) else value


PRESETS: dict[str, Config] = {
    "vta": Config(name="vta", extensions=frozenset({"acc8"})),
    "pynq_z1": Config(
        name="pynq_z1",
        uop_bytes=1 << 14,
        wgt_bytes=1 << 17,
        acc_banks=2,
        dsp_packing=True,
        extensions=STANDARD_EXTENSIONS,
    ),
    "tiny": Config(
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
    ),
}


def load_config(spec: str | dict | Config) -> Config:
    """The configuration that `spec` names: a preset, a VTA string, a JSON file, or the fields themselves.

    >>> import tilewright as tw
    >>> tw.load_config("tiny").replace(name="larger", wgt_bytes=4096).wgt_depth
    256

    Raises `ConfigError` for an unknown preset or impossible values, `FileError` for an unreadable file.
    """
    if isinstance(spec, Config):
        return spec
    if isinstance(spec, dict):
        return Config.from_dict(spec)
    if spec in PRESETS:
        return PRESETS[spec]
    if re.match(r"\d+x\d+_", spec):
        return Config.from_vta(spec)
    if not spec.endswith(".json"):
        raise ConfigError(f"unknown preset {spec!r}; known are {', '.join(PRESETS)}, or give a .json file")
    try:
        values = json.loads(Path(spec).read_text())
    except FileNotFoundError:
        raise FileError(f"{spec}: no such configuration file") from None
    except (OSError, ValueError) as exc:
        raise FileError(f"{spec}: not a readable JSON configuration ({exc})") from None
    if not isinstance(values, dict):
        raise ConfigError(f"{spec}: a configuration is a JSON object of fields, not a {type(values).__name__}")
    return Config.from_dict({"name": Path(spec).stem, **values})
