"""What tests of several folders share."""

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings

# a busy or an emulated machine is no error, and the same examples are tried everywhere
settings.register_profile("tilewright", deadline=None, derandomize=True)
settings.load_profile("tilewright")


@pytest.fixture(autouse=True)
def own_numbers(request):
    """The generator `RNG` of a test's module begins again for each test, whatever ran before it."""
    if hasattr(request.module, "RNG"):
        request.module.RNG = np.random.default_rng(7)
        print("RNG: seed 7")


@pytest.fixture
def no_pynq(monkeypatch, tmp_path_factory):
    """As on a machine without pynq, whether or not it is installed on this one; for processes started here, too."""
    folder = tmp_path_factory.mktemp("no_pynq")
    (folder / "pynq.py").write_text("raise ImportError('no module of that name')\n")
    monkeypatch.delitem(sys.modules, "pynq", raising=False)
    monkeypatch.syspath_prepend(folder)  # a spawned process gets the path of its parent


@pytest.fixture(scope="session")
def generator():
    """The module docs/generate.py, which is no part of the package."""
    pytest.importorskip("click")
    path = Path(__file__).parents[1] / "docs" / "generate.py"
    spec = importlib.util.spec_from_file_location("docs_generate", path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
