"""Disk cache of compiled networks, and of JSON values that take long to compute.

The key is a digest of everything that a program depends on: model, configuration, memory, our sources, and the versions
of the libraries that read and lower the model. If the cache cannot be read or written, networks are compiled again.
Reading it does not import TVM, which takes a second.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from ..hw import foreign
from ..hw.config import Config
from ..hw.errors import FileError, ProgramError, TilewrightError
from ..runtime.executable import Executable
from ..runtime.files import atomic_write, cache_folder, sources_digest
from .cost import memory_facts

_LIBRARIES = ("apache-tvm", "onnx", "numpy", "ai-edge-litert", "torch", "onnxscript")
_SOURCES = ("apps", "compiler", "hw", "runtime", "sim")  # top folders whose sources determine programs and figures
_MOST_BYTES = 1 << 26  # of figures
_MOST_FILES = 64  # programs; the least recently used are removed


def network_file(model: bytes, cfg: Config, contract: str, tiles: str = "", mapping: str = "") -> Path:
    """Path of the cached executable of a model, for the memory of `cost.on_memory`.

    `model` is a digest of all files of the model, `tiles` a digest of its known tiles, `mapping` a digest of the
    compute units of its channels.
    """
    facts = {"contract": contract, "tiles": tiles, "mapping": mapping} | memory_facts()
    return cache_folder("networks") / f"{_digest(model, cfg, facts)}.tw"


def figures_file(model: bytes, cfg: Config, facts: Mapping[str, object]) -> Path:
    """Path of the cached figures of a model; `facts` are their other dependences, JSON values."""
    return cache_folder("figures") / f"{_digest(model, cfg, facts)}.json"


def _digest(model: bytes, cfg: Config, facts: Mapping[str, object]) -> str:
    key = {"config": cfg.to_dict(), "sources": sources(), "versions": _versions(), **facts}
    return hashlib.sha256(json.dumps(key, sort_keys=True).encode() + model).hexdigest()[:32]


def read(file: Path) -> Executable | None:
    """The executable in `file`; None if there is no usable one."""
    if not file.is_file():
        return None
    try:
        executable = Executable.load(file)
        os.utime(file)
        return executable
    except (OSError, FileError, ProgramError):
        return None


def write(file: Path, executable: Executable) -> None:
    """Save an executable, and remove the least recently used files."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        executable.save(file)
        _prune(file, _MOST_FILES)
    except (OSError, TilewrightError):
        return


def read_json(file: Path) -> Any:
    """The value in `file`; None if there is no usable one."""
    try:
        value = foreign.read_json(file, "figures", _MOST_BYTES)
        os.utime(file)
        return value
    except (OSError, FileError):
        return None


def write_json(file: Path, value: object, most: int) -> None:
    """Save a value, and remove the least recently used files of its folder until `most` are left."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(file) as temporary:
            temporary.write_text(json.dumps(value))
        _prune(file, most)
    except (OSError, FileError):
        return


def _prune(file: Path, most: int) -> None:
    files = list(file.parent.glob(f"*{file.suffix}"))
    if len(files) > most:
        for old in sorted(files, key=lambda f: f.stat().st_mtime)[:-most]:
            old.unlink(missing_ok=True)


def _versions() -> dict[str, str]:
    versions = {}
    for name in _LIBRARIES:
        with suppress(PackageNotFoundError):
            versions[name] = version(name)
    return versions


@cache
def sources() -> str:
    """Digest of the sources that determine a program and its cycles: compiler, recorder, timing model, and circuit."""
    return sources_digest(*_SOURCES)
