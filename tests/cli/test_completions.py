"""cli/completions.py: what requests of the protocol ask for, and the documents that they get."""

from typing import Any

import pytest

from tests.cli.speech import Echo, Follows, Letters, writer_of
from tilewright.cli.chat import Template
from tilewright.cli.completions import Completions, Defaults, Refused, error_of
from tilewright.hw.errors import BoardError, InputError
from tilewright.runtime.sampling import Sampling

HELLO = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
TEXT = {"model": "m", "prompt": "a>"}
BESIDES = ("id", "created")


def served(program=None, template=True, **defaults: Any):
    """A server's model, whose answer to every prompt that ends with > is "one.two"."""
    writer = writer_of(program or Echo("one.two"), context=100)
    chat = Template("m", Letters()) if template else None
    defaults.setdefault("sampling", Sampling())
    return Completions(writer, "m", chat, Defaults(**defaults))


def answered(request, chat=False, **options):
    reply = served(**options).reply(request, chat)
    "".join(reply.answer)
    return reply.document()


def test_a_text():
    found = answered(TEXT)
    assert found.pop("id").startswith("cmpl-") and found.pop("created") > 1.7e9
    assert found == {
        "object": "text_completion",
        "model": "m",
        "choices": [{"index": 0, "text": "one.two", "logprobs": None, "finish_reason": "stop"}],
        "usage": {
            "prompt_tokens": 3,
            "completion_tokens": 7,
            "total_tokens": 10,
            "prompt_tokens_details": {"cached_tokens": 0},
        },
    }


def test_a_chat():
    found = answered(HELLO | {"max_completion_tokens": 3, "user": "u", "n": 1, "logit_bias": {}, "stop": None}, True)
    assert found["object"] == "chat.completion" and found["id"].startswith("chatcmpl-")
    said = {"role": "assistant", "content": "one", "refusal": None}
    assert found["choices"] == [{"index": 0, "message": said, "logprobs": None, "finish_reason": "length"}]
    assert found["usage"]["prompt_tokens"] == len("<s>") - 2 + len("<user>hi") + 1 + len("\n<assistant>")


def test_chunks_of_both():
    reply = served().reply(TEXT | {"stream": True, "max_tokens": 2}, False)
    chunks = list(reply.chunks())
    assert [chunk["choices"][0]["text"] for chunk in chunks] == ["o", "n", ""] and reply.stream
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks] == [None, None, "length"]
    request = HELLO | {"stream": True, "stream_options": {"include_usage": True}, "stop": [".", "x"]}
    chunks = list(served().reply(request, True).chunks())
    assert {(chunk["object"], chunk["id"]) for chunk in chunks} == {("chat.completion.chunk", chunks[0]["id"])}
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks[:-1]]
    assert deltas == [{"role": "assistant", "content": ""}, *({"content": c} for c in "one"), {}]
    assert chunks[-2]["choices"][0]["finish_reason"] == "stop"
    assert chunks[-1]["choices"] == [] and chunks[-1]["usage"]["completion_tokens"] == 4  # the stop text's token, too


def test_a_number_of_tokens_that_the_protocol_and_the_server_have():
    long = Echo("a" * 60)
    assert answered(TEXT, program=long)["usage"]["completion_tokens"] == 16
    assert answered(TEXT, program=long, most=5)["usage"]["completion_tokens"] == 5
    assert answered(HELLO, True, program=long)["usage"]["completion_tokens"] == 60
    assert answered(TEXT | {"max_tokens": 1000}, program=long)["choices"][0]["finish_reason"] == "stop"
    assert answered(TEXT, stops=("e",))["choices"][0]["text"] == "on"
    assert answered(TEXT | {"stop": "t"}, stops=("e",))["choices"][0]["text"] == "one."


def test_prompts_of_tokens_and_messages_of_parts():
    found = answered(TEXT | {"prompt": [97, 62]})
    assert found["usage"]["prompt_tokens"] == 2 and found["choices"][0]["text"] == "one.two"
    assert answered(TEXT | {"prompt": ["a>"]})["usage"]["prompt_tokens"] == 3
    parts = [{"type": "text", "text": "h"}, {"type": "text", "text": "i"}]
    first = answered(HELLO, True)["usage"]
    assert answered(HELLO | {"messages": [{"role": "user", "content": parts}]}, True)["usage"] == first
    program = Echo("a")
    request = HELLO | {"messages": [{"role": "developer", "content": "x"}]}
    "".join(served(program).reply(request, True).answer)
    assert bytes(token for token, _ in program.runs[1:9]) == b"<system>"


def test_requests_choose_by_their_own_numbers_or_the_servers():
    even = {"temperature": 1e300, "max_tokens": 12, "seed": 1}

    def chosen(request, **options):
        reply = served(Follows([97] * 60), **options).reply(TEXT | request, False)
        "".join(reply.answer)
        return reply.answer.tokens

    assert chosen({}) == [97] * 16
    first = chosen(even)
    assert first == chosen(even) != chosen(even | {"seed": 2}) and len(set(first)) > 4
    assert chosen(even | {"top_k": 1}) == chosen(even | {"top_p": 1e-9}) == [97] * 12
    hot = Sampling(temperature=1e300)
    assert chosen({"max_tokens": 12}, sampling=hot, seed=1) == first
    assert chosen({"temperature": 0}, sampling=hot) == [97] * 16
    cold = {"temperature": 0.05, "max_tokens": 12, "seed": 1}
    assert chosen(cold) == [97] * 12
    assert len(set(chosen(cold | {"repeat_penalty": 100}))) > 4  # the prompt's `a` has its logit divided


