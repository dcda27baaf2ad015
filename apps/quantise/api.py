"""`tilewright.quantise`: a float network and data give an int8 network, whatever format the network has."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ...compiler.frontend.source import check_kind, kind_of
from ...hw.errors import InputError, UnsupportedError
from .onnx_network import sizes_of
from .result import Quantised
from .samples import Input, Pictures, Samples, read_samples, samples_of
from .search import FloatNetwork, Tell, tell_no_one

# Kind of a float network -> that of its int8 network
FORMATS = {".onnx": ".onnx", ".tflite": ".tflite", ".pt2": ".onnx"}


def quantise(
    model: str | Path | Any,
    data: Any,
    *,
    labels: np.ndarray | Sequence[int] | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
    pictures: Pictures | None = None,
    keep: Sequence[str] = (),
    folder: str | Path | None = None,
    tell: Tell = tell_no_one,
) -> Quantised:
    """Quantise a float network to int8, as `tilewright quantise` does (docs/quantise.md).

    `model` is the path of an ONNX, .tflite or .pt2 file, or a module or exported program of PyTorch. `data` are samples
    of its inputs: the path of a .npz or .npy file or of a folder of pictures, an array of shape (samples, *shape of the
    input), or arrays by the names of inputs; for PyTorch also tensors, a data set, a loader or batches, with or without
    labels. `labels` are the right classes of the samples, by default those in `data`. `shapes` are sizes of inputs that
    an ONNX file leaves open, by default those of the data, `pictures` says how pixels become numbers, `keep` names
    operators that stay in float. `folder` keeps intermediate results until the end, so that an interrupted call goes
    on; `tell` hears of each step.

    The result has the network, how well it agrees with the float network, `save` and `compile`.

    Raises `FileError` for files that cannot be read, `InputError` for data, labels or shapes that do not fit, and
    `UnsupportedError` for networks and operators that cannot be quantised.

    >>> import tilewright as tw
    >>> import onnx, tempfile
    >>> rng = np.random.default_rng(0)
    >>> w = onnx.numpy_helper.from_array(rng.normal(size=(16, 4)).astype(np.float32), "w")
    >>> x, y = (onnx.helper.make_tensor_value_info(name, 1, (1, size)) for name, size in (("x", 16), ("y", 4)))
    >>> graph = onnx.helper.make_graph([onnx.helper.make_node("MatMul", ["x", "w"], ["y"])], "one", [x], [y], [w])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     model = onnx.helper.make_model(graph, ir_version=8, opset_imports=[onnx.helper.make_opsetid("", 17)])
    ...     onnx.save(model, f"{folder}/one.onnx")
    ...     small = tw.quantise(f"{folder}/one.onnx", rng.normal(size=(32, 16)).astype(np.float32))
    >>> small.compile("tiny").inputs[0].shape, small.comparison.snr_db > 20
    ((1, 16), True)
    """
    if isinstance(model, (str, os.PathLike)):
        path = os.fspath(model)
        if kind_of(path) == ".onnx":
            shapes = sizes_of(path, shapes or {}, lambda entries: _samples(data, entries[0], pictures, None))
        network = open_float(path, shapes or {})
    elif "torch" in sys.modules:  # which takes seconds to import; without it `model` is nothing of torch's
        from .static import OnnxNetwork
        from .torch_network import open_torch

        proto, name, data, known = open_torch(model, data)
        network = OnnxNetwork(proto, name, shapes or {})
        labels = known if labels is None else labels
    else:
        raise UnsupportedError(f"a {type(model).__name__} cannot be quantised; give the path of a float network")
    samples = _samples(data, network.inputs, pictures, labels)
    return network.quantise(samples, keep, folder=None if folder is None else Path(folder), tell=tell)


def inspect(path: str, shapes: Mapping[str, Sequence[int]]) -> Quantised:
    """The network as it would be quantised, on random samples: for times and placement, not for accuracy.

    Raises as `open_float`.
    """
    network, rng = open_float(path, shapes), np.random.default_rng(0)
    arrays = {}
    for each in network.inputs:
        shape = (1, *(size or 1 for size in each.shape))
        values = rng.uniform(-1, 1, shape) if each.dtype.kind == "f" else rng.integers(0, 2, shape)
        arrays[each.name] = values.astype(each.dtype)
    return network.quantise(samples_of(arrays, network.inputs, path), quick=True)


def open_float(path: str, shapes: Mapping[str, Sequence[int]]) -> FloatNetwork:
    """The float network in a file, by its content; `shapes` are sizes that it leaves open.

    Raises `FileError`, `InputError` for shapes that do not fit, and `UnsupportedError` for other kinds of files,
    networks that are quantised already, and where a package is missing.
    """
    check_kind(path)
    kind = kind_of(path)
    if kind == ".onnx":
        from .onnx_network import read_onnx
        from .static import OnnxNetwork

        return OnnxNetwork(read_onnx(path), path, shapes)
    if kind == ".pt2":
        from .static import OnnxNetwork
        from .torch_network import read_torch

        return OnnxNetwork(read_torch(path), path, shapes)
    if kind == ".tflite":
        from .tflite_network import TfliteNetwork

        return TfliteNetwork(path, shapes)
    raise UnsupportedError(f"{path}: is no float network in {', '.join(FORMATS)}; export it as ONNX")


def _samples(
    data: Any, inputs: Sequence[Input], pictures: Pictures | None, labels: np.ndarray | Sequence[int] | None
) -> Samples:
    """The samples in `data`, with `labels` in place of its own."""
    if isinstance(data, (str, os.PathLike)):
        samples = read_samples(os.fspath(data), [inputs], pictures)
    else:
        arrays = data if isinstance(data, Mapping) else {"inputs": np.asarray(data)}
        samples = samples_of({name: np.asarray(array) for name, array in arrays.items()}, inputs, "data", pictures)
    if labels is not None:
        samples.labels = np.asarray(labels)
    for name, array in samples.arrays.items():
        for k, sample in enumerate(array) if array.dtype.kind == "f" else ():
            if not np.isfinite(sample).all():
                raise InputError(f"input {name!r} has a value that is no finite number in sample {k}; leave it out")
    known = samples.labels
    if known is not None and (known.shape != (len(samples),) or known.dtype.kind not in "iu"):
        raise InputError(
            f"labels have shape {known.shape} and type {known.dtype}; give an integer for each of the {len(samples)} "
            "samples"
        )
    return samples
