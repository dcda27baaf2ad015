"""Compiles networks and TVM schedules to programs. TVM is imported on first use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .api import build

__all__ = ["build"]


def __getattr__(name: str) -> Any:
    if name == "build":
        from .api import build

        return build
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
