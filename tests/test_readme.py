"""README: what it shows as output is what the commands print, but for measured numbers."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
BLOCK = re.compile(r"<!-- output of: (make \w+) -->\n```\n(.*?)```\n<!-- end of output -->", re.DOTALL)
# times, rates and shares; and how far onnxruntime's float sums are off, which depends on the processor
MEASURED = re.compile(r"\b\d+\.\d+\b|\b\d+ %|\([^)]* logits differ[^)]*\)|\s+")
RUN = "import sys; from tilewright.cli.main import main; main()"
COMMANDS = {
    "make sim": [sys.executable, "examples/digits/run.py"],
    "make bench": [sys.executable, "-c", RUN, "bench"],
}


def kept(text: str) -> list[str]:
    """The lines of an output without what depends on the machine: times, rates, shares of time."""
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith(("set-up:", "time "))]
    return [MEASURED.sub(" ", line) for line in lines]


@pytest.mark.parametrize("command", COMMANDS)
def test_outputs_are_what_the_commands_print(command):
    for package in ("click", "tvm", "onnxruntime"):
        pytest.importorskip(package)
    shown = dict(BLOCK.findall((ROOT / "README.md").read_text()))
    done = subprocess.run(COMMANDS[command], cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert kept(shown[command]) == kept(done.stdout)
