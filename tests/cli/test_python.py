"""`import tilewright as tw`: what it lists, how fast it is, its examples, and what it raises."""

import doctest
import importlib
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import tilewright as tw
from tilewright import odimo
from tilewright.hw.config import PRESETS
from tilewright.hw.errors import FileError, FingerprintError, InputError, UnsupportedError
from tilewright.hw.isa import Mem
from tilewright.runtime.device import open_device
from tilewright.runtime.executable import HostStep, LaunchStep, Tensor

ROOT = Path(__file__).parents[2]
DIGITS = ROOT / "examples" / "digits"
TINY = PRESETS["tiny"]


def copy_program(name="copy", entries=2):
    """8-bit results of `entries` accumulators."""
    program = tw.Program(TINY, name)
    shape = (entries, 1, 4)
    x, y = program.buffer("x", shape, 32), program.buffer("y", shape, kind="output")
    program.load(Mem.ACC, 0, x, 0, x_size=entries)
    program.store(0, y, 0, x_size=entries)
    return program


def test_dir_lists_the_interface_and_every_name_is_there():
    pytest.importorskip("tvm")
    assert dir(tw) == sorted(tw.__all__)
    assert {"build", "compile", "load", "predict", "load_config", "Program", "__version__"} <= set(dir(tw))
    assert all(getattr(tw, name) is getattr(tw, name) for name in dir(tw) if name != "__version__")


def test_the_version_is_the_installed_one():
    assert tw.__version__.count(".") == 2


def test_a_name_that_it_does_not_have_is_an_attribute_error_with_those_that_it_has():
    with pytest.raises(AttributeError, match="no attribute 'lower'; it has Config, .*build, compile"):
        _ = tw.lower


def test_importing_it_loads_nothing():
    code = "import sys; before = set(sys.modules); import tilewright; dir(tilewright)\n"
    code += "print(*{m.split('.')[0] for m in set(sys.modules) - before} - sys.stdlib_module_names)\n"
    code += "print(*sorted(m for m in sys.modules if m.startswith('tilewright')))"
    done = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.split() == ["tilewright", "tilewright"], done.stderr


def examples():
    names = [name for name in tw.__all__ if name != "__version__"]
    return [pytest.param(name, id=name) for name in names]


@pytest.mark.parametrize("name", examples())
def test_every_name_has_an_example_that_holds(name, monkeypatch):
    pytest.importorskip("tvm")
    monkeypatch.chdir(ROOT)
    found = doctest.DocTestFinder(recurse=False).find(getattr(tw, name), name, module=False, globs={"np": np})
    (test,) = [one for one in found if one.examples]
    assert test.examples[0].source == "import tilewright as tw\n"
    report: list[str] = []
    doctest.DocTestRunner().run(test, out=report.append)
    assert not report, "".join(report)


def test_compile_takes_paths_graphs_schedules_and_programs(tmp_path):
    pytest.importorskip("tvm")
    from tilewright.compiler.frontend import import_model
    from tilewright.compiler.schedule.dense import dense

    path = DIGITS / "digits.onnx"
    graph, schedule = import_model(path), dense(TINY, 1, 8, 8)
    x = np.load(DIGITS / "inputs.npz")["inputs"][3]
    expected = tw.compile(str(path), "tiny")(x)["logits"]
    assert np.array_equal(tw.compile(graph, TINY)(x)["logits"], expected)
    assert [t.name for t in tw.compile(schedule, TINY).inputs] == ["x", "w"]
    program = copy_program()
    for one in (program, program.finish()):
        assert tw.compile(one).cfg is TINY
    with pytest.raises(FileError, match="nothing.onnx"):
        tw.compile(tmp_path / "nothing.onnx")


def test_compile_passes_the_contract_on():
    pytest.importorskip("tvm")
    with pytest.raises(InputError, match="contract 'triple': must be one of"):
        tw.compile(DIGITS / "digits.onnx", "tiny", contract="triple")


