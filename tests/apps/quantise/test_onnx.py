"""Float ONNX networks to int8: accuracy, equality with onnxruntime, forms of networks, and mistakes."""

import numpy as np
import pytest

pytest.importorskip("onnxruntime")

import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

from tests.apps.quantise import digits
from tilewright import quantise
from tilewright.apps.quantise import api
from tilewright.apps.quantise.forms import correct, equalise
from tilewright.apps.quantise.onnx_network import Quantiser, prepare
from tilewright.hw.errors import InputError, UnsupportedError

RNG = np.random.default_rng(7)


def run(content: bytes, feed: dict[str, np.ndarray]) -> np.ndarray:
    """The first output of a network in onnxruntime, without optimisations."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, feed)[0])


def model(nodes, constants: dict[str, np.ndarray], shape, opset: int = 17, result="y") -> onnx.ModelProto:
    """A network of one input x of `shape`."""
    tensors = [numpy_helper.from_array(array.astype(np.float32), name) for name, array in constants.items()]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)]
    outputs = [helper.make_tensor_value_info(result, TensorProto.FLOAT, None)]
    graph = helper.make_graph(nodes, "net", inputs, outputs, tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return digits.write(tmp_path_factory.mktemp("digits") / "digits.onnx")


@pytest.fixture(scope="module")
def quantised(path):
    return quantise(path, digits.samples())


def test_figures_are_those_of_onnxruntime_on_samples_that_no_range_was_measured_on(path, quantised):
    given = digits.samples()
    x, labels = given["x"][3::4], given["labels"][3::4]
    wanted = run(path.read_bytes(), {"x": x})
    got = np.concatenate([run(quantised.network.content, {"x": one[np.newaxis]}) for one in x])
    snr = 10 * np.log10((wanted**2).sum() / ((wanted - got) ** 2).sum())
    found = quantised.comparison
    assert found.snr_db == pytest.approx(snr, abs=0.01) and snr > 33
    assert found.float_accuracy == (wanted.argmax(1) == labels).mean() >= 0.9
    assert found.int8_accuracy == (got.argmax(1) == labels).mean() >= 0.9
    assert found.agreement == (wanted.argmax(1) == got.argmax(1)).mean() == 1
    assert {one.name for one in found.operators} == {"relu1", "relu2", "pool", "flatten", "dense"}
    tried = {str(way): one.snr_db for way, one in quantised.tried.items()}
    assert {"minmax", "percentile", "entropy"} < tried.keys() and found.snr_db == max(tried.values()), tried


def test_the_accelerator_computes_what_onnxruntime_computes(quantised):
    executable = quantised.compile("tiny")
    assert [type(step).__name__ for step in executable.steps].count("LaunchStep") == 1
    for image in digits.samples(5)["x"]:
        feed = {"x": image[np.newaxis]}
        np.testing.assert_array_equal(executable(feed)["y"], run(quantised.network.content, feed))


def test_equalised_layers_compute_the_same_with_equal_ranges():
    scales = 10.0 ** RNG.uniform(-2, 2, 8)
    constants = {
        "w": RNG.normal(size=(8, 3, 3, 3)) * scales[:, None, None, None],
        "b": RNG.normal(size=8) * scales,
        "d": RNG.normal(size=(8, 1, 3, 3)),
        "v": RNG.normal(size=(5, 8, 1, 1)),
    }
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"], "first"),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("Conv", ["r", "d"], ["e"], "depthwise", group=8),
        helper.make_node("Conv", ["e", "v"], ["y"], "last"),
    ]
    float_network = model(nodes, constants, [1, 3, 9, 9])
    equal, pairs = equalise(float_network)
    assert pairs == 2
    arrays = {one.name: numpy_helper.to_array(one) for one in equal.graph.initializer}
    ranges = [abs(arrays["w"]).max((1, 2, 3)), abs(arrays["d"]).max((1, 2, 3)), abs(arrays["v"]).max((0, 2, 3))]
    np.testing.assert_allclose(ranges[0], ranges[1], rtol=0.02)
    np.testing.assert_allclose(ranges[1], ranges[2], rtol=0.02)
    x = RNG.normal(size=(1, 3, 9, 9)).astype(np.float32)
    wanted = run(float_network.SerializeToString(), {"x": x})
    np.testing.assert_allclose(run(equal.SerializeToString(), {"x": x}), wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("transposed", [False, True])
def test_corrected_biases_take_the_mean_error_away(tmp_path, transposed):
    weight = RNG.normal(size=(64, 4)) * [1, 10, 1, 10]
    constants = {"w": weight.T if transposed else weight, "b": RNG.normal(size=4)}
    node = helper.make_node("Gemm", ["x", "w", "b"], ["y"], "dense", transB=int(transposed))
    float_network = prepare(model([node], constants, [1, 64]), "net", {})
    x = RNG.normal(3, 0.1, (50, 1, 64)).astype(np.float32)  # far from 0: errors of the weights add up
    quantiser = Quantiser(float_network, tmp_path)
    quantiser.measure("minmax", [{"x": one} for one in x], lambda: None)
    plain = quantiser.network("minmax")
    better = quantiser.network("minmax", (), correct(float_network, plain, {"x": x.mean((0, 1))}))
    errors = [
        np.mean([run(m.SerializeToString(), {"x": v}) - run(float_network.SerializeToString(), {"x": v}) for v in x])
        for m in (plain, better)
    ]
    assert abs(errors[1]) < 0.2 * abs(errors[0])


def test_old_files_with_batch_norms_and_open_sizes(tmp_path):
    """Operator set 9: the quantiser has no scales by channel there; the batch norm becomes part of the convolution."""
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"]),
        helper.make_node("BatchNormalization", ["c", "one", "zero", "mean", "var"], ["n"]),
        helper.make_node("LeakyRelu", ["n"], ["r"], alpha=0.1),
        helper.make_node("GlobalAveragePool", ["r"], ["p"]),
        helper.make_node("Flatten", ["p"], ["f"]),
        helper.make_node("Gemm", ["f", "v", "b"], ["y"]),
    ]
    constants = {
        "w": RNG.normal(size=(8, 3, 3, 3)),
        "one": RNG.uniform(0.5, 2, 8),
        "zero": RNG.normal(size=8),
        "mean": RNG.normal(size=8),
        "var": RNG.uniform(0.5, 2, 8),
        "v": RNG.normal(size=(8, 4)),
        "b": RNG.normal(size=(1, 4)),
    }
    path, x = tmp_path / "old.onnx", RNG.normal(size=(40, 3, 12, 10)).astype(np.float32)
    onnx.save(model(nodes, constants, ["N", 3, "H", "W"], opset=9), path)
    with pytest.raises(InputError, match="'x' has open sizes; give them with --shape x=1,3,N,N"):
        api.inspect(str(path), {})
    with pytest.raises(InputError, match=r"input 'x' has shape \(40, 3, 12, 10\); give \(1, 3, 9, 10\)"):
        quantise(path, x, shapes={"x": (1, 3, 9, 10)})
    found = quantise(path, x)  # the sizes are those of the data
    kinds = [node.op_type for node in onnx.load_model_from_string(found.network.content).graph.node]
    assert "BatchNormalization" not in kinds and kinds.count("Conv") == 1 and found.comparison.snr_db > 30
    assert found.float_network.content != path.read_bytes()


def test_float16_is_widened(tmp_path, path):
    half = digits.write(tmp_path / "half.onnx", dtype=np.float16)
    found, x = quantise(half, digits.samples()), digits.samples(1)["x"]
    np.testing.assert_allclose(
        run(found.float_network.content, {"x": x}), run(path.read_bytes(), {"x": x}), rtol=0.01, atol=0.01
    )
    assert found.comparison.snr_db > 30 and found.compile("tiny")(x)["y"].dtype == np.float32


def test_dynamically_quantised_weights_are_float_again(tmp_path):
    from onnxruntime.quantization import quantize_dynamic

    constants = {"v": RNG.normal(size=(5, 3, 3, 3)), "w": RNG.normal(size=(320, 24)), "b": RNG.normal(size=24)}
    constants["u"] = RNG.normal(size=(24, 7))
    nodes = [
        helper.make_node("Conv", ["x", "v"], ["c"]),
        helper.make_node("Flatten", ["c"], ["f"]),
        helper.make_node("MatMul", ["f", "w"], ["m"]),
        helper.make_node("Add", ["m", "b"], ["a"]),
        helper.make_node("Relu", ["a"], ["r"]),
        helper.make_node("MatMul", ["r", "u"], ["y"]),
    ]
    float_network = model(nodes, constants, [1, 3, 10, 10], opset=13)
    onnx.save(float_network, tmp_path / "float.onnx")
    quantize_dynamic(tmp_path / "float.onnx", tmp_path / "dynamic.onnx", per_channel=True)
    x = RNG.normal(size=(60, 1, 3, 10, 10)).astype(np.float32)
    found = quantise(tmp_path / "dynamic.onnx", x)
    wanted, got = (run(one, {"x": x[0]}) for one in (float_network.SerializeToString(), found.float_network.content))
    assert np.square(wanted - got).sum() < 1e-3 * np.square(wanted).sum()  # the weights had 8 bits
    kinds = [node.op_type for node in onnx.load_model_from_string(found.float_network.content).graph.node]
    assert not {"DynamicQuantizeLinear", "MatMulInteger", "ConvInteger", "Mul"} & {*kinds}, kinds
    assert found.comparison.snr_db > 30


def test_operators_that_are_named_stay_in_float(path):
    found = quantise(path, digits.samples(8), keep=["dense"])
    (dense,) = [n for n in onnx.load_model_from_string(found.network.content).graph.node if n.op_type == "Gemm"]
    assert "DequantizeLinear" not in dense.input[1] and found.way.kept == ("dense",)


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"keep": ["dens"]}, UnsupportedError, "has no operator 'dens' to keep in float"),
        ({"shapes": {"z": (1,)}}, InputError, "has no input 'z'; its inputs are x"),
        ({"shapes": {"x": (1, 3, 8, 8)}}, InputError, r"\(any, 1, 8, 8\), which \(1, 3, 8, 8\) is not"),
        ({"labels": [1, 2]}, InputError, r"labels have shape \(2,\) and type int64; give an integer for each of the 8"),
        (
            {"labels": [*range(1, 8), 10]},
            InputError,
            r"labels are 4\.\.10; the network has classes 0\.\.9: count from 0",
        ),
    ],
)
def test_options_that_do_not_fit(path, options, error, text):
    with pytest.raises(error, match=text):
        quantise(path, digits.samples(8), **options)


def test_samples_that_are_no_numbers_are_refused(path):
    samples = digits.samples(8)
    samples["x"] = samples["x"].copy()
    samples["x"][3].flat[5] = np.nan
    with pytest.raises(InputError, match="input 'x' has a value that is no finite number in sample 3"):
        quantise(path, samples)


def test_labels_of_results_that_are_no_classes_are_refused(tmp_path):
    path, x = tmp_path / "image.onnx", RNG.normal(size=(8, 3, 8, 8)).astype(np.float32)
    node = helper.make_node("Conv", ["x", "w"], ["y"])
    onnx.save(model([node], {"w": RNG.normal(size=(4, 3, 3, 3))}, [1, 3, 8, 8]), path)
    text = r"labels need a first output with one number for each class; 'y' has shape \(1, 4, 6, 6\): leave them out"
    with pytest.raises(InputError, match=text):
        quantise(path, x[:, np.newaxis], labels=np.zeros(8, int))


def test_few_samples_are_noted(path, quantised):
    *_, note = quantise(path, digits.samples(3)).notes
    assert note.startswith("too few samples, 3: ranges are measured on the ones that judge")
    assert not any("too few" in note for note in quantised.notes)


def test_what_cannot_be_quantised_is_refused(tmp_path, quantised):
    quantised.save(tmp_path / "again.onnx")
    with pytest.raises(UnsupportedError, match=r"again.onnx: is quantised already \(it has DequantizeLinear\)"):
        quantise(tmp_path / "again.onnx", digits.samples(8))
    onnx.save(model([helper.make_node("Unknown", ["x"], ["y"], domain="mine")], {}, [1, 4]), tmp_path / "own.onnx")
    with pytest.raises(UnsupportedError, match=r"own.onnx: onnxruntime cannot run this network"):
        quantise(tmp_path / "own.onnx", np.zeros((8, 1, 4), np.float32))
    with pytest.raises(UnsupportedError, match="a list cannot be quantised; give the path of a float network"):
        quantise([], digits.samples(8))
