"""Networks for several images, lengths and tokens give what the network gives; executables as one."""

from dataclasses import replace
from pathlib import Path
from typing import cast

import numpy as np
import pytest

from tests.compiler.frontend.llama.conftest import llama_bytes
from tests.compiler.graph.test_operators import attention
from tilewright.compiler import graph as g
from tilewright.compiler.frontend import import_model
from tilewright.compiler.frontend.llama.measure import Steps
from tilewright.compiler.graph import reference
from tilewright.compiler.kernels import table
from tilewright.compiler.kernels.cache import write_rows
from tilewright.compiler.network import compile_graph, launch_cycles
from tilewright.compiler.target.variants import (
    apart,
    in_blocks,
    in_contexts,
    join,
    of_images,
    of_one,
    together,
    with_entry,
)
from tilewright.hw.config import PRESETS
from tilewright.hw.errors import CapacityError, InputError, ProgramError, Unfit, UnsupportedError
from tilewright.runtime import layout
from tilewright.runtime.device import open_device
from tilewright.runtime.executable import Executable, HostStep, Tensor
from tilewright.runtime.loader import Loaded
from tilewright.runtime.steps import When
from tilewright.sim.memory import CAPACITY

DIGITS = Path(__file__).parents[3] / "examples" / "digits" / "digits.onnx"
PYNQ = PRESETS["pynq_z1"]
ROWS = PYNQ.replace(name="rows", batch=2, block_in=8, block_out=8, inp_bytes=16384)
SEED = 20261123


def random_images(graph, count):
    print("seed", SEED)
    rng = np.random.default_rng(SEED)
    return [{t.name: rng.normal(size=t.shape).astype(t.dtype) for t in graph.inputs} for _ in range(count)]


@pytest.mark.parametrize("cfg, images", [(PRESETS["tiny"], 5), (ROWS, 4)], ids=["tiny", "rows"])
def test_each_image_is_exact(cfg, images):
    graph = import_model(DIGITS)
    samples = random_images(graph, images)
    executable = compile_graph(of_images(graph, 4), cfg)
    with Loaded(executable, open_device("model", cfg)) as loaded:
        found = apart([loaded.run(group) for group in together(samples, 4)], 4, images)
    assert len(found) == images
    for sample, result in zip(samples, found):
        assert np.array_equal(result["logits"], reference.run(graph, sample)[0]["logits"])
    one = of_one(executable, 4)
    assert [t.shape for t in (*executable.inputs, *executable.outputs)] == [(4, 1, 8, 8), (4, 10)]
    assert [t.shape for t in (*one.inputs, *one.outputs)] == [(1, 1, 8, 8), (1, 10)]
    assert [t.shape for t in one.entries[0]] == [(1, 1, 8, 8)]


@pytest.mark.parametrize("cfg", [PYNQ, ROWS], ids=lambda cfg: cfg.name)
def test_images_share_weights_and_rows(cfg):
    graph = import_model(DIGITS)
    alone, several = (launch_cycles(compile_graph(of_images(graph, n), cfg)) for n in (1, 4))
    assert several < 0.7 * 4 * alone


def one_operator(op, *inputs):
    return g.Graph("one", inputs, (op.output,), (op,))


X, CONSTANT = g.Tensor("x", (1, 4)), g.Tensor("c", (1, 4), data=np.zeros((1, 4), np.int8))


@pytest.mark.parametrize(
    "op",
    [
        g.Reshape("mixes", (X,), g.Tensor("y", (2, 2))),
        g.Transpose("mixes", (X,), g.Tensor("y", (4, 1)), (1, 0)),
        g.Concat("mixes", (X, CONSTANT), g.Tensor("y", (1, 8)), 1),
        g.Pad("mixes", (X,), g.Tensor("y", (2, 4)), ((0, 1), (0, 0)), 0),
    ],
    ids=lambda op: type(op).__name__,
)
def test_what_may_mix_images_is_named(op):
    text = f"batch 2: {type(op).__name__} 'mixes' may mix images; use batch 1"
    with pytest.raises(UnsupportedError, match=text):
        of_images(one_operator(op, X), 2)


def test_constants_of_one_row_stay():
    (op,) = of_images(one_operator(g.Add("add", (X, CONSTANT), g.Tensor("y", (1, 4))), X), 3).ops
    assert [t.shape for t in (*op.inputs, op.output)] == [(3, 4), (1, 4), (3, 4)]


