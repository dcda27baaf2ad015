"""Compiled networks on disk."""

from importlib.metadata import PackageNotFoundError, version
from itertools import product

import numpy as np
import onnx
import pytest

from tilewright.compiler import cache, network
from tilewright.compiler.cache import network_file
from tilewright.compiler.frontend import import_model
from tilewright.compiler.network import compile_graph
from tilewright.hw.config import PRESETS
from tilewright.runtime.executable import Executable
from tilewright.runtime.loader import run
from tilewright.runtime.program import Program
from tilewright.sim.model.device import ModelDevice

TINY = PRESETS["tiny"]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "tilewright" / "networks"


@pytest.fixture
def model(qdq):
    m = qdq()
    x = m.quantise(m.input("x", [1, 4]))
    w, scale = m.weights(3, 4)
    m.output(m.quantise(m.node("Gemm", x, w, m.bias(scale), transB=1), 0.2, 3))
    return m.save()


def test_the_second_compilation_reads_the_first(folder, model, monkeypatch):
    first = network.compile_model(model, TINY)
    assert len(list(folder.glob("*.tw"))) == 1
    monkeypatch.setattr(network, "compile_graph", lambda *args: pytest.fail("compiled again"))
    again = network.compile_model(model, TINY)
    assert [s.name for s in again.steps] == [s.name for s in first.steps]
    assert again.to_bytes() == first.to_bytes()


def test_a_program_depends_on_all_that_it_is_made_of(folder, monkeypatch):
    cases = product((b"a", b"b"), PRESETS.values(), ("double", "single"), ("", "tiles"), ("", "mapping"))
    files = {network_file(*case) for case in cases}
    assert len(files) == len(PRESETS) * 2**4
    for name in ("apache-tvm", "onnx", "numpy"):
        monkeypatch.setattr(cache, "version", lambda asked, name=name: "0" if asked == name else version(asked))
        files.add(network_file(b"a", TINY, "double"))

    def none(name):
        raise PackageNotFoundError(name)

    monkeypatch.setattr(cache, "version", none)  # no library is installed
    files.add(network_file(b"a", TINY, "double"))
    assert len(files) == len(PRESETS) * 2**4 + 4


def test_a_memory_has_programs_of_its_own_where_it_changes_them(folder, model):
    network.compile_model(model, TINY)
    network.compile_model(model, TINY, dram="zynq_hp4")  # one port for loads is no faster in it
    assert len(list(folder.glob("*.tw"))) == 1
    network.compile_model(model, TINY, dram="zynq_hp,latency=200")
    assert len(list(folder.glob("*.tw"))) == 2


def test_damaged_and_unwritable_caches_cost_time_only(folder, model):
    network.compile_model(model, TINY)
    (file,) = folder.glob("*.tw")
    file.write_bytes(b"no program")
    assert cache.read(file) is None
    assert network.compile_model(model, TINY).steps
    assert cache.read(file) is not None
    for old in folder.glob("*"):
        old.unlink()
    folder.rmdir()
    folder.write_text("a file in the folder's place")
    assert network.compile_model(model, TINY).steps


def test_the_oldest_programs_go(folder, monkeypatch):
    monkeypatch.setattr(cache, "_MOST_FILES", 2)
    program = Program(TINY)
    program.buffer("t", (1,), kind="constant", data=np.zeros(1, np.uint8))
    for name in "abc":
        cache.write(folder / f"{name}.tw", Executable.from_launch(program.finish()))
    assert len(list(folder.glob("*.tw"))) == 2 and (folder / "c.tw").exists()


def outside(model, folder, scale):
    """`model` with its constants in a file of its own, its weights those of the file times `scale`."""
    proto = onnx.load(model)
    for tensor in proto.graph.initializer:
        if tensor.data_type == onnx.TensorProto.INT8 and len(tensor.dims) == 2:
            values = (onnx.numpy_helper.to_array(tensor) * scale).astype(np.int8)
            tensor.CopyFrom(onnx.numpy_helper.from_array(values, tensor.name))
    path = folder / "outside.onnx"
    (folder / "weights").unlink(missing_ok=True)
    onnx.save(proto, path, save_as_external_data=True, location="weights", size_threshold=0)
    return path


def results(executable):
    x = np.random.default_rng(0).uniform(-6, 6, (4, 1, 4)).astype(np.float32)
    return np.stack([run(executable, {"x": one}, ModelDevice(TINY))[0].popitem()[1] for one in x])


def test_data_in_another_file_is_part_of_the_model(folder, model, tmp_path):
    whole = results(network.compile_model(model, TINY))
    path = outside(model, tmp_path, 1)
    before = path.read_bytes()
    np.testing.assert_array_equal(results(network.compile_model(path, TINY)), whole)
    assert outside(model, tmp_path, 0).read_bytes() == before  # only the other file changed
    zero = results(network.compile_model(path, TINY))
    assert (zero == zero[0]).all() and (whole != whole[0]).any()
    outside(model, tmp_path, 1)
    np.testing.assert_array_equal(results(network.compile_model(path, TINY)), whole)


def test_what_is_hashed_is_what_is_compiled(folder, model, tmp_path, monkeypatch):
    """The files change between the two."""
    path = outside(model, tmp_path, 1)
    network_file = cache.network_file

    def late(*args):
        outside(model, tmp_path, 0)
        path.write_bytes(b"nothing")
        return network_file(*args)

    monkeypatch.setattr(cache, "network_file", late)
    found = results(network.compile_model(path, TINY))
    monkeypatch.undo()
    np.testing.assert_array_equal(found, results(compile_graph(import_model(model), TINY)))


def test_a_program_is_named_after_its_file(folder, model, tmp_path):
    other = tmp_path / "other.onnx"
    other.write_bytes(model.read_bytes())
    assert network.compile_model(model, TINY).name == "model" and network.compile_model(other, TINY).name == "other"
