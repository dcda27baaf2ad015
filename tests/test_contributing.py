"""CONTRIBUTING.md: its patches, applied to a copy of the tree, add what they say everywhere, in few files."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tilewright.runtime.files import cache_folder

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "CONTRIBUTING.md").read_text()
# section -> most files that exist already, most files of its own
PATCHES = {
    "Add an ALU operation": (5, 0),
    "Add an instruction": (5, 1),
    "Add a kernel": (1, 1),
    "Add an operator name to an importer": (2, 0),
    "Add a host operator": (3, 0),
}

USES_BOTH = """
import numpy as np
from tilewright.hw.config import PRESETS
from tilewright.hw.isa import Mem
from tilewright.runtime.loader import run
from tilewright.runtime.program import Program
from tilewright.runtime.verify import verify
from tilewright.sim.random_programs import random_case
from tilewright.sim.rtl import RtlDevice
from tilewright.sim.model.device import ModelDevice
from tilewright.sim.spec import SpecDevice
from tilewright.sim.timing import predict

tiny = PRESETS["tiny"]
assert tiny.fingerprint == PRESETS["tiny"].replace(name="other").fingerprint
cfg = tiny.replace(name="toy", extensions=tiny.extensions | {"move", "bitwise"})
rng = np.random.default_rng(1)
a = rng.integers(-1000, 1000, (20, 1, 4))

p = Program(cfg)
data, out = p.buffer("data", a.shape, 32), p.buffer("out", a.shape, 8, kind="output")
p.load(Mem.ACC, 0, data, 0, x_size=20)
p.alu("and", [(3, 1, 0)], 0, imm=15)
p.alu("and", [(3, 1, 1)], 3, 10)
p.alu("and", [(1, 0, 0), (4, 0, 1)], 6, 7)
p.move([(5, 1, 2)], 8, 0)  # reads 8, which it has written
p.move([(3, 1, 0)], 14, imm=-5)
p.store(0, out, 0, x_size=20)
launch = p.finish()

want = a.copy()
want[0:3] = a[0:3] & 15
want[3:6] = a[3:6] & a[10:13]
want[6] = np.bitwise_and.reduce(a[6:11], 0)
for k in range(5):
    want[8 + k] = want[2 * k]
want[14:17] = -5
want = want.astype(np.int8)
verify(launch)
devices = SpecDevice(cfg), ModelDevice(cfg), RtlDevice(cfg)  # what one program leaves in scratchpads, the next reads
for device in devices:
    found, stats = run(launch, {"data": a.astype(np.int32)}, device)
    assert (found["out"] == want).all(), (device, found["out"] - want)
print("cycles", stats.cycles, predict(launch).cycles)

used = set()
for seed in range(6):
    image, address, count = random_case(cfg, seed)
    images = []
    for device in devices:
        images.append(image.copy())
        used |= set(device.run_image(images[-1], address, count).insns)
    assert (images[0] == images[1]).all() and (images[0] == images[2]).all(), f"seed {seed}"
assert "ALU.AND" in used, used
"""

USES_KERNEL = """
import numpy as np
from tilewright.compiler import graph as g
from tilewright.compiler.network import compile_for
from tilewright.hw.config import PRESETS
from tilewright.runtime.verify import verify

for cfg, shape in ((PRESETS["pynq_z1"], (1, 64, 28, 28)), (PRESETS["tiny"], (1, 9, 5, 4))):
    x, y = g.Tensor("x", shape), g.Tensor("y", (1, shape[1], 1, 1))
    graph = g.Graph("net", (x,), (y,), (g.ReduceMax("top", (x,), y, axes=(2, 3)),))
    compiled = compile_for(graph, cfg, refused={"host": {"top": "the test wants the accelerator"}})
    (step,) = compiled.executable.launches
    verify(step.launch, memory=True)
    values = np.random.default_rng(1).integers(-128, 128, shape).astype(np.int8)
    for device in ("model", "timing"):
        found, stats = compiled.executable.run(values, device)
        assert (found["y"] == values.max((2, 3), keepdims=True)).all(), device
    print(cfg.name, stats.cycles)
graph = g.Graph("net", (x,), (y,), (g.ReduceMin("low", (x,), y, axes=(2, 3)),))
assert compile_for(graph, cfg).assignment.choices[0].refusals["accelerator"].startswith("ReduceMin over axes")
"""

USES_NAMES = """
import numpy as np
import onnx
from tilewright.compiler.frontend import import_model
from tilewright.compiler.frontend.relax import import_relax
from tilewright.compiler.graph import reference
from tilewright.compiler.tvm_compat import relax

info, node = onnx.helper.make_tensor_value_info, onnx.helper.make_node
ends = [info(name, onnx.TensorProto.INT64, [2, 4]) for name in "xny"]
graph = onnx.helper.make_graph([node("Mod", ["x", "n"], ["y"])], "net", ends[:2], ends[2:])
onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8), "net.onnx")
values = {"x": np.arange(-4, 4).reshape(2, 4), "n": np.array([[3, -3, 5, 7]] * 2)}
print(*reference.run(import_model("net.onnx"), values)[0]["y"].reshape(-1))

