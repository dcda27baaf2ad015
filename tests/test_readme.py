"""README: what it shows as output is what the commands print, but for measured numbers."""

import re

import pytest

# times, rates and shares, rules as wide as they are, and how far onnxruntime's float sums are off on this processor
MEASURED = re.compile(r"\b\d+\.\d+\b|\b\d+ %|\([^)]* logits differ[^)]*\)|─+|\s+")


def kept(text: str) -> list[str]:
    """The lines of an output without what depends on the machine."""
    return [MEASURED.sub(" ", line) for line in text.splitlines() if line.strip() and not line.startswith("time ")]


@pytest.mark.circuit
@pytest.mark.parametrize("command", ["make sim", "make bench"])
def test_outputs_are_what_the_commands_print(generator, command, monkeypatch):
    monkeypatch.delenv("OPENBLAS_CORETYPE", raising=False)  # the bench names it, and the README's machine had none
    for package in ("tvm", "onnxruntime"):
        pytest.importorskip(package)
    shown = {name: text for _, name, text, _ in generator.OUTPUT.findall(generator.README.read_text())}
    assert set(shown) == set(generator.COMMANDS)
    assert kept(shown[command]) == kept(generator.output_of(command)), "run: python docs/generate.py --outputs"


def test_the_python_example_prints_what_it_says(generator, monkeypatch, capsys):
    pytest.importorskip("tvm")
    monkeypatch.chdir(generator.README.parent)
    (source,) = re.findall(r"^```python\n(.*?)^```", generator.README.read_text(), re.S | re.M)
    exec(source, {})
    assert capsys.readouterr().out.strip() == source.rpartition("# ")[2].strip()
