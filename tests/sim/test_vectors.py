"""Every golden case of the shared directory, as the definition says and on the model."""

from pathlib import Path

import pytest

from tilewright.sim.replay import replay_case

VECTORS = Path(__file__).parents[3] / "shared" / "vectors"
CASES = sorted(VECTORS.glob("*.npz"))


def cases():
    """(file, device); the largest take the definition long."""
    found = []
    for path in CASES:
        found.append(pytest.param(path, "model", id=f"{path.stem}-model"))
        marks = [pytest.mark.slow] if path.stat().st_size > 250_000 else []
        found.append(pytest.param(path, "spec", id=f"{path.stem}-spec", marks=marks))
    return found


@pytest.mark.skipif(not CASES, reason="../shared/vectors is absent")
@pytest.mark.parametrize("path, on", cases())
def test_golden_case(path, on):
    result = replay_case(path, on)
    assert result.passed, result.detail
    assert result.stats.insns["FINISH"] == 1
