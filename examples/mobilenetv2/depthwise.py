"""Measure every depthwise layer of MobileNetV2 as a program of its own: `python depthwise.py --ports 2 --on rtl`.

Loads and requantising stores are included; outputs must equal those of the behavioural model. The configuration is
`pynq_z1_plus` with one or two load ports.
"""

from __future__ import annotations

import argparse

import numpy as np

import tilewright as tw
from tilewright.compiler.conv_shape import ConvShape
from tilewright.compiler.kernels.depthwise import depthwise_program
from tilewright.runtime import layout
from tilewright.runtime.device import open_device
from tilewright.sim.dram import load_dram

# channels, rows and columns, stride; the network has some of them several times
LAYERS = (
    (32, 112, 1),
    (96, 112, 2),
    (144, 56, 1),
    (144, 56, 2),
    (192, 28, 1),
    (192, 28, 2),
    (384, 14, 1),
    (576, 14, 1),
    (576, 14, 2),
    (960, 7, 1),
)


def layer(cfg: tw.Config, channels: int, size: int, stride: int) -> tw.Program:
    """The program of one layer: 3x3, padded by 1, requantised."""
    pairs = {"kernel": (3, 3), "strides": (stride, stride), "pads": (1, 1, 1, 1)}
    return depthwise_program(cfg, ConvShape(1, channels, size, size, channels, groups=channels, **pairs))


def inputs(cfg: tw.Config, channels: int) -> dict[str, np.ndarray]:
    """Random values of the packed inputs of a layer; its sums are scaled so that results use their range."""
    rng = np.random.default_rng(0)
    weights = rng.integers(-128, 128, (channels, 3, 3)).astype(np.int8)
    scale = {"multiplier": rng.integers(1 << 30, 1 << 31, channels), "exponent": np.full(channels, -9)}
    limits = {"zero_point": 0, "low": -128, "high": 127, "contract": "double"}
    bias = rng.integers(-1000, 1000, channels)
    par = layout.pack_par(cfg, bias=bias, **scale, **limits)
    return {"w": layout.pack_depthwise_weights(weights, cfg), "par": par}


def main() -> None:
    """Print a row per layer; exit with 1 if an output differs."""
    parser = argparse.ArgumentParser(description="Cycles of the depthwise layers of MobileNetV2.")
    parser.add_argument("--ports", type=int, default=1, choices=(1, 2), help="load ports (default: %(default)s)")
    parser.add_argument("--on", default="timing", help="the device: timing or rtl (default: %(default)s)")
    parser.add_argument("--dram", help="the memory's preset; the timing model needs zynq_hp4 for two ports")
    options = parser.parse_args()
    cfg = tw.load_config("pynq_z1_plus").replace(load_ports=options.ports)
    memory = {} if options.dram is None else {"dram": load_dram(options.dram)}
    rng = np.random.default_rng(1)
    print("channels  size  stride   cycles  MAC/cycle")
    for channels, size, stride in LAYERS:
        program = layer(cfg, channels, size, stride)
        values = inputs(cfg, channels)
        values["x"] = rng.integers(-128, 128, program.buffers["x"].shape).astype(np.int8)
        outputs, stats = tw.run(program, values, open_device(options.on, cfg, **memory))
        expected, _ = tw.run(program, values)
        if stats.cycles is None:
            raise SystemExit(f"--on {options.on}: counts no cycles")
        if not np.array_equal(outputs["out"], expected["out"]):
            raise SystemExit(f"{channels} channels, {size}x{size}, stride {stride}: wrong")
        macs = 9 * channels * (size // stride) ** 2
        print(f"{channels:8}{size:6}{stride:8}{stats.cycles:9,}{macs / stats.cycles:11.1f}")


if __name__ == "__main__":
    main()
