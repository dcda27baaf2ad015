"""What an interpreter with the delegate does beside computing: errors, other files, shapes, state, threads."""

import gc
import re
import subprocess
import sys
import threading
import time
import weakref
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from tilewright.apps.delegate import partition
from tilewright.delegate import TilewrightDelegate
from tilewright.hw.config import PRESETS
from tilewright.hw.errors import CapacityError, ConfigError, HangError, InputError, UnsupportedError
from tilewright.runtime.device import open_device
from tilewright.runtime.loader import Loaded

SHAPE = (1, 12, 12, 16)


def layers(m, count=2, kind="CONV_2D"):
    """The file of `count` convolutions of 16 channels."""
    x = m.input(SHAPE, 0.05, -3)
    for _ in range(count):
        x = m.op(kind, [x, *m.weights((16, 3, 3, 16))], SHAPE, 0.05, -3, padding=0, strideH=1, strideW=1)
    m.output(x)
    return m.save()


@pytest.fixture
def convolutions(tflite):
    return layers(tflite())


class Failing:
    """A loaded program that fails."""

    def __init__(self, exception):
        self.exception = exception

    def run(self, inputs):
        raise self.exception

    def close(self):
        pass


@pytest.mark.parametrize(
    "exception", [HangError("stands still at 100 %s"), KeyboardInterrupt(), ValueError("a defect")]
)
def test_an_exception_comes_out_of_invoke(convolutions, interpreter, exception):
    delegate = TilewrightDelegate(convolutions, on=lambda executable: Failing(exception))
    made = interpreter(convolutions, delegate)
    with pytest.raises(type(exception)) as caught:
        made.invoke()
    assert caught.value is exception is delegate.error
    assert f"tilewright: {type(exception).__name__}: {exception}" in str(caught.value.__cause__)


def test_an_exception_of_another_thread_stays_there(convolutions, interpreter):
    loaded = iter([Failing(HangError("never ends")), Failing(CapacityError("no room"))])
    delegate = TilewrightDelegate(convolutions, on=lambda executable: next(loaded))
    first, second = (interpreter(convolutions, delegate) for _ in range(2))
    with ThreadPoolExecutor(1) as pool, pytest.raises(CapacityError):
        pool.submit(second.invoke).result()
    with pytest.raises(HangError):
        first.invoke()


def test_an_error_of_litert_holds_the_text_of_ours(convolutions, interpreter):
    def full(executable):
        raise CapacityError("the device is full")

    delegate = TilewrightDelegate(convolutions, on=full)
    with pytest.raises(RuntimeError, match="tilewright: CapacityError: the device is full"):
        interpreter(convolutions, delegate)
    assert isinstance(delegate.error, CapacityError)
    delegate = TilewrightDelegate(convolutions, on=lambda executable: Failing(HangError("stands still")))
    made = interpreter(convolutions, delegate)
    with pytest.raises(RuntimeError, match="tilewright: HangError: stands still"):
        made._interpreter.Invoke()  # as signature runners do, without the interpreter's method
    assert isinstance(delegate.error, HangError)


def test_another_network_is_refused(tflite, convolutions, interpreter, tmp_path):
    (tmp_path / "other").mkdir()
    m = tflite(seed=1)
    m.folder = tmp_path / "other"
    for path, what in ((layers(m), "constant 't1' has other values"), (None, "operator 0 is another")):
        if path is None:
            n = tflite()
            n.folder = tmp_path / "other"
            n.output(n.op("RELU", [n.input(SHAPE)], SHAPE, 0.05, -3))
            path = n.save()
        delegate = TilewrightDelegate(convolutions)
        with pytest.raises(RuntimeError, match=f"InputError: the interpreter has not the network of .*{what}"):
            interpreter(path, delegate)
        assert isinstance(delegate.error, InputError) and len(str(delegate.error)) < 300 + len(str(convolutions))


def test_the_bytes_of_a_file_do(convolutions, equal):
    equal(convolutions, delegate := TilewrightDelegate(convolutions.read_bytes()))
    assert len(delegate.report().partitions) == 1


def test_resized_inputs_are_refused_until_they_are_as_in_the_file(convolutions, interpreter, run):
    made = interpreter(convolutions, TilewrightDelegate(convolutions))
    x = np.random.default_rng(0).integers(-128, 128, SHAPE).astype(np.int8)
    expected = run(made, x)
    (detail,) = made.get_input_details()
    made.resize_tensor_input(detail["index"], (2, *SHAPE[1:]))
    with pytest.raises(InputError, match=r"shape \(2, 12, 12, 16\) in the interpreter, programs are for .*; resize it"):
        made.allocate_tensors()
    made.resize_tensor_input(detail["index"], SHAPE)
    made.allocate_tensors()
    np.testing.assert_array_equal(run(made, x), expected)


