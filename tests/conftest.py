"""What tests of several folders share."""

import importlib.util
from pathlib import Path

import pytest


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
