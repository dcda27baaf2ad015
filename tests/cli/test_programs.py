"""cli/programs.py: where programs come from, and that nothing is written over what it comes from."""

import re
import sys
from pathlib import Path

import numpy as np
import pytest

from tilewright.cli.programs import check_output, compile_source, open_program
from tilewright.hw.config import PRESETS
from tilewright.hw.errors import FileError, FingerprintError, ScheduleError, UnsupportedError

SOURCE = """
import sys


def leaves(cfg):
    sys.exit(3)


def two(cfg, other):
    return other


def interrupted(cfg):
    raise KeyboardInterrupt


number = 5
"""
TINY = PRESETS["tiny"]


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "source.py"
    path.write_text(SOURCE)
    return path


def test_a_function_and_a_program_that_exists_already(double_py):
    assert compile_source(f"{double_py}:double", TINY).cfg == TINY
    with double_py.open("a") as file:
        file.write("from tilewright.hw.config import PRESETS\nready = double(PRESETS['vta'])\n")
    assert compile_source(f"{double_py}:ready", TINY).cfg == PRESETS["vta"]


def test_a_source_that_ends_the_process_is_an_error_of_its_line(source):
    line = SOURCE.splitlines().index("    sys.exit(3)") + 1
    with pytest.raises(ScheduleError, match=rf"source\.py:{line}: calls sys\.exit\(3\)"):
        compile_source(f"{source}:leaves", TINY)


def test_an_error_outside_the_source_has_no_line(source):
    with pytest.raises(ScheduleError, match=r"source\.py: TypeError: two\(\) missing 1 required"):
        compile_source(f"{source}:two", TINY)


def test_a_syntax_error_has_its_line(source):
    source.write_text("x = 1\ny = = 2\n")
    with pytest.raises(ScheduleError, match=r"source\.py:2: SyntaxError"):
        compile_source(f"{source}:y", TINY)


@pytest.mark.parametrize(
    ("signature", "given"),
    [
        ("", False),
        ("threads=2", False),
        ("*threads", False),
        ("cfg", True),
        ("cfg, /", True),
        ("*, cfg", True),
        ("target", True),
        ("config=None", True),
        ("target: Config | None = None, n=1", False),
        ("target: Config = None, n=1", True),
        ("target: 'Config' = None", True),
        ("*, config=None, n=1", True),
    ],
)
def test_functions_get_the_configuration_if_they_take_one(tmp_path, signature, given):
    path, target = tmp_path / "source.py", re.sub(r"[^a-z].*", "", signature.lstrip("*, ")) or "None"
    path.write_text(
        "from tilewright.hw.config import Config\nfrom tilewright.runtime.program import Program\n"
        f"def made({signature}):\n    cfg = {target}\n"
        f"    assert isinstance(cfg, Config) == {given}\n    return Program(cfg if {given} else Config())\n"
    )
    assert compile_source(f"{path}:made", TINY).cfg == (TINY if given else type(TINY)())


@pytest.mark.parametrize("name", ["vector_add", "matmul_vthread"])
def test_the_tutorials_compile(name):
    pytest.importorskip("tvm")
    examples = Path(__file__).parents[2] / "examples"
    assert compile_source(f"{examples / name}.py:schedule", PRESETS["vta"]).steps


def test_a_source_imports_modules_beside_it(tmp_path, monkeypatch):
    (tmp_path / "beside_it.py").write_text("from tilewright.runtime.program import Program as Made\n")
    path = tmp_path / "source.py"
    path.write_text("import beside_it\ndef made(cfg):\n    return beside_it.Made(cfg)\n")
    monkeypatch.delitem(sys.modules, "beside_it", raising=False)
    before = list(sys.path)
    assert compile_source(f"{path}:made", TINY).cfg == TINY
    assert sys.path == before
    path.write_text("import beside_her\n")
    with pytest.raises(ScheduleError, match=r"source\.py:1: ModuleNotFoundError: No module named 'beside_her'"):
        compile_source(f"{path}:made", TINY)


@pytest.mark.parametrize(
    "name, text",
    [
        ("nosuch", r"source\.py: has no 'nosuch'; its functions are one, cached, two$"),
        ("one", r"source\.py: one\(\) returns None; let it return a schedule or a program"),
        ("two", r"two\(sch, cfg_of_mine\): give a function of the configuration alone, .* or write @tw.kernel"),
        ("cached", r"source\.py:4: AttributeError: 'Config' object .* \(cached is called with the configuration\)"),
    ],
)
def test_what_a_source_has_instead(tmp_path, name, text):
    path = tmp_path / "source.py"
    path.write_text(
        "from re import match\ndef one(): pass\n"
        "def cached(sch):\n    return sch.get_sblock('x')\ndef two(sch, cfg_of_mine): pass\ndef _hidden(): pass\n"
    )
    with pytest.raises((FileError, ScheduleError), match=text):
        compile_source(f"{path}:{name}", TINY)


def test_a_source_without_functions_is_told_to_define_one(tmp_path):
    path = tmp_path / "source.py"
    path.write_text("from re import match\n")
    with pytest.raises(FileError, match="has no 'f'; define it as a function of the configuration that returns a sch"):
        compile_source(f"{path}:f", TINY)


