"""Static int8 forms of a float .tflite network, made by Google's ai-edge-quantizer.

Activations are int8, weights int8 with a scale per output channel; inputs and outputs stay float32. Values of all
tensors come from LiteRT: of the float network by its plain kernels, of the int8 network by its reference kernels, whose
arithmetic is that of `tilewright run`.
"""

from __future__ import annotations

import contextlib
import io
import json
import math
import os
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ...compiler.frontend.source import Source, read_source
from ...hw.errors import UnsupportedError, one_line
from ...hw.foreign import read_json
from ...hw.needs import need
from .meter import Meter, Node
from .result import Comparison, Way
from .samples import Input
from .search import Candidates, FloatNetwork, Work, write_whole
from .tflite_float import float_form

# how ranges of activations are measured, or, by the extremes, how scales of weights are chosen: ai-edge-quantizer's
# names of the algorithms
METHODS = {
    "minmax": "min_max_uniform_quantize",
    "average": "min_max_uniform_quantize",
    "mse": "MSE",
    "octav": "OCTAV",
}
_AVERAGE = "average"
_IN_FLOAT = ("DIV",)  # a small divisor may round to 0
_LAYERS = ("CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED", "TRANSPOSE_CONV")  # inputs[1] are their weights
_RANGES_BYTES = 1 << 28


class TfliteNetwork(FloatNetwork):
    """The float network of a .tflite file; `shapes` are sizes of inputs that it leaves open, else those it records.

    Raises `FileError` for damaged files, `InputError` for a shape that is not that of an input, and `UnsupportedError`
    for networks that are quantised already and where a package is missing.
    """

    methods = tuple(METHODS)
    suffix = ".int8.tflite"

    def __init__(self, path: str, shapes: Mapping[str, Sequence[int]]):
        need("quantising a .tflite network", "quantise", "ai_edge_quantizer", "ai_edge_litert")
        self.path = path
        self.content = float_form(read_source(path, shapes=shapes))
        self._runner = _Runner(self.content, path)
        self.inputs, self.nodes, self.outputs = self._runner.inputs, self._runner.nodes, self._runner.outputs

    def candidates(self, work: Work) -> Candidates:
        """The networks that ways give."""
        return _Candidates(self.content, self._runner, work)


class _Candidates:
    """The networks that ways give."""

    forms = ()

    def __init__(self, content: bytes, runner: _Runner, work: Work):
        self.content, self.runner, self.work = content, runner, work

    def network(self, way: Way, done: Callable[[], None]) -> bytes | None:
        """The file that ai-edge-quantizer makes. Raises `UnsupportedError` where it cannot."""
        from ai_edge_quantizer.qtyping import TFLOperationName
        from ai_edge_quantizer.quantizer import Quantizer
        from ai_edge_quantizer.recipe_manager import RecipeManager

        recipe, ranges = RecipeManager(), self._ranges(way.method == _AVERAGE, done)
        try:
            recipe.add_static_config(".*", TFLOperationName.ALL_SUPPORTED, 8, 8, algorithm_key=METHODS[way.method])
            for kind in (TFLOperationName.INPUT, TFLOperationName.OUTPUT, *(TFLOperationName(k) for k in _IN_FLOAT)):
                recipe.add_quantization_config(".*", kind, algorithm_key="no_quantize")
            for name in {*way.kept, *self.work.in_float}:
                pattern = f"^{re.escape(name)}(;|$)"
                recipe.add_quantization_config(pattern, TFLOperationName.ALL_SUPPORTED, algorithm_key="no_quantize")
            with _quiet():
                quantiser = Quantizer(self.content, recipe.get_quantization_recipe())
                network = quantiser.quantize(ranges, enable_progress_report=False).quantized_model
        except (ValueError, RuntimeError, NotImplementedError, KeyError, IndexError) as exc:
            raise UnsupportedError(f"ai-edge-quantizer cannot quantise this network ({one_line(exc)})") from None
        return None if network is None else bytes(network)

    def _ranges(self, average: bool, done: Callable[[], None]) -> dict[str, Any]:
        """The range of each tensor over the measured samples: the extremes, or moving averages of them."""
        from ai_edge_quantizer.utils.qsv_utils import min_max_update, moving_average_update

        path = self.work.folder / f"ranges{average:d}.json"
        if not path.exists():
            update, ranges = moving_average_update if average else min_max_update, dict[str, Any]()
            for k in self.work.measured:
                for name, value in self.runner.run(self.work.samples[k]).items():
                    if value.size:
                        own = {"min": value.min().reshape(1), "max": value.max().reshape(1)}
                        ranges[name] = update(ranges.get(name, {}), own)
                done()
            plain = {name: {end: float(value[0]) for end, value in one.items()} for name, one in ranges.items()}
            write_whole(path, json.dumps(plain))
        stored = read_json(path, "ranges", _RANGES_BYTES)
        return {name: {end: np.array([v], np.float32) for end, v in one.items()} for name, one in stored.items()}

    def compare(self, way: Way, network: bytes, done: Callable[[], None]) -> Comparison:
        """The network against the float network on the samples that judge."""
        int8 = _Runner(network, "the int8 network", reference=True)
        meter = Meter(self.runner.outputs)
        outputs = dict(zip(self.runner.outputs, int8.outputs))
        for k in self.work.judged:
            sample = self.work.samples[k]
            first, second = self.runner.run(sample), int8.run(sample)
            got = {name: second.get(outputs.get(name, name)) for name in first}
            meter.add(
                {name: value for name, value in first.items() if got[name] is not None},
                {name: value for name, value in got.items() if value is not None},
            )
            done()
        return meter.comparison((each.name for each in self.runner.inputs), self.runner.nodes, self.work.labels)

    def macs(self) -> dict[str, int]:
        """Multiply-accumulates of the layers with weights, by operator."""
        shapes = self.runner.shapes
        return {node.name: _macs(node, shapes) for node in self.runner.nodes if node.kind in _LAYERS}


