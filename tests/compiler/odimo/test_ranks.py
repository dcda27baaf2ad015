"""compiler/odimo/ranks.py: do the cost terms order the splits of a layer as the timing model does?"""

import pytest

from tilewright.compiler.jobs import processes
from tilewright.compiler.odimo.ranks import BLOCKS, layers, ranked, spearman
from tilewright.hw.config import load_config

TWO = load_config("tiny_two")


def test_correlation_of_ranks():
    assert spearman([1, 2, 3, 4], [10, 20, 25, 90]) == pytest.approx(1)
    assert spearman([1, 2, 3, 4], [4, 3, 2, 1]) == pytest.approx(-1)
    assert spearman([1, 1, 2], [1, 2, 3]) == pytest.approx(0.866, abs=1e-3)
    assert spearman([5, 5], [3, 3]) == 1 and spearman([5, 5], [3, 4]) == 0


def test_a_small_layer():
    pytest.importorskip("tvm")
    (found,) = ranked(TWO, layers(TWO)[1:2], None, None)
    assert len(found.digital) == BLOCKS + 1 and found.spearman >= 0.9


@pytest.mark.slow
def test_twelve_layers(tmp_path):
    pytest.importorskip("tvm")
    with processes(2) as workers:
        found = ranked(TWO, layers(TWO), None, workers)
    values = [one.spearman for one in found]
    assert len(values) >= 12 and sum(values) / len(values) >= 0.95 and min(values) >= 0.9
