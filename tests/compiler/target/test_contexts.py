"""Executables of several contexts as one."""

from dataclasses import replace

import numpy as np
import pytest

from tilewright.compiler.target.variants import join, with_entry
from tilewright.hw.errors import InputError, ProgramError
from tilewright.runtime.device import open_device
from tilewright.runtime.executable import Executable, HostStep, Tensor
from tilewright.runtime.loader import Loaded
from tilewright.runtime.steps import When


def context(cache, end, extra=0):
    """An executable that copies the cache's y through a tensor whose shape is that of the context."""
    found = Executable.from_launch(cache(name="step").launch)
    tensors = dict(found.tensors)
    tensors["wide"] = Tensor("wide", (end,), "int8", "constant", np.arange(end, dtype=np.int8))
    tensors["flat"] = Tensor("flat", (end,), "int8")
    tensors["part"] = Tensor("part", (end,), "int8", "output") if extra else Tensor("part", (1, end), "int8")
    steps = [
        *found.steps,
        HostStep("flat", "reshape", ["wide"], ["flat"], {"shape": [end]}),
        HostStep("part", "reshape", ["flat"], ["part"], {"shape": [end] if extra else [1, end]}),
    ]
    return Executable(found.cfg, "net", tensors, steps)


def test_the_smallest_context_that_suffices_runs(cache):
    parts = [context(cache, end) for end in (4, 10, 16)]
    joined = Executable.from_bytes(join(parts, "position", (4, 10, 16)).to_bytes(), "x.tw")
    assert [t.name for t in joined.inputs] == [t.name for t in parts[0].inputs]
    assert [t.name for t in joined.states] == ["rows"]
    assert {"wide", "wide, 4..9", "wide, 10..15"} <= joined.tensors.keys()
    weights = [name for name in joined.memory_plan() if name.endswith("wgt")]
    assert len(weights) == 1
    program = cache()
    with Loaded(joined, open_device("model", joined.cfg)) as loaded:
        for position in (3, 4, 9, 10, 15, 0):
            found = loaded.run(program.inputs(position, position))["y"]
            np.testing.assert_array_equal(found, program.expect(position, position))
            name = "0..3" if position < 4 else "4..9" if position < 10 else "10..15"
            assert [report.name for report in loaded.reports] == [f"{n}, {name}" for n in ("step", "flat", "part")]
        with pytest.raises(InputError, match="value 16 given, the program was made for 0..15"):
            loaded.run(program.inputs(16, 0))


@pytest.mark.parametrize(
    "ends, text",
    [
        ((4,), "2 executables, ends 4: must be as many of each, at least one, and ends must ascend from 1 on"),
        ((4, 4), "2 executables, ends 4, 4: must be"),
        ((0, 4), "2 executables, ends 0, 4: must be"),
    ],
)
def test_ends_that_do_not_ascend(ends, text, cache):
    with pytest.raises(ProgramError, match=text):
        join([context(cache, 4), context(cache, 8)], "position", ends)
    with pytest.raises(ProgramError, match="0 executables, ends none"):
        join([], "position", ())


def test_executables_of_different_networks(cache):
    with pytest.raises(ProgramError, match="output 'part' is not the same in all executables; join those of one netw"):
        join([context(cache, 4), context(cache, 8, extra=1)], "position", (4, 8))
    other = context(cache, 8)
    data = np.ones_like(other.tensors["rows"].data)
    other.tensors["rows"] = Tensor("rows", data.shape, "int8", "state", data, "rows")
    with pytest.raises(ProgramError, match="state 'rows' is not the same in all executables"):
        join([context(cache, 4), other], "position", (4, 8))


def test_contexts_are_joined_once(cache):
    joined = join([context(cache, 4), context(cache, 8)], "position", (4, 8))
    with pytest.raises(
        ProgramError, match="step 'step, 0..3' already runs in some contexts only; join executables with"
    ):
        join([joined, joined], "position", (4, 8))


def entry(cache, tensor):
    """That of a context of 4, with `tensor` in place of the position."""
    joined = join([context(cache, 4)], "position", (4,))
    names = {"position": tensor}
    for step in joined.steps:
        step.when = When(tensor, 0, 4)
        if not isinstance(step, HostStep):
            step.symbols = {key: names.get(name, name) for key, name in step.symbols.items()}
    tensors = {names.get(name, name): replace(t, name=names.get(name, name)) for name, t in joined.tensors.items()}
    return Executable(joined.cfg, joined.name, tensors, joined.steps)


def test_a_second_entry_shares_states_and_constants(cache):
    first, program = join([context(cache, end) for end in (4, 10)], "position", (4, 10)), cache()
    both = Executable.from_bytes(with_entry(first, entry(cache, "block"), "blocks").to_bytes(), "x.tw")
    inputs = {t.name for t in first.inputs}
    assert [{t.name for t in each} for each in both.entries] == [inputs, inputs - {"position"} | {"block"}]
    assert len([name for name in both.memory_plan() if name.endswith("wgt")]) == 1
    assert len(both.states) == 1 and len({step.name for step in both.steps}) == len(both.steps)
    with Loaded(both, open_device("model", both.cfg)) as loaded:
        for position, tensor in ((3, "position"), (2, "block"), (1, "block"), (9, "position")):
            given = {tensor if key == "position" else key: x for key, x in program.inputs(position, position).items()}
            np.testing.assert_array_equal(loaded.run(given)["y"], program.expect(position, position))
            assert loaded.reports[0].name == {3: "step, 0..3", 9: "step, 4..9"}.get(position, "step, 0..3, blocks")


def test_entries_of_different_networks(cache):
    first = join([context(cache, 4)], "position", (4,))
    other = entry(cache, "block")
    other.tensors["y"] = replace(other.tensors["y"], name="z")
    with pytest.raises(ProgramError, match="output 'y' is not the same in all executables"):
        with_entry(first, other, "blocks")