def test_refusals():
    graph = import_model(DIGITS)
    assert of_images(graph, 1) is graph
    for count in (0, -1, 1.5, "3"):
        with pytest.raises(InputError, match=f"batch {count!r}: must be an integer of at least 1"):
            of_images(graph, cast(int, count))
    state, y = g.Tensor("s", (1, 4)), g.Tensor("y", (1, 4))
    op = g.Requantize("copy", (state,), y)
    kept = g.Graph("kept", (), (y,), (op,), (g.State(state, np.zeros((1, 4), np.int8), y),))
    with pytest.raises(UnsupportedError, match="keeps values from one input to the next; use batch 1"):
        of_images(kept, 2)


def test_more_than_the_memory_holds_is_refused():
    x, y = g.Tensor("x", (1, 1 << 20)), g.Tensor("y", (1, 1 << 20))
    graph = one_operator(g.Requantize("copy", (x,), y), x)
    most = CAPACITY // (2 << 20)
    assert of_images(graph, most).inputs[0].shape == (most, 1 << 20)
    with pytest.raises(
        CapacityError,
        match=f"batch {most + 1}: inputs and results take 2,097,152 bytes of each image.*use batch {most} or",
    ):
        of_images(graph, most + 1)
    image, wide, mean = g.Tensor("i", (1, 1, 1024, 1024)), g.Tensor("m", (1, 3, 1024, 1024)), g.Tensor("e", (1, 3))
    ops = g.Concat("grow", (image, image, image), wide, 1), g.Mean("mean", (wide,), mean, (2, 3))
    with pytest.raises(CapacityError, match=f"'m' takes 3,145,728 .*use batch {CAPACITY // (3 << 20)} or"):
        of_images(g.Graph("grown", (image,), (mean,), ops), most)


def network(context, inputs=4):
    op = attention(((1, 8), (1, 4, context, 1), (1, context, 2, 1)), context)
    return g.Graph("net", op.inputs[:inputs], (op.output,), (op,))


def test_lengths_double_up_to_the_whole_context():
    for context, ends in ((48, (48,)), (64, (64,)), (80, (64, 80)), (300, (64, 128, 256, 300))):
        graph = network(context)
        found = in_contexts(graph)
        assert found is not None and found.ends == ends and found.position == "p" and found.graphs[-1] is graph
        assert tuple(vars(part.ops[0])["seen"] for part in found.graphs) == ends


def test_results_are_those_of_the_whole():
    found = in_contexts(network(80))
    assert found is not None
    rng = np.random.default_rng(3)
    arrays = {t.name: rng.integers(-50, 50, t.shape, np.int8) for t in found.graphs[0].inputs[:3]}
    for position in (0, 63):
        inputs = arrays | {"p": np.array([position], np.int32)}
        short, whole = (reference.run(graph, inputs)[0]["y"] for graph in found.graphs)
        assert np.array_equal(short, whole)


CONTEXT, LONGEST = 80, 40
TOKENS = [1, *np.random.default_rng(5).integers(2, 40, CONTEXT - 1).tolist()]


def number(value):
    return np.array([value], np.int32)


@pytest.fixture(scope="module")
def graph(tmp_path_factory):
    path = tmp_path_factory.mktemp("llama") / "small.bin"
    path.write_bytes(llama_bytes(width=32, hidden=32, heads=4, kv_heads=2, context=CONTEXT))
    return import_model(path)


@pytest.fixture(scope="module")
def expected(graph):
    """(logits, states) after each number of tokens, one after the other."""
    steps, found = Steps(graph), []
    for token in TOKENS:
        logits = steps.logits(token)
        found.append((logits.tobytes(), {name: values.copy() for name, values in steps.state.items()}))
    return found


def test_every_length_leaves_the_same(graph, expected):
    """The graph itself: whole blocks of 1 to 40 tokens, then the rest."""
    rows = in_blocks(graph, 16)
    assert rows is not None
    assert [(t.name, t.shape, t.dtype) for t in rows.inputs] == [("tokens", (16,), "int32"), ("block", (1,), "int32")]
    assert rows.outputs[0].shape == (1, 40) and [s.tensor for s in rows.states] == [s.tensor for s in graph.states]
    for blocks in range(3):
        state = reference.initial_state(graph)
        for k in range(blocks):
            reference.run(rows, inputs_of(16 * k, 16), state=state)
        for place in range(16 * blocks, min(16 * blocks + 15, LONGEST)):
            outputs, _ = reference.run(graph, inputs_of(place, 1), state=state)
            logits, caches = expected[place]
            assert outputs["logits"].tobytes() == logits, place
            assert all(np.array_equal(state[name], values) for name, values in caches.items()), place
    state = {name: values.copy() for name, values in expected[63][1].items()}
    outputs, _ = reference.run(rows, inputs_of(64, 16), state=state)
    logits, caches = expected[79]
    assert outputs["logits"].tobytes() == logits
    assert all(np.array_equal(state[name], values) for name, values in caches.items())