def test_shapes_that_inputs_decide_are_refused_where_they_are_not_the_files(tflite, interpreter, run):
    m, small = tflite(), (1, 6, 6, 16)
    x, size = m.input(SHAPE, 0.05, -3), m.input((2,), None, dtype="INT32")
    x = m.op("CONV_2D", [x, *m.weights((16, 3, 3, 16))], SHAPE, 0.05, -3, padding=0, strideH=1, strideW=1)
    x = m.op("RESIZE_NEAREST_NEIGHBOR", [x, size], small, 0.05, -3)
    m.output(m.op("CONV_2D", [x, *m.weights((32, 3, 3, 16))], (1, 6, 6, 32), 0.05, -3, strideH=1, strideW=1))
    made = interpreter(path := m.save(), delegate := TilewrightDelegate(path))
    given = np.random.default_rng(0).integers(-128, 128, SHAPE).astype(np.int8), np.array([6, 6], np.int32)
    np.testing.assert_array_equal(run(made, *given), run(interpreter(path), *given))
    assert len(delegate.report().partitions) == 2
    with pytest.raises(InputError, match=r"shape \(1, 5, 6, 16\) in the interpreter, programs are for \(1, 6, 6, 16\)"):
        run(made, given[0], np.array([5, 6], np.int32))


def test_several_interpreters_in_threads(convolutions, interpreter, run):
    delegate, rng = TilewrightDelegate(convolutions), np.random.default_rng(1)
    given = [rng.integers(-128, 128, SHAPE).astype(np.int8) for _ in range(4)]
    expected = [run(interpreter(convolutions), x) for x in given]
    made = [interpreter(convolutions, delegate) for _ in given]
    with ThreadPoolExecutor(len(given)) as pool:
        found = list(pool.map(lambda one, x: [run(one, x) for _ in range(3)], made, given))
    for outputs, wanted in zip(found, expected, strict=True):
        for output in outputs:
            np.testing.assert_array_equal(output, wanted)


def test_an_interpreter_that_goes_frees_its_memory(convolutions, interpreter):
    device = open_device("model", PRESETS["pynq_z1"])
    freed, free = [], device.free
    device.free = lambda address: freed.append(address) or free(address)
    made = interpreter(convolutions, TilewrightDelegate(convolutions, on=device))
    assert not freed
    del made
    gc.collect()
    assert freed


def test_an_interpreter_may_be_collected_within_a_run(convolutions, interpreter):
    device = open_device("model", PRESETS["pynq_z1"])

    class Collecting(Loaded):
        def run(self, inputs):
            gc.collect()
            collected.append(gone() is None)
            return super().run(inputs)

    delegate, collected = TilewrightDelegate(convolutions, on=lambda program: Collecting(program, device)), []
    made, other = interpreter(convolutions, delegate), interpreter(convolutions, delegate)
    other.itself, gone = other, weakref.ref(other)
    del other
    worker = threading.Thread(target=made.invoke, daemon=True)
    worker.start()
    worker.join(20)
    assert not worker.is_alive() and collected[-1]


def memory(m, again=False):
    """y = convolution of x + v, v = the new y; with `again` the output is v read once more, less the first."""
    schema = sys.modules["ai_edge_litert.schema_py_generated"]
    x = m.input(SHAPE, 0.05, -3)
    m.node("CALL_ONCE", [], [], initSubgraphIndex=1)
    handle = m.node("VAR_HANDLE", [], [m.tensor((), dtype="RESOURCE")], sharedName=b"v")
    old = m.node("READ_VARIABLE", [handle], [m.tensor(SHAPE, 0.05, -3)])
    y = m.op("CONV_2D", [x, *m.weights((16, 3, 3, 16))], SHAPE, 0.05, -3, padding=0, strideH=1, strideW=1)
    new = m.op("ADD", [y, old], SHAPE, 0.05, -3)
    m.node("ASSIGN_VARIABLE", [handle, new], [])
    if again:
        read = m.node("READ_VARIABLE", [handle], [m.tensor(SHAPE, 0.05, -3)])
        new = m.op("SUB", [read, old], SHAPE, 0.05, -3)
    m.output(new)
    first = type(m)(m.folder)
    first.model, first.graph = m.model, schema.SubGraphT()
    first.graph.tensors, first.graph.operators, first.graph.inputs, first.graph.outputs = [], [], [], []
    handle = first.node("VAR_HANDLE", [], [first.tensor((), dtype="RESOURCE")], sharedName=b"v")
    first.node("ASSIGN_VARIABLE", [handle, first.const(np.full(SHAPE, 5, np.int8), 0.05, -3)], [])
    m.model.subgraphs.append(first.graph)
    return m.save()


