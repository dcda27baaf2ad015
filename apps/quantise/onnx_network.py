"""Static int8 forms of a float ONNX network, made by onnxruntime's quantiser.

`prepare` fixes open sizes, brings the file to an operator set that has scales by channel, and lets onnxruntime fold
constants and batch normalisation. `Quantiser` measures the ranges of all tensors, run by run, and writes networks with
QuantizeLinear and DequantizeLinear (QDQ): int8 activations, int8 weights with a scale per output channel.
"""

from __future__ import annotations

import contextlib
import io
import logging
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from ...compiler.frontend.source import give_sizes, read_source
from ...hw.errors import FileError, InputError, UnsupportedError
from ...hw.needs import need
from .onnx_float import float_form
from .samples import Input, Samples

if TYPE_CHECKING:
    from onnx import ModelProto
    from onnxruntime import InferenceSession

METHODS = ("minmax", "percentile", "entropy")
_OPSET = 17  # DequantizeLinear has an axis from 13 on; LayerNormalization is an operator from 17 on
_QUANTISED = ("QuantizeLinear", "DequantizeLinear", "QLinearConv", "QLinearMatMul")
_DTYPES = {"tensor(float)": "f4", "tensor(float16)": "f2", "tensor(double)": "f8", "tensor(bool)": "?"}
_DTYPES |= {f"tensor({s}int{bits})": f"{'u' if s else 'i'}{bits // 8}" for s in ("", "u") for bits in (8, 16, 32, 64)}


def need_libraries() -> None:
    """Raise `UnsupportedError` where onnx or onnxruntime is missing."""
    need("quantising an ONNX network", "quantise", "onnx", "onnxruntime")


