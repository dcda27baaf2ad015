"""Completion in shells: what a value may be follows from the metavar of its option or argument.

Names come from the presets and the devices, files from the suffixes that the metavar names. Nothing but the verb's own
module is imported for it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable

import click
from click.shell_completion import CompletionItem


def _presets() -> Iterable[str]:
    from ..hw.config import PRESETS

    return PRESETS


def _drams() -> Iterable[str]:
    from ..sim.dram import PRESETS

    return PRESETS


def _devices() -> Iterable[str]:
    from ..runtime.registry import device_names

    return device_names()


# parameter -> names that it takes besides files
NAMES: dict[str, Callable[[], Iterable[str]]] = {
    "config": _presets,
    "other": _presets,
    "device": _devices,
    "dram": _drams,
}
_CONFIGS = (".json",)
_MODELS = (".onnx", ".tflite", ".pt2", ".bin", ".npz", ".py", ".tw")
# metavar -> suffixes, where it names none itself; ("",) are all files
SUFFIXES = {
    "NAME|FILE": _CONFIGS,
    "A": _CONFIGS,
    "B": _CONFIGS,
    "MODEL": _MODELS,
    "DB": (".db",),
    "FILE": ("",),
    "KEY": ("",),
    "FOLDER": ("/",),
}


class _Text(click.types.StringParamType):
    """A text that shells complete."""

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        names = NAMES.get(param.name or "", tuple)()
        found = [name for name in names if name.startswith(incomplete)]
        metavar = param.metavar or (param.name or "").upper()
        suffixes = SUFFIXES.get(metavar) or tuple(re.findall(r"\.\w+", metavar))
        return [CompletionItem(value) for value in found + (files(incomplete, suffixes) if suffixes else [])]


def completing(command: click.Command) -> click.Command:
    """`command` with texts that shells complete, in all its forms."""
    for param in command.params:
        if isinstance(param.type, click.types.StringParamType):
            param.type = _Text()
    for form in command.commands.values() if isinstance(command, click.Group) else ():
        completing(form)
    return command


def files(start: str, suffixes: tuple[str, ...]) -> list[str]:
    """Paths that begin with `start`: files that end in one of `suffixes`, and folders, with a slash.

    A folder that is the only match is entered, as a shell puts a space behind an only match.
    """
    name = start.rpartition("/")[2]
    prefix = start.removesuffix(name)
    try:
        entries = sorted(os.scandir(os.path.expanduser(prefix) or "."), key=lambda entry: entry.name)
    except OSError:
        return []
    shown = [e for e in entries if e.name.startswith(name) and (name or not e.name.startswith("."))]
    found = [prefix + e.name + ("/" if e.is_dir() else "") for e in shown if e.is_dir() or e.name.endswith(suffixes)]
    if len(found) == 1 and found[0].endswith("/") and found[0] != start:
        return files(found[0], suffixes) or found
    return found
