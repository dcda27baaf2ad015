"""sim/memory.py: a cache with a limit, fields of encoded instructions; the recorded cases."""

from pathlib import Path

import numpy as np
import pytest

from tilewright.hw.config import PRESETS
from tilewright.hw.isa import Isa
from tilewright.sim.memory import Lru, put
from tilewright.sim.model.device import ModelDevice
from tilewright.sim.replay import read_case, replay_case


def test_values_are_made_once_and_the_least_recently_used_go():
    made = []
    cache = Lru(10)

    def get(key, cost=4):
        def make():
            made.append(key)
            return key.upper()

        assert cache.get(key, make, lambda value: cost) == key.upper()

    for key in ("a", "b", "a", "c", "a", "b"):  # c pushes b out, b pushes c out
        get(key)
    assert made == ["a", "b", "c", "b"]
    assert (len(cache), cache.cost) == (2, 8)
    get("huge", 11)
    get("huge", 11)
    assert made[4:] == ["huge", "huge"]
    assert (len(cache), cache.cost) == (2, 8)
    cache.clear()
    assert (len(cache), cache.cost) == (0, 0)


def test_a_field_is_written_and_no_other():
    isa, rng = Isa(PRESETS["tiny"]), np.random.default_rng(0)
    for form in (isa.formats["LOADP"], isa.formats["ALU"]):
        for name, declared in form.fields.items():
            words = rng.integers(0, 1 << 63, (1, 2), np.uint64) * np.uint64(2)
            before = form.decode(words)
            value = int(rng.integers(declared.limits[0], declared.limits[1] + 1))
            put(words[0], declared, value)
            assert {key: int(v[0]) for key, v in form.decode(words).items()} == {
                key: value if key == name else int(v[0]) for key, v in before.items()
            }


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