def _macs(node: Node, shapes: Mapping[str, tuple[int, ...]]) -> int:
    weights, image = shapes[node.inputs[1]], shapes[node.outputs[0]]
    if node.kind == "FULLY_CONNECTED":
        return math.prod(image[:-1]) * math.prod(weights)
    if node.kind == "TRANSPOSE_CONV":  # inputs: sizes, weights, image
        image = shapes[node.inputs[2]]
    return math.prod(image[1:3]) * math.prod(weights)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Without the quantiser's progress bars and warnings, and LiteRT's messages, which do not go through Python."""
    standard_error, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        with contextlib.redirect_stderr(io.StringIO()), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        os.dup2(standard_error, 2)
        os.close(standard_error)
        os.close(nowhere)


class _Runner:
    """A .tflite network in LiteRT that keeps the values of all its tensors of one run."""

    def __init__(self, content: bytes, source: str, reference: bool = False):
        from ai_edge_litert.interpreter import Interpreter, OpResolverType

        from ...compiler.frontend.tflite.file import read

        resolver = OpResolverType.BUILTIN_REF if reference else OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
        try:
            self._interpreter = Interpreter(
                model_content=content, experimental_op_resolver_type=resolver, experimental_preserve_all_tensors=True
            )
            self._interpreter.allocate_tensors()
        except (ValueError, RuntimeError) as exc:
            raise UnsupportedError(f"{source}: LiteRT cannot run this network ({one_line(exc)})") from None
        self._source, self._given = source, self._interpreter.get_input_details()
        self.inputs = [Input(d["name"], tuple(map(int, d["shape"])), np.dtype(d["dtype"])) for d in self._given]
        self.outputs = [detail["name"] for detail in self._interpreter.get_output_details()]
        file = read(Source(Path(source), content))
        names = [tensor.name for tensor in file.tensors]
        self.shapes = dict(zip(names, (tensor.shape for tensor in file.tensors)))
        self.nodes = [
            Node(names[node.outputs[0]], node.kind, [names[k] for k in node.inputs if k >= 0], [names[node.outputs[0]]])
            for node in file.nodes
            if node.outputs
        ]
        values = {each.name for each in self.inputs}.union(*(node.outputs for node in self.nodes))
        details = self._interpreter.get_tensor_details()
        self._kept = [d for d in details if d["name"] in values and d["dtype"] in (np.float32, np.int8)]

    def run(self, sample: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """The float32 value of each tensor by name, of integers the numbers that they stand for."""
        for detail in self._given:
            self._interpreter.set_tensor(detail["index"], sample[detail["name"]])
        self._interpreter.reset_all_variables()
        try:
            self._interpreter.invoke()
        except RuntimeError as exc:
            raise UnsupportedError(f"{self._source}: LiteRT cannot run this network ({one_line(exc)})") from None
        return {detail["name"]: self._value(detail) for detail in self._kept}

    def _value(self, detail: Mapping[str, Any]) -> np.ndarray:
        value, scale = self._interpreter.get_tensor(detail["index"]), detail["quantization_parameters"]
        if value.dtype == np.float32:
            return value
        return (value.astype(np.float32) - scale["zero_points"]) * scale["scales"]
