"""runtime/writing.py: the loop with a program that counts, texts that begin alike, characters and stop texts."""

import random
from typing import Any, cast

import numpy as np
import pytest

from tilewright.hw.errors import InputError
from tilewright.runtime.language import BEGIN, LanguageModel
from tilewright.runtime.sampling import Sampling
from tilewright.runtime.writing import Answer, Characters, Step, Text

most_likely = Sampling().chooser(0)


class Counter:
    """The token behind k is k + 2; it keeps what it was given."""

    def __init__(self):
        self.given = []

    def run(self, inputs):
        if "tokens" in inputs:
            token = int(inputs["tokens"][-1])
            self.given.append((*inputs["tokens"].tolist(), "block", int(inputs["block"][0])))
        else:
            token = int(inputs["token"][0])
            self.given.append((token, int(inputs["position"][0])))
        assert {x.dtype for x in inputs.values()} == {np.dtype("int32")}
        return {"logits": np.eye(20, dtype=np.float32)[[(token + 2) % 20]]}


MODEL = LanguageModel(10, 20, 1)


def write(program, model, prompt, count, choose, ends=(BEGIN,)):
    text = Text(program, model)
    text.begin(prompt)
    return list(text.write(count, choose, ends))


def test_the_prompt_goes_in_first_then_what_was_chosen():
    program = Counter()
    steps = write(program, MODEL, [1, 8, 4], 6, most_likely)
    assert program.given == [(1, 0), (8, 1), (4, 2), (6, 3), (8, 4)]
    assert [(*step.tokens, step.following) for step in steps] == [(1, 8), (8, 4), (4, 6), (6, 8), (8, 10)]
    assert steps[0].logits[3] == 1


def test_a_text_ends_where_the_next_begins():
    program = Counter()
    steps = write(program, MODEL, [1, 17], 9, most_likely)
    assert [step.following for step in steps] == [17, 19, None] and program.given[-1] == (19, 2)
    steps = write(Counter(), MODEL, [1, 17], 9, most_likely, ends={5, 3})
    assert [step.following for step in steps] == [17, 19, 1, None]


@pytest.mark.parametrize(
    "prompt, count, runs",
    [
        ([1, 8, 4], 5, [(1, 8, 4, "block", 0), (6, 3)]),
        ([1, 8, 4, 2, 3, 5, 9], 9, [(1, 8, 4, "block", 0), (2, 3, 5, "block", 1), (9, 6), (11, 7)]),
        ([1, 8], 4, [(1, 0), (8, 1), (10, 2)]),
        ([1, 8, 1, 6], 5, [(1, 8, 1, "block", 0), (6, 3)]),  # only a token that is chosen ends a text
    ],
)
def test_whole_blocks_of_the_prompt_go_in_together(prompt, count, runs):
    program = Counter()
    steps = write(program, MODEL._replace(block=3), prompt, count, most_likely)
    assert program.given == runs
    assert [step.position for step in steps] == [3 * run[-1] if "block" in run else run[-1] for run in runs]
    alone = write(Counter(), MODEL, prompt, count, most_likely)
    assert sum((step.tokens for step in steps), ()) == sum((step.tokens for step in alone), ())
    assert steps[-1].following == alone[-1].following


@pytest.mark.parametrize(
    "prompt, count, text",
    [
        ([1, 2, 3], 3, "the prompt has 3 tokens, 3 are wanted in all; ask for at least 4"),
        ([], 3, "the prompt has no tokens, and the model none that begins a text; give a prompt"),
        ([1] * 10, 10, "the prompt has 10 tokens, the context 10; shorten the prompt"),
        ([1], 11, "11 tokens do not fit the context of 10; ask for fewer"),
    ],
)
def test_what_does_not_fit_is_refused(prompt, count, text):
    program = Counter()
    with pytest.raises(InputError, match=text):
        write(program, MODEL, prompt, count, most_likely)
    assert not program.given


def test_a_text_that_begins_as_the_one_before_goes_on_behind_it():
    program = Counter()
    text = Text(program, MODEL)
    assert text.begin([1, 4]) == 0
    list(text.write(5, most_likely))
    assert text.tokens == [1, 4, 6, 8, 10] and text.position == 4  # the last one did not go in
    program.given.clear()
    assert text.begin([1, 4, 6, 8, 10, 3, 5]) == 4
    list(text.write(8, most_likely))
    assert program.given == [(10, 4), (3, 5), (5, 6)] and text.tokens[-1] == 7
    program.given.clear()
    assert text.begin([1, 4, 6]) == 2  # the last token goes in again, for its logits
    list(text.write(4, most_likely))
    assert program.given == [(6, 2)] and text.tokens == [1, 4, 6, 8]
    assert text.begin([2, 4]) == 0 and text.begin([1, 4]) == 0


