"""Check that a daemon gets in by ssh: it has no keychain and no agent, so a key with a passphrase is none."""

from __future__ import annotations

import base64
import binascii
import re
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, Literal

from bridge.diagnostics import Check

_MAGIC: Final = b"openssh-key-v1\x00"
_KEY_MAX_BYTES: Final = 65536
_SCP: Final = re.compile(r"^(?:[^@/:]+@)?([^@/:]+):(?!//)")
_URL: Final = re.compile(r"^ssh://(?:[^@/]+@)?(\[[^\]]+\]|[^:/]+)")


def check_ssh(route: str | None, tool: Callable[..., str], home: Path) -> Iterator[Check]:
    """Yield whether a runner that nobody logged in for has a key for its bus; nothing of a bus not reached by ssh.

    Args:
        route: of the bus.
        tool: runs a program of the system and returns what it prints.
        home: of the runner's user.
    """
    host = ssh_host(route or "")
    if host is None:
        return
    listed = re.findall(r"^identityfile (.+)$", tool("/usr/bin/ssh", "-G", host), re.MULTILINE)
    files = [home / one.removeprefix("~/") if one.startswith("~/") else Path(one) for one in listed]
    kinds = {file: kind for file in files if (kind := key_kind(file)) is not None}
    if "open" in kinds.values():
        key = next(file for file, kind in kinds.items() if kind == "open")
        yield Check("ssh key", "ok", f"{key} opens without a passphrase")
        return
    file = shlex.quote(str(home / ".ssh" / "id_ed25519_kakeya"))
    make = f"ssh-keygen -t ed25519 -N '' -f {file}, name it in {home}/.ssh/config for {host}"
    if kinds:
        text = f"{', '.join(map(str, kinds))}: locked by a passphrase, and a daemon has no keychain or agent to ask"
        yield Check("ssh key", "warn", text, f"{make}, and let the repository know it as a deploy key")
    else:
        yield Check("ssh key", "warn", f"no private key for {host} that this user can read", make)


def ssh_host(route: str) -> str | None:
    """Return the host of an ssh route, None of any other."""
    match = _URL.match(route) or (None if "://" in route else _SCP.match(route))
    return None if match is None else match[1]


def key_kind(file: Path) -> Literal["open", "locked"] | None:
    """Return whether a private key needs a passphrase, None where there is no key.

    The new format names its cipher first (openssh, PROTOCOL.key); older ones say so in words (RFC 1421, RFC 5958).
    """
    try:
        with file.open("rb") as stream:
            text = stream.read(_KEY_MAX_BYTES).decode("ascii", "replace")
    except OSError:
        return None
    match = re.search(r"-----BEGIN ([A-Z ]*PRIVATE KEY)-----(.*?)-----END", text, re.DOTALL)
    if match is None:
        return None
    if match[1] != "OPENSSH PRIVATE KEY":
        return "locked" if "ENCRYPTED" in match[1] + match[2] else "open"
    try:
        data = base64.b64decode("".join(match[2].split()), validate=True)
    except binascii.Error:
        return None
    if not data.startswith(_MAGIC):
        return None
    length = int.from_bytes(data[len(_MAGIC) : len(_MAGIC) + 4], "big")
    return "open" if data[len(_MAGIC) + 4 :][:length] == b"none" else "locked"
