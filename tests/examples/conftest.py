"""Fixtures of the examples: their scripts as modules."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture(scope="session")
def script():
    """A function that imports a script of the examples by its path in their folder."""

    def imported(path: str) -> ModuleType:
        spec = importlib.util.spec_from_file_location(path.replace("/", "_").removesuffix(".py"), EXAMPLES / path)
        assert spec and spec.loader
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    return imported
