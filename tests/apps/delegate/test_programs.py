"""Parts of networks as programs: what is compiled, what is left, and how that changes the other parts."""

import pytest

from tilewright.apps.delegate.abi import Given
from tilewright.apps.delegate.partition import Planner, compiled, ends
from tilewright.compiler.frontend.tflite.file import read
from tilewright.hw.config import PRESETS
from tilewright.hw.errors import UnsupportedError

CFG = PRESETS["pynq_z1"]
SHAPE = (1, 12, 12, 16)


@pytest.fixture
def file(tflite):
    """A large convolution, a sum, a small convolution, a table."""
    m = tflite()
    x = m.input(SHAPE)
    y = m.op("CONV_2D", [x, *m.weights((16, 3, 3, 16))], SHAPE, 0.05, -3, strideH=1, strideW=1)
    y = m.op("ADD", [x, y], SHAPE, 0.05, -3)
    y = m.op("CONV_2D", [y, *m.weights((16, 1, 1, 16))], SHAPE, strideH=1, strideW=1)
    m.output(m.op("LOGISTIC", [y], SHAPE, 1 / 256, -128))
    return read(m.save())


def planner(file, refused, min_macs=0, every=False):
    return Planner(file, CFG, "litert", min_macs, every, refused)


def test_a_program_computes_its_part(file):
    program = compiled(file, given := ends(file, [0, 1]), CFG, "litert")
    assert [k for k, _ in program.inputs] == list(file.inputs)
    assert [name for _, name in program.outputs] == [file.tensors[file.nodes[1].outputs[0]].name]
    assert (program.launches, program.macs) == (1, 144 * 16 * 144)
    assert program.cycles > 1000 and program.host_seconds > 0
    assert program.covers(given) and program.covers(Given((0, 1), (), ()))
    assert not program.covers(ends(file, [0])) and not program.covers(ends(file, [0, 1], every=True))


def test_the_whole_network_is_one_part(file):
    (program,) = planner(file, {}).programs()
    assert program.given.nodes == (0, 1, 2, 3)
    (program,) = planner(file, {}, every=True).programs()
    assert [k for k, _ in program.outputs] == [node.outputs[0] for node in file.nodes]


def test_small_parts_and_those_without_a_launch_are_left(file):
    refused = {1: "not claimed", 2: "not claimed"}
    (program,) = (found := planner(file, refused)).programs()
    assert program.given.nodes == (0,) and found.refused[3] == "nothing of its part would run on the accelerator"
    small = 144 * 16 * 16
    found = planner(file, {1: "not claimed"}, small + 1)
    assert [program.given.nodes for program in found.programs()] == [(0,)]
    assert found.refused[2] == f"its part has {small:,} multiply-accumulates, fewer than min_macs = {small + 1:,}"
    assert found.refused[3] == found.refused[2], "it was of that part"


def test_a_missing_package_is_no_reason_to_leave_a_part(file, monkeypatch):
    def compiling(*_):
        try:
            raise ImportError("none")
        except ImportError:
            raise UnsupportedError("memory plans need ortools") from None

    monkeypatch.setattr("tilewright.apps.delegate.partition.compile_for", compiling)
    with pytest.raises(UnsupportedError, match="memory plans need ortools"):
        planner(file, {}).programs()


def test_what_no_module_runs_is_left(file, monkeypatch):
    def compiling(*_):
        raise UnsupportedError(f"{file.path}: target cannot run it")

    monkeypatch.setattr("tilewright.apps.delegate.partition.compile_for", compiling)
    assert not (found := planner(file, {})).programs()
    assert set(found.refused.values()) == {"target cannot run it"}
