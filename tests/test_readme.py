"""The output that README and pages show is what the commands print, but for measured numbers."""

import re
from pathlib import Path

import pytest

from tests.modules import module_of

# times, rates and shares, rules as wide as they are, and how far onnxruntime's float sums are off on this processor
MEASURED = re.compile(r"\b\d+\.\d+\b|\b\d+ %|\([^)]* logits differ[^)]*\)|─+|\s+")


def kept(text: str) -> list[str]:
    """The lines of an output without what depends on the machine."""
    return [MEASURED.sub(" ", line) for line in text.splitlines() if line.strip() and not line.startswith("time ")]


@pytest.mark.circuit
@pytest.mark.parametrize("page, command", [("README.md", "make sim"), ("docs/performance.md", "make bench")])
def test_outputs_are_what_the_commands_print(generator, page, command, monkeypatch):
    monkeypatch.delenv("OPENBLAS_CORETYPE", raising=False)  # the bench names it, and the page's machine had none
    for package in ("tvm", "onnxruntime"):
        pytest.importorskip(package)
    text = (generator.README.parent / page).read_text()
    ((_, name, _, shown, _),) = generator.OUTPUT.findall(text)
    assert name == command
    assert kept(shown) == kept(generator.OUTPUT.search(generator.with_outputs(text))[4]), (
        "python docs/generate.py --outputs"
    )


@pytest.mark.circuit
def test_the_picture_is_that_of_the_network():
    pytest.importorskip("tvm")
    picture = module_of(Path(__file__).parents[1] / "docs" / "picture.py")
    assert picture.OUT.read_text() == picture.picture(), "run: make docs"
