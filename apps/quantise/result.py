"""What quantisation gives: an int8 network, how it was made, and how much it differs from its float network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ...compiler.frontend import import_model
from ...compiler.frontend.source import Source
from ...compiler.network import compile_graph
from ...hw.config import Config, load_config
from ...runtime.executable import Executable
from ...runtime.files import atomic_write


@dataclass(frozen=True)
class OperatorLoss:
    """Signal to noise of an operator's result, in dB, and how much lower it is than that of its worst input."""

    name: str
    kind: str
    snr_db: float
    lost_db: float


@dataclass(frozen=True)
class Comparison:
    """An int8 network against its float network on the same samples.

    `snr_db` is of all outputs together; `agreement` is the share of samples whose largest output is the same, None
    where no output is a vector of classes; `float_accuracy` and `int8_accuracy` need labels.
    """

    snr_db: float
    operators: tuple[OperatorLoss, ...]
    agreement: float | None = None
    float_accuracy: float | None = None
    int8_accuracy: float | None = None

    def to_json(self) -> dict[str, Any]:
        """The fields as plain values."""
        return asdict(self)

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> Comparison:
        """The comparison that `to_json` gave."""
        return cls(**{**fields, "operators": tuple(OperatorLoss(**one) for one in fields["operators"])})


@dataclass(frozen=True)
class Way:
    """One way to quantise: `method` of the ranges, forms of the network, names of operators that stay in float."""

    method: str
    equalised: bool = False
    corrected: bool = False
    kept: tuple[str, ...] = ()

    def __str__(self) -> str:
        forms = [name for name, used in (("equalised", self.equalised), ("corrected", self.corrected)) if used]
        return " + ".join([self.method, *forms, *([f"{len(self.kept)} in float"] if self.kept else [])])


@dataclass(frozen=True)
class Quantised:
    """An int8 network, and how it and the other ways that were tried compare with the float network.

    `network` and `float_network` are files in memory; the latter is the one that was compared, with fixed sizes.
    `refused` says of methods why they cannot be used, `notes` how the data was read; `samples` is their number.
    `in_float` names operators that are never quantised (ranges.py).
    """

    network: Source
    float_network: Source
    way: Way
    tried: Mapping[Way, Comparison]
    refused: Mapping[str, str]
    samples: int
    in_float: Sequence[str] = ()
    notes: Sequence[str] = ()

    @property
    def comparison(self) -> Comparison:
        """Of the network that was taken."""
        return self.tried[self.way]

    def save(self, path: str | Path) -> None:
        """Write the network, whole or not at all. Raises `FileError`."""
        with atomic_write(path) as temporary:
            temporary.write_bytes(self.network.content)

    def compile(self, config: Config | str = "pynq_z1") -> Executable:
        """The network as an executable for a configuration. Raises as the importer and the compiler."""
        return compile_graph(import_model(self.network), load_config(config))


_COLUMNS = {"snr_db": "SNR dB", "agreement": "same class %", "int8_accuracy": "right %"}


def ways_table(facts: dict[str, Any]) -> tuple[list[str], list[list[object]]]:
    """(the columns, the rows) of the ways that were tried; what the network has no figures of is left out."""
    used = {key: name for key, name in _COLUMNS.items() if facts[key] is not None}
    rows = [[way["way"], *(way[key] * (1 if key == "snr_db" else 100) for key in used)] for way in facts["ways"]]
    return ["ranges and form", *used.values()], rows