def test_a_source_does_not_see_the_arguments_of_the_command(tmp_path, monkeypatch):
    path = tmp_path / "source.py"
    path.write_text("import sys\ndef made():\n    sys.exit(sys.argv)\n")
    monkeypatch.setattr(sys, "argv", before := ["tilewright", "explain", f"{path}:made"])
    with pytest.raises(ScheduleError, match=r"calls sys\.exit\(\['[^,]*source\.py'\]\)"):
        compile_source(f"{path}:made", TINY)
    assert sys.argv is before


def test_an_interrupt_stays_one(source):
    with pytest.raises(KeyboardInterrupt):
        compile_source(f"{source}:interrupted", TINY)


def test_what_is_no_program(source, tmp_path):
    pytest.importorskip("tvm")
    with pytest.raises(ScheduleError, match="takes a Schedule, PrimFunc or IRModule, not int"):
        compile_source(f"{source}:number", TINY)
    with pytest.raises(UnsupportedError, match="name what to compile"):
        compile_source(str(source), TINY)
    with pytest.raises(FileError, match="no such file"):
        compile_source(str(tmp_path / "none.onnx"), TINY)


def test_a_program_file_keeps_its_configuration(double_tw, double_py):
    assert open_program(str(double_tw), None).cfg == PRESETS["pynq_z1"]
    assert open_program(str(double_tw), "pynq_z1").cfg == PRESETS["pynq_z1"]
    with pytest.raises(FingerprintError, match="was compiled for pynq_z1"):
        open_program(str(double_tw), "tiny")
    assert open_program(f"{double_py}:double", None).cfg == PRESETS["pynq_z1"]


def test_outputs_that_are_also_inputs_are_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "d.tw").touch()
    (tmp_path / "link").symlink_to("d.tw")
    for source in ("d.tw", "./d.tw", "link", "d.tw:name"):
        with pytest.raises(FileError, match=r"d\.tw: is also MODEL and would be overwritten; give another name"):
            check_output("d.tw", (".tw",), {"MODEL": source})
    check_output("e.tw", (".tw",), {"MODEL": "d.tw", "--config": None})
    check_output("tiny.v", (".v",), {"--config": "tiny"})  # a preset, no file


@pytest.mark.parametrize("name", ["x.onnx", "x", "tw", "x.tw.bak", "X.TW"])
def test_outputs_that_would_be_called_something_else_are_refused(tmp_path, name):
    with pytest.raises(FileError, match=rf"{name}: must end in \.tw; give another name"):
        check_output(str(tmp_path / name), (".tw",), {})


@pytest.mark.parametrize(
    "verb, kinds",
    [
        (["compile", "missing.tflite"], r"\.tw"),
        (["run", "missing.tw", "--inputs", "missing.npz"], r"\.npz"),
        (["plan", "missing.tflite"], r"\.png or \.svg"),
        (["rtl", "--config", "tiny"], r"\.v"),
    ],
)
def test_every_verb_names_the_files_that_it_writes(tilewright, tmp_path, verb, kinds):
    """Before the work: what these would read does not exist."""
    if verb[0] == "plan":
        pytest.importorskip("onnx")
    output = tmp_path / "x.onnx"
    done = tilewright(*verb, "-o", output)
    assert done.status == 6 and re.search(rf"x\.onnx: must end in {kinds}; ", done.err), done.err
    assert not output.exists()


def test_the_verbs_refuse_to_overwrite_what_they_read(refused, double_tw, double_py, tmp_path):
    inputs, config = tmp_path / "x.npz", tmp_path / "c.json"
    np.savez(inputs, x=np.zeros((8, 1, 16), np.int32))
    config.write_text("{}")
    before = {path: path.read_bytes() for path in (double_tw, double_py, inputs, config)}
    run = ["run", double_tw, "--inputs", inputs, "--config", config]
    compiled = ["compile", f"{double_py}:double", "--config", config]
    for verb, output in ((run, double_tw), (run, inputs), (run, config), (compiled, double_py), (compiled, config)):
        refused(6, f"{output}: is also ", *verb, "-o", output)
    assert before == {path: path.read_bytes() for path in before}


def test_types_of_inputs_that_the_file_does_not_say(printed, refused, tmp_path, double_py):
    pytest.importorskip("onnx")
    from tests.compiler.frontend.onnx.dialect import Dialect

    net = Dialect(tmp_path)
    net.output(net.shift(net.input(1, 8), 1 << 15))
    path, given = net.save(), ["--input-type", "x0=uint8"]
    np.savez(tmp_path / "x.npz", x0=np.arange(0, 240, 30)[None], outputs=np.arange(0, 120, 15)[None])
    found = printed("run", path, "--inputs", tmp_path / "x.npz", *given, "--check")
    assert found["values_equal"] == 8 and found["check"]["equal"]
    assert printed("compile", path, "-o", tmp_path / "x.tw", *given) and printed("assign", path, *given)["operators"]
    text = (
        "the network takes int8: give whole numbers from -128 to 127, or for a file of Deeploy's --input-type x0=uint8"
    )
    refused(9, text, "run", path, "--inputs", tmp_path / "x.npz")
    refused(9, "has no input 'y' that could be uint8; its inputs are x0", "assign", path, "--input-type", "y=uint8")
    refused(2, "'x0' is not NAME=TYPE, with a type of int8, uint8", "assign", path, "--input-type", "x0")
    for source in tmp_path / "x.tw", f"{double_py}:double":
        refused(5, "--input-type x0=uint8 is only for networks", "compile", source, "-o", tmp_path / "y.tw", *given)
