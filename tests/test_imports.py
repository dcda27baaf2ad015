"""Imports point one way, and what runs on a board imports numpy alone."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
# what each top package may import; itself is always allowed
MAY_IMPORT = {
    "hw": set(),
    "runtime": {"hw"},
    "boards": {"hw", "runtime"},
    "sim": {"hw", "runtime"},
    "compiler": {"hw", "runtime", "sim"},
    "cli": {"hw", "runtime", "sim", "compiler"},
}
MODULES = [p.relative_to(ROOT) for top in MAY_IMPORT for p in sorted((ROOT / top).rglob("*.py"))]
# what runs on a board: standard library and numpy alone; the RTL modules of hw/ are not among them
BOARD = [p for p in MODULES if p.parts[0] in ("runtime", "boards")]
BOARD += [Path("hw", f"{name}.py") for name in ("__init__", "config", "errors", "isa", "regs", "rounding")]
BOARD += [p for p in (Path("sim/__init__.py"), Path("sim/model.py"), Path("sim/device.py")) if p in MODULES]


def name_of(path: Path) -> str:
    parts = ["tilewright", *path.with_suffix("").parts]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(path: Path) -> set[str]:
    """Full names of the modules that `path` imports anywhere, but for those that only type checkers see."""
    tree = ast.parse((ROOT / path).read_text())
    hidden = {
        id(node)
        for branch in ast.walk(tree)
        if isinstance(branch, ast.If) and ast.unparse(branch.test).endswith("TYPE_CHECKING")
        for node in ast.walk(branch)
    }
    package = ["tilewright", *path.parent.parts]
    found = set()
    for node in ast.walk(tree):
        if id(node) in hidden:
            continue
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            prefix = ".".join([*base, *([node.module] if node.module else [])])
            found |= {prefix if node.module else f"{prefix}.{alias.name}" for alias in node.names}
    return found


@pytest.mark.parametrize("path", MODULES, ids=str)
def test_direction(path):
    allowed = MAY_IMPORT[path.parts[0]] | {path.parts[0]}
    for name in imports(path):
        parts = name.split(".")
        assert parts[0] not in MAY_IMPORT, f"{path}: import {name} as tilewright.{name}"
        if parts[0] == "tilewright":
            assert parts[1] in allowed, f"{path} imports {name}"


@pytest.mark.parametrize("path", MODULES, ids=str)
def test_imports_inside_a_package_are_relative(path):
    tree = ast.parse((ROOT / path).read_text())
    absolute = [n.module for n in ast.walk(tree) if isinstance(n, ast.ImportFrom) and not n.level and n.module]
    absolute += [alias.name for n in ast.walk(tree) if isinstance(n, ast.Import) for alias in n.names]
    assert not [name for name in absolute if name.split(".")[0] == "tilewright"]


@pytest.mark.parametrize("path", MODULES, ids=str)
def test_tvm_only_through_tvm_compat(path):
    if path != Path("compiler/tvm_compat.py"):
        assert not [name for name in imports(path) if name.split(".")[0] in ("tvm", "tvm_ffi")]


@pytest.mark.parametrize("path", BOARD, ids=str)
def test_board_code_names_only_numpy_and_the_standard_library(path):
    known = sys.stdlib_module_names | {"numpy", "tilewright"}
    assert not [name for name in imports(path) if name.split(".")[0] not in known]


def third_party(*modules: str) -> set[str]:
    """Top names outside the standard library that a fresh interpreter holds after importing `modules`."""
    code = "import sys; before = set(sys.modules)\n" + "".join(f"import {m}\n" for m in modules)
    code += "names = {m.split('.')[0] for m in set(sys.modules) - before}\n"
    code += "print(*(names - sys.stdlib_module_names))"
    done = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


def test_board_code_loads_only_numpy():
    assert third_party(*map(name_of, BOARD)) == {"numpy", "tilewright"}


def test_the_command_starts_without_numpy_and_tvm():
    loaded = third_party("tilewright.cli.main")
    assert not loaded & {"numpy", "tvm", "onnx", "onnxruntime", "rich", "torch"}