def test_values_that_wait_for_their_cache_are_those_of_the_text():
    """Of tokens 4 to 7 of another text the device holds no more than the cache, where all four go together."""
    text = Text(Counter(), MODEL._replace(pending=4))
    assert text.begin([1, 2, 3, 4, 5, 6, 7, 8]) == 0
    list(text.write(9, most_likely))  # the last to go in is token 7
    assert text.begin([1, 2, 3, 4, 5, 6, 9]) == 6
    assert text.begin([1, 2, 3, 4, 5, 6, 9]) == 6
    assert text.begin([1, 2, 3, 9]) == 0
    list(text.write(5, most_likely))
    assert text.begin([1, 2, 3, 9, 1]) == 4 and text.begin([1, 2, 3, 8]) == 3


def test_a_text_goes_on_token_by_token_up_to_the_next_block():
    program = Counter()
    text = Text(program, MODEL._replace(block=3))
    text.begin([1, 8])
    list(text.write(3, most_likely))
    program.given.clear()
    assert text.begin([1, 8, 2, 3, 4, 5, 6]) == 2
    list(text.write(8, most_likely))
    assert program.given == [(2, 2), (3, 4, 5, "block", 1), (6, 6)]


def test_choices_see_the_text_so_far():
    seen = []

    def choose(logits, tokens):
        seen.append(list(tokens))
        return 7

    write(Counter(), MODEL, [1, 4], 5, choose)
    assert seen == [[1, 4], [1, 4, 7], [1, 4, 7, 7]]


def test_characters_come_whole_and_stop_texts_do_not_in_part():
    rng = random.Random(4)
    for _ in range(300):
        text = "".join(rng.choice("abü€😀") for _ in range(rng.randrange(12)))
        stops = ["".join(rng.choice("abü") for _ in range(rng.randrange(1, 4))) for _ in range(rng.randrange(3))]
        data, characters, found, at = text.encode(), Characters(stops), "", 0
        while at < len(data):
            size = rng.randrange(1, 4)
            found += characters.add(data[at : at + size])
            at += size
            whole = data[:at].decode(errors="ignore")
            ends = [whole.find(stop) for stop in stops if stop in whole]
            assert found == whole[: len(found)] and len(found) <= min(ends, default=len(whole))
            # what is held back could be the beginning of a stop text
            assert ends or found == whole or any(stop.startswith(whole[len(found) :]) for stop in stops)
        found += characters.add(b"", last=True)
        ends = [text.find(stop) for stop in stops if stop in text]
        assert found == text[: min(ends, default=len(text))] and characters.stopped == bool(ends), (text, stops)


def test_half_a_character_at_the_end_and_an_empty_stop_text():
    characters = Characters()
    assert (characters.add(b"a\xc3"), characters.add(b"", last=True)) == ("a", "\ufffd")
    with pytest.raises(InputError, match="a stop text is empty; give at least one character"):
        Characters(["a", ""])


class Letters:
    """Token k is the letter k of the alphabet, after a space where the token before is 0."""

    def piece(self, previous, token):
        return (b" " if previous == 0 else b"") + bytes([97 + token])


@pytest.mark.parametrize(
    "tokens, stops, text, finish",
    [
        ([1, 2, 3], [], " bcd", "length"),
        ([1, 2, None], [], " bc", "stop"),
        ([1, 2, 3, 4], ["cd"], " b", "stop"),
        ([1, 2], ["cd"], " bc", "length"),  # the beginning of a stop text is printed where the text ends
        ([1, None], ["b"], " ", "stop"),
    ],
)
def test_an_answer_ends_at_its_end_token_or_a_stop_text(tokens, stops, text, finish):
    steps = [Step((0,), k, np.zeros(1), token) for k, token in enumerate(tokens)]
    answer = Answer(steps, 0, cast(Any, Letters()), stops)
    assert "".join(answer) == text == answer.text and answer.finish == finish
    assert answer.tokens == [token for token in tokens if token is not None][: len(answer.tokens)]
