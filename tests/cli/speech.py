"""A language model whose answers are given, for the tests of what writes, chats and serves."""

from __future__ import annotations

import time
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from tests.runtime.test_language import PIECES
from tilewright.cli.writer import Writer
from tilewright.hw.config import PRESETS
from tilewright.runtime.device import Stats
from tilewright.runtime.executable import Executable, HostStep, Tensor
from tilewright.runtime.loader import StepReport

WORDS = len(PIECES)
TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}<{{ m.role }}>{{ m.content }}</>\n{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)


class Letters:
    """A codec of 256 bytes and two special tokens: `<s>` begins texts, and `</>` ends them."""

    begin, ends = (256,), frozenset({257})
    template: str | None = TEMPLATE
    named: Mapping[str, str] = MappingProxyType({"bos_token": "<s>", "eos_token": "</>"})
    NAMES: tuple[str, ...] = ("<s>", "</>")

    def encode(self, text: str, special: bool = False) -> list[int]:
        for k, name in enumerate(self.NAMES if special else ()):
            before, found, after = text.partition(name)
            if found:
                return [*self.encode(before, True), 256 + k, *self.encode(after, True)]
        return list(text.encode())

    def piece(self, previous: int, token: int) -> bytes:
        return bytes([token]) if token < 256 else "".join(self.NAMES[token - 256 : token - 255]).encode()

    def decode(self, tokens: Any) -> str:
        return b"".join(self.piece(0, token) for token in tokens).decode(errors="replace")


class Follows:
    """A program whose most likely tokens are those given, one after another; of others `likely` have half as much.

    `runs` are (token, position) of all runs; with `delay`, seconds, a run takes time.
    """

    def __init__(self, tokens, delay=0.0):
        self.tokens, self.stats, self.runs, self.delay = iter(tokens), Stats(cycles=50), [], delay
        self.reports = [StepReport("s", "device", 1, self.stats, 0.5), StepReport("h", "host", 0, Stats(), 0.25)]

    def run(self, inputs):
        time.sleep(self.delay)
        self.runs.append((int(inputs["token"][0]), int(inputs["position"][0])))
        token = next(self.tokens)
        if isinstance(token, Exception):
            raise token
        return {"logits": np.eye(WORDS, dtype=np.float32)[[token]]}


class Echo(Follows):
    """Chooses the bytes of `answer`, then what ends a text, from the last `>` of a prompt on."""

    def __init__(self, answer, delay=0.0):
        super().__init__([], delay)
        self.answer, self.left = [*answer.encode(), 257], list[int]()

    def run(self, inputs):
        token = int(inputs["token"][0])
        self.left = list(self.answer) if token == ord(">") else self.left
        self.tokens = iter([self.left.pop(0) if self.left else 0])
        return super().run(inputs)


def executable(context=9):
    tensors = [Tensor(name, (1,), "int32", "input") for name in ("token", "position")]
    tensors += [Tensor("table", (3, WORDS), "float32", "constant", np.ones((3, WORDS), np.float32))]
    tensors += [Tensor("logits", (1, WORDS), "float32", "output")]
    shape = (1, 4, context, 1)
    tensors += [Tensor("0.keys.cache", shape, "int8", "state", np.zeros(shape, np.int8), "0.keys.cache")]
    step = HostStep("rows", "gather", ["table", "token"], ["logits"], {"axis": 0})
    return Executable(PRESETS["tiny"], "m", {t.name: t for t in tensors}, [step])


def writer_of(program, codec=None, context=9, graph=None):
    """A `Writer` of a program of this module."""
    return Writer(program, executable(context), codec or Letters(), graph)
