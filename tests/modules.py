"""Files of the repository: scripts that are in no package, as modules, and the syntax of modules."""

import ast
import gc
import importlib.util
import sys
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import TypeVar

Node = TypeVar("Node", bound=ast.AST)


def module_of(path: Path) -> ModuleType:
    """The module in the file `path`, whose name has that of its folder in front."""
    spec = importlib.util.spec_from_file_location(f"{path.parent.name}_{path.stem}", path)
    assert spec and spec.loader
    found = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = found  # dataclasses look for it there
    spec.loader.exec_module(found)
    return found


_OPERATORS = {"ctx", "op", "ops"}  # fields of nodes


@cache
def _by_kind(path: Path) -> dict[type[ast.AST], list[ast.AST]]:
    found: dict[type[ast.AST], list[ast.AST]] = {}
    gc.disable()  # searching so many nodes for cycles takes longer than making them
    try:
        level: list[ast.AST] = [ast.parse(path.read_text())]
        for node in level:
            found.setdefault(type(node), []).append(node)
            for name in node._fields:
                if name in _OPERATORS:
                    continue
                value = getattr(node, name, None)
                if isinstance(value, list):
                    level += [item for item in value if isinstance(item, ast.AST)]
                elif isinstance(value, ast.AST):
                    level.append(value)
        return found
    finally:
        gc.enable()


def nodes_of(path: Path, *kinds: type[Node]) -> list[Node]:
    """The nodes of these kinds in the syntax tree of the file `path`, the outer ones first.

    The house rules read every module before each commit: one walk serves them all.
    """
    return [node for kind in kinds for node in _by_kind(path).get(kind, []) if isinstance(node, kind)]
