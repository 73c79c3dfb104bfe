"""Real ssh keys, signed requests, and a host's lists of them."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from bridge.bus.sides.requester import RequesterBus
from bridge.bus.views import RequestRef
from bridge.records.request import Request
from bridge.trust.ssh_signatures import COMMIT_NAMESPACE, NAMESPACE, fingerprint_of, sign
from tests.fakes.asking import make_request

WHO = "agent@example.org"


@dataclass(frozen=True)
class Key:
    """A key pair in a folder."""

    path: Path

    @property
    def public(self) -> str:
        return " ".join(self.path.with_name(f"{self.path.name}.pub").read_text().split()[:2])

    @property
    def fingerprint(self) -> str:
        return fingerprint_of(self.public)


def make_key(folder: Path, name: str) -> Key:
    if shutil.which("ssh-keygen") is None:  # where it is promised, the tests marked `needs` fail
        pytest.skip("OpenSSH's client is not installed: no ssh-keygen")
    path = folder / name
    argv = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", str(path)]
    subprocess.run(argv, check=True, timeout=240)
    return Key(path)


def signers_line(key: Key, who: str = WHO, *, code: bool = False, more: str = "") -> str:
    return f'{who} namespaces="{COMMIT_NAMESPACE if code else NAMESPACE}"{more} {key.public}\n'


def write_list(path: Path, *lines: str) -> Path:
    path.write_text("".join(lines))
    path.chmod(0o600)
    return path


def signed_request(bus_id: str, preset: str, key: Key, who: str = WHO, **changes: Any) -> tuple[Request, bytes]:
    """Return a request and its signature."""
    request = make_request(bus_id, preset, principal=who, signer=key.fingerprint, **changes)
    return request, sign(request.canonical(), key.path)


def push_signed(bus: RequesterBus, request: Request, signature: bytes) -> RequestRef:
    return bus.submit(request.canonical(), request.ref, request.workload, signature).ref
