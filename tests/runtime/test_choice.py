"""Steps that run for some values of an input, states in place, and what an executable checks of both."""

from dataclasses import replace

import numpy as np
import pytest

from tilewright.hw.config import PRESETS
from tilewright.hw.errors import InputError, ProgramError
from tilewright.runtime.device import open_device
from tilewright.runtime.executable import Executable, HostStep, LaunchStep, Tensor
from tilewright.runtime.loader import Loaded
from tilewright.runtime.steps import When, ranges

TINY = PRESETS["tiny"]


def step(when=None, factor=1, to="y", name="scale"):
    """to = x * factor, where the input is in the range `when`."""
    attrs = {"zero_points": [0] * 3, "multipliers": [1 << 30] * 3, "exponents": [0, 0, -18], "sign": 1, "shift": 20}
    inputs = ["x", "x"] if factor == 2 else ["x", "none"]
    return HostStep(name, "add", inputs, [to], attrs, when=when and When("p", *when))


def chosen(*steps, name="choice"):
    none = np.zeros(2, np.int8)
    tensors = [
        Tensor("x", (2,), "int8", "input"),
        Tensor("p", (1,), "int32", "input"),
        Tensor("y", (2,), "int8", "output"),
    ]
    tensors += [Tensor("none", (2,), "int8", "constant", none), Tensor("m", (2,), "int8")]
    return Executable(TINY, name, {t.name: t for t in tensors}, [*steps])


def end(x, when=None):
    """y = x."""
    return HostStep("end", "reshape", [x], ["y"], {"shape": [2]}, when=when)


def given(p):
    return {"x": np.array([1, 2], np.int8), "p": np.array([p], np.int32)}


def test_the_steps_of_the_range_run():
    executable = chosen(step((0, 4), 1, name="low"), step((4, 9), 2, name="high"))
    again = Executable.from_bytes(executable.to_bytes(), "x.tw")
    assert [one.when for one in again.steps] == [("p", 0, 4), ("p", 4, 9)]
    with Loaded(again, open_device("model", TINY)) as loaded:
        for p in (0, 3, 4, 8):
            assert loaded.run(given(p))["y"].tolist() == ([1, 2] if p < 4 else [2, 4])
            assert [report.name for report in loaded.reports] == ["low" if p < 4 else "high"]
        for p in (-1, 9):
            with pytest.raises(InputError, match=f"'p': value {p} given, the program was made for 0..8; give one of"):
                loaded.run(given(p))


def test_what_runs_always_runs_beside_them():
    executable = chosen(
        step((0, 4), 2, "m", "low"),
        step((4, 5), 1, "m", "high"),
        end("m"),
    )
    with Loaded(executable, open_device("model", TINY)) as loaded:
        assert [loaded.run(given(p))["y"].tolist() for p in (0, 4)] == [[2, 4], [1, 2]]
        assert [report.name for report in loaded.reports] == ["high", "end"]


@pytest.mark.parametrize(
    "steps, text",
    [
        ([step((0, 4)), step((5, 9))], "no step runs where 'p' is in 4..4, but others do below and above"),
        ([step((4, 4))], "step 'scale' runs where 'p' is in 4..3: must be a range that is not empty, within 0.."),
        ([step((-1, 4))], "runs where 'p' is in -1..3: must be a range"),
        ([step((0, 4)), step((4, 8), to="m")], "no step writes output 'y', where 'p' is in 4..7"),
        (
            [step((0, 4), to="m"), end("m"), step((4, 8), to="m")],
            "step 'end' reads tensor 'm' before any step wrote it, where 'p' is in 4..7",
        ),
        (
            [end("x", When("x", 0, 2))],
            "step 'end' depends on 'x', which is input, int8 .2,.; must be input, int32 .1,.",
        ),
        ([end("x", When("z", 0, 2))], "step 'end' names tensor 'z', which is not declared"),
        ([step((k, k + 1)) for k in range(300)], "steps run in 300 different ranges of 'p'; at most 256"),
    ],
)
def test_ranges_that_do_not_cover_what_is_needed(steps, text):
    with pytest.raises(ProgramError, match=text):
        chosen(*steps)


def two_entries(*more, name="q"):
    """y = x where `p` is given, y = 2z where `q` is: two entries."""
    executable = chosen(step((0, 4), name="one"))
    tensors = [
        Tensor("q", (1,), "int32", "input"),
        Tensor("z", (2,), "int8", "input"),
        Tensor("u", (1,), "int32", "input"),
    ]
    other = step(None, 2, name="other")
    other.inputs, other.when = ["z", "z"], When(name, 2, 5)
    return Executable(TINY, "two", executable.tensors | {t.name: t for t in tensors}, [*executable.steps, other, *more])


