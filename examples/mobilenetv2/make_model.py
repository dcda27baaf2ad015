"""Write MobileNetV2 as a QDQ ONNX file with synthetic weights: `python make_model.py mobilenetv2.onnx`.

Shapes, operators and quantisation are those of an int8 MobileNetV2; weights are the random numbers of the ResNet-18
beside it. It measures compiler and accelerator on depthwise convolutions.
"""

from __future__ import annotations

import sys
from pathlib import Path

import onnx

sys.path.insert(0, str(Path(__file__).parents[2]))
from examples.resnet18.make_model import INPUT_SCALE, INPUT_ZERO_POINT, Network, main

# expansion, channels (at width 1), blocks and first stride of each stage, as in the paper's Table 2
STAGES = (
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)
FIRST, LAST = 32, 1280  # channels of the first and the last convolution


def bottleneck(
    net: Network, name: str, x: tuple[str, float], shape: tuple[int, int], expansion: int, stride: int
) -> tuple[str, float]:
    """Expansion, depthwise convolution and projection from and to `shape` channels; a sum where the shape stays."""
    (ci, co), y = shape, x
    wide = ci * expansion
    if expansion > 1:
        y = net.conv(f"{name}.expand", y, (wide, ci, 1, 1), 1, True)
    y = net.conv(f"{name}.dw", y, (wide, 1, 3, 3), stride, True, groups=wide)
    y = net.conv(f"{name}.project", y, (co, wide, 1, 1), 1, False)
    if stride > 1 or ci != co:
        return y
    scale = 1.3 * max(x[1], y[1])
    return net.quantise(net.node("Add", x[0], y[0], name=f"{name}.add"), scale, 3), scale


def mobilenetv2(size: int = 224, width: float = 1.0, classes: int = 1000, seed: int = 0) -> onnx.ModelProto:
    """The model; images are float32 (1, 3, size, size), every layer has `width` times its channels, in eights."""
    net = Network(seed)

    def scaled(channels: int) -> int:
        return max(8, round(channels * width / 8) * 8)

    x = net.quantise("image", INPUT_SCALE, INPUT_ZERO_POINT), INPUT_SCALE
    channels = scaled(FIRST)
    x = net.conv("conv0", x, (channels, 3, 3, 3), 2, True)
    number = 0
    for expansion, wanted, blocks, first in STAGES:
        for part in range(blocks):
            shape = channels, scaled(wanted)
            x = bottleneck(net, f"b{number}", x, shape, expansion, first if part == 0 else 1)
            channels, number = shape[1], number + 1
    last = scaled(LAST)
    x = net.conv("head", x, (last, channels, 1, 1), 1, True)
    return net.classifier("mobilenetv2", x, last, classes, size)


if __name__ == "__main__":
    main("MobileNetV2", mobilenetv2, 1.0, "factor of all channels")
