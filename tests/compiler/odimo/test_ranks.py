"""compiler/odimo/ranks.py: do the cost terms order the splits of a layer as the timing model does?"""

import pytest

from tilewright.compiler.jobs import processes
from tilewright.compiler.odimo.alternatives import TYPE, UNIT
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
    for choice in (UNIT, TYPE):
        found = layers(TWO, choice)
        assert len(found) >= 12 and all(len(allowed(one.channels, TWO.block_out)) >= 9 for one in found)
    assert all(one.inputs[0] == one.channels for one in found)
    found = layers(TWO)
    assert found[0].inputs == (64,) and found[0].channels == 40


def test_a_small_layer(terms):
    (found,) = ranked(TWO, [LayerShape((16, 8, 8), 32)], None, None)
    assert found.digital == tuple(range(0, 33, 4)) and found.known == 9
    assert found.spearman() >= 0.9 and found.spearman("tables") == 1


def test_a_small_layer_of_types(terms):
    (found,) = ranked(TWO, [LayerShape((32, 4, 4), 32, (3, 3), (1, 1), (1, 1))], None, None, TYPE)
    assert found.digital == tuple(range(0, 33, 4)) and found.known == 9
    assert found.spearman() >= 0.9 and found.spearman("tables") == 1
    assert found.spearman("formula") >= 0.9


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "choice"), [("tiny_two", UNIT), ("pynq_z1_two", UNIT), ("tiny", TYPE), ("pynq_z1_plus", TYPE)]
)
def test_all_layers(terms, name, choice):
    cfg = load_config(name)
    with processes(2) as workers:
        found = ranked(cfg, layers(cfg, choice), None, workers, choice)
    values = [one.spearman() for one in found]
    assert len(values) >= 12 and min(values) >= 0.9 and sum(values) / len(values) >= 0.95
