"""cli/run.py: inputs by either convention, outputs, comparisons, tables."""

import json
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from PIL import Image

from tilewright.cli.run import _per_input, samples_for
from tilewright.hw.config import PRESETS
from tilewright.runtime.device import Stats
from tilewright.runtime.executable import Executable
from tilewright.runtime.loader import StepReport
from tilewright.runtime.registry import device_names
from tilewright.runtime.steps import HostStep, Tensor

LLAMA = Path(__file__).parents[3] / "shared" / "deeploy" / "microLlama1"

DIGITS = Path(__file__).parents[2] / "examples" / "digits" / "digits.onnx"


def doubled(x: np.ndarray) -> np.ndarray:
    return (2 * x).astype(np.int8)


@pytest.fixture
def x() -> np.ndarray:
    return np.random.default_rng(0).integers(-64, 64, (3, 8, 1, 16), dtype=np.int32)


def test_inputs_with_a_leading_count(tilewright, double_tw, tmp_path, x):
    np.savez(tmp_path / "x.npz", inputs=x)
    done = tilewright("run", double_tw, "--inputs", tmp_path / "x.npz", "-o", tmp_path / "y.npz", "--on", "model")
    assert (done.status, done.err) == (0, "")
    with np.load(tmp_path / "y.npz") as y:
        assert y.files == ["outputs"]
        np.testing.assert_array_equal(y["outputs"], doubled(x))
    assert "double" in done.out and "device" in done.out
    assert done.out.splitlines()[-1].startswith("3 inputs on model (pynq_z1): ")


@pytest.mark.usefixtures("slow_to_open")
def test_opening_the_device_is_not_in_the_time_of_the_runs(tilewright, double_tw, tmp_path, x):
    np.savez(tmp_path / "x.npz", inputs=x)
    done = tilewright("run", double_tw, "--inputs", tmp_path / "x.npz")
    assert done.out.splitlines()[-1] == "3 inputs on model (pynq_z1): simulated in 0.00 s"
    assert done.err == "building the circuit's simulator, once: 1000 s\n"


@pytest.mark.parametrize("count", [True, False])
def test_inputs_by_the_tensors_name(tilewright, double_tw, tmp_path, x, count):
    given = x if count else x[0]
    np.savez(tmp_path / "x.npz", x=given)
    assert tilewright("run", double_tw, "--inputs", tmp_path / "x.npz", "-o", tmp_path / "y.npz").status == 0
    with np.load(tmp_path / "y.npz") as y:
        np.testing.assert_array_equal(y["outputs"], doubled(given))


def test_arrays_of_other_shapes_are_not_unpacked(double_tw, tmp_path, x):
    np.savez_compressed(
        tmp_path / "x.npz", inputs=x, labels=np.arange(3), other=x[:, :, :, :9], wide=x.repeat(9, axis=1)
    )
    found = samples_for(Executable.load(double_tw), str(tmp_path / "x.npz")).file
    assert {name: array.strides[0] > 0 for name, array in found.items()} == {
        "inputs": True,
        "labels": True,
        "other": False,
        "wide": False,
    }
    assert found["inputs"].tobytes() == x.tobytes() and found["wide"].shape == (3, 72, 1, 16)


@pytest.mark.circuit
@pytest.mark.skipif(not LLAMA.is_dir(), reason="../shared/deeploy is not there")
def test_a_network_with_the_arrays_beside_it(tilewright, tmp_path):
    given, wanted = (np.load(LLAMA / f"{name}.npz") for name in ("inputs", "outputs"))
    np.savez(tmp_path / "x.npz", **given, **wanted)
    done = tilewright("run", LLAMA / "network.onnx", "--inputs", tmp_path / "x.npz", "--check", "--json")
    found = json.loads(done.out)
    assert found["values_equal"] == found["values"] == 2112 and found["check"]["equal"] and done.status == 0


def test_a_source_is_compiled_for_the_named_configuration(printed, double_py, tmp_path):
    x = np.arange(32, dtype=np.int32).reshape(8, 1, 4)
    np.savez(tmp_path / "x.npz", x=x)
    found = printed("run", f"{double_py}:double", "--inputs", tmp_path / "x.npz", "--config", "tiny")
    assert (found["config"], found["inputs"], found["output"]) == ("tiny", 1, None)
    (layer,) = found["layers"]
    assert layer["bytes_loaded"] >= x.nbytes
    assert layer["bytes_stored"] == x.size


