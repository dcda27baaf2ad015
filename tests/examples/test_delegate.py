"""examples/delegate.py: LiteRT's interpreter with the delegate, in fewer than 40 lines of code."""

import ast
from pathlib import Path

import pytest

pytest.importorskip("ai_edge_litert")

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "delegate.py"


@pytest.mark.parametrize("network", ["classifier", "images"])
def test_the_outputs_are_equal(script, capsys, network):
    assert script("delegate.py").main(str(ROOT / "tests" / "data" / "networks" / f"{network}.tflite")) == 0
    shown = capsys.readouterr().out
    assert f"{network}: " in shown and "partition on timing (pynq_z1" in shown and "equal to LiteRT's" in shown


def test_it_is_short():
    text = EXAMPLE.read_text()
    lines = {k for node in ast.parse(text).body[1:] for k in range(node.lineno, (node.end_lineno or 0) + 1)}
    code = [text.splitlines()[k - 1].strip() for k in lines]
    assert len([line for line in code if line and not line.startswith('"""')]) < 40
