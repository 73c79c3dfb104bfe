"""Fetch large files from one pinned git-lfs server: bounded, verified by digest and size, credentials kept at home.

Only the server's basic download transfer is spoken. A redirect is refused and an address elsewhere must be one the
owner named, so that an answer of the server cannot send this host's credentials or requests to another place. Knows
nothing about pointers, trees or requests.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import re
import socket
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import SplitResult, urlsplit

from bridge import strictjson
from bridge.errors import InfrastructureError, RemoteError, RequestRejectedError
from bridge.limits import LFS_WALL_S, MIB
from bridge.system.clock import Clock

if TYPE_CHECKING:
    import http.client

LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})
_BATCH_COUNT: Final = 100
_ANSWER_MAX_BYTES: Final = 4 * MIB
_SILENCE_S: Final = 20.0  # one read or write of a connection
_PIECE_BYTES: Final = 256 * 1024
_MEDIA: Final = "application/vnd.git-lfs+json"
_HEADER_NAME: Final = re.compile(r"[A-Za-z0-9-]{1,64}")
_TOO_MANY: Final = 429
_SERVER_ERROR: Final = 500
_OWN_HEADERS: Final = frozenset({"host", "connection", "content-length", "transfer-encoding", "accept-encoding"})


@dataclass(frozen=True)
class LfsObject:
    """A large file by what its bytes must be: sha256 in hex, and their number."""

    oid: str
    size: int


@dataclass(frozen=True)
class LfsServer:
    """A server the host's owner pinned.

    Attributes:
        url: of its API, e.g. ``https://git.example.org/o/r.git/info/lfs``; https, or http on this machine.
        also_from: further origins, such as ``https://objects.example.org``, from which it may serve objects.
        user, password: sent to the origin of `url` alone.
        wall_s: for all objects of one call together.
    """

    url: str
    also_from: tuple[str, ...] = ()
    user: str = ""
    password: str = field(default="", repr=False)
    wall_s: float = LFS_WALL_S

    def fetch(self, objects: Sequence[LfsObject], folder: Path, clock: Clock) -> dict[str, Path]:
        """Download objects into a folder of the caller's own and return their files by oid.

        Raises:
            RequestRejectedError: the server does not have one of them.
            RemoteError: it did not answer in time, or with other bytes, or sent us elsewhere.
            InfrastructureError: an object could not be stored.
        """
        deadline_s = clock.steady_s() + self.wall_s
        calls = _Calls(self, clock, deadline_s)
        files: dict[str, Path] = {}
        for start in range(0, len(objects), _BATCH_COUNT):
            batch = objects[start : start + _BATCH_COUNT]
            actions = calls.ask(batch)
            for lfs_object in batch:
                files[lfs_object.oid] = folder / lfs_object.oid
                calls.download(lfs_object, actions[lfs_object.oid], files[lfs_object.oid])
        return files


@dataclass(frozen=True)
class _Action:
    href: str
    headers: Mapping[str, str]


@dataclass(frozen=True)
class _Calls:
    """The calls of one fetch, which share a deadline."""

    server: LfsServer
    clock: Clock
    deadline_s: float

    def ask(self, objects: Sequence[LfsObject]) -> dict[str, _Action]:
        """Ask where to download objects, all of them or none."""
        body = {
            "operation": "download",
            "transfers": ["basic"],
            "hash_algo": "sha256",
            "objects": [{"oid": lfs_object.oid, "size": lfs_object.size} for lfs_object in objects],
        }
        headers = {"Accept": _MEDIA, "Content-Type": _MEDIA, **self._credentials()}
        url = self.server.url.rstrip("/") + "/objects/batch"
        with self._exchange("POST", url, headers, json.dumps(body).encode()) as reply:
            data = _read(reply, _ANSWER_MAX_BYTES + 1)
        try:
            answer = strictjson.decode(data, max_bytes=_ANSWER_MAX_BYTES, max_depth=8)
            listed = {str(item["oid"]): item for item in answer["objects"]}
            return {lfs_object.oid: self._action(lfs_object, listed[lfs_object.oid]) for lfs_object in objects}
        except (strictjson.StrictJsonError, KeyError, TypeError, AttributeError, ValueError) as error:
            raise RemoteError(f"the LFS server {self.server.url} gave no answer that can be read: {error!r}") from error

    def download(self, lfs_object: LfsObject, action: _Action, path: Path) -> None:
        """Write one object to a new file; a file that is not what it should be does not stay."""
        headers = {"Accept": "application/octet-stream", **action.headers}
        if _origin(action.href) == _origin(self.server.url) and "authorization" not in map(str.lower, headers):
            headers |= self._credentials()
        digest, left = hashlib.sha256(), lfs_object.size
        try:
            with self._exchange("GET", action.href, headers, None) as reply, path.open("xb") as stream:
                while left >= 0 and (piece := _read(reply, min(_PIECE_BYTES, left + 1), whole=False)):
                    left -= len(piece)
                    digest.update(piece)
                    _store(stream, piece)
            self._check(lfs_object, left, digest.hexdigest())
        except BaseException:
            path.unlink(missing_ok=True)
            raise

    def _check(self, lfs_object: LfsObject, left: int, digest: str) -> None:
        if left > 0 and self.clock.steady_s() >= self.deadline_s:
            raise RemoteError(f"fetching large files took more than {self.server.wall_s:.0f} s")
        if left != 0:
            got = f"more than {lfs_object.size}" if left < 0 else f"{lfs_object.size - left}"
            raise RemoteError(
                f"the LFS server sent {got} bytes of object {lfs_object.oid[:12]}, expected {lfs_object.size}"
            )
        if digest != lfs_object.oid:
            raise RemoteError(
                f"the LFS server sent other bytes for object {lfs_object.oid[:12]}: their sha256 is {digest}"
            )

    def _action(self, lfs_object: LfsObject, item: Mapping[str, Any]) -> _Action:
        if "error" in item or "actions" not in item:
            reason = "".join(
                char if char.isprintable() else "?" for char in str(item.get("error", "no download"))[:200]
            )
            raise RequestRejectedError(
                f"the host's LFS server does not have object {lfs_object.oid[:12]} of {lfs_object.size} bytes: "
                f"{reason}",
                remedy=f"send it there first: git lfs push --object-id REMOTE {lfs_object.oid}",
            )
        download = item["actions"]["download"]
        href, headers = str(download["href"]), download.get("header") or {}
        allowed = {_origin(url) for url in (self.server.url, *self.server.also_from)}
        if _origin(href) not in allowed:
            raise RemoteError(
                f"the LFS server sends us to {_shown(href)} for objects, which the owner did not name",
                remedy='if that is right, in policy.toml: [lfs] also_from = ["' + _shown(href) + '"]',
            )
        for name, value in headers.items():
            fits = isinstance(value, str) and value.isprintable() and value.isascii()
            if not fits or not _HEADER_NAME.fullmatch(name) or name.lower() in _OWN_HEADERS:
                raise RemoteError(f"the LFS server asks for a header that is not sent: {name[:40]!r}")
        return _Action(href, headers)

    def _credentials(self) -> dict[str, str]:
        if not self.server.user and not self.server.password:
            return {}
        pair = f"{self.server.user}:{self.server.password}".encode()
        return {"Authorization": f"Basic {base64.b64encode(pair).decode()}"}

    @contextlib.contextmanager
    def _exchange(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes | None
    ) -> Iterator[http.client.HTTPResponse]:
        """Send a request and yield the answer to be read; whatever it waits for, it ends at the deadline."""
        where = _shown(url)
        left_s = self.deadline_s - self.clock.steady_s()
        if left_s <= 0:
            raise RemoteError(f"fetching large files from {where} took more than {self.server.wall_s:.0f} s")
        parts = urlsplit(url)
        connection = _connect(parts, min(_SILENCE_S, left_s))
        watchdog = threading.Timer(left_s, lambda: _cut(opened))
        opened: list[socket.socket] = []
        import http.client
        import ssl

        reply: http.client.HTTPResponse | None = None
        try:
            connection.connect()
            opened.append(connection.sock)
            watchdog.start()
            path = f"{parts.path or '/'}{f'?{parts.query}' if parts.query else ''}"
            connection.request(method, path, body, {**headers, "Accept-Encoding": "identity", "Connection": "close"})
            reply = connection.getresponse()
            if reply.status != 200:
                raise RemoteError(
                    _refusal(where, reply),
                    remedy="kakeya-runner policy check; [lfs] in policy.toml",
                    is_passing=reply.status == _TOO_MANY or reply.status >= _SERVER_ERROR,
                )
            yield reply
        except (OSError, http.client.HTTPException, ValueError) as error:
            late = self.clock.steady_s() >= self.deadline_s
            why = f"no end within {self.server.wall_s:.0f} s" if late else str(error) or type(error).__name__
            words = f"cannot fetch large files from {where}: {why}"
            is_refusal = late or isinstance(error, ssl.CertificateError)
            raise RemoteError(words, is_passing=isinstance(error, OSError) and not is_refusal) from error
        finally:
            watchdog.cancel()
            if reply is not None:
                reply.close()
            connection.close()


def check_url(url: str) -> str | None:
    """Return what is wrong with the address of a server or origin, or None."""
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError as error:
        return str(error)
    if parts.scheme not in ("https", "http") or not parts.hostname or not url.isascii() or not url.isprintable():
        return "expected an https URL"
    if parts.scheme == "http" and parts.hostname not in LOOPBACK:
        return "expected https; http is for a server on this machine"
    if parts.username is not None or parts.password is not None or parts.query or parts.fragment:
        return "no user, password, query or fragment belongs in it"
    return None


def _origin(url: str) -> tuple[str, str, int]:
    parts = urlsplit(url)
    if parts.username is not None or parts.password is not None:
        raise ValueError("an address with a user in it")
    return parts.scheme, parts.hostname or "", parts.port or {"https": 443, "http": 80}.get(parts.scheme, 0)


def _shown(url: str) -> str:
    scheme, host, port = _origin(url)
    text = f"{scheme}://{host}" + ("" if port == {"https": 443, "http": 80}.get(scheme) else f":{port}")
    return "".join(char if char.isprintable() else "?" for char in text[:200])


def _connect(parts: SplitResult, timeout_s: float) -> http.client.HTTPConnection:
    """Return a connection that is not open yet, through the environment's proxy for an https server elsewhere."""
    import http.client  # here: most commands never ask a server
    import ssl
    import urllib.request

    host = parts.hostname or ""
    if parts.scheme == "http":
        return http.client.HTTPConnection(host, parts.port, timeout=timeout_s)
    context = ssl.create_default_context()
    proxy = urlsplit(urllib.request.getproxies().get("https", ""))
    if not proxy.hostname or host in LOOPBACK or urllib.request.proxy_bypass(host):
        return http.client.HTTPSConnection(host, parts.port, timeout=timeout_s, context=context)
    through = http.client.HTTPSConnection(proxy.hostname, proxy.port or 3128, timeout=timeout_s, context=context)
    pair = f"{proxy.username}:{proxy.password or ''}".encode() if proxy.username else b""
    authorization = {"Proxy-Authorization": f"Basic {base64.b64encode(pair).decode()}"} if pair else {}
    through.set_tunnel(host, parts.port or 443, authorization)
    return through


def _read(reply: http.client.HTTPResponse, count: int, *, whole: bool = True) -> bytes:
    """Return up to `count` bytes; one piece as it comes unless the whole is asked for."""
    if not whole:
        return reply.read1(count)
    data = b""
    while len(data) < count and (piece := reply.read1(count - len(data))):
        data += piece
    return data


def _store(stream: Any, piece: bytes) -> None:
    try:
        stream.write(piece)
    except OSError as error:
        raise InfrastructureError(f"cannot store a large file: {error.strerror}", remedy="free some disk") from error


def _refusal(where: str, reply: http.client.HTTPResponse) -> str:
    if 300 <= reply.status < 400:
        return f"the LFS server {where} answers with a redirect ({reply.status}), which is not followed"
    return f"the LFS server {where} answers {reply.status} {reply.reason[:80]!r}, expected 200"


def _cut(opened: list[socket.socket]) -> None:
    for connection in opened:
        with contextlib.suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)