def inputs_of(place, count):
    """The inputs of a run of `count` tokens from `place` on."""
    if count == 1:
        return {"token": number(TOKENS[place]), "position": number(place)}
    return {"tokens": np.array(TOKENS[place : place + count], np.int32), "block": number(place // count)}


def expect(loaded, outputs, wanted):
    logits, caches = wanted
    assert outputs["logits"].tobytes() == logits
    for name, values in loaded.state.items():
        assert values.tobytes() == layout.pack_blocks(caches[name], 1, 16).tobytes()


@pytest.mark.circuit
def test_the_device_leaves_the_same(graph, expected):
    """All lengths behind each number of blocks; the launch of the last one reads 80 positions, the others 64."""
    executable = compile_graph(graph, PRESETS["pynq_z1_plus"])
    launches = executable.launches
    assert [step.when for step in launches] == [
        ("position", 0, 64),
        ("position", 64, 80),
        ("block", 0, 4),
        ("block", 4, 5),
    ]
    assert [step.op for step in executable.steps if isinstance(step, HostStep) and step.when == ("block", 0, 4)] == [
        "chain"
    ]
    alone = executable.first_entry()
    assert alone.steps == executable.steps[: len(executable.steps) // 2] and alone.first_entry() is alone
    assert [t.name for t in alone.inputs] == ["token", "position"]
    assert len(alone.tensors) < len(executable.tensors) and alone.states == executable.states
    with Loaded(executable, open_device("model", executable.cfg)) as loaded:
        for blocks in (0, 1, 2):
            loaded.reset()
            for k in range(blocks):
                expect(loaded, loaded.run(inputs_of(16 * k, 16)), expected[16 * k + 15])
            for place in range(16 * blocks, min(16 * blocks + 15, LONGEST)):
                expect(loaded, loaded.run(inputs_of(place, 1)), expected[place])
        loaded.run(inputs_of(32, 16))
        for place in range(48, 64):
            loaded.run(inputs_of(place, 1))
        expect(loaded, loaded.run(inputs_of(64, 16)), expected[79])


def test_a_program_whose_caches_would_be_elsewhere_has_no_blocks(graph, monkeypatch):
    def one(k, op):
        if op.inputs[1].shape[0] == 16:
            raise Unfit("many")
        write_rows(k, op)

    monkeypatch.setitem(table.KERNELS, g.WriteRows, (one,))
    executable = compile_graph(graph, PRESETS["pynq_z1_plus"])
    assert [t.name for t in executable.inputs] == ["token", "position"] and len(executable.entries) == 1


def test_networks_that_are_no_such_step(graph):
    x, y = g.Tensor("x", (1, 4)), g.Tensor("y", (4, 1))
    other = g.Graph("net", (x,), (y,), (g.Reshape("r", (x,), y),))
    assert in_blocks(other, 16) is None and in_contexts(other) is None
    assert in_blocks(graph, 32) is None  # of 16 latest values
    embedding = graph.ops[0].output
    taken = g.Add("block", (embedding,) * 2, replace(embedding, name="block"))
    assert in_blocks(replace(graph, ops=(*graph.ops, taken)), 16) is None
    assert in_blocks(replace(graph, inputs=(*graph.inputs, x)), 16) is None
    both = g.Add("sum", (embedding,) * 2, replace(embedding, name="sum"))
    rows = in_blocks(replace(graph, ops=(*graph.ops, both), outputs=(*graph.outputs, both.output)), 16)
    assert rows is not None and [t.shape for t in rows.outputs] == [(16, 40), (16, 32)]


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


def test_executables_that_cannot_be_joined(cache):
    first, other = context(cache, 4), context(cache, 8)
    with pytest.raises(ProgramError, match="output 'part' is not the same in all executables; join those of one netw"):
        join([first, context(cache, 8, extra=1)], "position", (4, 8))
    joined = join([first, other], "position", (4, 8))
    text = "step 'step, 0..3' already runs in some contexts only; join executables with"
    with pytest.raises(ProgramError, match=text):
        join([joined, joined], "position", (4, 8))
    data = np.ones_like(other.tensors["rows"].data)
    other.tensors["rows"] = Tensor("rows", data.shape, "int8", "state", data, "rows")
    with pytest.raises(ProgramError, match="state 'rows' is not the same in all executables"):
        join([first, other], "position", (4, 8))
    block = entry(cache, "block")
    block.tensors["y"] = replace(block.tensors["y"], name="z")
    with pytest.raises(ProgramError, match="output 'y' is not the same in all executables"):
        with_entry(join([first], "position", (4,)), block, "blocks")


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
