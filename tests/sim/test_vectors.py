"""Every golden case of the shared directory, as the definition says and on the model."""

from pathlib import Path

import pytest

from tilewright.sim.replay import replay_case

VECTORS = Path(__file__).parents[3] / "shared" / "vectors"
CASES = sorted(VECTORS.glob("*.npz"))


@pytest.mark.skipif(not CASES, reason="../shared/vectors is absent")
@pytest.mark.parametrize("on", ["spec", "model"])
@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_golden_case(path, on):
    result = replay_case(path, on)
    assert result.passed, result.detail
    assert result.stats.insns["FINISH"] == 1
