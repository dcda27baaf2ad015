"""Networks as C programs: every byte of the loader's, and of the golden files; what is linked, and how large it is."""

import functools
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tilewright.hw.config import PRESETS
from tilewright.runtime.c.emit import emit
from tilewright.runtime.c.hostcalls import FOLDER

pytest.importorskip("tvm")
from tilewright.compiler.network import compile_model

ROOT = Path(__file__).parents[4]
SHARED = ROOT.parent / "shared"
DIGITS = ROOT / "examples" / "digits"
NETWORKS = sorted((ROOT / "tests" / "data" / "networks").glob("*.tflite"))
TINY = ("kws", "resnet8", "vww", "ad01")  # of MLPerf
CFG = PRESETS["pynq_z1"]
# what a compiler may call by itself
OF_THE_COMPILER = {"memcpy", "memmove", "memset", "memcmp"}
THUMB_BYTES = 8192
ARM = ("arm-none-eabi-gcc", "arm-linux-gnueabihf-gcc")


@functools.cache
def example():
    return compile_model(DIGITS / "digits.onnx", CFG)


def digits(count):
    """The example network, and so many of its images."""
    executable = example()
    with np.load(DIGITS / "inputs.npz") as data:
        images, labels = data["inputs"][:count], data["labels"][:count]
    return executable, [{"image": image} for image in images], labels


def test_the_digits_have_their_classes(same_as_loader):
    executable, cases, labels = digits(8)
    found = same_as_loader(executable, cases)["logits"]
    assert (found.argmax(-1).reshape(-1) == labels).all()


def test_the_command_of_the_page_writes_the_logits_and_nothing_else(build):
    executable, cases, labels = digits(3)
    folder = build(executable, flags="-O2")
    (folder / "main.c").touch()  # `run` builds first
    (command,) = re.findall(r"^(make .* run .*) < images.bin > logits.bin$", (ROOT / "docs" / "c.md").read_text(), re.M)
    words = [*command.replace("digits_c", str(folder)).split(), f"PYTHON={sys.executable}"]
    given = b"".join(case["image"].tobytes() for case in cases)
    found = subprocess.run(words, input=given, capture_output=True, check=True).stdout
    assert (np.frombuffer(found, np.float32).reshape(3, 10).argmax(1) == labels).all()
    words.remove("-s")  # make then prints the folder that it enters
    refused = subprocess.run(words, input=given, capture_output=True, check=False)
    assert refused.returncode == 2 and b"use 'make -s -C'" in refused.stderr


@pytest.mark.slow
def test_the_digits_on_an_emulated_arm_and_from_a_bin(same_as_loader, compiler):
    executable, cases, _ = digits(60)
    same_as_loader(executable, cases, compiler=compiler)


def test_an_image_of_float32_values_goes_to_the_accelerator_as_it_is(same_as_loader):
    from tilewright.compiler.graph import Graph, QConv2d, Quantize, Tensor, Transpose
    from tilewright.compiler.network import compile_graph

    x, moved = Tensor("x", (1, 32, 32, 3), "float32"), Tensor("moved", (1, 3, 32, 32), "float32")
    q, y = Tensor("q", (1, 3, 32, 32), "int8", 0.0078125, 3), Tensor("y", (1, 8, 30, 30), "int8", 0.9, -7)
    rng = np.random.default_rng(3)
    weight = rng.integers(-99, 99, (8, 3, 3, 3)).astype(np.int8)
    conv = QConv2d("conv", (q,), y, weight, np.full(8, 0.01, np.float32), np.zeros(8, np.int32))
    ops = Transpose("move", (x,), moved, (0, 3, 1, 2)), Quantize("quantize", (moved,), q, True), conv
    executable = compile_graph(Graph("g", (x,), (y,), ops), CFG)
    assert [getattr(step, "op", "") for step in executable.steps[1:]] == ["expect_numbers", "unpack"]
    same_as_loader(executable, [{"x": rng.normal(size=x.shape).astype(np.float32)} for _ in range(2)])


def test_constants_in_a_file(build):
    from tilewright.runtime.c.shim import run
    from tilewright.runtime.device import open_device

    executable, cases, _ = digits(2)
    folder = build(executable, "digits", binary=True)
    given = b"".join(case["image"].tobytes() for case in cases)
    commands = [["sh", "-c", f"cd {folder} && exec build/sim/main"], [folder / "build/sim/main"]]
    (status, found), (missing, _) = (run(command, open_device("model", CFG), given) for command in commands)
    assert status == 0 and len(found) == 2 * 40 and missing == 1  # without the .bin in the present folder
    assert not (folder / "digits_program.c").exists()


def test_an_input_that_ends_within_a_run_is_an_error(build, capfd):
    from tilewright.runtime.c.shim import run
    from tilewright.runtime.device import open_device

    executable, cases, _ = digits(1)
    given = cases[0]["image"].tobytes()
    status, found = run([build(executable, "digits") / "build/sim/main"], open_device("model", CFG), given + given[:9])
    assert (status, len(found)) == (1, 40) and "ends within the inputs of a run" in capfd.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("path", NETWORKS, ids=lambda path: path.stem)
