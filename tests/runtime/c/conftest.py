"""What tests of C need."""

import shutil

import pytest


@pytest.fixture(scope="session")
def gcc():
    """Skips tests where there is no compiler."""
    if not shutil.which("gcc"):
        pytest.skip("gcc is missing: no C is compiled")
