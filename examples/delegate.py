"""Run a .tflite network in LiteRT's interpreter with its layers on the accelerator: `python delegate.py NET.tflite`.

Inputs are random. Every output must equal that of LiteRT's reference kernels; docs/delegate.md explains the report.
"""

from __future__ import annotations

import sys

import numpy as np
from ai_edge_litert.interpreter import Interpreter, OpResolverType

from tilewright.delegate import TilewrightDelegate

KERNELS = OpResolverType.BUILTIN_REF


def outputs(interpreter: Interpreter, seed: int) -> list[np.ndarray]:
    """The outputs for random inputs."""
    rng = np.random.default_rng(seed)
    for x in interpreter.get_input_details():
        interpreter.set_tensor(x["index"], rng.integers(-128, 128, x["shape"]).astype(x["dtype"]))
    interpreter.invoke()
    return [interpreter.get_tensor(y["index"]) for y in interpreter.get_output_details()]


def main(network: str, on: str = "timing") -> int:
    """Compare three inferences on the device `on`; the exit status is 0 if all bytes are equal."""
    delegate = TilewrightDelegate(network, config="pynq_z1", on=on)
    accelerated = Interpreter(network, experimental_delegates=[delegate], experimental_op_resolver_type=KERNELS)
    alone = Interpreter(network, experimental_op_resolver_type=KERNELS)
    accelerated.allocate_tensors()
    alone.allocate_tensors()
    pairs = [zip(outputs(accelerated, seed), outputs(alone, seed)) for seed in range(3)]
    equal = all(np.array_equal(mine, theirs) for pair in pairs for mine, theirs in pair)
    print(delegate.report())
    print("equal to LiteRT's reference kernels" if equal else "DIFFERENT from LiteRT's reference kernels")
    return int(not equal)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
