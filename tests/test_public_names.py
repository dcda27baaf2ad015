"""Names that users import: those of README, docs and examples, and others that stay where they are."""

import ast
import doctest
import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
# A module moves freely behind these names; one that goes is a change for users, and stands in CHANGELOG.md.
STABLE = {
    "": "Config Executable Program Timing build compile kernel load load_config predict quantise report run",
    "apps.relax": "refusals release report tilewright_pipeline",
    "cli": "report",
    "cli.app": "PIPE_STATUS",
    "cli.layers": "share_on_device",
    "cli.verify": "verify_executable",
    "compiler": "build graph",
    "compiler.api": "build build_into",
    "compiler.conv_shape": "ConvShape",
    "compiler.cost": "CLOCK",
    "compiler.frontend": "import_model import_onnx",
    "compiler.frontend.llama.checkpoint": "Sizes shapes",
    "compiler.graph": "Custom Graph Tensor reference",
    "compiler.graph.reference": "apply run trace",
    "compiler.reference": "apply run trace",
    "compiler.intrin": "ACC INP WGT register tensorize_depthwise tensorize_gemm tensorize_reset",
    "compiler.kernels.depthwise": "depthwise_program",
    "compiler.kernels.language": "Kernel Record Requant TILE Tile Unfit",
    "compiler.kernels.norm": "COPIES inverse_root need_roots root_tables",
    "compiler.mapping": "ChannelMapping Costs read_mapping regroup write_mapping",
    "compiler.network": "compile_for compile_graph compile_model default_target min_cost",
    "compiler.schedule.conv2d": "conv2d",
    "compiler.schedule.dense": "dense",
    "compiler.schedule.depthwise": "depthwise",
    "compiler.schedule.elementwise": "elementwise",
    "compiler.schedule.pool": "pool",
    "compiler.target": "ExecModule Memory Pattern Refusal Target",
    "compiler.tile": "Tile",
    "compiler.tir.placement": "Placement",
    "compiler.tune": "Space Tuned cycles_of replay space tune",
    "compiler.tune.sampling": "tile_of",
    "compiler.tune.search": "Search",
    "compiler.tvm_compat": "IRModule PrimFunc Schedule te tirx",
    "compiler.user_kernels": "UserKernel kernel target target_of",
    "delegate": "TilewrightDelegate",
    "odimo": "Examples Front IntegerNetwork Mean Plan Point Recipe Task explore to_graph",
    "hw.config": "Config EXTENSIONS PRESETS load_config",
    "hw.errors": "ConfigError KernelError ProgramError TilewrightError UnsupportedError",
    "hw.isa": "AluOp Isa Mem Op Queue",
    "hw.regs": "Error REGISTERS table",
    "hw.rounding": "CONTRACTS quantize_multiplier requantise rescale",
    "hw.stages": "table",
    "runtime": "layout",
    "runtime.c.emit": "emit",
    "runtime.c.shim": "run",
    "runtime.device": "Device Stats open_device",
    "runtime.disasm": "disassemble",
    "runtime.executable": "Executable HostStep LaunchStep Tensor",
    "runtime.hostops.attention": "reciprocal reciprocal_shifts",
    "runtime.launch": "Launch",
    "runtime.layout": "pack_activations pack_bias pack_par pack_weights unpack_activations",
    "runtime.loader": "Loaded StepReport run",
    "runtime.program": "Program",
    "runtime.symbols": "Symbol",
    "runtime.verify": "verify",
    "sim.bench": "Bench run_tests",
    "sim.dram": "load_dram",
    "sim.model.device": "ModelDevice",
    "sim.random_programs": "random_case",
    "sim.rtl": "RtlDevice",
    "sim.timing": "Timing predict",
    "sim.timing.device": "TimingDevice",
    "sim.trace": "Event of_timing of_trace write_chrome",
}
IMPORTED = {("tilewright.boards.zynq.ip", "")}  # for what its import does; it needs pynq


def shown(text: str) -> list[str]:
    """The Python blocks of a page; of those with prompts, what was typed."""
    sessions = re.findall(r"^```pycon\n(.*?)^```", text, re.S | re.M)
    typed = ["".join(example.source for example in doctest.DocTestParser().get_examples(one)) for one in sessions]
    return re.findall(r"^```python\n(.*?)^```", text, re.S | re.M) + typed


def names_of(source: str) -> set[tuple[str, str]]:
    """(module, name) of everything that `source` imports from the package, or takes from `tw`, the package itself."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "tw":
            found.add(("", node.attr))
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "tilewright":
            found |= {((node.module or "").removeprefix("tilewright").lstrip("."), alias.name) for alias in node.names}
        elif isinstance(node, ast.Import):
            others = [alias.name for alias in node.names if (alias.name, alias.asname) != ("tilewright", "tw")]
            found |= {(name, "") for name in others if name.split(".")[0] == "tilewright"}
    return found


def test_readme_docs_and_examples_use_stable_names_alone():
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    sources = [block for page in pages for block in shown(page.read_text())]
    sources += [path.read_text() for path in sorted((ROOT / "examples").rglob("*.py"))]
    used = set().union(*map(names_of, sources))
    assert len(used) > 50  # the scan finds something
    assert not sorted(used - IMPORTED - {(module, name) for module, names in STABLE.items() for name in names.split()})


@pytest.mark.parametrize("module", STABLE)
def test_stable_names_are_where_users_import_them(module):
    if module.startswith(("apps", "compiler", "delegate", "odimo")) or not module:
        pytest.importorskip("tvm")
    for name in STABLE[module].split():
        try:
            importlib.import_module(".".join(filter(None, ["tilewright", module, name])))
        except ModuleNotFoundError:
            assert hasattr(importlib.import_module(f"tilewright.{module}".rstrip(".")), name), name


def test_the_scan_sees_every_form_of_import():
    source = (
        "import tilewright.hw.isa\ndef f():\n    from tilewright.compiler import build as b\nfrom numpy import array"
    )
    assert names_of(source) == {("tilewright.hw.isa", ""), ("compiler", "build")}
    assert names_of("import tilewright as tw\ntw.load('x')") == {("", "load")}
    assert names_of("import tilewright") == {("tilewright", "")}
    assert shown("a\n```python\nx = 1\n```\n```\ny\n```\n") == ["x = 1\n"]
    assert shown("```pycon\n>>> x = 1\n>>> x\n1\n```\n") == ["x = 1\nx\n"]
