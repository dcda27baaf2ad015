"""Packaging: every folder with code is in the wheel, nothing else is, and the extras are what the README says."""

import importlib
import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

tomllib = importlib.import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
ROOT = Path(__file__).parents[1]
TOP = {"hw", "sim", "runtime", "compiler", "apps", "boards", "cli"}
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
SETUPTOOLS = PYPROJECT["tool"]["setuptools"]
DATA = (".json", ".c", ".h", ".cpp", ".tcl", ".xdc", "py.typed", "Makefile")
NOT_COPIED = (
    ".git",
    ".venv*",
    "build",
    "dist",
    "out",
    "__pycache__",
    "*.egg-info",
    ".*_cache",
    ".hypothesis",
    ".cache",
)
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
    assert found == {"__init__.py", "delegate.py", "odimo.py", "py.typed"}
    assert not {name.removesuffix(".py") for name in found} & TOP


def test_every_top_package_says_that_it_is_typed():
    assert all((ROOT / top / "py.typed").exists() for top in TOP)


def test_bare_names_are_banned_for_every_top_package():
    banned = set(PYPROJECT["tool"]["ruff"]["lint"]["flake8-tidy-imports"]["banned-api"])
    assert {name for name in banned if "." not in name} == TOP


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Folders `tree` and `sdist`, each with the wheel that `pip wheel` makes: of a copy of the tree, of its sdist."""
    pytest.importorskip("setuptools", minversion="77")
    pytest.importorskip("pip")
    folder = tmp_path_factory.mktemp("built")
    shutil.copytree(ROOT, folder / "copy", ignore=shutil.ignore_patterns(*NOT_COPIED), symlinks=True)
    run("-c", "import setuptools.build_meta as b; b.build_sdist('..')", cwd=folder / "copy")
    (sdist,) = folder.glob("*.tar.gz")
    for name, source in (("tree", folder / "copy"), ("sdist", sdist)):
        offline = ["--no-build-isolation", "--no-deps", "--no-index", "-q", "-w", str(folder / name)]
        run("-m", "pip", "wheel", *offline, str(source), cwd=folder)
    return folder


def run(*arguments, cwd, python=sys.executable):
    """What a run of Python prints; it must succeed."""
    environment = {"PATH": os.environ["PATH"], "XDG_CACHE_HOME": str(cwd), "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    command = [str(python), *map(str, arguments)]
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def contents(folder):
    """What the wheel in `folder` holds, by name."""
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def test_the_wheel_holds_every_module_and_data_file_and_nothing_else(built):
    names = {n for n in contents(built / "tree") if ".dist-info/" not in n}
    expected = {p for p in sources() if p.suffix == ".py" or p.name.endswith(DATA)}
    assert names == {installed(p).as_posix() for p in expected}
    assert {name.partition("/")[0] for name in names} == {"tilewright"}


def test_the_sdist_makes_the_same_wheel(built):
    assert contents(built / "sdist") == contents(built / "tree")


def test_the_sdist_has_tests_documents_and_examples(built):
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        held = {name.partition("/")[2] for name in archive.getnames()}
    for folder in ("tests", "tools", "docs", "examples"):
        kept = [p for p in (ROOT / folder).rglob("*") if p.is_file() and p.suffix not in (".pyc", ".tw")]
        assert not {p.relative_to(ROOT).as_posix() for p in kept} - held
    assert {"Makefile", "README.md", "CONTRIBUTING.md", "SECURITY.md", "pyproject.toml", "LICENSE"} <= held


@pytest.mark.circuit
def test_a_fresh_environment_runs_the_example_and_a_golden_case_from_elsewhere(built, tmp_path):
    """It has the wheel and, as if installed, what is installed here; no network is needed."""
    for needed in ("tvm", "onnxruntime"):
        pytest.importorskip(needed)
    venv.create(tmp_path / "env", symlinks=True)
    scripts = next(path for path in (tmp_path / "env" / "bin", tmp_path / "env" / "Scripts") if path.exists())
    python, (wheel,) = scripts / "python", (built / "sdist").glob("*.whl")
    run("-m", "pip", f"--python={python}", "install", "-q", "--no-deps", "--no-index", wheel, cwd=tmp_path)
    (packages,) = (tmp_path / "env").rglob("site-packages")
    (packages / "others.pth").write_text("\n".join({sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}))
    code = "import tilewright as tw, tilewright.cli.main as m; print(m.__file__, tw.__version__)"
    where, version = run("-c", code, cwd=tmp_path, python=python).split()
    assert Path(where).is_relative_to(packages) and version == PYPROJECT["project"]["version"]
    assert "of 360 held-out digits" in run(ROOT / "examples" / "digits" / "run.py", cwd=tmp_path, python=python)
    case = ROOT / "tests" / "data" / "programs" / "tiny_3.npz"
    found = run(scripts / "tilewright", "replay", case, cwd=tmp_path, python=python)
    assert found.endswith("1 passed, 0 failed\n")


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
