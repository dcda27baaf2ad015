"""Cache of compiled networks on disk, by all that they depend on: model, configuration, our sources, and the versions
of the libraries that read and lower the model.

If it cannot be read or written, networks are compiled again.
"""

from __future__ import annotations

import hashlib
import json
import os
from contextlib import suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from ..hw.config import Config
from ..hw.errors import FileError, ProgramError, TilewrightError
from ..runtime.executable import Executable
from ..runtime.files import sources_digest
from .cost import memory_facts
from .tune.search import SOURCES, cache_folder

_LIBRARIES = ("apache-tvm", "onnx", "numpy", "ai-edge-litert", "torch")
_MOST_FILES = 64  # programs; the least recently used are removed


def network_file(model: bytes, cfg: Config, contract: str, tiles: str = "", mapping: str = "") -> Path:
    """Path of the cached executable for a model; `model` is a digest of everything that is parsed of it.

    `tiles` is a digest of the tiles known for it, `mapping` one of its channels' compute units. The memory is that of
    the estimates (compiler/cost.py).
    """
    facts = {"config": cfg.to_dict(), "contract": contract, "sources": _sources(), "versions": _versions()}
    facts |= {"tiles": tiles, "mapping": mapping} | memory_facts()
    digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode() + model).hexdigest()[:32]
    return cache_folder().parent / "networks" / f"{digest}.tw"


def read(file: Path) -> Executable | None:
    """The executable in `file`; None if there is no usable one."""
    if not file.is_file():
        return None
    try:
        found = Executable.load(file)
        os.utime(file)
        return found
    except (OSError, FileError, ProgramError):
        return None


def write(file: Path, executable: Executable) -> None:
    """Save an executable, and remove the least recently used ones."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        executable.save(file)
        files = sorted(file.parent.glob("*.tw"), key=lambda f: f.stat().st_mtime)
        for old in files[:-_MOST_FILES]:
            old.unlink(missing_ok=True)
    except (OSError, TilewrightError):
        return


def _versions() -> dict[str, str]:
    found = {}
    for name in _LIBRARIES:
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


@cache
def _sources() -> str:
    """Digest of the sources that a program depends on."""
    return sources_digest(*SOURCES)
