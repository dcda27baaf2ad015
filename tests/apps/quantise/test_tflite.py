"""Float .tflite networks to int8: accuracy, equality with LiteRT, small weights, and mistakes."""

import numpy as np
import pytest

pytest.importorskip("ai_edge_quantizer")

from ai_edge_litert.interpreter import Interpreter, OpResolverType

from tests.apps.quantise import digits
from tilewright import quantise
from tilewright.apps.quantise.times import predict, predict_float
from tilewright.compiler.frontend import import_model
from tilewright.compiler.graph import reference
from tilewright.hw.config import load_config
from tilewright.hw.errors import FileError, InputError, UnsupportedError


def run(content: bytes, images: np.ndarray) -> np.ndarray:
    """The output of LiteRT's reference kernels for each image."""
    interpreter = Interpreter(model_content=content, experimental_op_resolver_type=OpResolverType.BUILTIN_REF)
    interpreter.allocate_tensors()
    found = []
    for image in images:
        interpreter.set_tensor(interpreter.get_input_details()[0]["index"], image[np.newaxis])
        interpreter.invoke()
        found.append(interpreter.get_tensor(interpreter.get_output_details()[0]["index"])[0].copy())
    return np.array(found)


def data(count: int = 40) -> dict[str, np.ndarray]:
    """Images with the channel last, and labels."""
    given = digits.samples(count)
    return {"x": given["x"].transpose(0, 2, 3, 1), "labels": given["labels"]}


@pytest.fixture
def network(tflite):
    """A maker of the network of digits.py as .tflite, whose `weights` are float32, float16 or int8."""

    def make(weights="float32"):
        m, arrays = tflite(), digits.weights()
        constants = {f"w{k}": arrays[f"w{k}"].transpose(0, 2, 3, 1) for k in (1, 2)}
        constants["w3"] = arrays["w3"].reshape(32, 4, 4, 10).transpose(3, 1, 2, 0).reshape(10, 512)

        def constant(name):
            value = constants[name]
            if weights == "int8":
                scale = abs(value).max(axis=tuple(range(1, value.ndim))) / 127
                steps = np.rint(value / scale.reshape(-1, *[1] * (value.ndim - 1))).astype(np.int8)
                return m.const(steps, scale)
            if weights == "float16":
                half = m.tensor(value.shape, None, 0, "FLOAT16", f"{name}_half", value.astype(np.float16))
                return m.node("DEQUANTIZE", [half], [m.tensor(value.shape, None, 0, "FLOAT32", name)])
            return m.const(value)

        def op(kind, inputs, shape, name, **options):
            return m.node(kind, inputs, [m.tensor(shape, None, 0, "FLOAT32", name)], **options)

        x = m.input((1, 8, 8, 1), None, dtype="FLOAT32", name="x")
        for k, channels in ((1, 16), (2, 32)):
            inputs = [x, constant(f"w{k}"), m.const(arrays[f"b{k}"])]
            options = dict(strideH=1, strideW=1, fusedActivationFunction=1)
            x = op("CONV_2D", inputs, (1, 8, 8, channels), f"conv{k}", **options)
        window = dict(filterHeight=2, filterWidth=2, strideH=2, strideW=2)
        x = op("MAX_POOL_2D", [x], (1, 4, 4, 32), "pool", **window)
        x = op("RESHAPE", [x, m.const(np.array([1, 512], np.int32))], (1, 512), "flat")
        m.output(op("FULLY_CONNECTED", [x, constant("w3"), m.const(arrays["b3"])], (1, 10), "dense"))
        return m.save(f"{weights}.tflite")

    return make


@pytest.mark.parametrize("weights", ["float32", "float16", "int8"])
def test_figures_are_those_of_litert_and_the_accelerator_computes_the_same(network, weights):
    path, given = network(weights), data()
    x, labels = given["x"][3::4], given["labels"][3::4]
    found = quantise(path, given)
    wanted, got = run(found.float_network.content, x), run(found.network.content, x)
    # of int8 weights LiteRT quantises the inputs, too, for each image
    np.testing.assert_allclose(wanted, run(path.read_bytes(), x), atol=0.03 if weights == "int8" else 1e-5)
    snr = 10 * np.log10((wanted**2).sum() / ((wanted - got) ** 2).sum())
    assert found.comparison.snr_db == pytest.approx(snr, abs=0.01) and snr > 30
    assert found.comparison.agreement == (wanted.argmax(1) == got.argmax(1)).mean() == 1
    assert found.comparison.int8_accuracy == (got.argmax(1) == labels).mean() >= 0.9
    assert [one.name for one in found.comparison.operators] == ["conv1", "conv2", "pool", "flat", "dense"]
    executable = found.compile("tiny")
    (output,) = executable.outputs
    for image, result in zip(x[:3], got):
        step = np.abs(executable({"x": image[np.newaxis]})[output.name][0] - result).max()
        assert step <= 0.02  # one step of the output: LiteRT's dense layers round in float64


