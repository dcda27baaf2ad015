"""examples/delegate.py: LiteRT's interpreter with the delegate."""

from pathlib import Path

import pytest

pytest.importorskip("ai_edge_litert")

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("network", ["classifier", "images"])
def test_the_outputs_are_equal(script, capsys, network):
    assert script("delegate.py").main(str(ROOT / "tests" / "data" / "networks" / f"{network}.tflite")) == 0
    shown = capsys.readouterr().out
    assert f"{network}: " in shown and "partition on timing (pynq_z1" in shown and "equal to LiteRT's" in shown
