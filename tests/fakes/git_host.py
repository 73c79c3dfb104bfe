"""A git host over HTTP on loopback, with what hosts do in front of git: refuse, limit, fail, ask to sign in.

Git's own HTTP backend serves every repository below a folder. What stands in front is a list of `Gate` functions: the
first that answers, answers. A proxy of an agent, a rate limit and a broken gateway are such functions.
"""

from __future__ import annotations

import gzip
import os
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

NO_COMMIT = "0" * 40
SIGN_IN = b"<!DOCTYPE html><html><title>Sign in</title><body>Sign in to continue</body></html>"


@dataclass(frozen=True)
class Call:
    """A request as the host receives it; `updates` are old id, new id and ref of what is pushed."""

    method: str
    path: str
    query: str
    is_push: bool
    updates: tuple[tuple[str, str, str], ...] = ()


@dataclass(frozen=True)
class Reply:
    """What a gate answers in git's place; `None` as status closes the connection without a word."""

    status: int | None
    body: bytes = b""
    headers: tuple[tuple[str, str], ...] = ()


Gate = Callable[[Call], Reply | None]


def only_below(prefix: str, *, deletes: bool = False) -> Gate:
    """Return the gate of an agent's proxy: one branch a push, below one prefix, none of them deleted."""

    def judge(call: Call) -> Reply | None:
        if len(call.updates) > 1:
            return Reply(403, b"ERR Unable to parse branch information from push data\n")
        for _, new, ref in call.updates:
            if not ref.startswith(prefix):
                return Reply(403, f"ERR push to {ref} is not allowed in this session\n".encode())
            if new == NO_COMMIT and not deletes:
                return Reply(403, b"ERR deletions are not allowed\n")
        return None

    return judge


def in_turn(replies: Sequence[Reply | None], is_meant: Callable[[Call], bool] = lambda call: True) -> Gate:
    """Return a gate that gives each call it is meant for the next of these answers, then lets all through."""
    left = iter(replies)
    lock = threading.Lock()

    def judge(call: Call) -> Reply | None:
        if not is_meant(call):
            return None
        with lock:
            return next(left, None)

    return judge


def is_upload(call: Call) -> bool:
    """Return whether a call carries the updates of a push."""
    return call.is_push and call.method == "POST"


@dataclass
class GitHost:
    """The running host.

    Attributes:
        root: folder of the repositories.
        gates: are asked in order.
        delay_s: before each answer, as of a host that is far away.
        lose_replies: how many answers to uploads are lost after git has made them.
        calls: what was received.
        sizes: bytes received and sent of each call that was answered, without headers.
    """

    root: Path
    gates: list[Gate] = field(default_factory=list)
    delay_s: float = 0.0
    lose_replies: int = 0
    calls: list[Call] = field(default_factory=list)
    sizes: list[tuple[int, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        host = self

        class Handler(_Handler):
            site = host

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True
        self.port = self._http.server_port
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    def url(self, repository: Path, user: str = "") -> str:
        """Return the URL of a repository below the root, with a user's name where one is given."""
        at = f"{user}@" if user else ""
        return f"http://{at}127.0.0.1:{self.port}/{repository.relative_to(self.root)}"

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()


class _Handler(BaseHTTPRequestHandler):
    site: GitHost
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Stay silent."""

    def do_GET(self) -> None:
        self._answer()

    def do_POST(self) -> None:
        self._answer()

    def _answer(self) -> None:
        data = self._body()
        plain = gzip.decompress(data) if self.headers.get("Content-Encoding") == "gzip" else data
        url = urlsplit(self.path)
        is_push = "git-receive-pack" in self.path
        updates = tuple(_updates(plain)) if is_push and self.command == "POST" else ()
        call = Call(self.command, url.path, url.query, is_push, updates)
        self.site.calls.append(call)
        time.sleep(self.site.delay_s)
        for gate in self.site.gates:
            reply = gate(call)
            if reply is not None:
                return self._send(reply, len(data))
        reply = self._backend(url.path, url.query, data)
        if is_upload(call) and updates and self.site.lose_replies:
            self.site.lose_replies -= 1
            reply = Reply(None)
        return self._send(reply, len(data))

    def _send(self, reply: Reply, received: int) -> None:
        self.site.sizes.append((received, len(reply.body)))
        if reply.status is None:
            self.close_connection = True
            return
        self.send_response(reply.status)
        headers = dict(reply.headers)
        if reply.status >= 400:
            headers.setdefault("Content-Type", "text/plain; charset=utf-8")
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(reply.body)))
        self.end_headers()
        self.wfile.write(reply.body)

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        pieces = []
        while size := int(self.rfile.readline().strip() or b"0", 16):
            pieces.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(pieces)

    def _backend(self, path: str, query: str, data: bytes) -> Reply:
        own = {
            "GIT_PROJECT_ROOT": str(self.site.root),
            "GIT_HTTP_EXPORT_ALL": "1",
            "PATH_INFO": path,
            "QUERY_STRING": query,
            "REQUEST_METHOD": self.command,
            "CONTENT_TYPE": self.headers.get("Content-Type", ""),
            "CONTENT_LENGTH": str(len(data)),
            "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
            "REMOTE_USER": "agent",
            "REMOTE_ADDR": "127.0.0.1",
            "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
        }
        argv = ["git", "-c", "http.receivepack=true", "-c", "safe.directory=*", "http-backend"]
        done = subprocess.run(
            argv, input=data, env={**os.environ, **own}, capture_output=True, timeout=240, check=False
        )
        head, _, body = done.stdout.partition(b"\r\n\r\n")
        fields = dict(line.split(": ", 1) for line in head.decode("latin-1").splitlines() if ": " in line)
        status = int(fields.pop("Status", "200 OK").split()[0])
        return Reply(status, body, tuple(fields.items()))


def _updates(data: bytes) -> Iterator[tuple[str, str, str]]:
    """Yield the commands of a push (gitprotocol-pack(5)): pkt-lines of old id, new id, ref, up to a flush packet."""
    place = 0
    while data[place : place + 4] not in (b"0000", b""):
        size = int(data[place : place + 4], 16)
        words = data[place + 4 : place + size].split(b"\0")[0].decode("utf-8", "replace").split()
        if len(words) == 3:
            yield words[0], words[1], words[2]
        place += size