def test_load_checks_the_configuration_of_a_program(tmp_path):
    file = tmp_path / "copy.tw"
    tw.compile(copy_program()).save(file)
    assert tw.load(file).cfg == tw.load(file, "tiny").cfg == TINY
    with pytest.raises(FingerprintError, match=r"compiled for tiny .*not for vta .*leave the configuration out"):
        tw.load(file, "vta")


def test_load_chooses_the_device_of_runs_that_name_none(tmp_path):
    file, x = tmp_path / "copy.tw", np.zeros((2, 1, 4), np.int32)
    tw.compile(copy_program()).save(file)
    program = tw.load(file, on="timing")
    assert program.run(x)[1].cycles == tw.predict(program).cycles
    assert program.run(x, on="model")[1].cycles is None and tw.load(file).run(x)[1].cycles is None
    assert tw.load(file, on=open_device("timing", TINY)).run({"x": x})[1].cycles
    with pytest.raises(UnsupportedError, match="unknown device 'gpu'"):
        tw.load(file, on="gpu")


def test_predict_of_a_program_is_that_of_its_executable():
    program = copy_program()
    timing = tw.predict(program)
    assert timing.cycles == tw.predict(tw.compile(program)).cycles == tw.predict(program.finish()).cycles
    assert tw.predict(program, skip=["dma"]).cycles < timing.cycles
    from tilewright.sim.dram import ZYNQ_HP

    assert tw.predict(program, dram=ZYNQ_HP.replace(latency=400)).cycles > timing.cycles + 300
    assert tw.predict(program, dram="zynq_hp,latency=400").cycles > timing.cycles + 300


def test_predict_asks_which_of_several_launches():
    tensors = {t.name: t for t in (Tensor("x", (2, 1, 4), "int32", "input"),)}
    tensors |= {name: Tensor(name, (2, 1, 4), "int8", "output") for name in ("y", "z")}
    launches = [LaunchStep(f"to_{to}", copy_program().finish(), {"x": "x", "y": to}) for to in ("y", "z")]
    both = tw.Executable(TINY, "both", tensors, list(launches))
    assert tw.predict(both, step="to_z").cycles == tw.predict(launches[0].launch).cycles
    with pytest.raises(InputError, match="step = None: must be a launch of 'both'; its launches are to_y, to_z"):
        tw.predict(both)


def test_predict_of_host_steps_alone_says_so():
    tensors = {"x": Tensor("x", (4,), "int8", "input"), "y": Tensor("y", (2, 2), "int8", "output")}
    host = tw.Executable(TINY, "host", tensors, [HostStep("y", "reshape", ["x"], ["y"], {"shape": [2, 2]})])
    with pytest.raises(InputError, match="its launches are none"):
        tw.predict(host)


@pytest.mark.parametrize("page", ["python.md", "vta.md"])
def test_the_pages_show_what_is_printed(page, monkeypatch):
    pytest.importorskip("tvm")
    monkeypatch.chdir(ROOT)
    sessions = re.findall(r"^```pycon\n(.*?)^```", (ROOT / "docs" / page).read_text(), re.S | re.M)
    test = doctest.DocTestParser().get_doctest("\n".join(sessions), {}, page, f"docs/{page}", 0)
    assert len(test.examples) > 10
    report: list[str] = []
    doctest.DocTestRunner().run(test, out=report.append)
    assert not report, "".join(report)


def test_the_page_lists_every_name():
    page = (ROOT / "docs" / "python.md").read_text()
    assert not [name for name in dir(tw) if f"`tw.{name}" not in page]


