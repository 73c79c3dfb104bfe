"""The link with a round-trip time: to a port or a socket, and quiet at its end."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from engine.isolation.delayed_link import DelayedLink

TRIP_MS = 60.0


def echo(listening: socket.socket) -> None:
    with listening, listening.accept()[0] as connection:
        while data := connection.recv(1024):
            connection.sendall(data)


def port(_folder: Path) -> tuple[socket.socket, str]:
    listening = socket.create_server(("127.0.0.1", 0))
    return listening, f"127.0.0.1:{listening.getsockname()[1]}"


def unix(folder: Path) -> tuple[socket.socket, str]:
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(str(folder / "s"))
    listening.listen()
    return listening, f"unix:{folder}/s"


@pytest.mark.parametrize("kind", [port, unix])
def test_what_is_sent_over_it_comes_back_after_its_round_trip_and_its_end_is_quiet(
    kind: Callable[[Path], tuple[socket.socket, str]], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    listening, address = kind(tmp_path)
    threading.Thread(target=echo, args=(listening,), daemon=True).start()
    link = DelayedLink(address, TRIP_MS)
    host, _, number = link.address.rpartition(":")
    with socket.create_connection((host, int(number))) as client:
        began_s = time.perf_counter()
        client.sendall(b"there and back")
        assert client.recv(1024) == b"there and back"
        assert time.perf_counter() - began_s >= TRIP_MS / 1e3
        link.close()
    assert capfd.readouterr().err == ""


def test_a_link_to_where_nobody_listens_ends_its_connections(tmp_path: Path) -> None:
    link = DelayedLink(f"unix:{tmp_path}/nobody", TRIP_MS)
    host, _, number = link.address.rpartition(":")
    with socket.create_connection((host, int(number))) as client:
        assert client.recv(1024) == b""
    link.close()
