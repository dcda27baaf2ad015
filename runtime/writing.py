"""Writing a text with a language model: tokens in, logits out, the next token, its characters."""

from __future__ import annotations

import codecs
import os
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from ..hw.errors import InputError
from .arrays import Array
from .language import LanguageModel, TextCodec
from .loader import Inputs, Outputs
from .sampling import Choose


class Runs(Protocol):
    """A program that is run step by step and keeps its state: a `Loaded`, or one on a server."""

    def run(self, inputs: Inputs) -> Outputs:
        """Outputs by name."""
        ...


@dataclass(frozen=True)
class Step:
    """One run: the tokens that went in, from `position` on, and the logits for the token after the last of them.

    `following` is that token, of the prompt or chosen; None where the chosen one ends the text.
    """

    tokens: tuple[int, ...]
    position: int
    logits: Array
    following: int | None


class Text:
    """The text of a program whose state keeps the keys and values of its tokens.

    `tokens` are those so far, of which the first `position` went in.
    """

    def __init__(self, program: Runs, model: LanguageModel):
        self._program, self._model = program, model
        self.tokens: list[int] = []
        self.position = 0
        self._last = 0  # position of the token that went in last

    def begin(self, prompt: Sequence[int]) -> int:
        """Make `prompt` the text. Returns how many of its tokens need not go in, as the text before began with them.

        The last token goes in again, for its logits. Raises `InputError` where the context has no room for an answer.
        """
        context = self._model.context
        if not prompt:
            raise InputError("the prompt has no tokens, and the model none that begins a text; give a prompt")
        if len(prompt) >= context:
            raise InputError(f"the prompt has {len(prompt)} tokens, the context {context}; shorten the prompt")
        kept = len(os.path.commonprefix([self.tokens[: self.position], list(prompt[:-1])]))
        pending = self._model.pending
        if kept // pending != self._last // pending:  # other values wait, which would take the place of those kept
            kept -= kept % pending
        self.tokens, self.position = list(prompt), kept
        return kept

    def write(self, count: int, choose: Choose, ends: Collection[int] = ()) -> Iterator[Step]:
        """Run the program on the tokens that did not go in, then on those that `choose` takes, up to `count` in all.

        Whole blocks of the prompt go in together where the program takes blocks, the rest token by token. A chosen
        token of `ends` ends the text, without being part of it. Raises `InputError` where `count` does not fit.
        """
        context = self._model.context
        if len(self.tokens) >= count:
            least = len(self.tokens) + 1
            raise InputError(
                f"the prompt has {len(self.tokens)} tokens, {count} are wanted in all; ask for at least {least}"
            )
        if count > context:
            raise InputError(f"{count} tokens do not fit the context of {context}; ask for fewer")
        while self.position < count - 1:
            start = self.position
            given = tuple(self.tokens[start : start + self._model.block])
            if start % self._model.block or len(given) < self._model.block:
                given = given[:1]
            logits = self._program.run(_inputs(given, start))["logits"][0]
            self.position = start + len(given)
            self._last = self.position - 1
            following: int | None = None
            if self.position < len(self.tokens):
                following = self.tokens[self.position]
            else:
                chosen = choose(logits, self.tokens)
                if chosen not in ends:
                    following = chosen
                    self.tokens.append(chosen)
            yield Step(given, start, logits, following)
            if following is None:
                return


def _inputs(tokens: Sequence[int], position: int) -> dict[str, Array]:
    """The inputs of a run that takes `tokens`, from `position` on."""
    ids = np.array(tokens, np.int32)
    if len(tokens) == 1:
        return {"token": ids, "position": np.array([position], np.int32)}
    return {"tokens": ids, "block": np.array([position // len(tokens)], np.int32)}


class Characters:
    """The characters of a text that arrives in bytes, up to the first stop text.

    A character is given out when all its bytes are there, and the beginning of a stop text when it is known to be none.
    Raises `InputError` for an empty stop text.
    """

    def __init__(self, stops: Sequence[str] = ()):
        if "" in stops:
            raise InputError("a stop text is empty; give at least one character")
        self._stops, self._held = stops, ""
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self.stopped = False

    def add(self, piece: bytes, last: bool = False) -> str:
        """The characters that are certain after `piece`; all that is left with the `last` one."""
        if self.stopped:
            return ""
        text = self._held + self._decoder.decode(piece, final=last)
        places = [text.find(stop) for stop in self._stops]
        first = min((place for place in places if place >= 0), default=-1)
        if first >= 0:
            self.stopped, self._held = True, ""
            return text[:first]
        kept = 0 if last else max((_overlap(text, stop) for stop in self._stops), default=0)
        self._held = text[len(text) - kept :]
        return text[: len(text) - kept]


def _overlap(text: str, stop: str) -> int:
    """With how many of its first characters, not all, `stop` continues the end of `text`."""
    return next((n for n in range(min(len(text), len(stop) - 1), 0, -1) if text.endswith(stop[:n])), 0)


class Answer:
    """What a model writes after a prompt whose last token is `previous`: iterating runs `steps`, which choose tokens.

    It gives the characters as soon as they are certain. `text` and `tokens` are those so far; the tokens may reach
    beyond a stop text, and have no end token. `finish` is "stop" where an end token or a stop text ended it, and else
    "length".
    """

    def __init__(self, steps: Iterable[Step], previous: int, codec: TextCodec, stops: Sequence[str] = ()):
        self._steps, self._previous, self._codec = steps, previous, codec
        self._characters = Characters(stops)
        self.text, self.tokens, self.finish = "", list[int](), "length"

    def __iter__(self) -> Iterator[str]:
        for step in self._steps:
            token = step.following
            if token is None:
                self.finish = "stop"
                break
            self.tokens.append(token)
            yield from self._given(self._codec.piece(self._previous, token))
            if self._characters.stopped:
                self.finish = "stop"
                return
            self._previous = token
        yield from self._given(b"", last=True)
        if self._characters.stopped:
            self.finish = "stop"

    def _given(self, piece: bytes, last: bool = False) -> Iterator[str]:
        text = self._characters.add(piece, last)
        self.text += text
        if text:
            yield text
