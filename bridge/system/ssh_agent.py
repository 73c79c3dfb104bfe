"""Ask an ssh-agent for an ed25519 signature over any bytes, without the private key.

Protocol: https://datatracker.ietf.org/doc/html/draft-ietf-sshm-ssh-agent, sections 3.5 and 3.6. An agent signs with
ed25519 exactly what it is given, so the signature is one of plain ed25519 (RFC 8032) as well.

Knows one request and its answer; which key is meant, and for what, is the caller's choice.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from typing import Final

from bridge.errors import InfrastructureError

TIMEOUT_S: Final = 60.0  # an agent may ask its user
ANSWER_MAX_BYTES: Final = 64 * 1024
_SIGN_REQUEST: Final = b"\x0d"
_SIGN_RESPONSE: Final = b"\x0e"
_KIND: Final = b"ssh-ed25519"
_REMEDY: Final = "ssh-add -L shows what the agent of SSH_AUTH_SOCK holds"


def agent_sign(public: bytes, data: bytes, path: str | None = None) -> bytes:
    """Return the ed25519 signature, 64 bytes, that an agent makes over some bytes.

    Args:
        public: the 32 bytes of the public key.
        data: the bytes to sign.
        path: the agent's socket; None for that of ``SSH_AUTH_SOCK``.

    Raises:
        InfrastructureError: there is no agent, or it does not sign with this key.
    """
    where = path or os.environ.get("SSH_AUTH_SOCK")
    if not where:
        raise InfrastructureError("this key is in an ssh-agent, and SSH_AUTH_SOCK names none", remedy=_REMEDY)
    blob = _string(_KIND) + _string(public)
    message = _SIGN_REQUEST + _string(blob) + _string(data) + bytes(4)
    try:
        with socket.socket(socket.AF_UNIX) as agent:
            agent.settimeout(TIMEOUT_S)
            agent.connect(where)
            agent.sendall(_string(message))
            answer = _received(agent, int.from_bytes(_received(agent, 4), "big"))
    except OSError as error:
        raise InfrastructureError(f"the ssh-agent at {where} does not answer: {error}", remedy=_REMEDY) from error
    parts = list(_strings(answer[1:]))
    inner = list(_strings(parts[0])) if answer[:1] == _SIGN_RESPONSE and len(parts) == 1 else []
    if len(inner) != 2 or inner[0] != _KIND or len(inner[1]) != 64:
        raise InfrastructureError(f"the ssh-agent at {where} does not sign with this key", remedy=_REMEDY)
    return inner[1]


def ssh_text(public: bytes) -> str:
    """Return 32 bytes of an ed25519 public key as OpenSSH writes it."""
    import base64

    blob = _string(_KIND) + _string(public)
    return f"ssh-ed25519 {base64.b64encode(blob).decode('ascii')}"


def ed25519_of(text: str) -> bytes:
    """Return the 32 bytes of a public key that OpenSSH wrote, ``ssh-ed25519 BASE64 [comment]``.

    Raises:
        ValueError: it is no ed25519 key.
    """
    import base64

    words = text.split()
    parts = list(_strings(base64.b64decode(words[1], validate=True))) if len(words) > 1 else []
    if len(parts) != 2 or parts[0] != _KIND or len(parts[1]) != 32:
        raise ValueError(f"got {text[:40]!r}; expected 'ssh-ed25519 AAAA...'")
    return parts[1]


def _string(data: bytes) -> bytes:
    return len(data).to_bytes(4, "big") + data


def _strings(data: bytes) -> Iterator[bytes]:
    """Yield the strings that some bytes consist of; nothing after one that is cut off."""
    while len(data) >= 4:
        size = int.from_bytes(data[:4], "big")
        if len(data) < 4 + size:
            return
        yield data[4 : 4 + size]
        data = data[4 + size :]


def _received(agent: socket.socket, count: int) -> bytes:
    if count > ANSWER_MAX_BYTES:
        raise OSError(f"an answer of {count} bytes")
    data = b""
    while len(data) < count:
        piece = agent.recv(count - len(data))
        if not piece:
            raise OSError("it closed the connection")
        data += piece
    return data
