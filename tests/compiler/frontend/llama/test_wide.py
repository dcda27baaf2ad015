"""The wide form of a Llama: close to the float model where the static form says nothing, and exact on the device."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.compiler.frontend.llama.test_floats import plain
from tilewright.compiler.frontend import import_model
from tilewright.compiler.frontend.llama.checkpoint import read_checkpoint
from tilewright.compiler.frontend.llama.floats import FloatLlama, surprise
from tilewright.compiler.frontend.llama.forms import integers_of, logits_of, read_integers, step_of
from tilewright.compiler.frontend.llama.measure import by_steps
from tilewright.compiler.frontend.llama.quantise import calibrate, own_texts
from tilewright.compiler.frontend.llama.wide import WideIntegers, wide_integers, wide_step
from tilewright.compiler.frontend.source import read_source
from tilewright.compiler.graph.reference import initial_state, run
from tilewright.compiler.network import compile_graph
from tilewright.hw.config import PRESETS
from tilewright.hw.errors import FileError, InputError, UnsupportedError
from tilewright.runtime.device import open_device
from tilewright.runtime.language import language_model
from tilewright.runtime.loader import Loaded

TEXT = [1, 7, 39, 7, 20, 3, 3]


def massive(model):
    """`model` with one large element in the embedding of the first token, as real models have after some layers.

    The next matrices barely read that element.
    """
    embedding, gains = model.embedding.copy(), np.where(np.arange(16) == 3, 1e-3, 1).astype(np.float32)
    embedding[1, 3] = 3000
    layers = tuple(
        replace(layer, attention_norm=layer.attention_norm * gains, hidden_norm=layer.hidden_norm * gains)
        for layer in model.layers
    )
    return replace(model, embedding=embedding, layers=layers, norm=model.norm * gains)


@pytest.fixture
def model(llama):
    return massive(read_checkpoint(llama(own_classifier=True)))


def test_a_massive_activation_takes_the_wide_form_which_loses_little(model):
    integers = integers_of(model)
    assert integers.form == "wide"
    found = logits_of(integers, 12)(TEXT)
    real = np.array([plain(model, TEXT[: k + 1]) for k in range(len(TEXT))])  # float64, in loops
    assert np.sqrt(np.mean((found - real) ** 2)) < 0.03 * real.std()
    static = logits_of(integers_of(model, form="static"), 12)(TEXT)
    assert np.sqrt(np.mean((static - real) ** 2)) > 0.3 * real.std()


def test_a_model_without_takes_the_static_form(llama):
    assert integers_of(read_checkpoint(llama())).form == "static"


@pytest.mark.parametrize("heads, kv_heads", [(4, 2), (4, 4), (2, 1)])
def test_biases_rates_and_epsilon_are_the_checkpoints(llama, heads, kv_heads):
    model, rng = read_checkpoint(llama(heads=heads, kv_heads=kv_heads)), np.random.default_rng(7)
    s = model.sizes
    biases = [tuple(rng.normal(0, 2, n).astype("f4") for n in (s.width, s.kv_width, s.kv_width)) for _ in model.layers]
    plain_layers = replace(model, epsilon=0.1)
    layers = tuple(replace(layer, biases=each) for layer, each in zip(model.layers, biases))
    model = replace(model, layers=layers, rates=model.rates / 3, epsilon=0.1)
    integers = integers_of(model)
    assert integers.form == "wide"
    found, real = logits_of(integers, 12)(TEXT), FloatLlama(model, 12).logits(TEXT)
    assert np.sqrt(np.mean((found - real) ** 2)) < 0.03 * real.std()
    for wrong, text in ((model, "queries, keys and values have biases"), (plain_layers, "norms add an epsilon of 0.1")):
        with pytest.raises(UnsupportedError, match=f"small: {text}, which the static form has not; give --form wide"):
            integers_of(wrong, form="static")
    assert integers_of(plain_layers).form == "wide"


def test_a_small_residual_does_not_cut_epsilon(llama):
    model = read_checkpoint(llama())
    layers = tuple(
        replace(each, attention_out=each.attention_out * 1e-9, hidden_out=each.hidden_out * 1e-9)
        for each in model.layers
    )
    model = replace(model, embedding=model.embedding * np.float32(1e-9), layers=layers)
    found, real = logits_of(integers_of(model, form="wide"), 12)(TEXT), FloatLlama(model, 12).logits(TEXT)
    assert np.sqrt(np.mean((found - real) ** 2)) < 0.03 * real.std()


def test_tokens_in_blocks_and_one_by_one_are_equal(model):
    integers = integers_of(model, form="wide")
    assert isinstance(integers, WideIntegers)
    expected = logits_of(integers, 12)(TEXT[:6])
    assert np.array_equal(by_steps(step_of(integers))(TEXT[:6]), expected)
    blocks = wide_step(integers, 12, 3)
    state = initial_state(blocks)
    for block in range(2):
        inputs = {"token": np.array(TEXT[3 * block : 3 * block + 3], np.int32), "position": np.array([block], np.int32)}
        found = run(blocks, inputs, state=state)[0]["logits"]
        assert np.array_equal(found, expected[3 * block : 3 * block + 3])


@pytest.mark.parametrize("own_classifier", [False, True])
def test_a_file_gives_what_was_saved(llama, tmp_path, own_classifier):
    model, path, again = (
        read_checkpoint(llama(own_classifier=own_classifier)),
        tmp_path / "small.npz",
        tmp_path / "b.npz",
    )
    model = massive(model) if own_classifier else model
    integers = integers_of(model, form="wide")
    integers.save(path)
    found = read_integers(read_source(path))
    found.save(again)
    assert found.form == "wide" and again.read_bytes() == path.read_bytes()
    assert (found.matrices["classifier"] is found.matrices["embedding"]) != own_classifier
    assert np.array_equal(logits_of(found, 12)(TEXT), logits_of(integers, 12)(TEXT))
    arrays: dict[str, Any] = {}
    arrays.update(np.load(path))
    np.savez(path, **{key: value for key, value in arrays.items() if key != "gate.range"})
    with pytest.raises(FileError, match=r"has no 'gate.range'; the file is damaged"):
        read_integers(read_source(path))
    changed: dict[str, Any] = arrays | {"epsilon": np.array([-1.0])}
    np.savez(path, **changed)
    with pytest.raises(FileError, match="epsilon holds values that are not above 0"):
        read_integers(read_source(path))
    changed = arrays | {"kind": np.array("a Llama in wide integers, 0")}
    np.savez(path, **changed)
    with pytest.raises(FileError, match="holds no language model in integers"):
        read_integers(read_source(path))


def test_a_residual_far_above_the_embedding_is_refused(model):
    """A step of 32 bits for both would make the embedding 0."""
    ranges = calibrate(model, own_texts(model), 100)
    wide_integers(model, {**ranges, ("end", 1): 3000 * 2.0**20})
    text = r"small: its residual reaches 3.25059e\+09, more than 2\^20 times its embedding, 3000; the wide form"
    with pytest.raises(UnsupportedError, match=text):
        wide_integers(model, {**ranges, ("end", 1): 3100 * 2.0**20})


def test_layers_with_too_many_inputs_are_refused(model):
    wide = replace(model, sizes=replace(model.sizes, hidden=8193))
    with pytest.raises(UnsupportedError, match="small: layers of 8193 inputs; the wide form has at most 8192"):
        integers_of(wide, own_texts(model), "wide")


def test_the_context_ends(model):
    steps = by_steps(step_of(integers_of(model, form="wide")))
    with pytest.raises(InputError, match="position 12 is not in the tables of angles, which end at 11"):
        steps([1] * 13)


@pytest.mark.circuit
@pytest.mark.parametrize("preset, ports", [("pynq_z1", 1), ("pynq_z1_plus", 1), ("pynq_z1_plus", 2)])
def test_every_token_is_exact_on_the_device(llama, tmp_path, preset, ports):
    """Matrices large enough that the accelerator takes those of all layers."""
    path = tmp_path / "wide.npz"
    integers_of(read_checkpoint(llama(width=64, hidden=160, heads=4, kv_heads=2)), form="wide").save(path)
    graph, text = import_model(path), [1, 5, 39, 0, 17]
    executable, expected = compile_graph(graph, PRESETS[preset].replace(load_ports=ports)), by_steps(graph)(text)
    assert len(executable.launches) == 9 and language_model(executable) == (12, 40, 1, 1)
    with Loaded(executable, open_device("model", executable.cfg)) as loaded:
        for position, token in enumerate(text):
            inputs = {"token": np.array([token], np.int32), "position": np.array([position], np.int32)}
            assert np.array_equal(loaded.run(inputs)["logits"][0], expected[position])


def test_perplexity_of_the_wide_form_is_that_of_float(model):
    texts = own_texts(model, 50, 4)
    found, logits = [], logits_of(integers_of(model, texts, "wide"), 12)
    for text in texts:
        found.append((surprise(logits(text), text).mean(), surprise(FloatLlama(model, 12).logits(text), text).mean()))
    integer, real = np.exp(np.mean(found, 0))
    assert integer == pytest.approx(real, rel=0.02)
