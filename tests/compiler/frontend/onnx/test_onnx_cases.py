"""ONNX's own test cases of single operators: results are those that ONNX has, or the file is refused in one line."""

import numpy as np
import onnx
import pytest
from onnx.backend.test.case.node import collect_testcases

from tilewright.compiler.frontend.onnx import import_onnx
from tilewright.compiler.graph import reference
from tilewright.hw.errors import FileError, UnsupportedError

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::RuntimeWarning")]  # onnx casts beyond ranges

LEAST_EQUAL = 800  # of 1,884 cases of onnx 1.23
# results of another type, which nothing reads in networks; a window of padding alone, which onnx's shapes count
DIFFERENT = "convinteger dynamicquantizelinear matmulinteger averagepool_2d_ceil_last_window_starts_on_pad".split()
# onnxruntime computes these as the importer does, not as onnx records them
DIFFERENT += [f"resize_downsample_scales_{mode}_align_corners" for mode in ("linear", "cubic")]


def with_parameters(original, inputs):
    """The model, whose inputs but the first are constants, as in networks."""
    model = onnx.ModelProto.FromString(original.SerializeToString())
    for value, array in list(zip(model.graph.input, inputs))[1:]:
        model.graph.initializer.append(onnx.numpy_helper.from_array(np.asarray(array), value.name))
    return model


def test_cases_of_onnx(tmp_path):
    path, equal, wrong = tmp_path / "case.onnx", 0, []
    for case in collect_testcases(None):
        if case.model is None or not case.data_sets:
            continue
        inputs, expected = case.data_sets[0]
        try:
            onnx.save(with_parameters(case.model, inputs), path)
        except (AttributeError, NotImplementedError, TypeError, ValueError):
            continue  # sequences, and values that onnx does not write
        try:
            graph = import_onnx(path)
        except (FileError, UnsupportedError) as exc:
            assert "\n" not in str(exc)
            continue
        found, _ = reference.run(graph, {graph.inputs[0].name: np.atleast_1d(inputs[0])})
        values = [found[output.name] for output in case.model.graph.output]
        fits = all(
            mine.dtype == theirs.dtype and np.allclose(mine, np.atleast_1d(theirs), 1e-3, 1e-5, equal_nan=True)
            for mine, theirs in zip(values, map(np.asarray, expected))
        )
        equal += fits
        if not fits and not case.name.startswith(tuple(f"test_{name}" for name in DIFFERENT)):
            wrong.append(case.name)
    assert not wrong
    assert equal >= LEAST_EQUAL
