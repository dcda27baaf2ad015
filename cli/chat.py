"""Chat with a language model: messages to a prompt by a template, and a conversation of several turns."""

from __future__ import annotations

import importlib
import json
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized
from contextlib import suppress
from typing import Any, NoReturn

from ..hw.errors import FileError, InputError, UnsupportedError, one_line
from ..hw.foreign import read_regular
from ..hw.needs import need
from ..runtime.language import TextCodec
from ..runtime.sampling import Choose
from ..runtime.writing import Answer
from . import report
from .writer import Writer

_TEMPLATE_BYTES = 1 << 20
_PROMPT_CHARACTERS = 1 << 22  # that a template may make of the messages
_SECONDS = 5.0  # that it may take for them: loops inside each other need no characters
_BITS = 1 << 14  # of an integer that a product or power in a template may make: a result of many takes for ever
_DIGITS = 300  # that `round` of a template may keep
Message = Mapping[str, str]  # {"role": ..., "content": ...}


class Template:
    """A chat template in Jinja, as Hugging Face has it, rendered in a sandbox.

    Raises `UnsupportedError` where neither the model nor `path` has one, and `FileError` for one that is not Jinja.
    """

    def __init__(self, model: str, codec: TextCodec, path: str | None = None):
        need("a chat template", "cli", "jinja2")
        import jinja2
        from jinja2 import filters, nodes
        from jinja2.sandbox import ImmutableSandboxedEnvironment

        source, self._name = codec.template, f"{model}: its chat template"
        if path is not None:
            source, self._name = read_template(path), path
        if source is None:
            raise UnsupportedError(f"{model}: has no chat template; give one with --template FILE")

        class Environment(ImmutableSandboxedEnvironment):
            intercepted_binops = frozenset(("*", "**"))

            def call(self, *arguments: Any, **values: Any) -> Any:  # macros and functions of a template
                check_time()
                return super().call(*arguments, **values)

            def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
                _check_size(operator, left, right)
                return super().call_binop(context, operator, left, right)

        def check_time() -> None:
            if time.monotonic() > self._deadline:
                _refuse(f"it takes more than {_SECONDS:g} s")

        def timed(items: Iterable[Any]) -> Iterator[Any]:
            for item in items:
                check_time()
                yield item

        def rounded(value: Any, precision: int = 0, method: Any = "common") -> Any:  # by a power of 10
            if abs(precision) > _DIGITS:
                _refuse(f"round({precision}) of it is outside {-_DIGITS}..{_DIGITS}")
            return filters.do_round(value, precision, method)

        environment = Environment(trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"])
        environment.filters["timed"] = timed
        environment.filters["tojson"] = _json
        environment.globals["raise_exception"] = _refuse
        environment.filters["round"] = rounded
        del environment.globals["lipsum"]  # texts without a limit
        self._codec = codec
        try:
            tree = environment.parse(source)
            for loop in tree.find_all(nodes.For):
                loop.iter = nodes.Filter(loop.iter, "timed", [], [], None, None, lineno=loop.lineno)
            self._template = environment.from_string(tree)
        except jinja2.TemplateSyntaxError as exc:
            raise FileError(f"{self._name}: line {exc.lineno}: {one_line(exc)}; give a template in Jinja") from None
        except Exception as exc:  # of the compiler of a template that somebody else wrote
            raise FileError(f"{self._name}: {one_line(exc)}; give a template in Jinja") from None
        self._names = {"bos_token": "", "eos_token": ""} | dict(codec.named)

    def prompt(self, messages: Sequence[Message]) -> list[int]:
        """The tokens of `messages`, with what begins the answer. Raises `InputError` for what the template refuses."""
        parts, size = list[str](), 0
        self._deadline = time.monotonic() + _SECONDS
        try:
            for part in self._template.generate(messages=messages, add_generation_prompt=True, **self._names):
                parts.append(part)
                size += len(part)
                if size > _PROMPT_CHARACTERS:
                    _refuse(f"it makes more than {_PROMPT_CHARACTERS:,} characters of them")
        except Exception as exc:  # filters and methods raise errors of all classes
            raise InputError(f"{self._name} does not take these messages: {one_line(exc)}") from None
        tokens = self._codec.encode("".join(parts), special=True)
        begin = list(self._codec.begin)
        return tokens if tokens[: len(begin)] == begin else begin + tokens


def read_template(path: str) -> str:
    """The text of a template. Raises `FileError`."""
    try:
        return read_regular(path, "a chat template", _TEMPLATE_BYTES).decode()
    except UnicodeDecodeError:
        raise FileError(f"{path}: is no text in UTF-8; give a chat template in Jinja") from None


def _json(value: object, indent: int | None = None) -> str:
    """As Hugging Face's filter: Jinja's own escapes HTML."""
    return json.dumps(value, ensure_ascii=False, indent=indent)


def _refuse(text: str) -> NoReturn:
    """The function `raise_exception` of templates."""
    raise ValueError(text)


def _check_size(operator: str, left: Any, right: Any) -> None:
    """Raise `ValueError` where the product, or power, of two values of a template is too large."""
    if isinstance(left, int) and isinstance(right, int):
        bits = left.bit_length() * right if operator == "**" else left.bit_length() + right.bit_length()
        if bits > _BITS:
            _refuse(f"an integer of it has more than {_BITS:,} bits")
    elif isinstance(left, int) or isinstance(right, int):
        count, items = (left, right) if isinstance(left, int) else (right, left)
        if isinstance(items, Sized) and count * len(items) > _PROMPT_CHARACTERS:
            _refuse(f"a text or list of it has more than {_PROMPT_CHARACTERS:,} items")


class Conversation:
    """Messages so far, and the answers to them, of at most `most` tokens each (None: as the context holds)."""

    def __init__(
        self,
        writer: Writer,
        template: Template,
        choose: Choose,
        system: str | None = None,
        most: int | None = None,
        stops: Sequence[str] = (),
    ):
        self._writer, self._template, self._choose = writer, template, choose
        self._most, self._stops = most, stops
        self._messages: list[Message] = [] if system is None else [{"role": "system", "content": system}]
        self.turns: list[dict[str, Any]] = []  # for JSON

    @property
    def full(self) -> bool:
        """Whether the context has no room for another token."""
        return len(self._writer.tokens) >= self._writer.model.context

    def say(self, text: str) -> Iterator[str]:
        """The characters of the answer to `text`; only tokens that the device has not from the turns before go in.

        Raises `InputError` where the conversation is longer than the context.
        """
        asked: list[Message] = [*self._messages, {"role": "user", "content": text}]
        prompt, context = self._template.prompt(asked), self._writer.model.context
        if len(prompt) >= context:
            raise InputError(
                f"the conversation has {len(prompt)} tokens, the context {context}; begin a new one, or a shorter one"
            )
        kept, answer = self._writer.answer(prompt, self._choose, self._writer.room(prompt, self._most), self._stops)
        yield from answer
        self._messages = [*asked, {"role": "assistant", "content": answer.text}]
        self.turns.append(_turn(text, answer, len(prompt), kept))


def _turn(text: str, answer: Answer, count: int, kept: int) -> dict[str, Any]:
    facts = {"prompt": text, "text": answer.text, "tokens": answer.tokens, "finish": answer.finish}
    return facts | {"prompt_tokens": count, "cached_tokens": kept}


def converse(conversation: Conversation, prompt: str | None, echo: bool) -> None:
    """One answer to `prompt`, or to every line of standard input until it ends or the context is full."""
    for text in _lines() if prompt is None else [prompt]:
        for piece in conversation.say(text):
            if echo:
                report.say(piece, nl=False)
        if echo:
            report.say()
        if conversation.full:
            report.say("the context is full: the answer ends here; begin a new conversation", err=True)
            return


def _lines() -> Iterator[str]:
    """The lines of standard input that are not blank; a terminal shows a prompt, and edits them."""
    asks = sys.stdin.isatty()
    if asks:
        with suppress(ImportError):
            importlib.import_module("readline")  # from now on `input` edits lines, and has a history
    while True:
        try:
            line = input("> " if asks else "")
        except EOFError:
            return
        except UnicodeDecodeError:
            raise InputError("standard input is no text in UTF-8; give one") from None
        if line.strip():
            yield line
