"""Relax modules of TVM with their quantised parts on the accelerator: `tilewright_pipeline`, reports, reasons.

Names are imported at their first use: a process that loads an exported executable needs `runner` alone.
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
