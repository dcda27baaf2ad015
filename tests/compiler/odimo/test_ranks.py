"""compiler/odimo/ranks.py: do the cost terms order the splits of a layer as the timing model does?"""

import pytest

from tilewright.compiler.jobs import processes
from tilewright.compiler.odimo.mapping import allowed
from tilewright.compiler.odimo.measure import LayerShape
from tilewright.compiler.odimo.ranks import layers, ranked, spearman
from tilewright.hw.config import load_config

TWO = load_config("tiny_two")


def test_correlation_of_ranks():
    assert spearman([1, 2, 3, 4], [10, 20, 25, 90]) == pytest.approx(1)
    assert spearman([1, 2, 3, 4], [4, 3, 2, 1]) == pytest.approx(-1)
    assert spearman([1, 1, 2], [1, 2, 3]) == pytest.approx(0.866, abs=1e-3)
    assert spearman([5, 5], [3, 3]) == 1 and spearman([5, 5], [3, 4]) == 0


@pytest.fixture
def terms():
    for name in ("torch", "tvm"):
        pytest.importorskip(name)


def test_layers_of_nine_splits_and_more():
    found = layers(TWO)
    assert len(found) >= 12 and all(len(allowed(one.channels, TWO.block_out)) >= 9 for one in found)
    assert found[0].inputs == (64,) and found[0].channels == 40


def test_a_small_layer(terms):
    (found,) = ranked(TWO, [LayerShape((16, 8, 8), 32)], None, None)
    assert found.digital == tuple(range(0, 33, 4)) and found.known == 9
    assert found.spearman() >= 0.9 and found.spearman("tables") == 1


@pytest.mark.slow
@pytest.mark.parametrize("name", ["tiny_two", "pynq_z1_two"])
def test_all_layers(terms, name):
    cfg = load_config(name)
    with processes(2) as workers:
        found = ranked(cfg, layers(cfg), None, workers)
    values = [one.spearman() for one in found]
    assert len(values) >= 12 and min(values) >= 0.9 and sum(values) / len(values) >= 0.95
