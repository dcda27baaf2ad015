"""cli/generate/recomputing.py: totals are sums of runs, counted by hand."""

import pytest

from tests.compiler.frontend.llama.conftest import llama_bytes
from tilewright.cli.generate.recomputing import recomputing
from tilewright.compiler.frontend import import_model
from tilewright.compiler.network import compile_graph, launch_cycles
from tilewright.hw.config import PRESETS
from tilewright.hw.errors import UnsupportedError
from tilewright.runtime.executable import Executable, LaunchStep


@pytest.fixture
def graph(tmp_path):
    path = tmp_path / "small.bin"
    path.write_bytes(llama_bytes(width=32, hidden=32, layers=1, context=48))
    return import_model(path)


def test_totals_are_sums_of_runs(graph):
    executable = compile_graph(graph, PRESETS["pynq_z1_plus"])
    launches = [step.launch for step in executable.steps if isinstance(step, LaunchStep)]
    token, block = (launch_cycles(Executable.from_launch(launch)) for launch in launches)
    found = recomputing(graph, executable, 35, 1e8)
    cache, again = found["cache"], found["recomputing"]
    for parts in (cache, again):
        assert parts["total"] == sum(parts[part] for part in ("weights", "attention", "norms", "rest", "host"))
    assert cache["total"] - cache["host"] == 35 * token and found["steps"] == 35
    host = cache["host"] // 35
    runs = [divmod(count, 16) for count in range(1, 36)]
    wanted = sum(
        whole * (block + host) + min(rest * (token + host), (block + host) * (rest > 0)) for whole, rest in runs
    )
    assert again["total"] == pytest.approx(wanted, rel=1e-6)
    assert found["ratio"] == again["total"] / cache["total"] > 2


def test_programs_without_blocks_are_named(graph):
    with pytest.raises(UnsupportedError, match="vta: its program takes a token at a time; blocks of tokens need atten"):
        recomputing(graph, compile_graph(graph, PRESETS["vta"]), 35, 1e8)
