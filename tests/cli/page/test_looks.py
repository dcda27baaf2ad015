"""cli/page/looks.py: short names, colours."""

import pytest

pytest.importorskip("bokeh")

from tilewright.cli.page.looks import colours, columns, cycles_axis, empty_plot, short


@pytest.mark.parametrize(
    ("name", "shown"),
    [("conv1", "conv1"), ("a;b;c", "a;..."), ("x" * 50, f"{'x' * 19}...{'x' * 18}"), ("x" * 40, "x" * 40)],
)
def test_short_names(name, shown):
    assert short(name) == shown and len(short(name)) <= 40


def test_neighbours_have_different_colours():
    found = colours(45)
    assert len(found) == 45 and len(set(found)) == 20 and all(a != b for a, b in zip(found, found[1:]))


def test_plots_stand_below_each_other():
    plot = empty_plot("name", height=100)
    cycles_axis(plot)
    assert plot.min_border_left > 100 and plot.toolbar.logo is None and plot.sizing_mode == "stretch_width"
    assert columns({"x": [1, 2]}).data == {"x": [1, 2]}
