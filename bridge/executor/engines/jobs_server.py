"""Ask a jobs server over http, with a bound on bytes and time; one clear error for whatever it answers instead.

Knows addresses, tokens and status codes, and nothing of what is asked.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final
from urllib.parse import quote, urlsplit

from bridge.errors import InfrastructureError
from bridge.run.outcomes import one_line
from bridge.system.clock import Clock
from bridge.system.gitlfs import LOOPBACK

if TYPE_CHECKING:
    import http.client

CALL_S: Final = 30.0
_ANSWER_MAX_BYTES: Final = 16 << 20
_SAID_MAX_CHARS: Final = 300
_OK, _NOT_FOUND = 200, 404
_REFUSED: Final = frozenset({401, 403})


def check_address(address: str, *, with_token: bool) -> str | None:
    """Return what is wrong with a server's address, None where nothing is; no token is sent in the clear elsewhere."""
    try:
        parts = urlsplit(address)
        _ = parts.port
    except ValueError as error:
        return str(error)
    if (
        parts.scheme not in {"http", "https"}
        or not parts.hostname
        or not address.isascii()
        or not address.isprintable()
    ):
        return "expected an http or https address, such as http://127.0.0.1:8265"
    if parts.username is not None or parts.password is not None or parts.query or parts.fragment:
        return "no user, password, query or fragment belongs in it"
    if with_token and parts.scheme == "http" and parts.hostname not in LOOPBACK:
        return (
            f"whoever is between here and {parts.hostname} could read the token: use https, or a port of this "
            "machine that ssh -L carries there"
        )
    return None


class JobsServer:
    """One server; every call is a connection of its own.

    Args:
        address: where it listens; a path in it comes before that of each call.
        token: returns what goes with each call, None for nothing.
        clock: measures how long a call takes.
    """

    def __init__(self, address: str, token: Callable[[], str | None], clock: Clock) -> None:
        self._parts, self._token, self._clock = urlsplit(address), token, clock
        self.where = f"{self._parts.scheme}://{self._parts.netloc}"

    def call(self, method: str, *path: str, body: object = None, patience_s: float = CALL_S) -> bytes | None:
        """Return what the server answers, None where it says that there is no such thing.

        Args:
            method: of http.
            path: its parts, each quoted here; an empty last one is a slash at the end.
            body: sent as JSON.
            patience_s: how long the answer may take.

        Raises:
            InfrastructureError: it does not answer, or refuses; nothing is said of the token.
        """
        token = self._token()
        status, data = self._answer(method, path, token, body, patience_s)
        if status == _NOT_FOUND:
            return None
        if status in _REFUSED:
            had = "refuses the token" if token is not None else "wants a token"
            raise InfrastructureError(f"{self.where} {had} ({status})", remedy="executor.token_file in policy.toml")
        if status != _OK:
            raise InfrastructureError(f"{self.where} answers {status}: {_said(data)}")
        return data

    def wants_token(self, method: str, *path: str) -> bool:
        """Return whether the server refuses a call without a token.

        Raises:
            InfrastructureError: it does not answer.
        """
        status, data = self._answer(method, path, None, None, CALL_S)
        if status not in {*_REFUSED, _OK}:
            raise InfrastructureError(f"{self.where} answers {status}: {_said(data)}")
        return status in _REFUSED

    def _answer(
        self, method: str, path: tuple[str, ...], token: str | None, body: object, patience_s: float
    ) -> tuple[int, bytes]:
        """Return status and bytes of an answer.

        Raises:
            InfrastructureError: none came, or not in time.
        """
        import http.client

        from bridge.executor.engines.timed_reply import TimedReply

        sent = None if body is None else json.dumps(body).encode()
        headers = {"Accept": "application/json", "Connection": "close"}
        headers |= {} if sent is None else {"Content-Type": "application/json"}
        headers |= {} if token is None else {"Authorization": f"Bearer {token}"}
        until_s = self._clock.steady_s() + patience_s
        connection = self._connection(patience_s)
        connection.response_class = partial(TimedReply, until_s=until_s, clock=self._clock)  # type: ignore[assignment]
        try:
            target = "/".join([self._parts.path.rstrip("/"), *(quote(part, safe="") for part in path)])
            connection.request(method, target, sent, headers)
            with connection.getresponse() as reply:
                return reply.status, _read(reply)
        except (OSError, http.client.HTTPException, ValueError) as error:
            why = "not in time" if isinstance(error, TimeoutError) else str(error) or type(error).__name__
            raise InfrastructureError(
                f"{self.where} does not answer: {one_line(why)}", remedy="ray status; kakeya-runner doctor"
            ) from error
        finally:
            connection.close()

    def _connection(self, timeout_s: float) -> http.client.HTTPConnection:
        import http.client

        host, port = self._parts.hostname or "", self._parts.port
        if self._parts.scheme == "https":
            import ssl

            return http.client.HTTPSConnection(host, port, timeout=timeout_s, context=ssl.create_default_context())
        return http.client.HTTPConnection(host, port, timeout=timeout_s)


def _read(reply: http.client.HTTPResponse) -> bytes:
    data = b""
    while piece := reply.read1(1 << 16):
        data += piece
        if len(data) > _ANSWER_MAX_BYTES:
            raise ValueError(f"it says more than {_ANSWER_MAX_BYTES >> 20} MiB")
    return data


def _said(data: bytes) -> str:
    """Return the last line of an error's text: of a traceback, what was raised."""
    lines = data.decode("utf-8", "replace").strip().splitlines()
    return one_line(lines[-1])[:_SAID_MAX_CHARS] if lines else "nothing"
