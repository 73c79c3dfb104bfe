"""The command as its user starts it: where it listens, whom it lets in, and how it ends."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import ExitStack
from pathlib import Path

import pytest
import uvicorn
from starlette.applications import Starlette

from engine.errors import UsageError
from engine.serving import server as server_module
from engine.serving.server import configured, listening, read_key
from tests.integration.serving.conftest import MODEL

pytest.importorskip("mlx.core", reason="the MLX backend is not installed")


def test_sigterm_finishes_what_has_begun_and_nothing_else_begins(tmp_path: Path) -> None:
    log = tmp_path / "log"
    command = [sys.executable, "-m", "engine.cli", "serve", "--openai", "127.0.0.1:0", "--depth", "3"]
    with log.open("w") as file:
        process = subprocess.Popen(command, stderr=file, stdout=file)
    try:
        until = time.monotonic() + 240
        while (line := re.search(r"serving \S+ at http://127\.0\.0\.1:(\d+)/v1", log.read_text())) is None:
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < until
            time.sleep(0.05)
        connection = http.client.HTTPConnection("127.0.0.1", int(line[1]), timeout=240)
        body = {"model": MODEL, "prompt": "class A:", "max_tokens": 400, "temperature": 0, "ignore_eos": True}
        headers = {"Content-Type": "application/json"}
        connection.request("POST", "/v1/completions", json.dumps(body | {"stream": True}), headers)
        response = connection.getresponse()
        assert response.readline().startswith(b"data: ")
        process.send_signal(signal.SIGTERM)
        lines = [line for line in response.read().splitlines() if line.startswith(b"data: ")]
        assert lines[-1] == b"data: [DONE]"
        assert json.loads(lines[-2][6:])["choices"][0]["finish_reason"] == "length"
        connection.close()
        assert process.wait(240) == 0
        with pytest.raises(OSError, match="refused"):
            socket.create_connection(("127.0.0.1", int(line[1])), timeout=60)
    finally:
        process.kill()
        process.wait(240)


@pytest.mark.parametrize(
    "address", ["0.0.0.0:80", "127.0.0.1", "127.0.0.1:70000", "example.org:80", "::1:80", ":80", "127.0.0.1:-1", ""]
)
def test_only_this_machine_is_listened_to(address: str) -> None:
    with pytest.raises(UsageError, match=r"expected 127\.0\.0\.1:PORT"), listening(address):
        pass


def test_a_place_that_somebody_holds_is_one_line(tmp_path: Path) -> None:
    with listening("127.0.0.1:0") as (server, _):
        port = server.getsockname()[1]
        with pytest.raises(UsageError, match=r"Address already in use; choose another port"):  # noqa: SIM117
            with listening(f"127.0.0.1:{port}"):
                pass
    path = tmp_path / "socket"
    with listening(f"unix:{path}") as (_, url):
        assert (url, path.stat().st_mode & 0o777) == (f"http+unix://{path}", 0o600)
        with pytest.raises(UsageError, match="somebody listens there"), listening(f"unix:{path}"):
            pass
    assert not path.exists()
    left = socket.socket(socket.AF_UNIX)  # a server that was killed leaves its socket
    left.bind(str(path))
    left.close()
    with listening(f"unix:{path}"):
        pass
    path.write_text("a file")
    with pytest.raises(UsageError, match="choose another path"), listening(f"unix:{path}"):
        pass
    assert path.read_text() == "a file"


def test_a_small_piece_of_an_answer_is_sent_at_once() -> None:
    """Held back until the one before is acknowledged, each would come 40 ms late."""

    async def accepted(server: socket.socket) -> int:
        answering: asyncio.Future[asyncio.StreamWriter] = asyncio.get_running_loop().create_future()
        listener = await asyncio.start_server(lambda _, writer: answering.set_result(writer), sock=server)
        _, asking = await asyncio.open_connection(*server.getsockname())
        option: int = (await answering).get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        for writer in (asking, await answering):
            writer.close()
            await writer.wait_closed()
        listener.close()
        await listener.wait_closed()
        return option

    with listening("127.0.0.1:0") as (server, _):
        assert asyncio.run(accepted(server)) != 0


def test_a_key_is_one_line_that_others_cannot_read(tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.write_text("secret\n")
    path.chmod(0o600)
    assert read_key(path) == "secret"
    for text in ("", "two words", "a\nb", "é", "x" * 5_000):
        path.write_text(text)
        with pytest.raises(UsageError):
            read_key(path)
    path.write_text("secret")
    path.chmod(0o640)
    with pytest.raises(UsageError, match="may be read by others; chmod 600"):
        read_key(path)
    if os.geteuid() != 0:
        path.chmod(0)
        with pytest.raises(UsageError, match="cannot read"):
            read_key(path)


def test_who_sends_no_whole_head_is_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    """So many connections are held at once; whoever says nothing would keep everybody else out for ever."""
    monkeypatch.setattr(server_module, "HEAD_S", 0.3)
    whole, half = b"HEAD / HTTP/1.1\r\nHost: localhost\r\n\r\n", b"GET / HTTP/1.1\r\nHo"
    with listening("127.0.0.1:0") as (bound, _), ExitStack() as stack:
        clients = [stack.enter_context(socket.create_connection(bound.getsockname(), timeout=60)) for _ in range(3)]
        # Sent before anybody serves: on a busy machine what is sent later may come later than a head may.
        for client, begins in zip(clients, (b"", half, whole), strict=True):
            client.sendall(begins)
        running = uvicorn.Server(configured(Starlette()))
        thread = threading.Thread(target=running.run, kwargs={"sockets": [bound]})
        thread.start()
        try:
            asking = clients[-1]
            for following in (whole, half):
                assert asking.recv(4096).startswith(b"HTTP/1.1 404")
                time.sleep(0.5)  # between requests a connection may rest for longer
                asking.sendall(following)
            for client in clients:
                while client.recv(4096):
                    pass
        finally:
            running.should_exit = True
            thread.join()
