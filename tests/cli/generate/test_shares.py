"""cli/generate/shares.py: parts add up to the launches that run."""

import pytest

from tests.compiler.frontend.llama.conftest import llama_bytes
from tilewright.cli.generate.shares import PARTS, shares
from tilewright.compiler.frontend import import_model
from tilewright.compiler.network import compile_graph, launch_cycles
from tilewright.hw.config import PRESETS
from tilewright.runtime.executable import Executable, LaunchStep
from tilewright.sim.dram import ZYNQ_HP


def test_parts_add_up_to_the_launches_that_run(tmp_path):
    path = tmp_path / "small.bin"
    path.write_bytes(llama_bytes(width=32, hidden=32, layers=1, context=80))
    graph = import_model(path)
    executable = compile_graph(graph, PRESETS["pynq_z1_plus"])
    launches = [step.launch for step in executable.steps if isinstance(step, LaunchStep)]
    first, second, block, later = (launch_cycles(Executable.from_launch(launch)) for launch in launches)
    found = shares(graph, executable, range(66), [0, 16, 64], 1e8)
    assert found["prefill_cycles"] == [block, block, later]
    assert shares(graph, executable, [], [0], 1e8) == {"prefill_cycles": [block]}
    assert found["cycles_per_token"] == [first] * 64 + [second] * 2
    slow = ZYNQ_HP.replace(latency=200)
    later = launch_cycles(Executable.from_launch(launches[1]), slow)
    assert second < later == shares(graph, executable, [65], [], 1e8, slow)["cycles_per_token"][0]
    parts = found["cycles_by_part"].copy()
    host = parts.pop("host")
    assert tuple(parts) == PARTS and sum(parts.values()) == pytest.approx((64 * first + 2 * second) / 66)
    assert min(parts.values()) > 0 and host > 0
    assert found["host_share"] == pytest.approx(host / (host + sum(parts.values())))
