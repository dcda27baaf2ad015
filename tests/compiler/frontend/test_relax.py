"""compiler/frontend/relax.py: functions as graphs, and what it refuses."""

import pytest

from tilewright.hw.errors import UnsupportedError


def test_what_has_no_integer_form_is_refused(qdq, relax_graph):
    m = qdq()
    m.output(m.node("Sigmoid", m.quantise(m.input("x", [1, 4]))))
    with pytest.raises(UnsupportedError, match="relax: output 'sigmoid_2.y' does not come from quantised operators"):
        relax_graph(m.save())


def test_integers_beyond_int32_are_refused(qdq, relax_graph):
    with pytest.raises(UnsupportedError, match="matmul 'matmul0' scales accumulators by 5e.38"):
        relax_graph(qdq().dense(weight_scale=1e30, y_scale=1e-10))