def test_steps_that_depend_on_different_inputs_are_entries():
    executable = Executable.from_bytes(two_entries().to_bytes(), "x.tw")
    assert [[t.name for t in entry] for entry in executable.entries] == [["x", "p", "u"], ["q", "z", "u"]]
    assert ranges(executable.steps) == [When("p", 0, 4), When("q", 2, 5)]
    assert repr(executable).endswith(
        "x int8 (2,), p int32 (1,), u int32 (1,), or q int32 (1,), z int8 (2,), u int32 (1,) -> y int8 (2,))"
    )
    unread, two = {"u": np.zeros(1, np.int32)}, {"q": np.array([2], np.int32), "z": np.array([5, 6], np.int8)}
    with Loaded(executable, open_device("model", TINY)) as loaded:
        assert loaded.run(given(0) | unread)["y"].tolist() == [1, 2]
        assert [report.name for report in loaded.reports] == ["one"]
        assert loaded.run(two | unread)["y"].tolist() == [10, 12]
        assert [report.name for report in loaded.reports] == ["other"]
        with pytest.raises(InputError, match="'q': value 5 given, the program was made for 2..4; give one of"):
            loaded.run(two | unread | {"q": np.array([5], np.int32)})
        for wrong in ({}, given(0), given(0) | two | unread, given(0) | unread | {"v": 0}):
            with pytest.raises(InputError, match="given; program 'two' takes x, p, u; or q, z, u"):
                loaded.run(wrong)


def test_entries_of_the_same_inputs():
    always = HostStep("always", "gather", ["none", "p"], ["one"], {"axis": 0})
    other = HostStep("more", "gather", ["none", "q"], ["two"], {"axis": 0})
    tensors = [Tensor("one", (1,), "int8"), Tensor("two", (1,), "int8")]
    executable = two_entries()
    steps = [executable.steps[0], replace(executable.steps[1], inputs=["x", "x"]), always, other]
    kept = {k: t for k, t in executable.tensors.items() if k != "z"} | {t.name: t for t in tensors}
    with pytest.raises(
        ProgramError, match=r"p and q choose steps, but runs with either have the inputs \['x', 'p', 'q'"
    ):
        Executable(TINY, "two", kept, steps)


def in_place(cache, change=lambda tensors, step: None, **options):
    """The cache's executable after `change` of its tensors and its step."""
    found = Executable.from_launch(cache(**options).launch)
    (one,) = found.steps
    tensors = dict(found.tensors)
    change(tensors, one)
    return Executable(found.cfg, found.name, tensors, [one])


def other_next(tensors, step):
    rows = tensors["rows"]
    tensors["old"] = Tensor("old", rows.shape, rows.dtype, "state", rows.data, "old")
    tensors["rows"] = Tensor("rows", rows.shape, rows.dtype, "state", rows.data, "old")


def no_state(tensors, step):
    tensors["rows"] = Tensor("rows", tensors["rows"].shape, "int8", "input")


def two_symbols(tensors, step):
    step.symbols["token"] = "position"


@pytest.mark.parametrize(
    "change, text",
    [
        (other_next, "buffer 'rows' is state and bound to state 'rows' with next 'old'; it is written in"),
        (no_state, "buffer 'rows' is state and bound to input 'rows'; it is written in"),
        (lambda t, s: s.bind.pop("rows"), "no tensor is bound to its state buffer 'rows'"),
        (two_symbols, "its launch has the symbols position; those with a tensor are position, token; name a tensor"),
        (lambda t, s: s.symbols.clear(), "has the symbols position; those with a tensor are none; name a tensor"),
        (lambda t, s: s.symbols.update(position="x"), "step 'cache' depends on 'x', which is input, int32"),
        (lambda t, s: s.symbols.update(position="z"), "step 'cache' names tensor 'z', which is not declared"),
    ],
)
def test_bindings_of_states_and_symbols(change, text, cache):
    with pytest.raises(ProgramError, match=text):
        in_place(cache, change)


def test_only_a_state_buffer_writes_a_state(cache):
    def output(tensors, step):
        for buffer in step.launch.buffers:
            if buffer.name == "rows":
                buffer.kind = "output"

    with pytest.raises(
        ProgramError, match="writes tensor 'rows', which is state; only output and temp .* by buffers of k"
    ):
        in_place(cache, output)


