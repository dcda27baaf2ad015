"""Packaging: every folder with code is in the wheel, nothing else is, and the extras are what the README says."""

import importlib
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

tomllib = importlib.import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
ROOT = Path(__file__).parents[1]
TOP = {"hw", "sim", "runtime", "compiler", "boards", "cli"}
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
SETUPTOOLS = PYPROJECT["tool"]["setuptools"]
DATA = (".json", ".c", ".h", ".cpp", ".tcl", ".xdc", "py.typed")
INTERFACE = Path("cli/python")  # becomes `tilewright` itself


def sources() -> list[Path]:
    """Files of the packages, relative to the root."""
    found = [p for top in sorted(TOP) for p in (ROOT / top).rglob("*") if p.is_file() and "__pycache__" not in p.parts]
    return [p.relative_to(ROOT) for p in found]


def installed(path: Path) -> Path:
    """Where a file or folder of the repository is installed, from site-packages."""
    return Path("tilewright", *path.parts[len(INTERFACE.parts) if path.is_relative_to(INTERFACE) else 0 :])


def test_packages_are_the_folders():
    folders = {p.parent for p in sources() if p.suffix == ".py"}
    assert {".".join(installed(folder).parts) for folder in folders} == set(SETUPTOOLS["packages"])
    inside = {f"tilewright.{top}": top for top in TOP}
    assert SETUPTOOLS["package-dir"] == {"tilewright": INTERFACE.as_posix(), **inside}


def test_every_package_has_an_init_and_the_root_has_none():
    assert not (ROOT / "__init__.py").exists()
    for package in SETUPTOOLS["packages"]:
        folder = Path(*package.split(".")[1:]) if package != "tilewright" else INTERFACE
        assert (ROOT / folder / "__init__.py").exists(), package


def test_no_module_of_the_interface_hides_a_folder():
    found = {p.name for p in (ROOT / INTERFACE).iterdir()} - {"__pycache__"}
    assert found == {"__init__.py", "delegate.py", "py.typed"}
    assert not {name.removesuffix(".py") for name in found} & TOP


def test_every_top_package_says_that_it_is_typed():
    assert all((ROOT / top / "py.typed").exists() for top in TOP)


def test_bare_names_are_banned_for_every_top_package():
    assert set(PYPROJECT["tool"]["ruff"]["lint"]["flake8-tidy-imports"]["banned-api"]) == TOP


def test_the_wheel_holds_every_module_and_data_file(tmp_path):
    pytest.importorskip("setuptools", minversion="77")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tmp_path)
    for top in TOP:
        shutil.copytree(ROOT / top, tmp_path / top, ignore=shutil.ignore_patterns("__pycache__"))
    code = "import sys; from setuptools import build_meta as b; sys.argv = ['setup.py']; b.build_wheel('dist')"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    names = {n for n in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in n}
    expected = {p for p in sources() if p.suffix == ".py" or p.name.endswith(DATA)}
    assert names == {installed(p).as_posix() for p in expected}
    code = "import tilewright, tilewright.cli.main as m; print(tilewright.__file__, m.__file__, tilewright.load_config)"
    code = f"import sys; sys.path.insert(0, {str(wheel)!r}); {code}"
    found = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, timeout=60)
    assert found.stdout.count(str(wheel)) == 2, found.stderr


def test_a_board_needs_numpy_alone():
    (only,) = PYPROJECT["project"]["dependencies"]
    assert only == "numpy>=1.26,<3"


# what the metadata of pynq 3.1.2 asks for, on armv7l too, and what its grpcio-tools brings: numpy<2.0, grpcio==1.64.0,
# grpcio-tools==1.64.0, which asks for protobuf>=5.26.1,<6; numpy as on the image
PYNQ_BRINGS = {"numpy": ("1.26.4",), "grpcio": ("1.64.0",), "protobuf": ("5.26.1", "5.29.6")}


def test_the_board_extra_asks_for_nothing_that_pynq_does_not_bring():
    requirements = pytest.importorskip("packaging.requirements")
    needs = [*PYPROJECT["project"]["dependencies"], *PYPROJECT["project"]["optional-dependencies"]["board"]]
    for need in map(requirements.Requirement, needs):
        assert need.name in PYNQ_BRINGS and need.marker is None
        assert all(need.specifier.contains(version) for version in PYNQ_BRINGS[need.name]), need


def test_tvm_is_pinned_and_torch_stays_out_of_every_other_extra():
    extras = PYPROJECT["project"]["optional-dependencies"]
    assert extras["compiler"][:2] == ["apache-tvm==0.27.0.post1", "apache-tvm-ffi>=0.1.14.post0,<0.1.15"]
    others = [need for name, needs in extras.items() if name not in ("train", "torch") for need in needs]
    assert not [need for need in others if need.startswith(("torch", "scikit-learn"))]


def test_every_dependency_states_its_reason():
    lines = (ROOT / "pyproject.toml").read_text().splitlines()
    needs = [*PYPROJECT["project"]["dependencies"], *PYPROJECT["build-system"]["requires"]]
    needs += [need for extra in PYPROJECT["project"]["optional-dependencies"].values() for need in extra]
    for need in needs:
        stated = [line for line in lines if f'"{need}"' in line]
        assert stated and all(len(line.partition(" #")[2].strip()) > 10 for line in stated), need
