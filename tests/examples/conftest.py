"""Fixtures of the examples: their scripts as modules."""

from pathlib import Path

import pytest

from tests.modules import module_of

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture(scope="session")
def script():
    """A function that imports a script of the examples by its path in their folder."""
    return lambda path: module_of(EXAMPLES / path)