def session(model: ModelProto, optimised: bool = False) -> InferenceSession:
    """`model`, ready to run in onnxruntime without any optimisation; `optimised` runs it faster, not bit for bit."""
    import onnxruntime as ort

    options = ort.SessionOptions()
    level = ort.GraphOptimizationLevel
    options.graph_optimization_level = level.ORT_ENABLE_ALL if optimised else level.ORT_DISABLE_ALL
    options.log_severity_level = 4
    return ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def run(runner: InferenceSession, names: Iterable[str], sample: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The tensors `names` for the inputs of one run."""
    wanted = [*names]
    return {name: np.asarray(value) for name, value in zip(wanted, runner.run(wanted, dict(sample)))}


def inputs_of(model: ModelProto) -> list[Input]:
    """The inputs of a network, without those that have a value in the file."""
    from onnx.helper import tensor_dtype_to_np_dtype

    found = []
    known = {tensor.name for tensor in model.graph.initializer}
    for value in model.graph.input:
        if value.name in known:
            continue
        tensor = value.type.tensor_type
        shape = tuple(d.dim_value if d.dim_value > 0 else None for d in tensor.shape.dim)
        found.append(Input(value.name, shape, np.dtype(tensor_dtype_to_np_dtype(tensor.elem_type))))
    return found


def sizes_of(
    path: str, shapes: Mapping[str, Sequence[int]], read: Callable[[Sequence[Sequence[Input]]], Samples]
) -> dict[str, tuple[int, ...]]:
    """The `shapes` of inputs, with those of data where sizes other than the batch are open still.

    `read` reads the data for the inputs of an entry; the first sample decides. Raises as it and `read_source`.
    """
    inputs = inputs_of(read_source(path, shapes=shapes).onnx())
    if not any(None in each.shape[1:] for each in inputs):
        return {name: tuple(shape) for name, shape in shapes.items()}
    first = read([inputs])[0]
    return {each.name: first[each.name].shape for each in inputs}


def quantised_operators(model: ModelProto) -> list[str]:
    """The kinds of operators in a network that only quantised networks have, by name."""
    return sorted({node.op_type for node in model.graph.node} & {*_QUANTISED})


def prepare(model: ModelProto, source: str, shapes: Mapping[str, Sequence[int]]) -> ModelProto:
    """A float network with fixed sizes, folded by onnxruntime, in an operator set that QDQ networks need.

    `shapes` are sizes by the name of an input, for inputs of open size. Raises `InputError` for a shape that is not
    that of an input, or that is missing; `UnsupportedError` for networks that are quantised already or that
    onnxruntime does not run.
    """
    need_libraries()
    import onnx
    import onnxruntime as ort
    from onnx import version_converter

    fixed = float_form(model)
    if quantised := quantised_operators(fixed):
        raise UnsupportedError(f"{source}: is quantised already (it has {quantised[0]}); compile it as it is")
    _fix_shapes(fixed, source, shapes)
    version = next((o.version for o in fixed.opset_import if o.domain in ("", "ai.onnx")), 0)
    try:
        if version < _OPSET:
            fixed = version_converter.convert_version(fixed, _OPSET)
        with tempfile.TemporaryDirectory() as folder:
            options = ort.SessionOptions()
            options.log_severity_level = 4
            options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_BASIC
            options.optimized_model_filepath = str(Path(folder, "folded.onnx"))
            ort.InferenceSession(fixed.SerializeToString(), options, providers=["CPUExecutionProvider"])
            found = onnx.load(options.optimized_model_filepath)
    except Exception as exc:  # both libraries raise classes of their own
        why = next(iter(str(exc).splitlines()), type(exc).__name__)
        raise UnsupportedError(f"{source}: onnxruntime cannot run this network ({why})") from None
    found.graph.name = model.graph.name
    _flatten_biases(found)
    _rename_constants(found)
    for k, node in enumerate(found.graph.node):  # the quantiser and the tables name operators
        node.name = node.name or f"{node.op_type}_{k}"
    return onnx.shape_inference.infer_shapes(found)


def _fix_shapes(model: ModelProto, source: str, shapes: Mapping[str, Sequence[int]]) -> None:
    inputs = {i.name: i for i in inputs_of(model)}
    give_sizes(source, model, shapes)
    for value in model.graph.input:
        if value.name not in inputs:
            continue
        for dim in value.type.tensor_type.shape.dim[:1]:
            dim.dim_value = max(1, dim.dim_value)
    if still := [i for i in inputs_of(model) if None in i.shape]:
        size = ",".join("N" if d is None else str(d) for d in still[0].shape)
        raise InputError(
            f"{source}: input {still[0].name!r} has open sizes; give them with --shape {still[0].name}={size}"
        )
    for value in model.graph.output:  # open sizes that follow from those of the inputs
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_value <= 0:
                value.type.tensor_type.ClearField("shape")
                break
    del model.graph.value_info[:]


def _flatten_biases(model: ModelProto) -> None:
    """Give the biases of Gemm that have shape (1, N) the shape (N), for which alone the quantiser has scales."""
    from onnx import numpy_helper

    biases = {node.input[2] for node in model.graph.node if node.op_type == "Gemm" and len(node.input) == 3}
    for tensor in model.graph.initializer:
        if tensor.name in biases and len(tensor.dims) == 2 and tensor.dims[0] == 1:
            tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor)[0], tensor.name))


def _rename_constants(model: ModelProto) -> None:
    """Rename a constant X where another tensor is X and a number, as the quantiser names copies of a shared bias."""
    tensors = {name for node in model.graph.node for name in (*node.input, *node.output)}
    numbered = {_stem(name) for name in tensors if name[-1:].isdigit()}
    new = {c.name: f"{c.name}_constant" for c in model.graph.initializer if _stem(c.name) in numbered}
    for constant in model.graph.initializer:
        constant.name = new.get(constant.name, constant.name)
    for node in model.graph.node:
        node.input[:] = [new.get(name, name) for name in node.input]


def _stem(name: str) -> str:
    return name.rstrip("0123456789")


class Quantiser:
    """The quantised forms of one prepared network.

    Ranges are measured once per method and kept in `folder`, so that several forms of the network share them; an
    interrupted run that is given the same folder again goes on with what is there.
    """

    def __init__(self, model: ModelProto, folder: Path):
        import onnx

        self.model, self.folder = model, folder
        self._path = folder / "float.onnx"
        folder.mkdir(exist_ok=True)
        onnx.save(model, self._path)

    def measure(self, method: str, samples: Iterable[Mapping[str, np.ndarray]], done: Callable[[], None]) -> None:
        """Measure the ranges of all tensors by `method`, of METHODS, on one sample after the other.

        Raises `UnsupportedError` where the method cannot be used, as histograms cannot for values near 1e38.
        """
        from onnxruntime.quantization import create_calibrator
        from onnxruntime.quantization.calibrate import save_tensors_data

        if (ranges := self._ranges(method)).exists():
            return
        with _quiet():
            calibrator = create_calibrator(
                self._path,
                augmented_model_path=str(self.folder / "augmented.onnx"),
                calibrate_method=_method(method),
            )
            try:
                for sample in samples:  # one at a time: the intermediate tensors of one sample are in memory
                    calibrator.collect_data(cast(Any, _One(sample)))
                    done()
                found = calibrator.compute_data()
            except ValueError as exc:
                raise UnsupportedError(f"ranges by {method}: {exc}") from None
        temporary = ranges.with_suffix(".part")
        save_tensors_data(found, temporary)
        temporary.replace(ranges)

    def network(self, method: str, keep: Iterable[str] = (), model: ModelProto | None = None) -> ModelProto:
        """The network with the ranges of `method`; operators named in `keep` stay in float.

        `model` is another form of the network whose tensors have the same ranges.
        """
        import onnx
        from onnxruntime.quantization import QuantType, quantize_static

        source, path = self._path, self.folder / "int8.onnx"
        if model is not None:
            source = self.folder / "other.onnx"
            onnx.save(model, source)
        with _quiet():
            quantize_static(
                source,
                path,
                calibration_cache_path=self._ranges(method),
                calibrate_method=_method(method),
                activation_type=QuantType.QInt8,
                weight_type=QuantType.QInt8,
                per_channel=True,
                nodes_to_exclude=[*keep],
            )
        return onnx.load(path)

    def _ranges(self, method: str) -> Path:
        return self.folder / f"{method}.json"


def _method(name: str) -> Any:
    from onnxruntime.quantization import CalibrationMethod

    known = {"minmax": "MinMax", "percentile": "Percentile", "entropy": "Entropy"}
    return CalibrationMethod[known[name]]


class _One:
    """A reader with one sample, as onnxruntime's calibrators take them."""

    def __init__(self, sample: Mapping[str, np.ndarray]):
        self._left = [dict(sample)]

    def get_next(self) -> dict[str, np.ndarray] | None:
        return self._left.pop() if self._left else None

    def __len__(self) -> int:
        return 1


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Without the quantiser's advice about steps that `prepare` has done, and what calibrators print."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            yield
    finally:
        logging.disable(before)


def read_onnx(path: str) -> ModelProto:
    """The network in the file. Raises `FileError`."""
    need_libraries()
    source = read_source(path)
    if source.kind != ".onnx":
        raise FileError(f"{path}: is no ONNX network; give one")
    return source.onnx()
