"""Files of the repository: scripts that are in no package, as modules, and the syntax of modules."""

import ast
import gc
import importlib.util
import sys
from functools import cache
from pathlib import Path
from types import ModuleType


def module_of(path: Path) -> ModuleType:
    """The module in the file `path`, whose name has that of its folder in front."""
    spec = importlib.util.spec_from_file_location(f"{path.parent.name}_{path.stem}", path)
    assert spec and spec.loader
    found = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = found  # dataclasses look for it there
    spec.loader.exec_module(found)
    return found


@cache
def nodes_of(path: Path) -> list[ast.AST]:
    """All nodes of the syntax tree of the file `path`, which is the first."""
    gc.disable()  # of as many nodes as the library has it takes longer than they do
    try:
        return [*ast.walk(ast.parse(path.read_text()))]
    finally:
        gc.enable()