def test_expected_outputs_are_compared(tilewright, double_tw, tmp_path, x):
    expected = doubled(x)
    expected[1, 0, 0, 0] += 1
    np.savez(tmp_path / "x.npz", inputs=x, outputs=expected)
    done = tilewright("run", double_tw, "--inputs", tmp_path / "x.npz")
    assert "outputs equal to the file's: 2 of 3, 383 of 384 values" in done.out
    np.savez(tmp_path / "one.npz", x=x[1], outputs=expected[1])
    done = tilewright("run", double_tw, "--inputs", tmp_path / "one.npz")
    assert "outputs equal to the file's: 0 of 1, 127 of 128 values" in done.out
    np.savez(tmp_path / "fewer.npz", inputs=x, outputs=expected[:2])
    done = tilewright("run", double_tw, "--inputs", tmp_path / "fewer.npz")
    assert done.status == 9
    assert "fewer.npz: `outputs` has shape (2, 8, 1, 16); the results have (3, 8, 1, 16)" in done.err


@pytest.mark.parametrize(
    "arrays, text",
    [
        ({"z": np.zeros(3)}, "holds `z`, and lacks `x`; give the array of the input this name, or `inputs`"),
        ({}, "holds nothing, and lacks `x`; give the array of the input this name, or `inputs`"),
        ({"x": np.zeros((8, 1, 4), np.int32)}, "input 'x' has shape (8, 1, 4); give (8, 1, 16) or (N, 8, 1, 16)"),
        (
            {"inputs": np.zeros((0, 8, 1, 16), np.int32)},
            "holds no sample: 'x' has length 0; give at least one",
        ),
        ({"inputs": np.full((8, 1, 16), 0.5, np.float32)}, "give whole numbers from -2147483648 to 2147483647"),
        ({"inputs": np.array(5)}, "input 'x' has shape (); give (8, 1, 16) or (N, 8, 1, 16)"),
    ],
)
def test_inputs_that_do_not_fit_are_named(tilewright, double_tw, tmp_path, arrays, text):
    np.savez(tmp_path / "x.npz", **arrays)
    done = tilewright("run", double_tw, "--inputs", tmp_path / "x.npz")
    assert done.status == 9
    assert done.err.endswith(f"{text}\n")
    assert done.err.count("\n") == 1


def test_natural_data(tilewright, tmp_path):
    """A data set of any usual form gives what the samples one by one give."""
    images = np.random.default_rng(3).integers(0, 256, (3, 8, 8), dtype=np.uint8)
    scaled = (images.astype(np.float32) / 255 - np.float32(0.5)) / np.float32(0.25)
    (tmp_path / "pictures").mkdir()
    for k, image in enumerate(images):
        Image.fromarray(image).save(tmp_path / f"pictures/{k}.png")
    np.savez(tmp_path / "exact.npz", inputs=scaled[:, None, None])
    np.savez(tmp_path / "natural.npz", data=scaled[:, None].astype(np.float64))
    np.save(tmp_path / "natural.npy", scaled[..., None])
    np.savez(tmp_path / "pixels.npz", images)
    pixels = ("--mean", "0.5", "--std", "0.25")
    outputs, notes = [], []
    forms = {"exact.npz": (), "natural.npz": (), "natural.npy": (), "pixels.npz": pixels, "pictures": pixels}
    for name, options in forms.items():
        run = ("run", DIGITS, "--inputs", tmp_path / name, "-o", tmp_path / "y.npz", "--config", "tiny", *options)
        done = tilewright(*run, "--json")
        assert done.status == 0, done.err
        outputs.append(np.load(tmp_path / "y.npz")["outputs"])
        notes.append(json.loads(done.out)["notes"])
    assert all(np.array_equal(outputs[0], one) for one in outputs) and outputs[0].shape == (3, 1, 10)
    assert notes[0] == [] and notes[1] == [
        "the array 'data' is read as the input 'image'",
        "'image': (3, 1, 8, 8) is read as 3 samples, one a run",
        "'image': float64 values are rounded to float32",
    ]
    assert notes[4][0] == f"{tmp_path / 'pictures'}: 3 pictures" and notes[4][1] in tilewright(*run).out


@pytest.fixture
def open_network(tmp_path):
    """A convolution of pictures of any size, with a second input of the same sizes."""
    float32, sizes = onnx.TensorProto.FLOAT, ["N", 3, "H", "W"]
    tensors = {name: onnx.helper.make_tensor_value_info(name, float32, sizes) for name in "xzy"}
    weight = np.random.default_rng(0).normal(size=(3, 3, 3, 3)).astype(np.float32)
    nodes = [onnx.helper.make_node("Conv", ["x", "w"], ["c"], pads=[1] * 4), onnx.helper.make_node("Add", "cz", "y")]
    constants = [onnx.numpy_helper.from_array(weight, "w")]
    graph = onnx.helper.make_graph(nodes, "g", [tensors["x"], tensors["z"]], [tensors["y"]], constants)
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=10)
    onnx.save(model, tmp_path / "open.onnx")
    return tmp_path / "open.onnx"


