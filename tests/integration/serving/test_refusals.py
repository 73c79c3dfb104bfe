"""Whatever comes over the socket, the server answers with what is wrong, starts no forward for it, and goes on."""

from __future__ import annotations

import contextlib
import http.client
import json
import random
import socket
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from engine.serving.fields import ChatBody, CompletionBody, FieldError, parse
from engine.tokenizer import Tokenizer
from tests.integration.serving.conftest import BOUNDS, KEY, MODEL, Server, serving

GOOD = {"model": MODEL, "prompt": "class A:", "max_tokens": 4, "temperature": 0}
HEADERS = {"Content-Type": "application/json", "Authorization": f"Bearer {KEY}"}


def post(server: Server, body: bytes, path: str = "/v1/completions", **headers: str) -> tuple[int, dict]:
    connection = http.client.HTTPConnection(*server.place, timeout=240)
    connection.request("POST", path, body, HEADERS | {name.replace("_", "-"): text for name, text in headers.items()})
    response = connection.getresponse()
    data = response.read()
    connection.close()
    return response.status, json.loads(data)


def forwards(server: Server) -> tuple[int, int]:
    server.settle()
    counts = server.scheduler.counts
    return counts.finished + counts.cancelled, counts.failed


@pytest.mark.parametrize(
    ("status", "path", "changes", "headers", "message"),
    [
        (404, "/v1/completions", {"model": "gpt"}, {}, f"expected '{MODEL}'"),
        (400, "/v1/completions", {"prompt": [10**6]}, {}, "token id 1000000; expected 0 <= id <"),
        (400, "/v1/completions", {"prompt": [2] * 20_000}, {}, "holds 16384 positions"),
        (400, "/v1/completions", {"max_tokens": 16_384}, {}, "for the answer; lower max_tokens or shorten the prompt"),
        (400, "/v1/completions", {"prompt": [2] * 16_384}, {}, "leaves 0 for the answer; shorten the prompt"),
        (400, "/v1/completions", {"prompt": ["a"] * 17}, {}, "lets 16 requests wait; send fewer at once"),
        (400, "/v1/completions", {"tools": []}, {}, "'tools' is not served"),
        (400, "/v1/completions", {"temperature": 1e-8}, {}, "or 0 for greedy decoding"),
        (404, "/v1/embeddings", {}, {}, "is not served"),
        (415, "/v1/completions", {}, {"Content_Type": "text/plain"}, "expected application/json"),
        (403, "/v1/completions", {}, {"Host": "attacker.example"}, "is for 127.0.0.1"),
        (403, "/v1/completions", {}, {"Host": "a{b.attacker.example"}, "is for 127.0.0.1"),
        (403, "/v1/completions", {}, {"Host": "127.0.0.1@attacker.example"}, "is for 127.0.0.1"),
        (403, "/v1/completions", {}, {"Host": "["}, "is for 127.0.0.1"),
        (401, "/v1/completions", {}, {"Authorization": "Bearer other"}, "a key is needed"),
    ],
)
def test_what_cannot_be_served_is_said(any_server: Server, status, path, changes, headers, message) -> None:
    before = forwards(any_server)
    got, body = post(any_server, json.dumps(GOOD | changes).encode(), path, **headers)
    assert got == status, body
    assert message in body["error"]["message"]
    assert "--" not in body["error"]["message"]  # what a client cannot say
    assert forwards(any_server) == before


@pytest.mark.parametrize(
    ("changes", "headers", "code"),
    [
        ({"prompt": [2] * 20_000}, {}, "context_length_exceeded"),
        ({"max_tokens": 16_384}, {}, "context_length_exceeded"),
        ({"model": "gpt"}, {}, "model_not_found"),
        ({}, {"Authorization": "Bearer other"}, "invalid_api_key"),
        ({"prompt": [10**6]}, {}, None),
    ],
)
def test_an_error_that_clients_act_on_has_the_code_that_they_know(any_server: Server, changes, headers, code) -> None:
    assert post(any_server, json.dumps(GOOD | changes).encode(), **headers)[1]["error"]["code"] == code


@pytest.mark.parametrize(
    ("method", "path", "status", "allowed"),
    [
        ("GET", "/v1/chat/completions", 405, {"POST"}),
        ("OPTIONS", "/v1/completions", 405, {"POST"}),
        ("POST", "/v1/models", 405, {"GET", "HEAD"}),
        ("DELETE", "/metrics", 405, {"GET", "HEAD"}),
        ("GET", "/v1/embeddings", 404, set()),
    ],
)
def test_a_path_that_takes_other_methods_names_them(any_server: Server, method, path, status, allowed) -> None:
    connection = http.client.HTTPConnection(*any_server.place, timeout=240)
    connection.request(method, path, headers=HEADERS)
    response = connection.getresponse()
    message = json.loads(response.read())["error"]["message"]
    connection.close()
    methods = set(response.headers.get("Allow", "").replace(",", " ").split())
    assert (response.status, methods) == (status, allowed)
    assert f"{method} {path} is not served; see GET /v1/models" in message