def test_several_inputs_of_a_network_at_once():
    pytest.importorskip("tvm")
    images = np.load(DIGITS / "inputs.npz")["inputs"][:3]
    one = tw.compile(DIGITS / "digits.onnx", "tiny")
    from tilewright.compiler.frontend import import_model

    for model in (DIGITS / "digits.onnx", import_model(DIGITS / "digits.onnx")):
        three = tw.compile(model, "tiny", batch=3)
        outputs, _ = three.run(np.concatenate(images))
        assert np.array_equal(outputs["logits"], np.concatenate([one(image)["logits"] for image in images]))
    with pytest.raises(InputError, match="batch 0: must be an integer of at least 1"):
        tw.compile(DIGITS / "digits.onnx", "tiny", batch=0)
    with pytest.raises(UnsupportedError, match="batch= is for networks"):
        tw.compile(copy_program(), batch=2)


def test_types_of_inputs_are_for_files_that_do_not_say_them(tmp_path):
    pytest.importorskip("onnx")
    from tests.compiler.frontend.onnx.dialect import Dialect

    net = Dialect(tmp_path)
    net.output(net.shift(net.input(1, 8), 1 << 15))
    (x,) = tw.compile(net.save(), "tiny", input_types={"x0": "uint8"}).inputs
    assert (x.name, x.dtype) == ("x0", "uint8")
    for model in (copy_program(), net.graph()):
        with pytest.raises(
            UnsupportedError, match="input_types= is for networks in Deeploy's dialect, whose files do not"
        ):
            tw.compile(model, input_types={"x0": "uint8"})
    with pytest.raises(UnsupportedError, match="the type int8 for input 'image' is not needed"):
        tw.compile(DIGITS / "digits.onnx", "tiny", input_types={"image": "int8"})


def test_mappings_are_for_networks(tmp_path):
    pytest.importorskip("onnx")
    with pytest.raises(UnsupportedError, match="mapping= is for networks"):
        tw.compile(copy_program(), mapping={"version": 1, "layers": {}})
    with pytest.raises(FileError, match=r"none\.json: no such file"):
        tw.compile(DIGITS / "digits.onnx", "tiny_two", mapping=tmp_path / "none.json")
    with pytest.raises(InputError, match="the mapping names layer 'first', which the network lacks; "):
        tw.compile(DIGITS / "digits.onnx", "tiny_two", mapping={"version": 1, "layers": {"first": {}}})
    plain = {"version": 1, "layers": {}}
    assert tw.compile(DIGITS / "digits.onnx", "tiny_two", mapping=plain).cfg == PRESETS["tiny_two"]


def test_odimo_lists_every_name_that_is_there():
    assert {"Plan", "Task", "explore", "MappedConv2d", "integers"} <= set(dir(odimo))
    assert all(getattr(odimo, name) is not None for name in odimo.__all__)


def test_an_unknown_name_of_odimo():
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = odimo.nothing


def test_what_trains_needs_torch(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    for name in [name for name in sys.modules if name.startswith("tilewright.apps.odimo.learning")]:
        monkeypatch.delitem(sys.modules, name)
    fresh = importlib.reload(odimo)
    with pytest.raises(UnsupportedError, match=r"training needs torch .* pip install 'tilewright\[train\]'"):
        _ = fresh.MappedConv2d


def test_explain_takes_a_configuration_and_program_files(tmp_path):
    found = {cfg: tw.explain(DIGITS / "digits.onnx", cfg).cycles for cfg in ("tiny", "pynq_z1")}
    executable = tw.compile(DIGITS / "digits.onnx", "tiny")
    executable.save(tmp_path / "digits.tw")
    assert found["tiny"] == tw.explain(tmp_path / "digits.tw").cycles == tw.predict(executable).cycles
    assert found["pynq_z1"] == tw.explain(DIGITS / "digits.onnx").cycles != found["tiny"]
    for model in (tmp_path / "digits.tw", executable, copy_program()):
        with pytest.raises(FingerprintError, match="was compiled for tiny"):
            tw.explain(model, "pynq_z1")
    with pytest.raises(
        InputError, match="inputs= with model of type Executable: they are for kernels of tw.kernel; drop them"
    ):
        tw.explain(executable, inputs=[(1, 16, 8, 8)])