@pytest.mark.parametrize("size", [(6, 7), (9, 5)])
def test_a_network_of_open_sizes_gets_those_of_the_data(tilewright, open_network, tmp_path, size):
    x, z = np.random.default_rng(1).normal(size=(2, 4, 3, *size)).astype(np.float32)
    np.savez(tmp_path / "x.npz", x=x, z=z)
    run = ("run", open_network, "--inputs", tmp_path / "x.npz", "-o", tmp_path / "y.npz", "--check")
    done = tilewright(*run, "--json")
    assert done.status == 0, done.err
    sizes = f"(1, 3, {size[0]}, {size[1]})"
    assert json.loads(done.out)["notes"][0] == f"compiled for inputs of shape 'x' {sizes}, 'z' {sizes}"
    session = onnxruntime.InferenceSession(open_network, providers=["CPUExecutionProvider"])
    expected = np.asarray(session.run(None, {"x": x, "z": z})[0])
    np.testing.assert_allclose(np.load(tmp_path / "y.npz")["outputs"][:, 0], expected, rtol=1e-5, atol=1e-5)
    one = tilewright(*run, "--shape", f"x=1,3,{size[0]},{size[1]}", "--json")  # and with it those of the same names
    assert json.loads(one.out)["notes"] == json.loads(done.out)["notes"]


@pytest.mark.parametrize(
    ("shape", "status", "text"),
    [
        (
            (),
            5,
            "shape (N, 3, H, W); only the first size may be open; give numbers for the others: --shape x=1,3,H,W",
        ),
        (("x=1,3,8",), 9, "input 'x' has shape (any, 3, any, any), which (1, 3, 8) is not"),
        (("x=1,4,8,8",), 9, "which (1, 4, 8, 8) is not"),
        (("q=1,3,8,8",), 9, "has no input 'q'; its inputs are x, z"),
        (("x=1,3,a",), 2, "'x=1,3,a' is no shape; give one as x=1,3,224,224"),
    ],
)
def test_shapes_that_do_not_fit(refused, open_network, shape, status, text):
    for verb, *more in (("compile", "-o", open_network.with_name("x.tw")), ("assign",), ("plan",)):
        refused(status, text, verb, open_network, *more, *(word for one in shape for word in ("--shape", one)))


def test_sizes_that_do_not_fit_each_other(refused, open_network):
    text = "cannot have inputs 'x' (1, 3, 8, 8), 'z' (1, 3, 4, 4) ("
    refused(9, text, "assign", open_network, "--shape", "x=1,3,8,8", "--shape", "z=1,3,4,4")


def test_shapes_are_for_networks_of_open_sizes(refused, tilewright, double_tw, open_network, tmp_path):
    np.savez(tmp_path / "x.npz", x=0)
    given = ("--inputs", tmp_path / "x.npz", "--shape", "x=1,3")
    refused(5, "--shape x is only for networks", "run", double_tw, *given)
    for verb, *more in (
        ("compile", "-o", tmp_path / "x.tw"),
        ("assign",),
        ("explain",),
        ("plan",),
        ("report", "--json"),
    ):
        done = tilewright(verb, open_network, *more, "--shape", "x=1,3,8x8")
        assert done.status == 0, done.err


def test_pickles_are_refused(tilewright, double_tw, tmp_path):
    np.savez(tmp_path / "x.npz", inputs=np.array([{}], dtype=object))
    done = tilewright("run", double_tw, "--inputs", tmp_path / "x.npz")
    assert done.status == 6
    assert "not a readable .npz file" in done.err


def test_a_program_in_place_of_inputs(tilewright, double_tw, tmp_path):
    done = tilewright("run", double_tw, "--inputs", double_tw)
    assert done.status == 6
    assert (
        done.err == f"tilewright: error: {double_tw}: is a compiled program (.tw); give the network it was made of, or "
        "to run it a name that ends in .tw\n"
    )
    with zipfile.ZipFile(tmp_path / "notes.zip", "w") as archive:
        archive.writestr("notes.txt", "text")
    done = tilewright("run", double_tw, "--inputs", tmp_path / "notes.zip")
    assert done.status == 6
    assert done.err.endswith("notes.zip: is a ZIP archive; unpack it, and give a file of it\n")


