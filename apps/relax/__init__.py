"""Relax modules of TVM on the accelerator: `tilewright_pipeline` gives it what it can compute, TVM keeps the rest.

A name is imported on first use: what loads an exported executable needs `runner` alone.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .partition import refusals, tilewright_pipeline
    from .runner import PartReport, Report, release, report

__all__ = ["PartReport", "Report", "refusals", "release", "report", "tilewright_pipeline"]
_HOMES = {"refusals": "partition", "tilewright_pipeline": "partition"}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}; it has {', '.join(__all__)}")
    return getattr(importlib.import_module(f".{_HOMES.get(name, 'runner')}", __name__), name)
