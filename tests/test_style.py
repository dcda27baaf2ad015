"""House rules that ruff does not know."""

import ast
import re
from collections.abc import Sequence
from pathlib import Path

from tests.modules import nodes_of

ROOT = Path(__file__).parents[1]
PACKAGES = ("hw", "sim", "runtime", "compiler", "apps", "boards", "cli")
FOLDERS = (*PACKAGES, "tests", "tools", "docs", "examples")
MODULES = [p.relative_to(ROOT) for folder in FOLDERS for p in sorted((ROOT / folder).rglob("*.py"))]
LIBRARY = [p for p in MODULES if p.parts[0] in PACKAGES]
TEXTS = [p.relative_to(ROOT) for folder in FOLDERS for p in sorted((ROOT / folder).rglob("*.md"))]
TEXTS += [Path(name) for name in ("README.md", "CHANGELOG.md", "Makefile", "pyproject.toml")]
TEXTS += [Path(".ci", name) for name in ("arm", "run", "setup")]
SILENCERS = re.compile(r"#\s*(noqa|ruff:|type:\s*ignore|pylint:|mypy:)")
MACHINE_PATH = re.compile(r"(?<![\w./])/(tmp|root|home|work|Users|mnt)/\w")


def text(path: Path) -> str:
    return (ROOT / path).read_text()


def test_nothing_is_silenced():
    silenced = [
        f"{path}:{k}" for path in MODULES for k, line in enumerate(text(path).splitlines(), 1) if SILENCERS.search(line)
    ]
    assert not silenced


def test_the_patterns_find_what_they_forbid():
    assert SILENCERS.search("x = 1  # " + "noqa: F401") and SILENCERS.search("#" + "type: ignore")
    assert MACHINE_PATH.search("open('/" + "tmp/x')") and MACHINE_PATH.search("see /" + "root/x")
    assert not MACHINE_PATH.search("docs/home/page and https://example.org/home/x")


def test_no_path_of_one_machine():
    assert not [str(path) for path in MODULES + TEXTS if MACHINE_PATH.search(text(path))]


NAMED_FILE = re.compile(r"(?<![\w/.<{*-])((?:[\w-]+/)+[\w-]+\.(?:py|md|cpp|json|toml))\b")


def test_files_that_modules_name_exist():
    """As paths from the root, or from the module's folder; tests/test_docs.py has those of pages."""
    missing = []
    for path in LIBRARY:
        for name in NAMED_FILE.findall(text(path)):
            if not any((folder / name).exists() for folder in (ROOT, (ROOT / path).parent)):
                missing.append(f"{path}: {name}")
    assert not missing


# source lines of each top folder; a commit that needs more raises the number, with the reason in its message
BUDGET = {
    "hw": 9_850,
    "runtime": 14_010,
    "compiler": 33_440,
    "sim": 9_390,
    "boards": 5_000,
    "cli": 10_770,
    "apps": 7_620,
    "tools": 3_730,
    "tests": 70_870,
}


def test_no_folder_is_over_its_budget():
    lines = {folder: sum(text(p).count("\n") for p in MODULES if p.parts[0] == folder) for folder in BUDGET}
    assert not {folder: f"{n:,} of {BUDGET[folder]:,} lines" for folder, n in lines.items() if n > BUDGET[folder]}


CIRCUIT = Path("hw/rtl/latencies.py")
OTHERS = {Path("hw/fields.py"), Path("sim/dram.py")}  # what a user chooses; the memory, which is no part of the circuit
# of cycles, or of what waits: the circuit's, wherever such a name stands
CYCLES = re.compile(r"(^|_)(LATENCY|INTERVAL|AHEAD|DELAY|WAITING|OUTSTANDING|STAGES|DEPTH|IN_FLIGHT)(_|$)")


def timing_constants(scopes: Sequence[ast.Module | ast.ClassDef]) -> list[str]:
    """Names of latencies and depths to which a module, or a class, gives a number."""
    found = []
    for scope in scopes:
        for node in scope.body:
            targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
            value = getattr(node, "value", None)
            numbers = [n for n in ast.walk(value) if isinstance(n, ast.Constant)] if value else []
            if any(type(n.value) in (int, float) for n in numbers):
                names = [n.id for target in targets if target for n in ast.walk(target) if isinstance(n, ast.Name)]
                found += [name for name in names if CYCLES.search(name.upper())]
    return found


def test_latencies_are_the_circuits():
    """No number of cycles stands beside those that the circuit is built from: two would differ one day."""
    assert all(timing_constants(nodes_of(ROOT / path, ast.Module, ast.ClassDef)) for path in OTHERS)
    assert not {
        str(path): found
        for path in LIBRARY
        if path not in {CIRCUIT, *OTHERS}
        if (found := timing_constants(nodes_of(ROOT / path, ast.Module, ast.ClassDef)))
    }


def test_the_search_for_latencies_finds_them():
    assert len(timing_constants(nodes_of(ROOT / CIRCUIT, ast.Module))) > 20
    source = "_READ_LATENCY = 1\nTOKEN_DELAY: int = 2 + X\nA, WAITING = 1, 2\nLATENCY = lat.FIFO_LATENCY\nDEPTHWISE = 3"
    source += "\ndef f():\n    latency = 2\nclass Port:\n    requests_ahead = 2"
    module = ast.parse(source)
    scopes = [module, *(node for node in module.body if isinstance(node, ast.ClassDef))]
    assert timing_constants(scopes) == ["_READ_LATENCY", "TOKEN_DELAY", "WAITING", "requests_ahead"]


def test_users_meet_named_errors_not_bare_ones():
    """Bare exceptions and asserts with a text for users are refused: an assert states our own invariant."""
    bare = []
    for path in LIBRARY:
        for node in nodes_of(ROOT / path, ast.Raise):
            raised = node.exc.func if isinstance(node.exc, ast.Call) else None
            if isinstance(raised, ast.Name) and raised.id in ("Exception", "RuntimeError", "AssertionError"):
                bare.append(f"{path}:{node.lineno}")
        bare += [f"{path}:{node.lineno}" for node in nodes_of(ROOT / path, ast.Assert) if node.msg]
    assert not bare


def test_only_the_command_prints():
    prints = []
    for path in LIBRARY:
        for node in nodes_of(ROOT / path, ast.Call):
            if isinstance(node.func, ast.Name) and node.func.id == "print":
                prints.append(f"{path}:{node.lineno}")
    assert not [found for found in prints if not found.startswith("cli/")]
