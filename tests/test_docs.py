"""Docs: generated tables are current, links lead somewhere, commands exist."""

import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [
    ROOT / "README.md",
    *(ROOT / f"{name}.md" for name in ("CHANGELOG", "CONTRIBUTING", "SECURITY")),
    *sorted((ROOT / "docs").rglob("*.md")),
]
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


@pytest.mark.parametrize("page", sorted((ROOT / "docs").glob("*.md")), ids=lambda p: p.name)
def test_generated_blocks_are_current(generator, page):
    text = page.read_text()
    assert text.count("<!-- generated:") == text.count("<!-- end -->")
    assert generator.updated(text) == text, "run: make docs"


def test_every_block_is_on_a_page(generator):
    text = "".join(page.read_text() for page in (ROOT / "docs").glob("*.md"))
    for name in generator.BLOCKS:
        assert f"<!-- generated: {name} -->" in text


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.relative_to(ROOT).as_posix())
def test_links_resolve(page):
    for target in LINK.findall(page.read_text()):
        if not target.startswith(("http://", "https://", "#")):
            path, _, anchor = target.partition("#")
            assert (page.parent / path).exists(), f"{page.name}: {target}"
            if anchor:
                headings = re.findall(r"^#+ (.*)$", (page.parent / path).read_text(), re.MULTILINE)
                slugs = [re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in headings]
                assert anchor in slugs, f"{page.name}: {target}"


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.relative_to(ROOT).as_posix())
def test_make_targets_that_a_page_names_exist(page):
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"`make ([a-z-]+)", page.read_text())) <= targets


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.relative_to(ROOT).as_posix())
def test_files_that_a_page_names_exist(page):
    named = re.findall(r"`((?:hw|sim|runtime|compiler|boards|cli|tests|docs|examples)/[\w/.-]+)`", page.read_text())
    made = re.findall(r"^--- /dev/null\n\+\+\+ b/(\S+)", page.read_text(), re.M)  # by a patch that the page shows
    assert not [name for name in named if not (ROOT / name).exists() and name not in made]


# The calls of VTA's runtime, and its handle type.
VTA_CALLS = """
VTABufferAlloc VTABufferFree VTABufferCopy VTABufferCPUPtr VTATLSCommandHandle VTARuntimeShutdown VTASetDebugMode
VTAWriteBarrier VTAReadBarrier VTALoadBuffer2D VTAStoreBuffer2D VTAUopPush VTAUopLoopBegin VTAUopLoopEnd
VTAPushGEMMOp VTAPushALUOp VTADepPush VTADepPop VTASynchronize VTACommandHandle
""".split()


def test_every_call_of_vta_has_its_row_and_every_name_of_ours_exists():
    from tilewright.runtime.device import Device
    from tilewright.runtime.loader import Loaded
    from tilewright.runtime.program import Program

    text = (ROOT / "docs" / "vta.md").read_text()
    rows = [line.split("|")[1] for line in text.splitlines() if line.startswith("| `VTA")]
    assert sorted(name for row in rows for name in re.findall(r"`(VTA\w+)`", row)) == sorted(VTA_CALLS)
    ours = re.findall(r"\b(Program|Loaded|Device)\.(\w+)", text)
    assert len(ours) > 10
    for cls, name in ours:
        assert hasattr({"Program": Program, "Loaded": Loaded, "Device": Device}[cls], name), f"{cls}.{name}"
    for name in re.findall(r"`runtime\.(\w+)\.(\w+)", text):
        assert hasattr(importlib.import_module(f"tilewright.runtime.{name[0]}"), name[1]), name


# What VTA's Python tutorials use.
VTA_PYTHON = """
vta.get_env vta.Environment env.BATCH env.BLOCK_IN env.BLOCK_OUT env.inp_scope env.wgt_scope env.acc_scope env.inp_dtype
env.dma_copy env.alu env.gemm env.mock cthread vta.lower vta.build vta.build_config simulator.stats
simulator.clear_stats gemm_counter vta.program_fpga vta.reconfig_runtime vta.exec.rpc_server autotvm.apply_history_best
define_split define_knob graph_pack remote.load_module te.create_schedule
""".split()


def test_vtas_python_has_its_rows_and_every_name_of_ours_exists():
    pytest.importorskip("tvm")
    import tilewright as tw
    from tilewright.compiler.tvm_compat import Schedule
    from tilewright.runtime.device import Stats

    text = (ROOT / "docs" / "vta.md").read_text()
    rows = [line.split("|")[1:3] for line in text.splitlines() if line.startswith("| ") and line.count("|") == 3]
    theirs = "".join(left for left, _ in rows)
    assert not [name for name in VTA_PYTHON if name not in theirs]
    owners = {"tw": tw, "sch": Schedule, "cfg": tw.load_config("vta"), "stats": Stats(), "program": tw.Program}
    ours = {found for _, right in rows for found in re.findall(r"\b(tw|sch|cfg|stats|program)\.([a-z_]+)", right)}
    assert len(ours) > 30
    assert not [f"{owner}.{name}" for owner, name in ours if not hasattr(owners[owner], name)]
    for module in set(re.findall(r"`(tilewright(?:\.\w+)+)`", text)):
        importlib.import_module(module)
    for name in ("tune", "replay"):
        assert hasattr(importlib.import_module("tilewright.compiler.tune"), name)
