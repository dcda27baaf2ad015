"""Compiled networks on disk."""

import numpy as np
import pytest

from tilewright.compiler import cache, network
from tilewright.compiler.cache import network_file
from tilewright.hw.config import PRESETS
from tilewright.runtime.program import Program

TINY = PRESETS["tiny"]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "tilewright" / "networks"


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


def test_a_program_depends_on_model_configuration_and_contract(folder):
    files = {network_file(m, cfg, c) for m in (b"a", b"b") for cfg in PRESETS.values() for c in ("double", "single")}
    assert len(files) == 2 * len(PRESETS) * 2


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
    from tilewright.runtime.executable import Executable

    monkeypatch.setattr(cache, "_MOST_FILES", 2)
    program = Program(TINY)
    program.buffer("t", (1,), kind="constant", data=np.zeros(1, np.uint8))
    for name in "abc":
        cache.write(folder / f"{name}.tw", Executable.from_launch(program.finish()))
    assert len(list(folder.glob("*.tw"))) == 2 and (folder / "c.tw").exists()