def test_golden_network(path, same_as_loader):
    with np.load(path.with_suffix(".npz")) as data:
        inputs, outputs = data["inputs"], data["outputs"]
    executable = compile_model(path, CFG)
    found = same_as_loader(executable, [{executable.inputs[0].name: x} for x in inputs])
    assert np.array_equal(found[executable.outputs[0].name], outputs)


@pytest.mark.slow
@pytest.mark.parametrize("name", TINY)
def test_mlperf_tiny(name, same_as_loader, compiler):
    path = SHARED / "models" / f"{name}_int8.tflite"
    if not path.is_file():
        pytest.skip(f"../shared has no {path.name}")
    with np.load(SHARED / "inputs" / f"{name}_int8.npz") as data:
        inputs, outputs = data["inputs"], data["outputs"]
    executable = compile_model(path, CFG)
    found = same_as_loader(executable, [{executable.inputs[0].name: x} for x in inputs], compiler=compiler)
    assert np.array_equal(found[executable.outputs[0].name], outputs)


OTHERS = ("networks/R_tflm_mnist_lstm_int8.tflite", "networks/R_tflm_dtln.tflite", "deeploy/microLlama16/network.onnx")


@pytest.mark.slow
@pytest.mark.parametrize("name", OTHERS)
def test_recurrent_layers_and_a_transformer_on_any_values(name, same_as_loader):
    if not (SHARED / name).is_file():
        pytest.skip(f"../shared has no {name}")
    executable, rng, cases = compile_model(SHARED / name, CFG), np.random.default_rng(3), []
    for _ in range(2):
        drawn = {t: rng.integers(-128, 128, t.shape) for t in executable.inputs}
        cases.append({t.name: x.astype(t.dtype) for t, x in drawn.items()})
    same_as_loader(executable, cases)


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("g++"), reason="g++ is missing: no circuit can be built")
def test_the_digits_on_the_circuit(same_as_loader):
    pytest.importorskip("amaranth")
    executable, cases, labels = digits(3)
    found = same_as_loader(executable, cases, on="rtl")["logits"]
    assert (found.argmax(-1).reshape(-1) == labels).all()


def undefined(objects):
    """Names that object files leave to others, and names that they define."""
    text = subprocess.run(["nm", "-P", *objects], check=True, capture_output=True, text=True).stdout
    found = re.findall(r"^(\S+) (\w)", text, re.MULTILINE)
    return {name for name, kind in found if kind == "U"}, {name for name, kind in found if kind in "TtDdRrBb"}


def test_nothing_is_linked_but_what_a_compiler_calls_by_itself(build):
    executable, _, _ = digits(1)
    folder = build(executable, flags="-O2")
    objects = [p for p in (folder / "build/sim").glob("*.o") if p.stem not in ("main", "platform_sim")]
    needs, has = undefined(objects)
    platform, _ = undefined([folder / "build/sim/platform_sim.o"])
    assert {name for name in needs - has if not name.startswith("tw_platform_")} <= OF_THE_COMPILER
    assert not platform & {"malloc", "calloc", "realloc", "free"}


@pytest.mark.slow
def test_no_kernel_of_the_host_allocates_or_needs_the_mathematics_library(gcc, tmp_path):
    objects = []
    for source in sorted(FOLDER.glob("*.c")):
        objects.append(tmp_path / f"{source.stem}.o")
        subprocess.run(["gcc", "-std=c99", "-O2", "-c", "-o", objects[-1], source], check=True)
    needs, has = undefined(objects)
    assert needs - has <= OF_THE_COMPILER


@pytest.mark.slow
@pytest.mark.parametrize("name", ["digits", *TINY, "stories260K"])
@pytest.mark.parametrize("tool", ["thumb", "gcc"])
def test_the_kernels_are_small(name, tool, tmp_path):
    others = {"digits": DIGITS / "digits.onnx", "stories260K": SHARED / "models" / name / f"{name}.bin"}
    path = others.get(name, SHARED / "models" / f"{name}_int8.tflite")
    found = ["gcc"] if tool == "gcc" else [f for f in ARM if shutil.which(f)]
    if not path.is_file() or not found or not shutil.which(found[0]):
        pytest.skip(f"{path.name} or a compiler, {' or '.join(ARM if tool == 'thumb' else ['gcc'])}, is missing")
    emit(compile_model(path, CFG), "network", tmp_path / "c")
    size, flags = 0, ["-std=c99", "-Os", *(["-mthumb"] if tool == "thumb" else [])]
    for source in FOLDER.glob("*.c"):
        if (tmp_path / "c" / source.name).exists():
            target = tmp_path / f"{source.stem}.o"
            subprocess.run([found[0], *flags, "-c", "-o", target, source], check=True)
            line = subprocess.run(["size", target], check=True, capture_output=True, text=True).stdout.splitlines()[1]
            size += int(line.split()[0])
    print(f"{name}: kernels of {size} bytes, {found[0]} -Os")
    assert 0 < size < (THUMB_BYTES if tool == "thumb" else 2 * THUMB_BYTES)
