"""Chat: prompts by a template, beside Hugging Face's own rendering by hand, and turns on one cache."""

import http.client
import io
import json
import threading

import pytest

from tests.cli.speech import Echo, Letters, writer_of
from tests.compiler.frontend.llama.conftest import llama_bytes
from tests.runtime.test_language import PIECES, tokenizer_bytes
from tilewright.cli.chat import Conversation, Template, converse
from tilewright.cli.endpoint import Endpoint
from tilewright.hw.errors import FileError, InputError, UnsupportedError, printable
from tilewright.runtime.sampling import Sampling

most_likely = Sampling().chooser(0)

HELLO = [{"role": "user", "content": "hi"}]


def rendered(source, messages=HELLO):
    codec = Letters()
    codec.template = source
    return codec.decode(Template("m", codec).prompt(messages))


def test_messages_become_the_tokens_of_the_template():
    messages = [{"role": "system", "content": "be"}, *HELLO]
    tokens = Template("m", Letters()).prompt(messages)
    assert tokens == [256, *b"<system>be", 257, *b"\n<user>hi", 257, *b"\n<assistant>"]


def test_what_begins_texts_stands_before_a_template_without_it_once():
    assert rendered("a") == "<s>a" and rendered("{{ bos_token }}a") == "<s>a" and rendered("<s>b") == "<s>b"


def test_templates_have_what_those_of_hugging_face_use():
    source = """{%- for m in messages %}
    {%- if m['role'] == 'system' %}{% continue %}{% endif %}
    {{- m['role'] | upper + ': ' + m['content'] | trim + eos_token }}
{% endfor %}
{{ messages | tojson }}"""
    messages = [{"role": "system", "content": "x"}, {"role": "user", "content": " <ü> "}]
    assert rendered(source, messages) == "<s>USER: <ü></>\n" + json.dumps(messages, ensure_ascii=False)
    assert rendered("{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = 3 %}{% endfor %}{{ ns.n }}") == (
        "<s>3"
    )


def test_products_and_powers_of_usual_sizes():
    source = "{{ 2 ** 10 }} {{ 3 * 4 }} {{ 'ab' * 3 }} {{ 2 ** -1 }} {{ 0.5 * 3 }} {{ 2 * [1] }} {{ 1.26 | round(1) }}"
    assert rendered(source) == "<s>1024 12 ababab 0.5 1.5 [1, 1] 1.3"


def test_names_that_a_model_has_not_are_empty():
    codec = Letters()
    codec.named, codec.template = {}, "{{ bos_token }}|{{ eos_token }}|"
    assert Template("m", codec).prompt(HELLO) == [256, *b"||"]


@pytest.mark.parametrize(
    "source, error, text",
    [
        (None, UnsupportedError, "m: has no chat template; give one with --template FILE"),
        ("\n{% for %}", FileError, "m: its chat template: line 2: "),
        ("{{ raise_exception('no system message') }}", InputError, "does not take these messages: no system message"),
        ("{{ messages[0].content.name.more }}", InputError, "does not take these messages: 'str object' has no"),
        ("{{ 1 / 0 }}", InputError, "division by zero"),
        ("{{ 9 ** (9 ** 9) }}", InputError, "an integer of it has more than 16,384 bits"),
        ("{{ 2 ** 9999 * 2 ** 9999 }}", InputError, "an integer of it has more than 16,384 bits"),
        ("{{ 'ab' * 2 ** 22 }}", InputError, "a text or list of it has more than 4,194,304 items"),
        ("{{ 2 ** 40 * messages }}", InputError, "a text or list of it has more than 4,194,304 items"),
        ("{{ 1 | round(10 ** 9, 'ceil') }}", InputError, "round(1000000000) of it is outside -300..300"),
        ("{{ lipsum(10 ** 9) }}", InputError, "'lipsum' is undefined"),
        ("{{ 'a' + 1 }}", InputError, "does not take these messages: "),
        ("{{ messages.append(1) }}", InputError, "does not take these messages: "),
        ("{{ messages.__class__.__mro__ }}", InputError, "does not take these messages: "),
        ("{{ messages|xmlattr }}", InputError, "does not take these messages: "),
        ("{{ cycler().next() }}", InputError, "does not take these messages: "),
        ("{{" * 60, FileError, "give a template in Jinja"),
        ("{% for k in range(10**9) %}{% endfor %}", InputError, "Range too big"),
        (
            "{% for k in range(99999) %}{{ 'a' * 99999 }}{% endfor %}",
            InputError,
            "makes more than 4,194,304",
        ),
    ],
)
def test_templates_that_do_wrong(source, error, text):
    with pytest.raises(error) as caught:
        rendered(source)
    assert text in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "source",
    [
        "{% for a in range(9999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
        "{% macro f(n) %}{% if n %}{% set a = f(n - 1) %}{% set b = f(n - 1) %}{% endif %}{% endmacro %}{{ f(60) }}",
        "{% for a in [1, 1] recursive %}{{ loop([1, 1]) if loop.depth < 60 }}{% endfor %}",
    ],
)
def test_templates_that_take_too_long_are_refused(monkeypatch, source):
    monkeypatch.setattr("tilewright.cli.chat._SECONDS", 0.05)
    with pytest.raises(InputError, match="its chat template does not take these messages: it takes more than 0.05 s"):
        rendered(source)


