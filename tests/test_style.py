"""House rules that ruff does not know."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("hw", "sim", "runtime", "compiler", "boards", "cli")
FOLDERS = (*PACKAGES, "tests", "docs", "examples")
MODULES = [p.relative_to(ROOT) for folder in FOLDERS for p in sorted((ROOT / folder).rglob("*.py"))]
LIBRARY = [p for p in MODULES if p.parts[0] in PACKAGES]
TEXTS = [p.relative_to(ROOT) for folder in FOLDERS for p in sorted((ROOT / folder).rglob("*.md"))]
TEXTS += [Path(name) for name in ("README.md", "CHANGELOG.md", "Makefile", "pyproject.toml", ".ci/run", ".ci/setup")]
MODULE_LINES, FUNCTION_LINES = 500, 60
SILENCERS = re.compile(r"#\s*(noqa|ruff:|type:\s*ignore|pylint:|mypy:)")
MACHINE_PATH = re.compile(r"(?<![\w./])/(tmp|root|home|work|Users|mnt)/\w")


def text(path: Path) -> str:
    return (ROOT / path).read_text()


@pytest.mark.parametrize("path", MODULES, ids=str)
def test_a_module_is_short_and_so_are_its_functions(path):
    source = text(path)
    assert len(source.splitlines()) <= MODULE_LINES
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            assert (node.end_lineno or 0) - node.lineno < FUNCTION_LINES, f"{path}:{node.lineno} {node.name}"


@pytest.mark.parametrize("path", MODULES, ids=str)
def test_nothing_is_silenced(path):
    lines = [k for k, line in enumerate(text(path).splitlines(), 1) if SILENCERS.search(line)]
    assert not lines


@pytest.mark.parametrize("path", MODULES + TEXTS, ids=str)
def test_no_path_of_one_machine(path):
    assert not MACHINE_PATH.search(text(path))


@pytest.mark.parametrize("path", LIBRARY, ids=str)
def test_users_meet_named_errors_not_bare_ones(path):
    """Bare exceptions and asserts with a text for users are refused: an assert states our own invariant."""
    for node in ast.walk(ast.parse(text(path))):
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call) and isinstance(node.exc.func, ast.Name):
            assert node.exc.func.id not in ("Exception", "RuntimeError", "AssertionError"), f"{path}:{node.lineno}"
        assert not (isinstance(node, ast.Assert) and node.msg), f"{path}:{node.lineno}: raise a named error"


@pytest.mark.parametrize("path", [p for p in LIBRARY if p.parts[0] != "cli"], ids=str)
def test_only_the_command_prints(path):
    calls = [n for n in ast.walk(ast.parse(text(path))) if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)]
    assert "print" not in [call.func.id for call in calls if isinstance(call.func, ast.Name)]


def test_ruff_has_nothing_to_say():
    pytest.importorskip("ruff")
    for command in (["check", "--output-format=concise"], ["format", "--check"]):
        done = subprocess.run(
            [sys.executable, "-m", "ruff", *command, "."], cwd=ROOT, capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 0, done.stdout
