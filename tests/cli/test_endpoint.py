"""cli/endpoint.py: the protocol over HTTP, by raw requests and by a public client."""

import http.client
import json
import socket
import threading
import time
from contextlib import contextmanager

import pytest

from tests.cli.speech import Echo, Follows
from tests.cli.test_completions import HELLO, TEXT, served
from tilewright.cli.endpoint import REQUEST_BYTES, Endpoint, parse_address
from tilewright.hw.errors import BoardError, ConfigError

KEY = "a" * 16
HEADERS = {"Authorization": f"Bearer {KEY}", "Content-Type": "application/json"}


@contextmanager
def serving(program=None, **options):
    endpoint = Endpoint(served(program, **options), "127.0.0.1", 0, KEY)
    thread = threading.Thread(target=endpoint.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield endpoint.port
    finally:
        endpoint.shutdown()
        thread.join()
        endpoint.close()


@pytest.fixture(scope="module")
def port():
    with serving() as port:
        yield port


def asked(port, method, path, body=None, headers=HEADERS):
    """Status, headers and body of a response."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    data = json.dumps(body).encode() if isinstance(body, (dict, list)) else body
    connection.request(method, path, data, headers)
    response = connection.getresponse()
    found = response.status, response.headers, response.read()
    connection.close()
    return found


def test_models_and_completions(port, capsys):
    status, headers, body = asked(port, "GET", "/v1/models")
    assert (status, headers["Content-Type"], json.loads(body)["data"][0]["id"]) == (200, "application/json", "m")
    assert json.loads(asked(port, "GET", "/v1/models/m")[2])["id"] == "m"
    status, _, body = asked(port, "POST", "/v1/completions", TEXT)
    assert status == 200 and json.loads(body)["choices"][0]["text"] == "one.two"
    status, _, body = asked(port, "POST", "/v1/chat/completions?x=1", HELLO | {"stop": "."})
    assert json.loads(body)["choices"][0]["message"]["content"] == "one"


def test_a_stream_is_events(port):
    status, headers, body = asked(port, "POST", "/v1/completions", TEXT | {"stream": True})
    assert status == 200 and headers["Content-Type"] == "text/event-stream" and headers["Connection"] == "close"
    *events, last, rest = body.split(b"\n\n")
    assert last == b"data: [DONE]" and rest == b"" and all(event.startswith(b"data: {") for event in events)
    texts = [json.loads(event.removeprefix(b"data: "))["choices"][0]["text"] for event in events]
    assert "".join(texts) == "one.two" and len(texts) == 8


def test_a_connection_serves_several_requests(port):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    for _ in range(3):
        connection.request("POST", "/v1/completions", json.dumps(TEXT), HEADERS)
        assert json.loads(connection.getresponse().read())["choices"][0]["text"] == "one.two"
    connection.close()


@pytest.mark.parametrize(
    "method, path, body, headers, status, text",
    [
        ("GET", "/v1/models", None, {}, 401, "wrong or missing API key"),
        ("POST", "/v1/completions", TEXT, {"Authorization": "Bearer x"}, 401, "wrong or missing API key"),
        ("GET", "/v1/models", None, {"Authorization": f"Basic {KEY}"}, 401, "wrong or missing API key"),
        ("GET", "/", None, HEADERS, 404, "this server has /v1/models, /v1/completions"),
        ("GET", "/v1/completions", None, HEADERS, 404, "this server has /v1/models, /v1/completions"),
        ("GET", "/v1/models/x", None, HEADERS, 404, "model 'x' is not served"),
        ("POST", "/v1/embeddings", {}, HEADERS, 404, "this server has"),
        ("DELETE", "/v1/models/m", None, HEADERS, 501, "Unsupported method"),
        ("POST", "/v1/completions", b"{", HEADERS, 400, "the request: cannot be read as JSON"),
        ("POST", "/v1/completions", b"[" * 9999, HEADERS, 400, "the request: cannot be read as JSON"),
        ("POST", "/v1/completions", b"\xff", HEADERS, 400, "the request: cannot be read as JSON"),
        ("POST", "/v1/completions", TEXT | {"n": 3}, HEADERS, 400, "n 3 is not supported"),
        ("POST", "/v1/completions", TEXT | {"prompt": "a" * 200}, HEADERS, 400, "the prompt has 201 tokens"),
        ("POST", "/v1/completions", None, HEADERS | {"Content-Length": str(REQUEST_BYTES + 1)}, 413, "at most 1,048,5"),
        ("POST", "/v1/completions", None, HEADERS | {"Content-Length": "9" * 5000}, 413, "at most 1,048,576"),
        ("POST", "/v1/completions", None, HEADERS | {"Content-Length": "-1"}, 411, "a request needs Content-Length"),
        ("POST", "/v1/completions", None, HEADERS | {"Transfer-Encoding": "chunked"}, 411, "needs Content-Length"),
    ],
)
def test_errors_are_the_protocols(port, method, path, body, headers, status, text):
    found, kind, body = asked(port, method, path, body, headers)
    error = json.loads(body)["error"]
    assert found == status and text in error["message"] and set(error) == {"message", "type", "param", "code"}
    assert kind["Content-Type"] == "application/json"


def test_the_answer_to_a_request_that_is_too_large_arrives(port):
    """Although its body, of which nothing is read, is on its way: to close at once would reset the connection."""
    with socket.create_connection(("127.0.0.1", port), timeout=60) as raw:
        size = 8 * REQUEST_BYTES
        head = f"POST /v1/completions HTTP/1.1\r\nAuthorization: Bearer {KEY}\r\nContent-Length: {size}\r\n\r\n"
        raw.sendall(head.encode() + bytes(size))
        assert b"413" in raw.makefile("rb").readline()


def test_the_body_of_a_get_is_no_request(port):
    inner = b"POST /v1/completions HTTP/1.1\r\n\r\n"
    with socket.create_connection(("127.0.0.1", port), timeout=60) as raw:
        head = f"GET /v1/models HTTP/1.1\r\nAuthorization: Bearer {KEY}\r\nContent-Length: {len(inner)}\r\n\r\n"
        raw.sendall(head.encode() + inner)
        found = raw.makefile("rb").read()
    assert found.startswith(b"HTTP/1.1 200") and found.count(b"HTTP/1.1") == 1 and b"Connection: close" in found


def test_an_address_that_is_none_is_the_callers_mistake(port):
    with socket.create_connection(("127.0.0.1", port), timeout=60) as raw:
        raw.sendall(f"GET http://[ HTTP/1.1\r\nAuthorization: Bearer {KEY}\r\n\r\n".encode())
        found = raw.makefile("rb").read()
    assert found.startswith(b"HTTP/1.1 400") and b"'http://[' is no address; give a path, as /v1/models" in found


def test_what_is_no_http(port):
    with socket.create_connection(("127.0.0.1", port), timeout=60) as raw:
        raw.sendall(b"\x16\x03\x01 nonsense\r\n\r\n")
        assert b'"type": "invalid_request_error"' in raw.makefile("rb").read()
    assert asked(port, "GET", "/v1/models")[0] == 200


def test_what_fails_on_the_device_is_an_error_and_the_next_request_is_served():
    program = Follows([97, BoardError("the board is gone"), *[97, 98, BoardError("gone again")] * 2, *[97] * 20])
    with serving(program) as port:
        request = TEXT | {"prompt": [1], "max_tokens": 5}
        status, _, body = asked(port, "POST", "/v1/completions", request)
        assert status == 500 and json.loads(body)["error"]["message"] == "the board is gone"
        body = asked(port, "POST", "/v1/completions", request | {"prompt": [2], "stream": True})[2]
        events = body.strip().split(b"\n\n")
        assert json.loads(events[-1].removeprefix(b"data: "))["error"]["message"] == "gone again"
        assert asked(port, "POST", "/v1/completions", request | {"prompt": [3], "max_tokens": 2})[0] == 200


def test_requests_come_one_after_another():
    program = Echo("abc", delay=0.002)
    with serving(program) as port:
        answers = []

        def ask():
            answers.append(json.loads(asked(port, "POST", "/v1/completions", TEXT)[2])["choices"][0]["text"])

        threads = [threading.Thread(target=ask) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert answers == ["abc"] * 6


class Gated(Echo):
    """Waits before its sixth run until the gate opens."""

    def __init__(self, answer):
        super().__init__(answer)
        self.reached, self.gate = threading.Event(), threading.Event()

    def run(self, inputs):
        if len(self.runs) == 5:
            self.reached.set()
            assert self.gate.wait(60)
        return super().run(inputs)


@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_that_nobody_waits_for_ends(stream):
    program = Gated("a" * 80)
    with serving(program) as port:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        connection.request("POST", "/v1/completions", json.dumps(TEXT | {"max_tokens": 80, "stream": stream}), HEADERS)
        assert program.reached.wait(60)
        connection.close()
        program.gate.set()
        assert asked(port, "POST", "/v1/completions", TEXT | {"max_tokens": 1})[0] == 200
        assert len(program.runs) < 20


def test_more_connections_than_allowed_are_closed(monkeypatch):
    monkeypatch.setattr("tilewright.cli.endpoint.CONNECTIONS", 2)
    with serving() as port:
        held = [socket.create_connection(("127.0.0.1", port), timeout=60) for _ in range(2)]
        with socket.create_connection(("127.0.0.1", port), timeout=60) as third:
            assert third.recv(1) == b""
        for connection in held:
            connection.close()
        for _ in range(500):  # until their threads see the end
            try:
                assert asked(port, "GET", "/v1/models")[0] == 200
                return
            except OSError:
                time.sleep(0.02)
        pytest.fail("the connections keep their places")


def test_a_taken_port_is_named(port):
    with pytest.raises(ConfigError, match=f"--serve 127.0.0.1:{port}: .*; give another port"):
        Endpoint(served(), "127.0.0.1", port, KEY)


@pytest.mark.parametrize(
    "text, place",
    [
        ("", ("127.0.0.1", 8080)),
        (":0", ("127.0.0.1", 0)),
        ("127.0.0.2", ("127.0.0.2", 8080)),
        ("localhost:81", ("127.0.0.1", 81)),
        ("[::1]:5", ("::1", 5)),
    ],
)
def test_addresses(text, place):
    assert parse_address(text) == place


@pytest.mark.parametrize(
    "text, wrong",
    [
        ("0.0.0.0:80", "others could read what travels to this address"),
        ("example.org:80", "others could read"),
        (":65536", "is no ADDRESS:PORT; give one as 127.0.0.1:8080"),
        (":x", "is no ADDRESS:PORT"),
        ("8080", "--serve 8080: is no ADDRESS:PORT; for that port give :8080"),
        ("a@127.0.0.1:1", "is no ADDRESS:PORT"),
        ("127.0.0.1:1/v1", "is no ADDRESS:PORT"),
        ("127.0.0.1:1\n", "is no ADDRESS:PORT"),
        ("[::1", "is no ADDRESS:PORT"),
    ],
)
def test_addresses_that_are_refused(text, wrong):
    with pytest.raises(ConfigError) as caught:
        parse_address(text)
    assert wrong in str(caught.value)


@pytest.mark.circuit
def test_the_public_client(port):
    openai = pytest.importorskip("openai")
    with openai.OpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key=KEY, max_retries=0) as client:
        assert [model.id for model in client.models.list()] == ["m"] and client.models.retrieve("m").id == "m"
        done = client.completions.create(model="m", prompt="a>", max_tokens=3, seed=1, temperature=0, top_p=1)
        assert done.choices[0].text == "one" and done.choices[0].finish_reason == "length"
        assert done.usage.total_tokens == 6
        chat = client.chat.completions.create(model="m", messages=HELLO["messages"], stop=["."])
        assert chat.choices[0].message.content == "one" and chat.choices[0].finish_reason == "stop"
        stream = client.chat.completions.create(
            model="m", messages=HELLO["messages"], stream=True, stream_options={"include_usage": True}
        )
        chunks = list(stream)
        text = "".join(choice.delta.content or "" for chunk in chunks for choice in chunk.choices)
        assert text == "one.two" and chunks[-1].usage.completion_tokens == 7
        parts = client.completions.create(model="m", prompt="a>", stream=True)
        assert "".join(part.choices[0].text for part in parts) == "one.two"
        with pytest.raises(openai.NotFoundError, match="model 'x' is not served"):
            client.completions.create(model="x", prompt="a")
        with pytest.raises(openai.BadRequestError) as caught:
            client.completions.create(model="m", prompt="a" * 300)
        assert caught.value.code == "context_length_exceeded"
    with (
        openai.OpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key="x", max_retries=0) as client,
        pytest.raises(openai.AuthenticationError, match="wrong or missing API key"),
    ):
        client.models.list()
