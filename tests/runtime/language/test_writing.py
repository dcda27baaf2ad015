"""runtime/language/writing.py: the loop with a program that counts, and what it refuses."""

import numpy as np
import pytest

from tilewright.hw.config import PRESETS
from tilewright.hw.errors import InputError, UnsupportedError
from tilewright.runtime.executable import Executable, HostStep, Tensor
from tilewright.runtime.language.writing import language_model, most_likely, sampler, write


class Counter:
    """The token behind k is k + 2; it keeps what it was given."""

    def __init__(self):
        self.given = []

    def run(self, inputs):
        token = int(inputs["token"][0])
        self.given.append((token, int(inputs["position"][0])))
        assert {x.dtype for x in inputs.values()} == {np.dtype("int32")}
        return {"logits": np.eye(20, dtype=np.float32)[[(token + 2) % 20]]}


def test_the_prompt_goes_in_first_then_what_was_chosen():
    program = Counter()
    steps = list(write(program, 10, [1, 8, 4], 6, most_likely))
    assert program.given == [(1, 0), (8, 1), (4, 2), (6, 3), (8, 4)]
    assert [(step.token, step.following) for step in steps] == [(1, 8), (8, 4), (4, 6), (6, 8), (8, 10)]
    assert steps[0].logits[3] == 1


def test_a_text_ends_where_the_next_begins():
    program = Counter()
    steps = list(write(program, 10, [1, 17], 9, most_likely))
    assert [step.following for step in steps] == [17, 19, None] and program.given[-1] == (19, 2)


@pytest.mark.parametrize(
    "prompt, count, text",
    [
        ([1, 2, 3], 3, "the prompt has 3 tokens, 3 are wanted in all; ask for at least 4"),
        ([], 3, "the prompt has 0 tokens"),
        ([1] * 10, 10, "the prompt has 10 tokens, the context 10; shorten the prompt"),
        ([1], 11, "11 tokens do not fit the context of 10; ask for fewer"),
    ],
)
def test_what_does_not_fit_is_refused(prompt, count, text):
    program = Counter()
    with pytest.raises(InputError, match=text):
        list(write(program, 10, prompt, count, most_likely))
    assert not program.given


def test_samples_follow_the_probabilities():
    logits = np.log(np.array([0.5, 0.25, 0.25], np.float32))
    choose, again, other = sampler(1.0, 5), sampler(1.0, 5), sampler(1.0, 6)
    found = [choose(logits) for _ in range(4000)]
    assert found == [again(logits) for _ in range(4000)] != [other(logits) for _ in range(4000)]
    assert np.allclose(np.bincount(found) / 4000, [0.5, 0.25, 0.25], atol=0.03)
    for temperature in (0.05, 1e-323):
        cold = sampler(temperature, 5)
        assert {cold(logits) for _ in range(200)} == {0}
    hot = sampler(1e308, 5)
    assert {hot(logits) for _ in range(200)} == {0, 1, 2}
    for wrong in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(InputError, match="must be a finite number above 0; leave it out"):
            sampler(wrong, 0)


def program(cache="0.keys.cache", token="token", shape=(1, 4, 9, 1)):
    tensors = [Tensor(token, (1,), "int32", "input"), Tensor("position", (1,), "int32", "input")]
    tensors += [Tensor("table", (3, 7), "float32", "constant", np.ones((3, 7), np.float32))]
    tensors += [Tensor("logits", (1, 7), "float32", "output")]
    tensors += [Tensor(cache, shape, "int8", "state", np.zeros(shape, np.int8), cache)]
    step = HostStep("rows", "gather", ["table", token], ["logits"], {"axis": 0})
    return Executable(PRESETS["tiny"], "m", {t.name: t for t in tensors}, [step])


def test_a_program_that_is_no_language_model_is_named():
    assert language_model(program()) == (9, 7)
    for wrong in (program(cache="x"), program(token="image"), program(shape=(9,))):
        with pytest.raises(UnsupportedError, match="program 'm' is no language model: its inputs must be"):
            language_model(wrong)
