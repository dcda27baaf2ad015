"""How much an int8 network loses against its float network: signal to noise of every operator, labels of the whole."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from .onnx_network import session
from .result import EXACT_DB, Comparison, OperatorLoss, snr_db

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
    """
    pairs = _pairs(whole, int8)
    results = [output.name for output in whole.graph.output]
    floats = [name for name in pairs if name not in {value.name for value in whole.graph.input}]
    first, second = session(_with_outputs(whole, floats)), session(_with_outputs(int8, pairs.values()))
    signal, noise = dict.fromkeys(pairs, 0.0), dict.fromkeys(pairs, 0.0)
    classes: list[tuple[int, int]] = []
    for sample in samples:
        wanted = dict(zip(floats, first.run(floats, dict(sample)))) | {n: sample[n] for n in pairs if n in sample}
        got = dict(zip(pairs, second.run([*pairs.values()], dict(sample))))
        for name, value in wanted.items():
            error = got[name].astype(np.float64) - value
            signal[name] += float(np.square(value, dtype=np.float64).sum())
            noise[name] += float(np.square(error).sum())
        if _is_vector(wanted[results[0]]):
            classes.append((int(wanted[results[0]].argmax()), int(got[results[0]].argmax())))
        done()
    found = np.array(classes).reshape(-1, 2)
    named = labels is not None and len(labels) == len(found)
    return Comparison(
        snr_db=snr_db(sum(signal[r] for r in results), sum(noise[r] for r in results)),
        operators=_losses(whole, signal, noise),
        agreement=float((found[:, 0] == found[:, 1]).mean()) if classes else None,
        float_accuracy=float((found[:, 0] == labels).mean()) if named else None,
        int8_accuracy=float((found[:, 1] == labels).mean()) if named else None,
    )


def _is_vector(result: np.ndarray) -> bool:
    """Whether a result has a value for each class: one axis is longer than 1."""
    return result.size > 1 and result.size == max(result.shape)


def _pairs(whole: ModelProto, int8: ModelProto) -> dict[str, str]:
    """Float tensors that both networks have: name in the float network -> name of the same values in the other."""
    from onnx import TensorProto

    made = {name for node in int8.graph.node for name in node.output}
    floats = {
        value.name
        for value in (*whole.graph.input, *whole.graph.value_info, *whole.graph.output)
        if value.type.tensor_type.elem_type == TensorProto.FLOAT
    }
    made_by_nodes = [name for node in whole.graph.node for name in node.output]
    names = [name for name in (*(value.name for value in whole.graph.input), *made_by_nodes) if name in floats]
    found = {name: name + _DEQUANTISED if name + _DEQUANTISED in made else name for name in names}
    return {name: other for name, other in found.items() if other in made}


def _with_outputs(model: ModelProto, names: Iterable[str]) -> ModelProto:
    """The network with these float tensors as its outputs."""
    import onnx
    from onnx.helper import make_tensor_value_info

    found = onnx.ModelProto()
    found.CopyFrom(model)
    del found.graph.output[:], found.graph.value_info[:]
    found.graph.output.extend(make_tensor_value_info(name, onnx.TensorProto.FLOAT, None) for name in names)
    return found


def _losses(model: ModelProto, signal: Mapping[str, float], noise: Mapping[str, float]) -> tuple[OperatorLoss, ...]:
    """The operators whose results both networks have; a result that one lacks is as good as what it is made from."""
    ratios = {v.name: snr_db(signal[v.name], noise[v.name]) for v in model.graph.input if v.name in signal}
    found = []
    for node in model.graph.node:
        worst = min((ratios[name] for name in node.input if name in ratios), default=EXACT_DB)
        name = node.output[0]
        ratios |= dict.fromkeys(node.output, worst)
        if name in signal:
            ratios[name] = snr_db(signal[name], noise[name])
            found.append(OperatorLoss(node.name, node.op_type, ratios[name], worst - ratios[name]))
    return tuple(found)


def input_means(
    model: ModelProto, samples: Iterable[Mapping[str, np.ndarray]], done: Callable[[], None]
) -> dict[str, np.ndarray]:
    """Means of the inputs of convolutions and Gemm over `samples`: name of the tensor -> array of shape (channels,)."""
    layers = {node.input[0] for node in model.graph.node if node.op_type in ("Conv", "Gemm")}
    given = {value.name for value in model.graph.input}
    names = sorted(layers - given)
    runner, sums, count = session(_with_outputs(model, names), optimised=True), dict[str, np.ndarray](), 0
    for sample in samples:
        values = dict(zip(names, runner.run(names, dict(sample)))) | {n: sample[n] for n in layers & given}
        for name, value in values.items():
            mean = value.mean(axis=(0, *range(2, value.ndim)), dtype=np.float64)
            sums[name] = sums.get(name, 0.0) + mean
        count += 1
        done()
    return {name: total / count for name, total in sums.items()}
