"""Cache of compiled networks on disk, by all that they depend on: model, configuration, our sources, and the versions
of the libraries that read and lower the model. Also of JSON values that take long to find, as figures of networks.

If it cannot be read or written, networks are compiled again. What is kept is read without TVM, whose import takes a
second.
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

_LIBRARIES = ("apache-tvm", "onnx", "numpy", "ai-edge-litert", "torch")
_SOURCES = ("apps", "compiler", "hw", "runtime", "sim")  # top folders that determine what is kept
_MOST_BYTES = 1 << 26  # of figures
_MOST_FILES = 64  # programs; the least recently used are removed


def network_file(model: bytes, cfg: Config, contract: str, tiles: str = "", mapping: str = "") -> Path:
    """Path of the cached executable for a model; `model` is a digest of everything that is parsed of it.

    `tiles` is a digest of the tiles known for it, `mapping` one of its channels' compute units. The memory is that of
    the estimates (compiler/cost.py).
    """
    facts = {"contract": contract, "tiles": tiles, "mapping": mapping} | memory_facts()
    return cache_folder("networks") / f"{_digest(model, cfg, facts)}.tw"


def figures_file(model: bytes, cfg: Config, facts: Mapping[str, Any]) -> Path:
    """Path of the cached figures of a model; `facts` are all that they depend on beside model and configuration."""
    return cache_folder("figures") / f"{_digest(model, cfg, facts)}.json"


def _digest(model: bytes, cfg: Config, facts: Mapping[str, Any]) -> str:
    known = {"config": cfg.to_dict(), "sources": sources(), "versions": _versions(), **facts}
    return hashlib.sha256(json.dumps(known, sort_keys=True).encode() + model).hexdigest()[:32]


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


def write_json(file: Path, value: Any, most: int) -> None:
    """Save a value, and remove the least recently used ones of its folder beyond `most`."""
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
    found = {}
    for name in _LIBRARIES:
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


@cache
def sources() -> str:
    """Digest of the sources that determine a program and its cycles: compiler, recorder, timing model, and circuit."""
    return sources_digest(*_SOURCES)
