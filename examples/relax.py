"""A quantised network through TVM's Relax, with a float operator that the accelerator does not have.

Run it: python examples/relax.py

TVM imports the network, the pipeline gives the accelerator what it can compute, TVM compiles the rest with LLVM, and
its virtual machine runs both.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import tvm
from tvm import relax
from tvm.relax.frontend.onnx import from_onnx

from tilewright.apps.relax import report, tilewright_pipeline

DIGITS = Path(__file__).parent / "digits"


def main() -> None:
    """Import, partition, compile, run, report."""
    model = onnx.load(DIGITS / "digits.onnx")
    # exp of the logits: a float operator, which stays with TVM
    model.graph.node.append(onnx.helper.make_node("Exp", ["logits"], ["weights"]))
    model.graph.output[0].name = "weights"
    mod = from_onnx(model, keep_params_in_input=False)

    mod = tilewright_pipeline("pynq_z1", on="timing")(mod)
    machine = relax.VirtualMachine(tvm.compile(mod, "llvm"), tvm.cpu())

    images, labels = (np.load(DIGITS / "inputs.npz")[name][:20] for name in ("inputs", "labels"))
    found = [machine["main"](tvm.runtime.tensor(image)).numpy().argmax() for image in images]
    print(f"{np.sum(found == labels)} of {len(labels)} digits are right")
    for part in report(mod).parts:
        print(f"{part.name} on {part.on}: {part.runs} runs, {part.cycles:,} cycles for the last")


if __name__ == "__main__":
    main()