def test_loops_know_their_place_and_length():
    source = "{% for m in [3, 4, 5] %}{{ loop.index }}{{ loop.length }}{{ m }}{{ ',' if not loop.last }}{% endfor %}"
    assert rendered(source) == "<s>133,234,335"
    assert rendered("{% for a, b in {'x': 1}.items() %}{{ a }}{{ b }}{% else %}n{% endfor %}") == "<s>x1"
    assert rendered("{% for a in nothing %}{{ a }}{% else %}n{% endfor %}") == "<s>n"


def test_only_new_tokens_of_a_turn_go_in(capsys):
    program = Echo("yes")
    writer = writer_of(program, context=200)
    talk = Conversation(writer, Template("m", Letters()), most_likely, system="be")
    assert "".join(talk.say("hi")) == "yes"
    first = len(program.runs)
    assert "".join(talk.say("so")) == "yes"
    prompt = [256, *b"<system>be", 257, *b"\n<user>hi", 257, *b"\n<assistant>"]
    more = [257, *b"\n<user>so", 257, *b"\n<assistant>"]
    assert first == len(prompt) + 3 and [token for token, _ in program.runs[first:]] == [*more, *b"yes"]
    assert [position for _, position in program.runs] == list(range(len(program.runs)))
    assert talk.turns[1] == {
        "prompt": "so",
        "text": "yes",
        "tokens": list(b"yes"),
        "finish": "stop",
        "prompt_tokens": len(prompt) + 3 + len(more),
        "cached_tokens": len(prompt) + 3,
    }


def test_an_answer_that_a_stop_text_cut_is_taken_back_from_the_cache():
    program = Echo("one.two")
    talk = Conversation(writer_of(program, context=200), Template("m", Letters()), most_likely, stops=["."])
    assert "".join(talk.say("hi")) == "one"
    count = talk.turns[0]["prompt_tokens"]
    "".join(talk.say("so"))
    assert talk.turns[1]["cached_tokens"] == count + 3 and talk.turns[1]["text"] == "one"


def test_lines_of_standard_input_are_turns(monkeypatch, capsys):
    monkeypatch.setattr("sys.stdin", io.StringIO("hi\n\n  \nso"))
    talk = Conversation(writer_of(Echo("yes"), context=200), Template("m", Letters()), most_likely)
    converse(talk, None, echo=True)
    assert capsys.readouterr().out == "yes\nyes\n" and [turn["prompt"] for turn in talk.turns] == ["hi", "so"]
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"\xff\n"), encoding="utf-8"))
    with pytest.raises(InputError, match="standard input is no text in UTF-8"):
        converse(talk, None, echo=True)


def test_a_full_context_is_one_line(monkeypatch, capsys):
    monkeypatch.setattr("sys.stdin", io.StringIO("hi\nso\n"))
    talk = Conversation(writer_of(Echo("a" * 20), context=24), Template("m", Letters()), most_likely)
    converse(talk, None, echo=True)
    done = capsys.readouterr()
    assert done.out == "aa\n" and len(talk.turns) == 1 and talk.turns[0]["finish"] == "length"
    assert done.err == "the context is full: the answer ends here; begin a new conversation\n"
    with pytest.raises(InputError, match="the conversation has 47 tokens, the context 24; begin a new one, or a short"):
        "".join(talk.say("so"))