def test_an_operator_stays_in_float(network):
    found = quantise(network(), data(8), keep=["dense"])
    tensors = Interpreter(model_content=found.network.content).get_tensor_details()
    types = {tensor["name"]: tensor["dtype"] for tensor in tensors}
    assert found.way.kept == ("dense",) and (types["conv2"], types["dense"]) == (np.int8, np.float32)
    with pytest.raises(UnsupportedError, match="float32.tflite: has no operator 'none' to keep in float"):
        quantise(network(), data(8), keep=["none"])


def test_what_cannot_be_quantised_is_refused(network, tmp_path):
    path = network()
    with pytest.raises(InputError, match=r"input 'x' has shape \(1, 8, 8, 1\), which \(1, 9, 9, 1\) is not"):
        quantise(path, data(8), shapes={"x": (1, 9, 9, 1)})
    quantise(path, data(8)).save(tmp_path / "int8.tflite")
    with pytest.raises(UnsupportedError, match=r"int8.tflite: is quantised already \(.* is int8\)"):
        quantise(tmp_path / "int8.tflite", data(8))
    (tmp_path / "cut.tflite").write_bytes(path.read_bytes()[:2000])
    with pytest.raises(FileError, match="cut.tflite: "):
        quantise(tmp_path / "cut.tflite", data(8))


def test_sizes_that_a_file_leaves_open(tflite):
    """The file records one pixel. LiteRT, resized, computes the float results; both networks have predicted times."""
    rng, m = np.random.default_rng(3), tflite()
    w = rng.normal(size=(8, 3, 3, 2)).astype(np.float32)
    x = m.input((1, 1, 1, 2), None, dtype="FLOAT32", name="x")
    m.graph.tensors[x].shapeSignature = [-1, -1, -1, 2]
    conv, mean = (m.tensor(shape, None, 0, "FLOAT32", name) for shape, name in (((1, 1, 1, 8), "c"), ((1, 8), "y")))
    options = dict(strideH=1, strideW=1, fusedActivationFunction=1)
    m.node("CONV_2D", [x, m.const(w), m.const(np.zeros(8, np.float32))], [conv], **options)
    m.output(m.node("MEAN", [conv, m.const(np.array([1, 2], np.int32))], [mean], keepDims=False))
    path, data = m.save("open.tflite"), rng.normal(size=(9, 1, 6, 5, 2)).astype(np.float32)

    found = quantise(path, data, shapes={"x": (1, 6, 5, 2)})
    interpreter = Interpreter(model_path=str(path), experimental_op_resolver_type=OpResolverType.BUILTIN_REF)
    interpreter.resize_tensor_input(interpreter.get_input_details()[0]["index"], (1, 6, 5, 2), strict=True)
    interpreter.allocate_tensors()
    for image in data:
        interpreter.set_tensor(interpreter.get_input_details()[0]["index"], image)
        interpreter.invoke()
        expected = interpreter.get_tensor(interpreter.get_output_details()[0]["index"])
        np.testing.assert_allclose(run(found.float_network.content, image)[0], expected[0], atol=1e-5)
    assert found.comparison.snr_db > 30
    graph = import_model(found.float_network)
    for image in data[:3]:
        (got,) = reference.run(graph, {"x": image})[0].values()
        np.testing.assert_allclose(got, run(found.float_network.content, image), atol=1e-5)
    before, (after, placement) = predict_float(found.float_network), predict(found.network, load_config("tiny"))
    assert before.ms > after.ms > 0 and after.on_device == 1
    assert {row["kind"]: row["MACs"] for row in placement}["QConv2d"] == 6 * 5 * 8 * 18
    with pytest.raises(InputError, match=r"input 'x' has shape \(any, any, any, 2\), which \(1, 6, 5, 3\) is not"):
        quantise(path, data, shapes={"x": (1, 6, 5, 3)})
