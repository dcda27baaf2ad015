"""What onnxruntime computes of the tensors of an ONNX network: an int8 network against its float network, and means."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from ...hw.errors import UnsupportedError
from .meter import Meter, Node
from .onnx_network import run, session
from .result import Comparison

if TYPE_CHECKING:
    from onnx import ModelProto

_DEQUANTISED = "_DequantizeLinear_Output"  # onnxruntime's quantiser appends it to the name of a tensor


def compare(
    whole: ModelProto,
    int8: ModelProto,
    samples: Iterable[Mapping[str, np.ndarray]],
    labels: np.ndarray | None,
    done: Callable[[], None],
) -> Comparison:
    """Run both networks on all samples, one after the other, and compare every tensor that both have.

    Both run without onnxruntime's optimisations; the int8 network thereby computes what `tilewright run` computes.
    `done` is called after each sample. Raises `UnsupportedError` where no output is float32.
    """
    pairs = _pairs(whole, int8)
    inputs = [value.name for value in whole.graph.input]
    floats = [name for name in pairs if name not in inputs]
    first, second = session(_with_outputs(whole, floats)), session(_with_outputs(int8, pairs.values()))
    outputs = [output.name for output in whole.graph.output if output.name in pairs]
    if not outputs:
        raise UnsupportedError(
            "no output of the network is float32, so that nothing compares; end it before its ArgMax"
        )
    meter = Meter(outputs)
    for sample in samples:
        wanted = run(first, floats, sample) | {name: sample[name] for name in pairs if name in sample}
        got = run(second, pairs.values(), sample)
        meter.add(wanted, {name: got[other] for name, other in pairs.items()})
        done()
    return meter.comparison(inputs, nodes_of(whole), labels)


def nodes_of(model: ModelProto) -> list[Node]:
    """The operators of a network."""
    return [Node(node.name, node.op_type, node.input, node.output) for node in model.graph.node]


def _pairs(whole: ModelProto, int8: ModelProto) -> dict[str, str]:
    """Float tensors that both networks have: name in the float network -> name of the same values in the other."""
    from onnx import TensorProto

    made = {name for node in int8.graph.node for name in node.output}
    values = (*whole.graph.input, *whole.graph.value_info, *whole.graph.output)
    floats = {value.name for value in values if value.type.tensor_type.elem_type == TensorProto.FLOAT}
    made_by_nodes = [name for node in whole.graph.node for name in node.output]
    names = [name for name in (*(value.name for value in whole.graph.input), *made_by_nodes) if name in floats]
    pairs = {name: name + _DEQUANTISED if name + _DEQUANTISED in made else name for name in names}
    return {name: other for name, other in pairs.items() if other in made}


def _with_outputs(model: ModelProto, names: Iterable[str]) -> ModelProto:
    """The network with these float tensors as its outputs."""
    import onnx
    from onnx.helper import make_tensor_value_info

    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    del changed.graph.output[:], changed.graph.value_info[:]
    changed.graph.output.extend(make_tensor_value_info(name, onnx.TensorProto.FLOAT, None) for name in names)
    return changed


def input_means(
    model: ModelProto, samples: Iterable[Mapping[str, np.ndarray]], done: Callable[[], None]
) -> dict[str, np.ndarray]:
    """Means of the inputs of convolutions and Gemm over `samples`: name of the tensor -> array of shape (channels,)."""
    layers = {node.input[0] for node in model.graph.node if node.op_type in ("Conv", "Gemm")}
    given = {value.name for value in model.graph.input}
    names = sorted(layers - given)
    runner = session(_with_outputs(model, names), optimised=True) if names else None
    sums, count = dict[str, np.ndarray](), 0
    for sample in samples:
        values = {} if runner is None else run(runner, names, sample)
        values |= {name: sample[name] for name in layers & given}
        for name, value in values.items():
            mean = value.mean(axis=(0, *range(2, value.ndim)), dtype=np.float64)
            sums[name] = sums.get(name, 0.0) + mean
        count += 1
        done()
    return {name: total / count for name, total in sums.items()}