def test_an_answer_has_a_limit():
    talk = Conversation(writer_of(Echo("abc"), context=200), Template("m", Letters()), most_likely, most=2)
    assert "".join(talk.say("hi")) == "ab" and not talk.full


@pytest.fixture
def small(tmp_path):
    (tmp_path / "small.bin").write_bytes(llama_bytes(words=len(PIECES), width=32, hidden=32, layers=1, context=64))
    (tmp_path / "tok.bin").write_bytes(tokenizer_bytes())
    (tmp_path / "chat.jinja").write_text("{% for m in messages %}{{ m.content }} {% endfor %}")
    options = ("--tokenizer", tmp_path / "tok.bin", "--config", "tiny", "--template", tmp_path / "chat.jinja")
    return ["generate", tmp_path / "small.bin", *options]


@pytest.mark.circuit
def test_the_command_answers_and_has_turns(tilewright, small, monkeypatch):
    """Of a real program, whose logits equal the interpreter's also where a turn goes on behind the cache."""
    options = (
        "--chat",
        "--tokens",
        6,
        "--temperature",
        1,
        "--seed",
        4,
        "--repeat-penalty",
        1.3,
        "--top-k",
        20,
        "--check",
    )
    monkeypatch.setattr("sys.stdin", io.StringIO("ab\nba\n"))
    done = tilewright(*small, *options, "--json", "--system", "a")
    found = json.loads(done.out)
    assert done.status == 0 and found["wrong_positions"] == [] and len(found["turns"]) == 2
    first, second = found["turns"]
    assert second["cached_tokens"] >= first["prompt_tokens"] - 1 and found["tokens"][0] == 1
    assert found["device"] == "model" and found["tokens"][second["prompt_tokens"] :] == second["tokens"]
    done = tilewright(*small, *options, "--system", "a", "--prompt", "ab")
    assert (
        done.status == 0
        and done.out.startswith(printable(first["text"]) + "\n")
        and "the host's steps alone" in done.out
    )


@pytest.mark.circuit
def test_answers_before_a_mistake_are_in_json(tilewright, small, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO("ab\n" + "ba" * 99 + "\n"))
    done = tilewright(*small, "--chat", "--tokens", 3, "--json")
    assert done.status == 9 and "the conversation has " in done.err and done.err.count("\n") == 1
    assert [turn["prompt"] for turn in json.loads(done.out)["turns"]] == ["ab"]
    monkeypatch.setattr("sys.stdin", io.StringIO("ba" * 99 + "\n"))
    assert tilewright(*small, "--chat", "--json").out == ""


@pytest.mark.circuit
def test_the_command_serves(tilewright, small, monkeypatch, tmp_path):
    """With a key of its own, a template and defaults, until Ctrl-C."""
    (tmp_path / "key").touch(0o600)
    (tmp_path / "key").write_text("k" * 20)
    answers, forever = [], Endpoint.serve_forever

    def serve(endpoint):
        thread = threading.Thread(target=forever, args=(endpoint,))
        thread.start()
        connection = http.client.HTTPConnection("127.0.0.1", endpoint.port, timeout=60)
        request = {"model": "small", "messages": [{"role": "user", "content": "ab"}], "max_tokens": 3}
        for key in ("k" * 20, "x"):
            headers = {"Authorization": f"Bearer {key}"}
            connection.request("POST", "/v1/chat/completions", json.dumps(request), headers)
            answers.append(json.loads(connection.getresponse().read()))
        connection.close()
        endpoint.shutdown()
        thread.join()
        raise KeyboardInterrupt

    monkeypatch.setattr(Endpoint, "serve_forever", serve)
    monkeypatch.setattr("signal.signal", lambda number, handler: None)
    done = tilewright(*small, "--serve", ":0", "--api-key-file", tmp_path / "key")
    assert done.status == 0 and done.out.startswith("serving small at http://127.0.0.1:") and "key is" not in done.out
    assert answers[0]["object"] == "chat.completion" and answers[0]["usage"]["prompt_tokens"] > 1
    assert "wrong or missing API key" in answers[1]["error"]["message"]
