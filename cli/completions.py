"""A language model behind the completions protocol of OpenAI: what requests ask for, and what they get."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..hw.errors import InputError, TilewrightError, one_line
from ..runtime.sampling import Sampling
from ..runtime.writing import Answer
from .chat import Template
from .writer import Writer

STOPS = 16  # stop texts of a request, at most
_COMPLETION_TOKENS = 16  # of an answer to /completions that names no number, as the protocol has it
_NUMBERS = ("temperature", "top_p", "repeat_penalty")
# what a request may state without a change of the answer, and the values for which that is true
_WITHOUT_EFFECT: dict[str, tuple[object, ...]] = {
    "n": (1,),
    "best_of": (1,),
    "echo": (False,),
    "suffix": ("",),
    "logprobs": (False,),
    "presence_penalty": (0,),
    "frequency_penalty": (0,),
    "logit_bias": ({},),
    "tools": ([],),
    "tool_choice": ("none", "auto"),
    "response_format": ({"type": "text"},),
}
_ABOUT_THE_CALLER = ("user", "metadata", "store", "safety_identifier")  # for records, which are not kept
_ROLES = ("system", "developer", "user", "assistant")
_COMMON = ("model", "stream", "stream_options", "stop", "max_tokens", "seed", "top_k", *_NUMBERS)


class Refused(Exception):
    """A request that gets an error of the protocol: an HTTP status, its kind there, and the field it is about."""

    def __init__(self, text: str, status: int = 400, param: str | None = None, code: str | None = None):
        super().__init__(text)
        self.status, self.param, self.code = status, param, code

    def document(self) -> dict[str, Any]:
        """The error as JSON."""
        kind = "invalid_request_error" if self.status < 500 else "server_error"
        return {"error": {"message": str(self), "type": kind, "param": self.param, "code": self.code}}


@dataclass(frozen=True)
class Defaults:
    """What requests get that do not state it; `seed` None: a new one for each, `most` None: as the context holds."""

    sampling: Sampling
    seed: int | None = None
    most: int | None = None
    stops: tuple[str, ...] = ()


@dataclass
class Reply:
    """One answer on its way: its facts for the protocol, and the answer, which iterating writes."""

    chat: bool
    model: str
    prompt_tokens: int
    cached_tokens: int
    answer: Answer
    stream: bool
    with_usage: bool

    def __post_init__(self) -> None:
        kind = "chatcmpl" if self.chat else "cmpl"
        self._head = {"id": f"{kind}-{secrets.token_hex(12)}", "created": int(time.time()), "model": self.model}

    def document(self) -> dict[str, Any]:
        """The whole answer, once it is written."""
        text = self.answer.text
        said = {"message": {"role": "assistant", "content": text, "refusal": None}} if self.chat else {"text": text}
        kind = "chat.completion" if self.chat else "text_completion"
        choice = {"index": 0, **said, "logprobs": None, "finish_reason": self.answer.finish}
        return {**self._head, "object": kind, "choices": [choice], "usage": self._usage()}

    def chunks(self) -> Iterator[dict[str, Any]]:
        """The parts of an answer that streams, each as soon as it is known; writes the answer."""
        if self.chat:
            yield self._chunk({"role": "assistant", "content": ""})
        for piece in self.answer:
            yield self._chunk({"content": piece} if self.chat else piece)
        yield self._chunk({} if self.chat else "", self.answer.finish)
        if self.with_usage:
            yield {**self._head, "object": self._chunk_kind, "choices": [], "usage": self._usage()}

    @property
    def _chunk_kind(self) -> str:
        return "chat.completion.chunk" if self.chat else "text_completion"

    def _chunk(self, said: object, finish: str | None = None) -> dict[str, Any]:
        key = "delta" if self.chat else "text"
        choice = {"index": 0, key: said, "logprobs": None, "finish_reason": finish}
        return {**self._head, "object": self._chunk_kind, "choices": [choice]}

    def _usage(self) -> dict[str, Any]:
        count = len(self.answer.tokens)
        usage = {"prompt_tokens": self.prompt_tokens, "completion_tokens": count}
        details = {"prompt_tokens_details": {"cached_tokens": self.cached_tokens}}
        return usage | {"total_tokens": self.prompt_tokens + count} | details


class Completions:
    """The model `name` of a `writer`, for one request after the other.

    `template` is None where the model has no chat template: chat is refused then, with what to do.
    """

    def __init__(self, writer: Writer, name: str, template: Template | None, defaults: Defaults):
        self._writer, self.name, self._template, self._defaults = writer, name, template, defaults
        self._created = int(time.time())

    def models(self) -> dict[str, Any]:
        """The list of models: this one."""
        return {"object": "list", "data": [self.model(self.name)]}

    def model(self, name: object) -> dict[str, Any]:
        """The facts of the model `name`. Raises `Refused` for another name than this model's."""
        if name != self.name:
            raise Refused(
                f"model {name!r} is not served; this server has {self.name!r}", 404, "model", "model_not_found"
            )
        return {"id": self.name, "object": "model", "created": self._created, "owned_by": "tilewright"}

    def reply(self, request: object, chat: bool) -> Reply:
        """Begin the answer to the JSON document of a request to /chat/completions, or to /completions.

        Raises `Refused` for one that the protocol does not have, or whose answer would not be what it asks for.
        """
        if not isinstance(request, dict):
            raise Refused("a request is a JSON object; give one with `model`")
        given = {key: value for key, value in request.items() if value is not None}
        more = ("messages", "max_completion_tokens") if chat else ("prompt",)
        _check_fields(given, (*_COMMON, *more))
        self.model(_required(given, "model"))
        prompt = self._messages(given) if chat else self._prompt(given)
        most = _whole(given, "max_completion_tokens", 1)
        most = most or _whole(given, "max_tokens", 1) or self._defaults.most or (None if chat else _COMPLETION_TOKENS)
        seed = _whole(given, "seed", 0)
        choose = self._sampling(given).chooser(self._defaults.seed if seed is None else seed)
        stream, options = given.get("stream", False), given.get("stream_options", {})
        if not isinstance(stream, bool) or not isinstance(options, dict):
            raise Refused("stream is true or false, and stream_options an object", param="stream")
        if unknown := set(options) - {"include_usage"}:
            raise Refused(f"stream_options {', '.join(sorted(unknown))}: only include_usage is known", param="stream")
        stops = _stops(given, self._defaults.stops)
        kept, answer = self._writer.answer(prompt, choose, self._writer.room(prompt, most), stops)
        return Reply(chat, self.name, len(prompt), kept, answer, stream, bool(options.get("include_usage")))

    def _sampling(self, given: Mapping[str, Any]) -> Sampling:
        changes: dict[str, Any] = {}
        for key in _NUMBERS:
            if key in given:
                if isinstance(given[key], bool) or not isinstance(given[key], (int, float)):
                    raise Refused(f"{key} {given[key]!r}: must be a number", param=key)
                changes[key] = float(given[key])
        top_k = _whole(given, "top_k", 0)
        changes |= {} if top_k is None else {"top_k": top_k}
        return replace(self._defaults.sampling, **changes)

    def _prompt(self, given: Mapping[str, Any]) -> list[int]:
        prompt, codec = _required(given, "prompt"), self._writer.codec
        if isinstance(prompt, list) and len(prompt) == 1 and not isinstance(prompt[0], int):
            prompt = prompt[0]
        if isinstance(prompt, str):
            return [*codec.begin, *codec.encode(prompt, special=True)]
        words = self._writer.model.words
        if isinstance(prompt, list) and all(type(token) is int and 0 <= token < words for token in prompt):
            return prompt
        raise Refused(f"prompt must be one text, or a list of tokens from 0 to {words - 1}", param="prompt")

    def _messages(self, given: Mapping[str, Any]) -> list[int]:
        messages = _required(given, "messages")
        if not isinstance(messages, list) or not messages:
            raise Refused("messages must be a list with at least one message", param="messages")
        if self._template is None:
            raise Refused("the model has no chat template; start the server with --template FILE", param="messages")
        return self._template.prompt([_message(k, message) for k, message in enumerate(messages)])


