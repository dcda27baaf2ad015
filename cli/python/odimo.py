"""Networks trained for two compute units, `from tilewright.odimo import Plan, Task, explore`: docs/odimo.md.

What trains needs torch, and is imported when it is asked for.
"""

from __future__ import annotations

import importlib
from typing import Any

from tilewright.apps.odimo.front import Front, Mean, Plan, Point, explore
from tilewright.apps.odimo.integers import IntegerNetwork, to_graph
from tilewright.apps.odimo.task import Examples, Recipe, Task

_LEARNING = {"MappedConv2d": "layers", "MappedLinear": "layers", "integers": "integers", "trace": "network"}

__all__ = ["Examples", "Front", "IntegerNetwork", "Mean", "Plan", "Point", "Recipe", "Task", "explore", "to_graph"]


def __getattr__(name: str) -> Any:
    if name not in _LEARNING:
        raise AttributeError(f"module 'tilewright.odimo' has no attribute {name!r}")
    module = importlib.import_module(f"tilewright.apps.odimo.torch_{_LEARNING[name]}")
    return globals().setdefault(name, getattr(module, name))


def __dir__() -> list[str]:
    return sorted([*__all__, *_LEARNING])