@pytest.mark.parametrize("again", [False, True])
def test_variables_stay_with_each_interpreter(tflite, interpreter, run, again):
    path, rng = memory(tflite(), again), np.random.default_rng(2)
    delegate = TilewrightDelegate(path)
    mine, other, reference = interpreter(path, delegate), interpreter(path, delegate), interpreter(path)
    for k in range(4):
        x = rng.integers(-40, 40, SHAPE).astype(np.int8)
        expected = run(reference, x)
        np.testing.assert_array_equal(run(mine, x), expected)
        if k == 0:
            first = x, expected
    np.testing.assert_array_equal(run(other, first[0]), first[1])
    report = delegate.report()
    assert "conv_2d" in report.partitions[0].operators[0]
    assert dict(report.left)["read_variable_2"] == "keeps a variable, which stays with the interpreter"


def test_float_operators_stay_with_the_interpreter(tflite, interpreter, run):
    m = tflite()
    x = m.op("QUANTIZE", [m.input(SHAPE, None, dtype="FLOAT32")], SHAPE, 0.05, -3)
    x = m.op("CONV_2D", [x, *m.weights((16, 3, 3, 16))], SHAPE, 0.05, -3, padding=0, strideH=1, strideW=1)
    m.output(m.node("DEQUANTIZE", [x], [m.tensor(SHAPE, dtype="FLOAT32")]))
    delegate = TilewrightDelegate(path := m.save())
    x = np.random.default_rng(0).normal(size=SHAPE).astype(np.float32)
    np.testing.assert_array_equal(run(interpreter(path, delegate), x), run(interpreter(path), x))
    left = dict(delegate.report().left)
    assert "of type float32; int8, uint8, int16, int32 are taken" in left["quantize_0"] and len(left) == 2


def test_clocked_devices_count_and_others_are_predicted(convolutions, interpreter, run):
    x = np.zeros(SHAPE, np.int8)
    reports = []
    for on in ("model", "timing"):
        delegate = TilewrightDelegate(convolutions, on=on)
        run(interpreter(convolutions, delegate), x)
        reports.append(delegate.report())
    model, timing = reports
    assert model.cycles == timing.cycles > 1000 and model.host_seconds > 0
    assert model.partitions[0].counted_by == "simulated by the timing model"
    assert timing.partitions[0].counted_by == "counted on timing"
    assert "2 of 2 operators in 1 partition on timing (pynq_z1, rounding as litert)" in str(timing)


def test_a_server_runs_the_parts(convolutions, equal):
    pytest.importorskip("grpc")
    from tests.boards.test_server import serving

    with serving("timing", cfg=PRESETS["pynq_z1"], token="", limits=None) as server:
        delegate = TilewrightDelegate(convolutions, on=f"localhost:{server.port}")
        equal(convolutions, delegate)
        assert delegate.report().partitions[0].counted_by.startswith("counted on localhost:")


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"runtime": "onnx"}, InputError, "runtime 'onnx': must be one of litert, tflm"),
        ({"claim": ["CONV2D"]}, InputError, "claim: 'CONV2D' is no operator of TFLite"),
        ({"claim": [3]}, InputError, "claim: 3 is no operator of TFLite"),
        ({"claim": []}, InputError, "claim names no operator; leave it out to take all"),
        ({"min_macs": -1}, InputError, "min_macs = -1: must be a whole number, 0 or more"),
        ({"min_macs": "5"}, InputError, "min_macs = '5': must be a whole number"),
        ({"on": None}, InputError, "on = None: must be the name of a device, a server"),
        ({"on": "gpu"}, UnsupportedError, "unknown device 'gpu'; known are"),
        ({"config": "huge"}, ConfigError, "huge"),
    ],
)
def test_mistakes_are_refused_at_once(convolutions, options, error, text):
    with pytest.raises(error, match=text):
        TilewrightDelegate(convolutions, **options)


def test_what_is_no_model_is_refused():
    with pytest.raises(InputError, match=r"model of type int: must be the name of a \.tflite file, or its bytes"):
        TilewrightDelegate(5)  # pyright: ignore[reportArgumentType]