def test_an_unknown_device_is_refused_first(tilewright, tmp_path):
    done = tilewright("run", tmp_path / "no.tw", "--inputs", tmp_path / "no.npz", "--on", "fpga")
    known = ", ".join(device_names())
    assert (done.status, done.err) == (5, f"tilewright: error: unknown device 'fpga'; known are {known}\n")


def test_another_memory(tilewright, refused, double_tw, tmp_path, x):
    np.savez(tmp_path / "x.npz", inputs=x)
    (tmp_path / "slow.json").write_text('{"latency": 140}')
    run, totals = ["run", double_tw, "--inputs", tmp_path / "x.npz", "--json"], []
    for dram in ("zynq_hp", "zynq_hp,latency=140", tmp_path / "slow.json"):
        done = tilewright(*run, "--on", "timing", "--dram", dram)
        assert done.status == 0, done.err
        totals.append(sum(row.get("cycles") or 0 for row in json.loads(done.out)["layers"]))
    assert totals[0] + 100 < totals[1] == totals[2]
    refused(5, "--dram ideal: device 'model' counts no cycles; use --on timing or rtl", *run, "--dram", "ideal")


def test_constants_stay_on_chip_from_run_to_run(printed, tilewright, double_py, tmp_path, x):
    """A single input runs twice, so that both numbers are there; the program's launch and its steady one are proved."""
    program, given, one = tmp_path / "r.tw", tmp_path / "x.npz", tmp_path / "one.npz"
    printed("compile", f"{double_py}:double", "-o", program, "--resident")
    names = [row["step"] for row in printed("verify", program)["launches"]]
    assert names == ["double", "double, steady"]
    np.savez(given, inputs=x)
    np.savez(one, x=x[0])
    plain = printed("run", f"{double_py}:double", "--inputs", given, "--on", "timing")
    assert not {"resident", "first_cycles", "steady_cycles"} & plain.keys()
    for inputs in (given, one):
        found = printed("run", program, "--inputs", inputs, "--on", "timing", "--resident", "-o", tmp_path / "y.npz")
        assert found["resident"] and found["inputs"] == (3 if inputs == given else 1)
        assert 100 < found["steady_cycles"] < found["first_cycles"] == plain["layers"][0]["cycles"]
        with np.load(tmp_path / "y.npz") as y:
            np.testing.assert_array_equal(y["outputs"], doubled(x if inputs == given else x[0]))
    done = tilewright("run", program, "--inputs", given, "--on", "timing", "--resident")
    line = f"first run: {found['first_cycles']:,} cycles; steady run, constants on chip: {found['steady_cycles']:,}"
    assert line in done.out.splitlines()
    assert (
        "runs after the first find constants on chip" in tilewright("run", program, "--inputs", given, "--resident").out
    )


def test_cycles_need_no_amaranth(double_tw, tmp_path, x):
    """The timing model has the circuit's latencies, not the circuit."""
    np.savez(tmp_path / "x.npz", inputs=x)
    code = "import sys; sys.modules['amaranth'] = None\nfrom tilewright.cli.main import main; main()"
    command = [sys.executable, "-c", code, "run", double_tw, "--inputs", tmp_path / "x.npz", "--on", "timing", "--json"]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert '"cycles"' in done.stdout


def test_state_lasts_from_input_to_input_unless_reset(tilewright, tmp_path):
    from tilewright.hw.config import PRESETS
    from tilewright.runtime.executable import Executable, HostStep, Tensor

    attrs = {"zero_points": [0] * 3, "multipliers": [1 << 30] * 3, "exponents": [0, 0, -18], "sign": 1, "shift": 20}
    tensors = [Tensor("x", (2,), "int8", "input"), Tensor("y", (2,), "int8", "output")]
    tensors.append(Tensor("s", (2,), "int8", "state", np.zeros(2, np.int8), "y"))
    step = HostStep("sum", "add", ["x", "s"], ["y"], attrs)
    Executable(PRESETS["tiny"], "growing", {t.name: t for t in tensors}, [step]).save(tmp_path / "x.tw")
    np.savez(tmp_path / "x.npz", inputs=np.full((3, 2), 5, np.int8))
    files = tmp_path / "x.tw", "--inputs", tmp_path / "x.npz", "-o", tmp_path / "y.npz", "--on", "model"
    for options, expected in (([], [5, 10, 15]), (["--reset"], [5, 5, 5])):
        done = tilewright("run", *files, *options)
        assert done.status == 0, done.err
        with np.load(tmp_path / "y.npz") as found:
            assert found["outputs"][:, 0].tolist() == expected