x = relax.Var("x", relax.TensorType((1, 4), "int8"))
quarter, zero = relax.const(np.float32(0.25)), relax.const(np.int8(0))
builder = relax.BlockBuilder()
with builder.function("main", [x]):
    with builder.dataflow():
        real = builder.emit(relax.op.exp(builder.emit(relax.op.dequantize(x, quarter, zero))))
        y = builder.emit_output(relax.op.quantize(real, quarter, zero))
    builder.emit_func_output(y)
graph = import_relax(relax.transform.CanonicalizeBindings()(builder.get())["main"], ["y"], "net")
print(*reference.run(graph, {"x": np.array([[-8, 0, 4, 100]], np.int8)})[0]["y"].reshape(-1))
"""

USES_HOST_OPERATOR = """
import sys
import pytest

sys.path.insert(0, "tilewright")
tests = ["tilewright/tests/runtime/hostops/test_table.py", "tilewright/tests/runtime/c/test_hostcalls.py"]
sys.exit(pytest.main(["-q", "-p", "no:cacheprovider", "--import-mode=importlib", "-k", "absolute_difference", *tests]))
"""


def patches():
    """The patch of each section, by its heading."""
    sections = re.split(r"^## ", PAGE, flags=re.M)[1:]
    found = {s.splitlines()[0]: "".join(re.findall(r"^```diff\n(.*?)^```", s, re.S | re.M)) for s in sections}
    return {name: patch for name, patch in found.items() if patch}


def touched(patch):
    """(files that were there, new files) of a patch."""
    pairs = re.findall(r"^--- (\S+)\n\+\+\+ b/(\S+)", patch, re.M)
    return [new for old, new in pairs if old != "/dev/null"], [new for old, new in pairs if old == "/dev/null"]


def test_the_page_has_the_steps():
    headings = re.findall(r"^## (.*)", PAGE, re.M)
    for what in (
        "an ALU operation",
        "an instruction",
        "a kernel",
        "a host operator",
        "an execution module",
        "a compute unit",
        "a board",
    ):
        assert f"Add {what}" in headings
    assert set(patches()) == set(PATCHES)


@pytest.mark.parametrize("name", PATCHES)
def test_few_files_are_touched(name):
    there, new = touched(patches()[name])
    most, own = PATCHES[name]
    assert 0 < len(there) <= most and len(new) == own
    section = PAGE.split(f"## {name}")[1].split("\n## ")[0]
    steps = section.split("```diff")[0]
    assert not [path for path in there + new if f"`{path}`" not in steps], "the list names every file"


@pytest.fixture(scope="module")
def patched(tmp_path_factory):
    """A copy of the tree with all patches: runs a script there, and returns what it prints."""
    folder = tmp_path_factory.mktemp("patched")
    package = folder / "tilewright"
    for name in ("hw", "sim", "runtime", "boards", "compiler"):
        shutil.copytree(ROOT / name, package / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("tests/runtime/hostops", "tests/runtime/c"):
        shutil.copytree(ROOT / name, package / name, ignore=shutil.ignore_patterns("__pycache__", "whole"))
    for name in PATCHES:
        patch = folder / "patch"
        patch.write_text(patches()[name])
        subprocess.run(["git", "apply", patch], cwd=package, check=True)
    for name in ("wasmtime", "tilewright/runtime"):  # what does not depend on the tree, and takes long to make
        link, kept = folder / "cache" / name, cache_folder("").parent / name
        link.parent.mkdir(parents=True, exist_ok=True)
        kept.mkdir(parents=True, exist_ok=True)
        link.symlink_to(kept)

    def run(script):
        found = subprocess.run(
            [sys.executable, "-c", script],
            env={"PYTHONPATH": str(folder), "PATH": "/usr/bin:/bin", "XDG_CACHE_HOME": str(folder / "cache")},
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=900,
        )
        assert found.returncode == 0, found.stdout + found.stderr
        return found.stdout

    return run


@pytest.mark.circuit
def test_what_the_patches_add_works_everywhere(patched):
    pytest.importorskip("amaranth")
    circuit, predicted = map(int, patched(USES_BOTH).split()[1:])
    assert abs(circuit - predicted) <= 0.1 * circuit


def test_the_kernel_that_a_patch_adds_is_used(patched):
    pytest.importorskip("tvm")
    assert [line.split()[0] for line in patched(USES_KERNEL).splitlines()] == ["pynq_z1", "tiny"]


def test_the_names_that_a_patch_adds_are_read(patched):
    pytest.importorskip("tvm")
    pytest.importorskip("onnx")
    remainders, powers = (list(map(int, line.split())) for line in patched(USES_NAMES).splitlines())
    assert remainders == [2, 0, 3, 6, 0, -2, 2, 3]
    assert powers == [1, 4, 11, 127]  # e**-2, 1, e and e**25 in quarters


@pytest.mark.circuit
def test_the_host_operator_that_a_patch_adds_gives_in_c_what_numpy_gives(patched):
    if not Path("/usr/bin/gcc").exists():
        pytest.skip("gcc is missing: no C is compiled")
    assert "5 passed" in patched(USES_HOST_OPERATOR)
