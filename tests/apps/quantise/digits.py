"""A small float network for handwritten digits: two convolutions of random weights and a layer that is fitted."""

from pathlib import Path

import numpy as np

DATA = Path(__file__).parents[3] / "examples" / "digits" / "inputs.npz"
TRAINED = 200  # of the 360 images; the others are for quantisation


def images() -> tuple[np.ndarray, np.ndarray]:
    """(images of shape (360, 1, 8, 8), their labels)."""
    with np.load(DATA) as arrays:
        return arrays["inputs"].reshape(-1, 1, 8, 8), arrays["labels"]


def weights() -> dict[str, np.ndarray]:
    """Weights and biases by name: ridge regression of the labels on the second convolution's pooled results."""
    rng, (x, labels) = np.random.default_rng(0), images()
    found = {
        "w1": rng.normal(0, 0.5, (16, 1, 3, 3)),
        "b1": rng.normal(0, 0.2, 16),
        "w2": rng.normal(0, 0.1, (32, 16, 3, 3)),
        "b2": rng.normal(0, 0.2, 32),
    }
    for k in "12":
        windows = np.lib.stride_tricks.sliding_window_view(np.pad(x, [(0, 0)] * 2 + [(1, 1)] * 2), (3, 3), axis=(2, 3))
        sums = np.einsum("nchwij,ocij->nohw", windows, found[f"w{k}"], optimize=True)
        x = np.maximum(sums + found[f"b{k}"][:, None, None], 0)
    features = x.reshape(len(x), 32, 4, 2, 4, 2).max((3, 5)).reshape(len(x), -1)[:TRAINED]
    features = np.hstack([features, np.ones((TRAINED, 1))])
    normal = features.T @ features + 10 * np.eye(features.shape[1])
    fitted = np.linalg.solve(normal, features.T @ np.eye(10)[labels[:TRAINED]])
    return {name: array.astype(np.float32) for name, array in (found | {"w3": fitted[:-1], "b3": fitted[-1]}).items()}


def write(path: Path, opset: int = 13, dtype: type = np.float32) -> Path:
    """Write the network as ONNX: x (N, 1, 8, 8) -> y (N, 10)."""
    import onnx
    from onnx import helper, numpy_helper

    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    nodes = [
        helper.make_node("Conv", ["x", "w1", "b1"], ["c1"], "conv1", pads=[1] * 4),
        helper.make_node("Relu", ["c1"], ["r1"], "relu1"),
        helper.make_node("Conv", ["r1", "w2", "b2"], ["c2"], "conv2", pads=[1] * 4),
        helper.make_node("Relu", ["c2"], ["r2"], "relu2"),
        helper.make_node("MaxPool", ["r2"], ["p"], "pool", kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Flatten", ["p"], ["f"], "flatten"),
        helper.make_node("Gemm", ["f", "w3", "b3"], ["y"], "dense"),
    ]
    constants = [numpy_helper.from_array(array.astype(dtype), name) for name, array in weights().items()]
    inputs = [helper.make_tensor_value_info("x", kind, ["N", 1, 8, 8])]
    outputs = [helper.make_tensor_value_info("y", kind, ["N", 10])]
    graph = helper.make_graph(nodes, "digits", inputs, outputs, constants)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8), path)
    return path


def samples(count: int = 40) -> dict[str, np.ndarray]:
    """Images that the network was not fitted to, with labels."""
    x, labels = images()
    return {"x": x[TRAINED : TRAINED + count], "labels": labels[TRAINED : TRAINED + count]}