@pytest.fixture
def two_tw(tmp_path):
    """A program with two outputs, `same` and `half`, of an input of four values."""
    tensors = [Tensor("x", (1, 4), "int8", "input"), Tensor("same", (1, 4), "int8", "output")]
    tensors.append(Tensor("half", (1, 2), "int8", "output"))
    steps = [
        HostStep("same", "reshape", ["x"], ["same"], {"shape": [1, 4]}),
        HostStep("half", "strided_slice", ["x"], ["half"], {"begin": [0, 0], "strides": [1, 2], "shape": [1, 2]}),
    ]
    path = tmp_path / "two.tw"
    Executable(PRESETS["pynq_z1"], "two", {t.name: t for t in tensors}, list(steps)).save(path)
    return path


def test_several_outputs_are_compared_by_name(tilewright, two_tw, tmp_path):
    x = np.arange(12, dtype=np.int8).reshape(3, 1, 4)
    wrong = x[..., ::2].copy()
    wrong[1, 0, 1] += 1
    np.savez(tmp_path / "x.npz", inputs=x, same=x, half=wrong)
    done = tilewright("run", two_tw, "--inputs", tmp_path / "x.npz")
    assert (
        "outputs equal to the file's: 2 of 3, 17 of 18 values" in done.out and "outputs that differ: half" in done.out
    )
    assert "labels" not in done.out
    np.savez(tmp_path / "y.npz", inputs=x, half=x[..., ::2])
    found = json.loads(tilewright("run", two_tw, "--inputs", tmp_path / "y.npz", "--json").out)
    assert (found["outputs_equal"], found["values_equal"], found["not_compared"]) == (3, 6, ["same"])
    np.savez(tmp_path / "z.npz", inputs=x, outputs=x)
    done = tilewright("run", two_tw, "--inputs", tmp_path / "z.npz")
    assert done.status and "`outputs` could be any of several results; name them: `same`, `half`" in done.err
    np.savez(tmp_path / "w.npz", inputs=x, half=x)
    done = tilewright("run", two_tw, "--inputs", tmp_path / "w.npz")
    assert done.status and "`half` has shape (3, 1, 4); the results have (3, 1, 2)" in done.err


def test_cycles_per_input_are_of_the_runs_that_took_inputs():
    runs = [[StepReport("s", "timing", 0, Stats(cycles=n), 0.0)] for n in (100, 60)]
    assert _per_input(runs, 4) == {"cycles_per_input": 40} and _per_input(runs[:1], 2) == {"cycles_per_input": 50}


def test_several_inputs_at_once(tilewright, refused, tmp_path):
    images = np.random.default_rng(3).normal(size=(5, 1, 1, 8, 8)).astype(np.float32)
    np.savez(tmp_path / "x.npz", inputs=images)
    run = ["run", DIGITS, "--inputs", tmp_path / "x.npz", "--config", "tiny", "--json"]
    alone = tilewright(*run, "-o", tmp_path / "alone.npz")
    done = tilewright(*run, "-o", tmp_path / "y.npz", "--batch", 4, "--on", "timing", "--check")
    assert alone.status == done.status == 0, done.err
    found = json.loads(done.out)
    assert (found["inputs"], found["batch"], found["check"]["results_equal"]) == (5, 4, 5)
    assert "in the run of input 0, 4 at once, all 8 operators are equal" in found["check"]["text"]
    cycles = sum(row.get("cycles", 0) for row in found["layers"])
    assert 5 * found["cycles_per_input"] == 2 * cycles > 0  # two runs, and three places of the second are idle
    several = np.load(tmp_path / "y.npz")["outputs"]
    assert several.shape == (5, 1, 10) and np.array_equal(several, np.load(tmp_path / "alone.npz")["outputs"])
    text = tilewright(*run[:-1], "--batch", 4, "--on", "timing").out
    assert (
        f"4 inputs at once: {found['cycles_per_input']:,.0f} cycles each, 3 places of the last run without an input"
        in text
    )
    program = tmp_path / "four.tw"
    assert tilewright("compile", DIGITS, "-o", program, "--config", "tiny", "--batch", 4).status == 0
    np.savez(tmp_path / "four.npz", inputs=images[:4, 0])
    assert tilewright("run", program, "--inputs", tmp_path / "four.npz", "-o", tmp_path / "z.npz").status == 0
    assert np.array_equal(np.load(tmp_path / "z.npz")["outputs"], several[:4, 0])
    refused(5, "--batch 4 is only for networks", "run", program, "--inputs", tmp_path / "x.npz", "--batch", 4)
