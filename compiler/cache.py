"""Compiled networks on disk: what was compiled once from the same file, for the same configuration, is read again.

A cache that cannot be read or written costs time, nothing else.
"""

from __future__ import annotations

import hashlib
import json
import os
from functools import cache
from pathlib import Path

from ..hw.config import Config
from ..hw.errors import FileError, ProgramError, TilewrightError
from ..runtime.executable import Executable
from ..runtime.files import sources_digest
from .tune.search import SOURCES, cache_folder

_KEPT = 64  # programs; those that were not used for longest go


def network_file(model: bytes, cfg: Config, contract: str) -> Path:
    """Where the executable of a model file's bytes is kept."""
    fields = json.dumps({"config": cfg.to_dict(), "contract": contract, "sources": _sources()}, sort_keys=True)
    digest = hashlib.sha256(fields.encode() + model).hexdigest()[:32]
    return cache_folder().parent / "networks" / f"{digest}.tw"


def read(file: Path) -> Executable | None:
    """The executable in `file`; None if there is none that can be used."""
    if not file.is_file():
        return None
    try:
        found = Executable.load(file)
        os.utime(file)
        return found
    except (OSError, FileError, ProgramError):
        return None


def write(file: Path, executable: Executable) -> None:
    """Keep an executable, and remove those that were not used for longest."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        executable.save(file)
        files = sorted(file.parent.glob("*.tw"), key=lambda f: f.stat().st_mtime)
        for old in files[:-_KEPT]:
            old.unlink(missing_ok=True)
    except (OSError, TilewrightError):
        return


@cache
def _sources() -> str:
    """A digest of everything that a program depends on besides its model."""
    return sources_digest(*SOURCES)
