"""Run a network on the accelerator's timing model: one call.

Run it: python examples/python_call.py [NET.tflite | NET.onnx]
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

import tilewright as tw

DIGITS = Path(__file__).parent / "digits"


def main(path: str) -> None:
    """Load a network, run it on a digit or on zeros, and print the result and the cycles."""
    network = tw.load(path, on="timing")
    (x,) = network.inputs
    image = np.zeros(x.shape, x.dtype)
    if path == str(DIGITS / "digits.onnx"):
        image = np.load(DIGITS / "inputs.npz")["inputs"][0]
    outputs, stats = network.run(image)
    for name, values in outputs.items():
        print(f"{name} {values.dtype} {values.shape}: the largest is number {values.argmax()}")
    print(f"{stats.cycles:,} cycles, {stats.macs:,} multiply-accumulates on {network.cfg.name}")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else str(DIGITS / "digits.onnx"))
