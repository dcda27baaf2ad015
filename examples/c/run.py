"""Classify handwritten digits in C, with a simulated accelerator: python examples/c/run.py [FOLDER]."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np

import tilewright as tw
from tilewright.runtime.c.emit import emit
from tilewright.runtime.c.shim import run
from tilewright.runtime.device import open_device

HERE = Path(__file__).resolve().parent
DIGITS = HERE.parent / "digits"


def main(folder: Path, count: int = 20) -> int:
    """Write the network as C, build it with digits.c, and compare the classes that it prints; 0 if all are right."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    network = tw.compile(DIGITS / "digits.onnx")
    emit(network, "network", folder)
    subprocess.run(["make", "-s", "-C", folder], check=True)
    program = folder / "build" / "digits"
    library = f"-L{folder}/build/sim"
    subprocess.run(["cc", f"-I{folder}", HERE / "digits.c", library, "-lnetwork", "-o", program], check=True)
    data = np.load(DIGITS / "inputs.npz")
    images, labels = data["inputs"][:count], data["labels"][:count]
    status, printed = run([program], open_device("model", network.cfg), images.tobytes())
    right = sum(int(found) == label for found, label in zip(printed.split(), labels))
    print(f"status {status}, {right} of {count} classes right")
    return 0 if status == 0 and right == count else 1


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1] if len(sys.argv) > 1 else "build/digits_c")))
