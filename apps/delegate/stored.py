"""A delegate's programs in a file, for machines without TVM: an archive of .tw programs and what is known of them."""

from __future__ import annotations

import json
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ...hw.config import Config
from ...hw.errors import FileError, InputError, one_line
from ...hw.foreign import Archive, open_regular
from ...runtime.executable import Executable
from ...runtime.files import add_member, atomic_write
from ...runtime.schema import shown
from .kernel import Program
from .native import Given

_FACTS = "delegate.json"
_VERSION = 1
_MOST = 1 << 24  # bytes of the facts
_SCALARS = ("macs", "cycles", "host_seconds")
# RuntimeError is that of an unknown compression or a password
_DAMAGE = (zipfile.BadZipFile, zlib.error, LookupError, ValueError, TypeError, AttributeError, OSError, EOFError)
_DAMAGE += (RuntimeError,)


@dataclass(frozen=True)
class Stored:
    """What a delegate has planned for the network whose file has the `digest`, SHA-256 in hexadecimal.

    `refused` are the reasons of nodes that stay, by number, `seconds` those of every node on the modelled Cortex-A9.
    """

    digest: str
    config: Config
    runtime: str
    programs: Sequence[Program]
    refused: Mapping[int, str]
    seconds: Sequence[float | None]


def save(path: str | Path, stored: Stored) -> None:
    """Write the file, atomically. Raises `FileError`."""
    facts = {"version": _VERSION, "digest": stored.digest, "config": stored.config.to_dict(), "runtime": stored.runtime}
    facts |= {"refused": list(stored.refused.items()), "seconds": list(stored.seconds)}
    parts = []
    for program in stored.programs:
        ends = {"inputs": program.inputs, "outputs": program.outputs}
        parts.append(asdict(program.given) | {"ends": ends} | {name: getattr(program, name) for name in _SCALARS})
    with atomic_write(path) as temporary, zipfile.ZipFile(temporary, "w") as archive:
        add_member(archive, _FACTS, json.dumps(facts | {"parts": parts}))
        for k, program in enumerate(stored.programs):
            add_member(archive, f"{k}.tw", program.executable.to_bytes())


def load(path: str | Path, digest: str) -> Stored:
    """Read the file for the network with the `digest`.

    Raises `FileError` where it is missing or damaged, `InputError` where it is of another network.
    """
    with open_regular(path, "a file of programs") as file:
        try:
            archive = Archive(file, str(path))
            facts = archive.json(_FACTS, _MOST)
            if facts["version"] != _VERSION:
                raise FileError(f"{path}: is of version {shown(facts['version'])}; save it again with this release")
            if facts["digest"] != digest:
                raise InputError(f"{path}: holds the programs of another network; save them for this one")
            members = [bytes(archive.read(f"{k}.tw")) for k in range(len(facts["parts"]))]
            return _stored(path, facts, members)
        except (FileError, InputError):
            raise
        except _DAMAGE as exc:
            raise FileError(f"{path}: no file of a delegate's programs, or damaged ({one_line(exc)})") from None


def _stored(path: str | Path, facts: Mapping[str, Any], members: Sequence[bytes]) -> Stored:
    programs = []
    for part, data in zip(facts["parts"], members, strict=True):
        given = Given(*(tuple(map(int, part[name])) for name in ("nodes", "inputs", "outputs")))
        inputs, outputs = (
            tuple((int(k), str(name)) for k, name in part["ends"][side]) for side in ("inputs", "outputs")
        )
        executable = Executable.from_bytes(data, str(path))
        for _, name in (*inputs, *outputs):
            if name not in executable.tensors:
                raise FileError(f"{path}: names tensor {name!r}, which its program does not have")
        programs.append(Program(given, executable, inputs, outputs, *(part[name] for name in _SCALARS)))
    refused = {int(n): str(why) for n, why in facts["refused"]}
    config = Config.from_dict(facts["config"])
    return Stored(facts["digest"], config, facts["runtime"], programs, refused, facts["seconds"])