@pytest.mark.parametrize(
    ("changes", "param"),
    [
        ({"reasoning_effort": "low"}, "reasoning_effort"),
        ({"chat_template_kwargs": {"enable_thinking": False}}, "chat_template_kwargs.enable_thinking"),
        ({"chat_template_kwargs": {"reasoning_effort": "low"}}, "chat_template_kwargs.reasoning_effort"),
    ],
)
def test_what_the_template_does_not_read_is_refused_by_its_field(any_server: Server, changes, param) -> None:
    body = {"model": MODEL, "messages": [{"role": "user", "content": "hello"}], "max_tokens": 4} | changes
    status, answer = post(any_server, json.dumps(body).encode(), "/v1/chat/completions")
    assert (status, answer["error"]["param"]) == (400, param)
    assert "does not read" in answer["error"]["message"]
    assert "--" not in answer["error"]["message"]


@pytest.mark.parametrize("length", [f"Content-Length: {1 << 40}", "Transfer-Encoding: chunked"])
def test_a_body_that_is_too_long_is_refused_and_not_read_on(any_server: Server, length: str) -> None:
    part = b"400\r\n" + b" " * 0x400 + b"\r\n"
    with socket.create_connection(any_server.place, timeout=240) as client:
        head = f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n{length}\r\n"
        client.sendall(f"{head}Authorization: Bearer {KEY}\r\n\r\n".encode())
        with contextlib.suppress(OSError):  # closed under us
            for _ in range(9 << 10 if "chunked" in length else 1):
                client.sendall(part)
        assert client.recv(100).startswith(b"HTTP/1.1 413")


def test_drawn_bytes_start_nothing_and_are_no_fault_of_the_server(any_server: Server) -> None:
    drawn, before = random.Random(11), forwards(any_server)
    good = json.dumps(GOOD).encode()
    for _ in range(300):
        body = bytearray(good)
        for _ in range(drawn.randrange(1, 4)):
            at = drawn.randrange(len(body))
            body[at : at + drawn.randrange(3)] = drawn.randbytes(drawn.randrange(3))
        body = bytes(body) if drawn.random() < 0.8 else drawn.randbytes(drawn.randrange(200))
        status, _ = post(any_server, body)
        assert status in {200, 400, 404}, body
        before = (before[0] + (status == 200), before[1])
    assert forwards(any_server) == before


VALUES = (
    None, True, -1, 0, 1.5, 1e-9, 1e308, 10**30, "", "x", "\ud800", [], {}, [[]], [None], [10**9], [[2, 10**9]],
    {"a": [1]}, float("nan"), float("inf"), ["x"] * 70, "class " * 20_000, [2] * 20_000,
)  # fmt: skip
FIELDS = (
    *("model", "prompt", "max_tokens", "temperature", "top_p", "top_k", "seed", "stop", "stream", "stream_options"),
    *("ignore_eos", "n", "presence_penalty", "logit_bias", "echo", "logprobs", "best_of", "suffix", "messages", "role"),
)
PATHS = ("/v1/completions", "/v1/completions", "/v1/chat/completions", "/v1/models", "/", "/v1/%00", "/metrics?x")


def drawn_body(drawn: random.Random) -> bytes:
    """Return a body that may be one in form: bytes of a good one changed, fields of other types, or drawn bytes."""
    if drawn.random() < 0.1:
        return drawn.randbytes(drawn.randrange(200))
    body: dict[str, object] = dict(GOOD)
    for name in drawn.sample(FIELDS, drawn.randrange(3)):
        body[name] = drawn.choice(VALUES)
    data = bytearray(json.dumps(body).encode())
    for _ in range(drawn.randrange(3)):
        at = drawn.randrange(len(data))
        data[at : at + drawn.randrange(3)] = drawn.randbytes(drawn.randrange(3))
    return bytes(data)


def asks_for_an_answer(body: bytes) -> bool:
    """Whether the model may have to answer a body: all of its fields are such as are served."""
    for kind in (CompletionBody, ChatBody):
        with contextlib.suppress(FieldError, RecursionError):
            if parse(kind, body).model == MODEL:
                return True
    return False


@pytest.mark.parametrize(
    "count",
    [
        200,
        pytest.param(5_000, marks=pytest.mark.ci),
        pytest.param(100_000, marks=[pytest.mark.slow, pytest.mark.timeout(3600)]),
    ],
)
def test_messages_that_ask_for_no_answer_start_no_forward_and_are_no_fault_of_the_server(
    any_server: Server, count: int
) -> None:
    drawn, before, statuses = random.Random(17), forwards(any_server), Counter[int]()
    connection = http.client.HTTPConnection(*any_server.place, timeout=240)
    while statuses.total() < count:
        if drawn.random() < 0.02:  # bytes that are no HTTP, or half of it
            head = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n"
            with socket.create_connection(any_server.place, timeout=240) as client:
                client.sendall(
                    drawn.choice((drawn.randbytes(300) + b"\r\n\r\n", head, head[:-30] + drawn.randbytes(30)))
                )
                client.shutdown(socket.SHUT_WR)
                line = client.recv(100).split(b" ")
            statuses[int(line[1]) if len(line) > 1 else 0] += 1
            continue
        body, path = drawn_body(drawn), drawn.choice(PATHS)
        if asks_for_an_answer(body):
            continue
        headers = dict(HEADERS)
        if drawn.random() < 0.1:
            headers[drawn.choice(("Content-Type", "Authorization", "Host", "Expect"))] = "x" * drawn.randrange(40)
        connection.request("POST", path, body, headers)
        response = connection.getresponse()
        response.read()
        statuses[response.status] += 1
    connection.close()
    assert max(statuses) < 500, statuses
    assert 200 not in statuses, statuses
    assert statuses[400] > count // 4
    assert forwards(any_server) == before


