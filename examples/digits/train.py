"""Train, quantise and export the digits network that the repository carries.

A small convolutional network on scikit-learn's handwritten digits (1,797 images of 8x8 pixels) is trained with
PyTorch, written as ONNX and quantised by onnxruntime: int8 activations with zero points, int8 weights per output
channel, int32 biases, as QuantizeLinear/DequantizeLinear pairs (QDQ).

    pip install -e '.[compiler,demo,train]'
    python examples/digits/train.py

writes digits.onnx and inputs.npz (the held-out images and their labels) beside this file. Only this script needs
PyTorch and scikit-learn; what it writes is committed.
"""

# pyright: reportMissingImports=false
# Only training needs PyTorch and scikit-learn.

from __future__ import annotations

import argparse
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper, numpy_helper
from onnxruntime import InferenceSession
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
from sklearn.datasets import load_digits
from torch import nn

HERE = Path(__file__).resolve().parent
HELD_OUT = 360  # images that neither training nor calibration sees
CALIBRATION = 256  # training images that set the activations' ranges
EPOCHS = 60
SEED = 0


def load_split() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """(training images, labels, held-out images, labels): float32 (N, 1, 8, 8) in 0..1, in a fixed random order."""
    digits = load_digits()
    order = np.random.default_rng(0).permutation(len(digits.target))
    images = (digits.images[order, None] / 16).astype(np.float32)
    labels = digits.target[order].astype(np.uint8)
    return images[HELD_OUT:], labels[HELD_OUT:], images[:HELD_OUT], labels[:HELD_OUT]


def network() -> nn.Sequential:
    """The float network; its shapes exercise one input channel, a stride, a pooling and padding of every kind."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),  # 8x8
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, stride=2, padding=1),  # 4x4
        nn.ReLU(),
        nn.Conv2d(32, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),  # 2x2
        nn.Flatten(),
        nn.Linear(128, 10),
    )


def shifted(images: torch.Tensor, rng: np.random.Generator) -> torch.Tensor:
    """Every image moved by at most one pixel, to imitate more writers."""
    padded = nn.functional.pad(images, (1, 1, 1, 1))
    moves = rng.integers(0, 3, (len(images), 2))
    return torch.stack([img[:, y : y + 8, x : x + 8] for img, (y, x) in zip(padded, moves)])


def train(images: np.ndarray, labels: np.ndarray) -> nn.Sequential:
    """The trained network: Adam with a cosine schedule, one seed, one thread, hence repeatable on one machine."""
    torch.manual_seed(SEED)
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    rng = np.random.default_rng(SEED)
    model, x, y = network(), torch.from_numpy(images), torch.from_numpy(labels.astype(np.int64))
    optimiser = torch.optim.Adam(model.parameters(), lr=3e-3, weight_decay=1e-4)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, EPOCHS)
    for _ in range(EPOCHS):
        moved, order = shifted(x, rng), rng.permutation(len(x))
        for batch in np.array_split(order, len(x) // 32):
            index = torch.from_numpy(batch)
            optimiser.zero_grad()
            nn.functional.cross_entropy(model(moved[index]), y[index], label_smoothing=0.05).backward()
            optimiser.step()
        schedule.step()
    return model.eval()


def attributes(layer: nn.Module) -> tuple[str, dict[str, Any]]:
    """The ONNX operator that a layer becomes, and its attributes."""
    if isinstance(layer, nn.Conv2d):
        pads = [int(p) for p in layer.padding] * 2
        return "Conv", {"kernel_shape": list(layer.kernel_size), "strides": list(layer.stride), "pads": pads}
    if isinstance(layer, nn.MaxPool2d):
        return "MaxPool", {"kernel_shape": [layer.kernel_size] * 2, "strides": [layer.stride] * 2}
    if isinstance(layer, nn.Linear):
        return "Gemm", {"transB": 1}
    return type(layer).__name__.capitalize(), {}  # Relu, Flatten


def to_onnx(model: nn.Sequential) -> onnx.ModelProto:
    """The float network as ONNX, batch 1. Written with onnx.helper, to choose node and tensor names."""
    nodes, weights, x, seen = [], [], "image", Counter()
    for layer in model:
        kind, attrs = attributes(layer)
        seen[kind] += 1
        name = f"{kind.lower()}{seen[kind]}" if kind in ("Conv", "Relu") else kind.lower()
        arrays = {f"{name}.{key}": value.detach().numpy() for key, value in layer.named_parameters()}
        weights += [numpy_helper.from_array(array, key) for key, array in arrays.items()]
        y = "logits" if layer is model[-1] else f"{name}.out"
        nodes.append(helper.make_node(kind, [x, *arrays], [y], name=name, **attrs))
        x = y
    image = helper.make_tensor_value_info("image", TensorProto.FLOAT, [1, 1, 8, 8])
    logits = helper.make_tensor_value_info("logits", TensorProto.FLOAT, [1, 10])
    graph = helper.make_graph(nodes, "digits", [image], [logits], weights)
    exported = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    return onnx.shape_inference.infer_shapes(exported, check_type=True, strict_mode=True)


class Images(CalibrationDataReader):
    """Calibration data: one image at a time."""

    def __init__(self, images: np.ndarray):
        self._next = iter(images)

    def get_next(self):
        """The next image, or None after the last."""
        image = next(self._next, None)
        return None if image is None else {"image": image[None]}


def quantise(model: onnx.ModelProto, images: np.ndarray, path: Path) -> None:
    """Write `model` to `path` as QDQ, with the activations' ranges measured on `images`."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "float.onnx"
        onnx.save(model, source)
        quantize_static(
            source,
            path,
            Images(images),
            quant_format=QuantFormat.QDQ,
            per_channel=True,
            activation_type=QuantType.QInt8,
            weight_type=QuantType.QInt8,
        )


def accuracy(path_or_bytes, images: np.ndarray, labels: np.ndarray) -> float:
    """The share of `images` that onnxruntime classifies as labelled."""
    session = InferenceSession(path_or_bytes)
    labelled = [np.argmax(np.asarray(session.run(None, {"image": image[None]})[0])) for image in images]
    return float(np.mean(labelled == labels))


def main() -> None:
    """Train, quantise, write, and print the accuracies."""
    parser = argparse.ArgumentParser(description="Train, quantise and export the digits network.")
    parser.add_argument(
        "-o", "--output", type=Path, default=HERE, help="folder to write to (default: beside this script)"
    )
    output = parser.parse_args().output
    x, y, held_x, held_y = load_split()
    exported = to_onnx(train(x, y))
    quantise(exported, x[:CALIBRATION], output / "digits.onnx")
    np.savez_compressed(output / "inputs.npz", inputs=held_x[:, None], labels=held_y)
    print(f"float   {accuracy(exported.SerializeToString(), held_x, held_y):.4f} of {HELD_OUT} held-out images")
    print(f"int8    {accuracy(output / 'digits.onnx', held_x, held_y):.4f}")
    for name in ("digits.onnx", "inputs.npz"):
        print(f"{(output / name).stat().st_size:8d} bytes  {output / name}")


if __name__ == "__main__":
    main()