def error_of(exc: Exception) -> Refused:
    """The protocol's error for `exc`: what a request asks for, what happened on the device, or a defect of ours."""
    if isinstance(exc, Refused):
        return exc
    if isinstance(exc, InputError):
        return Refused(str(exc), code="context_length_exceeded" if "the context" in str(exc) else None)
    defect = "" if isinstance(exc, TilewrightError) else "a defect of the server: "
    return Refused(f"{defect}{one_line(exc)}", 500)


def _check_fields(given: Mapping[str, Any], known: Sequence[str]) -> None:
    for key, value in given.items():
        if key in _WITHOUT_EFFECT:
            if not any(value == x and isinstance(value, bool) == isinstance(x, bool) for x in _WITHOUT_EFFECT[key]):
                allowed = " or ".join(map(repr, _WITHOUT_EFFECT[key]))
                raise Refused(f"{key} {value!r} is not supported; leave it out, or give {allowed}", param=key)
        elif key not in known and key not in _ABOUT_THE_CALLER:
            raise Refused(f"{key} is not supported; a request may have {', '.join(known)}", param=key)


def _required(given: Mapping[str, Any], key: str) -> Any:
    if key not in given:
        raise Refused(f"the request has no {key}; give one", param=key)
    return given[key]


def _whole(given: Mapping[str, Any], key: str, least: int) -> int | None:
    value = given.get(key)
    if value is not None and (type(value) is not int or not least <= value < 1 << 63):
        raise Refused(f"{key} {value!r}: must be a whole number from {least} on", param=key)
    return value


def _stops(given: Mapping[str, Any], default: Sequence[str]) -> Sequence[str]:
    stops = given.get("stop", default)
    stops = [stops] if isinstance(stops, str) else stops
    if (
        not isinstance(stops, (list, tuple))
        or len(stops) > STOPS
        or not all(isinstance(stop, str) and stop for stop in stops)
    ):
        raise Refused(f"stop must be a text, or a list of at most {STOPS} texts that are not empty", param="stop")
    return stops


def _message(k: int, message: object) -> dict[str, str]:
    """{"role", "content"} of a message, whose content is a text or a list of parts that are texts."""
    role, content = (message.get(key) for key in ("role", "content")) if isinstance(message, dict) else (None, None)
    if role not in _ROLES:
        raise Refused(f"messages[{k}].role {role!r}: must be one of {', '.join(_ROLES)}", param="messages")
    if isinstance(content, list):
        texts = [part["text"] for part in content if isinstance(part, dict) and isinstance(part.get("text"), str)]
        only = len(texts) == len(content) and all(part.get("type") == "text" for part in content)
        content = "".join(texts) if only else None
    if not isinstance(content, str):
        raise Refused(f"messages[{k}].content must be a text, or a list of parts of type text", param="messages")
    return {"role": "system" if role == "developer" else role, "content": content}