def test_threads_compile_once(convolutions, monkeypatch):
    made = []
    monkeypatch.setattr(partition.Planner, "programs", lambda planner: made.append(planner) or time.sleep(0.05) or [])
    delegate = TilewrightDelegate(convolutions)
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(lambda _: delegate.report(), range(3)))
    assert len(made) == 1


LEFT_AT_EXIT = """
import sys
from ai_edge_litert.interpreter import Interpreter
from tilewright.delegate import TilewrightDelegate
assert not {"tvm", "onnx"} & set(sys.modules), "before they are needed"
interpreter = Interpreter(sys.argv[1], experimental_delegates=[TilewrightDelegate(sys.argv[1])])
interpreter.allocate_tensors()
interpreter.invoke()
"""


@pytest.mark.circuit
def test_an_interpreter_may_live_until_the_process_ends(convolutions):
    command = [sys.executable, "-c", LEFT_AT_EXIT, convolutions]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert (done.returncode, "Traceback" in done.stderr) == (0, False), done.stderr


LITERT_ALONE = """
import sys
for name in ("tvm", "onnx", "onnxruntime", "ortools", "amaranth", "click", "rich"):
    sys.modules[name] = None
import numpy as np
from ai_edge_litert.interpreter import Interpreter, OpResolverType
from tilewright.delegate import TilewrightDelegate
network, programs, x, y = sys.argv[1:]
delegate = TilewrightDelegate.load(network, programs, on="timing")
kernels = OpResolverType.BUILTIN_REF
made = Interpreter(network, experimental_delegates=[delegate], experimental_op_resolver_type=kernels)
made.allocate_tensors()
made.set_tensor(made.get_input_details()[0]["index"], np.load(x))
made.invoke()
assert np.array_equal(made.get_tensor(made.get_output_details()[0]["index"]), np.load(y))
print(delegate.report())
"""


def test_saved_programs_need_litert_alone(convolutions, interpreter, run, tmp_path):
    x = np.random.default_rng(0).integers(-128, 128, SHAPE).astype(np.int8)
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "y.npy", run(interpreter(convolutions), x)[0])
    TilewrightDelegate(convolutions).save(programs := tmp_path / "programs.zip")
    files = convolutions, programs, tmp_path / "x.npy", tmp_path / "y.npy"
    done = subprocess.run([sys.executable, "-c", LITERT_ALONE, *files], capture_output=True, text=True, timeout=120)
    assert "2 of 2 operators in 1 partition on timing" in done.stdout, done.stderr


WITHOUT_TVM = """
import sys
sys.modules["tvm"] = sys.modules["onnx"] = None
from ai_edge_litert.interpreter import Interpreter
from tilewright.delegate import TilewrightDelegate
from tilewright.hw.errors import UnsupportedError
delegate = TilewrightDelegate(sys.argv[1])
try:
    Interpreter(sys.argv[1], experimental_delegates=[delegate])
except UnsupportedError as exc:
    print(exc)
"""


def test_without_tvm_the_error_says_what_to_install(convolutions):
    command = [sys.executable, "-c", WITHOUT_TVM, convolutions]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert "pip install 'tilewright[compiler]'" in done.stdout, done.stderr


@pytest.mark.parametrize("module", ["tflite_runtime.interpreter", "tensorflow.lite.python.interpreter"])
def test_other_interpreters(module, convolutions):
    runtime = pytest.importorskip(module)
    delegate = TilewrightDelegate(convolutions)
    made = runtime.Interpreter(str(convolutions), experimental_delegates=[delegate])
    reference = runtime.Interpreter(str(convolutions), experimental_op_resolver_type=runtime.OpResolverType.BUILTIN_REF)
    x, found = np.random.default_rng(0).integers(-128, 128, SHAPE).astype(np.int8), []
    for each in (made, reference):
        each.allocate_tensors()
        each.set_tensor(each.get_input_details()[0]["index"], x)
        each.invoke()
        found.append(each.get_tensor(each.get_output_details()[0]["index"]))
    np.testing.assert_array_equal(*found)


def test_the_page_shows_a_report_as_it_is():
    """But for numbers, which follow the compiler."""
    root = Path(__file__).parents[2]
    report = str(TilewrightDelegate(root / "tests/data/networks/classifier.tflite", claim=["CONV_2D"]).report())
    page, shown = (re.sub(r"[\d,.]+", "#", text) for text in ((root / "docs/delegate.md").read_text(), report))
    assert shown in page