def test_bytes_that_are_no_http_and_clients_that_say_nothing_hold_nobody_up(any_server: Server) -> None:
    drawn, silent = random.Random(3), []
    for number in range(60):
        client = socket.create_connection(any_server.place, timeout=240)
        client.sendall(drawn.randbytes(drawn.randrange(1, 400)) if number % 2 else b"POST /v1/completions HTTP/1.1\r\n")
        silent.append(client)
    began = time.monotonic()
    assert post(any_server, json.dumps(GOOD).encode())[0] == 200
    assert time.monotonic() - began < 50
    for client in silent:
        client.close()


class HeldTokenizer(Tokenizer):
    """Cuts a text once it is told to, as a very long one takes its time."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.begun, self.may_end = threading.Event(), threading.Event()

    def encode(self, text: str) -> tuple[int, ...]:
        self.begun.set()
        assert self.may_end.wait(240)
        return super().encode(text)


def test_a_prompt_that_takes_long_to_cut_holds_nobody_up() -> None:
    tokenizers: list[HeldTokenizer] = []

    def read(folder: Path) -> Tokenizer:
        tokenizers.append(HeldTokenizer(folder))
        return tokenizers[-1]

    with serving("mlx", read=read) as server, ThreadPoolExecutor(1) as clients:
        asking = clients.submit(post, server, json.dumps(GOOD).encode())
        (tokenizer,) = tokenizers
        assert tokenizer.begun.wait(240)
        connection = http.client.HTTPConnection(*server.place, timeout=60)
        try:
            connection.request("GET", "/healthz")
            assert connection.getresponse().status == 200
        finally:
            connection.close()
            tokenizer.may_end.set()
        assert asking.result()[0] == 200


def test_more_than_may_wait_are_told_to_come_again(any_server: Server) -> None:
    long = json.dumps(GOOD | {"max_tokens": 4_000, "ignore_eos": True, "stream": True}).encode()
    clients = []
    try:
        until = time.monotonic() + 240
        while any_server.scheduler.waiting < any_server.scheduler.bounds.waiting:
            assert time.monotonic() < until
            connection = http.client.HTTPConnection(*any_server.place, timeout=240)
            connection.request("POST", "/v1/completions", long, HEADERS)
            clients.append(connection)
            time.sleep(0.01)
        status, body = post(any_server, json.dumps(GOOD).encode())
        assert (status, body["error"]["type"]) == (429, "overloaded_error")
    finally:
        for connection in clients:
            connection.close()
    any_server.settle()
    assert post(any_server, json.dumps(GOOD).encode())[0] == 200


@pytest.mark.ci
def test_memory_refuses_an_answer_by_what_it_takes_and_not_by_what_a_short_one_took_for_a_position() -> None:
    """A cache grows by many positions at once, so that of one position it takes as many bytes as of sixty-four."""
    long = json.dumps(GOOD | {"max_tokens": 300, "ignore_eos": True}).encode()
    with serving("torch") as roomy:
        expected = post(roomy, long)
        roomy.settle()
        held_bytes = roomy.scheduler.held_bytes
    assert expected[0] == 200, expected
    with serving("torch", replace(BOUNDS, cache_bytes=2 * held_bytes)) as enough:
        assert post(enough, json.dumps(GOOD | {"prompt": [2], "max_tokens": 1}).encode())[0] == 200
        status, answer = post(enough, long)
        assert (status, answer["choices"]) == (200, expected[1]["choices"])
    with serving("torch", replace(BOUNDS, cache_bytes=held_bytes // 4)) as little:
        status, answer = post(little, long)
        assert status == 400, answer
        assert "bytes of cache and the server has" in answer["error"]["message"]
        little.settle()
        assert (little.scheduler.active, little.scheduler.counts.failed) == (0, 1)


def test_an_echo_of_one_token_has_nothing_to_score_and_is_no_fault(any_server: Server) -> None:
    body = {"model": MODEL, "prompt": [2], "max_tokens": 0, "temperature": 0, "echo": True, "logprobs": 1}
    status, answer = post(any_server, json.dumps(body).encode())
    assert status == 200, answer
    assert answer["choices"][0]["logprobs"]["token_logprobs"] == [None]