def test_a_symbol_and_a_buffer_of_one_name(cache):
    launch = cache().launch
    launch.buffers[[b.name for b in launch.buffers].index("x")].name = "position"
    with pytest.raises(ProgramError, match="launch 'cache': 'position' is a symbol and a buffer; rename one"):
        Executable.from_launch(launch)


def test_a_host_step_reads_a_state_in_place(cache):
    """It finds what launches before it wrote; what the next run finds is the same."""
    program = cache()
    found = Executable.from_launch(program.launch)
    found.tensors["all"] = Tensor("all", (64,), "int8", "output")
    steps = [*found.steps, HostStep("flat", "reshape", ["rows"], ["all"], {"shape": [64]})]
    with Loaded(Executable(TINY, "both", found.tensors, steps), open_device("model", TINY)) as loaded:
        for position in (3, 4, 3):
            outputs = loaded.run(program.inputs(position, position))
            np.testing.assert_array_equal(outputs["y"], program.expect(position, position))
            np.testing.assert_array_equal(outputs["all"], program.rows.reshape(-1))


def test_constants_of_several_launches_are_stored_and_loaded_once(cache):
    """Those with the same bytes; `wgt` and the micro-ops of the two launches are equal."""
    one, two = (Executable.from_launch(cache(name=name).launch).steps[0] for name in ("one", "two"))
    assert isinstance(one, LaunchStep) and isinstance(two, LaunchStep)
    tensors = dict(Executable.from_launch(one.launch).tensors)
    one.when, two.when = When("position", 0, 8), When("position", 8, 16)
    both = Executable(TINY, "both", tensors, [one, two])
    regions = both.memory_plan()
    assert sorted(regions) == sorted(["x", "y", "rows", "0.insn", "1.insn", "0.wgt", "0.uop"])
    (wgt,) = (b for b in two.launch.buffers if b.name == "wgt")
    assert wgt.data is not None
    kept, wgt.data = wgt.data, np.append(wgt.data[:-1], np.uint8(9))  # another last byte
    assert sorted({*Executable(TINY, "two", tensors, [one, two]).memory_plan()} - {*regions}) == ["1.wgt"]
    wgt.data = kept
    alone = Executable(TINY, "alone", tensors, [one])
    assert len(both.to_bytes()) < 1.5 * len(alone.to_bytes())
    program = cache()
    with Loaded(Executable.from_bytes(both.to_bytes(), "x.tw"), open_device("model", TINY)) as loaded:
        for position in (0, 9, 7, 8, 3):
            found = loaded.run(program.inputs(position, position))["y"]
            np.testing.assert_array_equal(found, program.expect(position, position))
            assert [report.name for report in loaded.reports] == ["one" if position < 8 else "two"]


def of_elements(cache, names):
    """The cache's program with the symbols' values from elements of a vector."""
    found = Executable.from_launch(cache().launch)
    (one,) = found.steps
    assert isinstance(one, LaunchStep)
    one.symbols = one.symbols | names
    tensors = {name: t for name, t in found.tensors.items() if name != "position"}
    tensors["places"] = Tensor("places", (3,), "int32", "input")
    return Executable(found.cfg, found.name, tensors, [one])


def test_symbols_have_elements_of_vectors_as_their_values(cache):
    program, executable = cache(), of_elements(cache, {"position": "places[2]"})
    executable = Executable.from_bytes(executable.to_bytes(), "x.tw")
    with Loaded(executable, open_device("model", executable.cfg)) as loaded:
        for position in (5, 0, 15):
            inputs = program.inputs(position, position)
            places = np.array([99, -1, inputs.pop("position")[0]], np.int32)
            np.testing.assert_array_equal(
                loaded.run(inputs | {"places": places})["y"], program.expect(position, position)
            )
        with pytest.raises(InputError, match="input 'places': value 16 given, step 'cache' was made for 0..15"):
            loaded.run(inputs | {"places": np.array([0, 0, 16], np.int32)})
    for name, text in (
        ("places[3]", r"depends on 'places', which is input, int32 \(3,\); must be input, int32 \(4,\)"),
        ("places", r"depends on 'places', which is input, int32 \(3,\); must be input, int32 \(1,\)"),
        ("places[-1]", r"names tensor 'places\[-1\]', which is not declared"),
        ("other[1]", r"names tensor 'other\[1\]', which is not declared"),
        (f"places[{'1' * 5000}]", r"names tensor 'places\[1+\]', which is not declared"),
        ("x[0]", r"step 'cache' depends on 'x', which is input, int"),
    ):
        with pytest.raises(ProgramError, match=text):
            of_elements(cache, {"position": name})
