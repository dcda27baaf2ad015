"""Every golden case of the shared directory, as the definition says and on the model."""

from pathlib import Path

import numpy as np
import pytest

from tilewright.sim.model.device import ModelDevice
from tilewright.sim.replay import read_case, replay_case

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


@pytest.mark.skipif(not CASES, reason="../shared/vectors is absent")
@pytest.mark.parametrize("path", [pytest.param(path, id=path.stem) for path in CASES])
def test_a_golden_case_is_the_same_with_a_second_unit(path):
    """Its queue and its memories are there, and the program knows nothing of them."""
    case = read_case(path)
    size = max(64, 2 * case.cfg.twgt_entry_bytes)
    cfg = case.cfg.replace(name="two", units=["gemm", "ternary"], acc_banks=4, twgt_bytes=size)
    image = case.dram_in.copy()
    stats = ModelDevice(cfg).run_image(image, case.insn_addr, case.insn_count)
    np.testing.assert_array_equal(image, case.dram_out)
    assert stats == replay_case(path).stats
