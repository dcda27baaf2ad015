"""Fourier transforms in .tflite files: complex tensors are pairs of float32 tensors, their real and imaginary parts."""

from __future__ import annotations

from ... import graph as g
from ..core import Refused
from ..moves import along, sliced
from .builder import TfliteImporter
from .file import FileNode
from .layers import Handler

Pair = tuple[g.Tensor, g.Tensor]


def are_spectra(imp: TfliteImporter, node: FileNode) -> bool:
    """Whether the node makes or reads a complex tensor."""
    return node.kind in HANDLERS and (node.kind == "RFFT2D" or imp.info(node, 0).type == "COMPLEX64")


def _rfft(imp: TfliteImporter, node: FileNode) -> None:
    """RFFT2D of single rows, as audio networks have it."""
    x, lengths = imp.activation(node, 0, plain=True, dtype="float32"), imp.known(node, 1).reshape(-1).tolist()
    if len(lengths) != 2 or lengths[0] != 1 or len(x.shape) < 2 or x.shape[-2] != 1 or lengths[1] < 1:
        raise Refused(f"transforms {lengths} elements of {x.shape}; only single rows are transformed")
    shape = *x.shape[:-1], lengths[1] // 2 + 1
    parts = imp.add(g.Rfft, (x,), g.Tensor(f"{node.name}.parts", (*shape, 2), "float32"), lengths[1])
    names = f"{node.name}.real", f"{node.name}.imaginary"
    cut = [sliced(imp, name, parts, along(parts.shape, len(shape), range(k, k + 1))) for k, name in enumerate(names)]
    real, imaginary = (imp.reshape(name, part, shape) for name, part in zip(names, cut))
    imp.spectra[node.outputs[0]] = real, imaginary


def _pair(imp: TfliteImporter, node: FileNode) -> Pair:
    pair = imp.spectra.get(node.inputs[0])
    if pair is None:
        raise Refused(f"reads complex tensor {imp.info(node, 0).name!r}, which no RFFT2D before it gives")
    return pair


def _reshape(imp: TfliteImporter, node: FileNode) -> None:
    k = node.outputs[0]
    real, imaginary = (imp.reshape(node.name, part, imp.file.tensors[k].shape) for part in _pair(imp, node))
    imp.spectra[k] = real, imaginary


def _magnitude(imp: TfliteImporter, node: FileNode) -> None:
    op = g.NumberBinary(node.name, _pair(imp, node), imp.result(node, plain=True), "hypot")
    imp.produce(node, op, plain=True)


def _part(number: int) -> Handler:
    def convert(imp: TfliteImporter, node: FileNode) -> None:
        part = _pair(imp, node)[number]
        imp.produce(node, g.Reshape(node.name, (part,), imp.result(node, plain=True)), plain=True)

    return convert


HANDLERS: dict[str, Handler] = {
    **dict.fromkeys(("EXPAND_DIMS", "RESHAPE", "SQUEEZE"), _reshape),
    "COMPLEX_ABS": _magnitude,
    "IMAG": _part(1),
    "REAL": _part(0),
    "RFFT2D": _rfft,
}