def test_a_request_without_a_seed_gets_a_new_one_or_the_servers(monkeypatch):
    seeds = []
    monkeypatch.setattr(Sampling, "chooser", lambda self, seed: seeds.append(seed))
    for request, seed in (({}, None), ({"seed": 3}, None), ({}, 4), ({"seed": 0}, 4)):
        served(seed=seed).reply(TEXT | request, False)
    assert seeds == [None, 3, 4, 0]


@pytest.mark.parametrize(
    "request_, status, param, text",
    [
        ([], 400, None, "a request is a JSON object"),
        ({"prompt": "a"}, 400, "model", "the request has no model; give one"),
        ({"model": "gpt-4", "prompt": "a"}, 404, "model", "model 'gpt-4' is not served; this server has 'm'"),
        ({"model": "m"}, 400, "prompt", "the request has no prompt; give one"),
        (TEXT | {"prompt": ["a", "b"]}, 400, "prompt", "prompt must be one text, or a list of tokens from 0 to 266"),
        (TEXT | {"prompt": [1, 267]}, 400, "prompt", "prompt must be one text"),
        (TEXT | {"prompt": [True]}, 400, "prompt", "prompt must be one text"),
        (TEXT | {"messages": []}, 400, "messages", "messages is not supported; a request may have model, stream"),
        (TEXT | {"max_tokens": 0}, 400, "max_tokens", "max_tokens 0: must be a whole number from 1 on"),
        (TEXT | {"max_tokens": 2.5}, 400, "max_tokens", "max_tokens 2.5: must be a whole number"),
        (TEXT | {"seed": True}, 400, "seed", "seed True: must be a whole number from 0 on"),
        (TEXT | {"temperature": "hot"}, 400, "temperature", "temperature 'hot': must be a number"),
        (TEXT | {"n": 2}, 400, "n", "n 2 is not supported; leave it out, or give 1"),
        (TEXT | {"logprobs": 0}, 400, "logprobs", "logprobs 0 is not supported; leave it out, or give False"),
        (TEXT | {"stop": [""]}, 400, "stop", "stop must be a text, or a list of at most 16 texts that are not empty"),
        (TEXT | {"stop": ["a"] * 17}, 400, "stop", "stop must be a text"),
        (TEXT | {"stop": 3}, 400, "stop", "stop must be a text"),
        (TEXT | {"stream": 1}, 400, "stream", "stream is true or false"),
        (TEXT | {"stream_options": {"x": 1}}, 400, "stream", "stream_options x: only include_usage is known"),
        (TEXT | {"grammar": "x"}, 400, "grammar", "grammar is not supported"),
    ],
)
def test_requests_that_are_refused(request_, status, param, text):
    with pytest.raises(Refused) as caught:
        served().reply(request_, False)
    error = caught.value.document()["error"]
    assert error["message"].startswith(text) and caught.value.status == status and error["param"] == param
    assert error["type"] == "invalid_request_error"


@pytest.mark.parametrize(
    "messages, text",
    [
        ([], "messages must be a list with at least one message"),
        ("hi", "messages must be a list"),
        (["hi"], "messages[0].role None: must be one of system, developer, user, assistant"),
        ([{"role": "tool", "content": "x"}], "messages[0].role 'tool': must be one of"),
        ([{"role": "user"}], "messages[0].content must be a text, or a list of parts of type text"),
        ([{"role": "user", "content": [{"type": "image_url", "image_url": "x"}]}], "messages[0].content must be"),
        ([{"role": [], "content": "x"}], "messages[0].role []: must be one of"),
    ],
)
def test_messages_that_are_refused(messages, text):
    with pytest.raises(Refused) as caught:
        served().reply(HELLO | {"messages": messages}, True)
    assert str(caught.value).startswith(text)


def test_errors_of_the_library_and_of_the_device():
    with pytest.raises(Refused, match="the model has no chat template; start the server with --template FILE"):
        served(template=False).reply(HELLO, True)
    for request in (TEXT | {"prompt": "a" * 100}, TEXT | {"temperature": -1}):
        with pytest.raises(InputError) as caught:
            served().reply(request, False)
        error = error_of(caught.value)
        long = "the context 100" in str(error)
        assert error.status == 400 and error.code == ("context_length_exceeded" if long else None)
    assert long is False
    error = error_of(BoardError("the board is gone"))
    assert (error.status, error.document()["error"]["type"], str(error)) == (500, "server_error", "the board is gone")
    assert str(error_of(KeyError("k"))) == "a defect of the server: 'k'"


def test_the_models():
    models = served().models()
    assert models["object"] == "list" and [model["id"] for model in models["data"]] == ["m"]
    assert served().model("m")["object"] == "model"
    with pytest.raises(Refused, match="model 'x' is not served; this server has 'm'"):
        served().model("x")


def test_a_prompt_that_begins_as_the_one_before_is_cached():
    model = served()
    "".join(model.reply(TEXT, False).answer)
    assert model.reply(TEXT | {"prompt": "a>one.tw more>"}, False).document()["usage"]["prompt_tokens_details"] == {
        "cached_tokens": 9
    }
