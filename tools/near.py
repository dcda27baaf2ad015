#!/usr/bin/env python3
"""Runs the quick tests of the modules that differ from a revision, and the test files that differ themselves.

Usage: tools/near.py [REVISION]      by default HEAD

A test file belongs to a module if it imports the module, has its name, or lies in its folder.
"""

import ast
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("hw", "runtime", "sim", "compiler", "apps", "boards", "cli", "tools", "tests")


def changed(revision: str) -> list[Path]:
    """The Python files that differ from the revision, and those that git does not know."""
    differ = ["git", "diff", "--name-only", revision], ["git", "ls-files", "--others", "--exclude-standard"]
    names = [subprocess.run(one, cwd=ROOT, capture_output=True, text=True, check=True).stdout for one in differ]
    paths = [Path(name) for name in "".join(names).split()]
    return [path for path in paths if path.suffix == ".py" and path.parts[0] in FOLDERS and (ROOT / path).exists()]


def imported(path: Path) -> set[str]:
    """The modules that a file imports, and the names that it imports from them, as compiler.kernels.table."""
    package = path.parent.parts
    found = set[str]()
    for node in ast.walk(ast.parse((ROOT / path).read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name.removeprefix("tilewright.") for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            module = ".".join([*base, *([node.module] if node.module else [])]).removeprefix("tilewright.")
            found |= {module, *(f"{module}.{alias.name}" for alias in node.names)}
    return found


def tests_of(paths: list[Path]) -> list[Path]:
    """The test files that belong to `paths`."""
    names = {".".join(path.with_suffix("").parts).removesuffix(".__init__") for path in paths}
    tests = [path.relative_to(ROOT) for path in sorted((ROOT / "tests").rglob("test_*.py"))]
    named, beside = {f"test_{path.stem}.py" for path in paths}, {Path("tests") / path.parent for path in paths}
    near = [path for path in tests if path in paths or path.name in named or path.parent in beside]
    return near + [path for path in tests if path not in near and not names.isdisjoint(imported(path))]


def main() -> int:
    """Run the tests; returns their exit status."""
    paths = changed(*(sys.argv[1:] or ["HEAD"]))
    tests = tests_of(paths)
    print(f"{len(paths)} files differ; {len(tests)} files of tests: {' '.join(map(str, tests))}", flush=True)
    if not tests:
        return 0
    command = [sys.executable, "-m", "pytest", "-q", "-n", "2", "-m", "not circuit and not slow", *tests]
    return subprocess.run(command, cwd=ROOT).returncode


if __name__ == "__main__":
    sys.exit(main())
