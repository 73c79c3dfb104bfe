"""The key a clone signs its requests with: found by `kakeya-mac init`, and made where `auto` asks for one.

Every candidate is tried by signing with it, as only that shows whether it works without a passphrase or a touch.
"""

from __future__ import annotations

import getpass
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bridge.client.clone.config import OFF, ClientSettings, SigningChoice
from bridge.client.connection.session import BusSession
from bridge.errors import InfrastructureError, KakeyaError, UsageError
from bridge.records.bus import SIGNED_REQUESTS
from bridge.records.request import PRINCIPAL_PATTERN
from bridge.request import UNSIGNED
from bridge.system import process
from bridge.system.durable import write_atomically
from bridge.trust.ssh_signatures import NAMESPACE, fingerprint, fingerprint_of, sign

AUTO: Final = "auto"
_ED25519: Final = "ssh-ed25519 "
_WALL_S: Final = 10.0
_NOT_A_NAME = re.compile(r"[^A-Za-z0-9._@+-]+")


@dataclass(frozen=True)
class SigningIdentity:
    """Who signs here: the principal's name, the key file (public half where an agent holds the key), its fingerprint.

    Attributes:
        public: the public key's text, for the host's owner.
    """

    principal: str
    key: Path
    fingerprint: str
    public: str

    def sign(self, data: bytes) -> bytes:
        """Return the signature of these bytes.

        Raises:
            UsageError: the key does not sign.
        """
        return sign(data, self.key)

    def is_listed(self, signers: Sequence[str]) -> bool:
        """Return whether lines of a bus's root list this key under this name, without an end, for requests."""
        blob = self.public.partition(" ")[2].partition(" ")[0]
        return any(
            self.principal in words[0].split(",") and blob in words[1:]
            and NAMESPACE in line and "valid-before" not in line
            for line in signers
            if (words := line.split())
        )  # fmt: skip

    @property
    def trust_command(self) -> str:
        """Return what the host's owner types to let this person in; `welcome` takes one type of key."""
        if not self.public.startswith(_ED25519):
            return f"kakeya-runner trust add '{self.public}' --principal {self.principal}"
        return f"kakeya-runner welcome '{self.principal} {self.public}'"


def identity_of(session: BusSession) -> SigningIdentity | None:
    """Return who signs requests to this bus, None when they go unsigned, as on this machine's own bus.

    Raises:
        UsageError: the configured key is not there or is no key.
    """
    choice = session.settings.signing
    if choice is None or choice.key == OFF or session.embedded:
        return None
    return identity(Path(choice.key), choice.principal)


def identity(key: Path, principal: str) -> SigningIdentity:
    """Return the identity of a key file.

    Raises:
        UsageError: it is not there or is no key.
    """
    if not key.is_file():
        raise UsageError(f"the signing key {key} is not there", remedy="kakeya-mac init --signing-key auto")
    public = _public_of(key)
    return SigningIdentity(
        principal, key, fingerprint(key) if public is None else fingerprint_of(public), public or "KEY"
    )


def choose(
    session: BusSession, environment: Mapping[str, str], *, key: str | None, principal: str | None
) -> SigningChoice | None:
    """Return the signing key of a clone: the one asked for, the one it has, or the user's own where a host checks.

    A key is made only where ``auto`` asks for one.

    Args:
        session: the bus; where no runner checks signatures, nothing is signed unless asked for.
        environment: of the user.
        key: a path, ``auto`` to find or make one, ``none`` to sign nothing; None when nothing was said.
        principal: the name to sign as, None for the present one or the user's e-mail address.

    Raises:
        UsageError: the key does not sign, the principal is no name, or there is no key to sign with under that name.
    """
    settings = session.settings
    present = settings.signing
    if principal is not None and (re.fullmatch(PRINCIPAL_PATTERN, principal) is None or principal == UNSIGNED):
        raise UsageError(f"--principal: got {principal[:80]!r}; expected a name such as agent@example.org")
    if key == OFF:
        return SigningChoice(OFF, UNSIGNED)
    if key is None and principal is None and (present is not None or session.embedded or not checked_by(session)):
        return present
    name = principal or (None if present is None or present.key == OFF else present.principal) or _own_name(settings)
    if key not in (None, AUTO):
        path = (settings.directory / Path(str(key)).expanduser()).resolve()
        sign(b"a trial", path)
        return SigningChoice(str(path), name)
    if key is None and present is not None and present.key != OFF:
        return SigningChoice(present.key, name)
    candidates = _candidates(settings, environment)
    if key == AUTO:  # its line is for `welcome`, which takes no other type
        candidates = (path for path in candidates if path.is_file() and (_public_of(path) or "").startswith(_ED25519))
    usable = next(filter(_works, candidates), None)
    if usable is None and key == AUTO:
        usable = _make(settings.config_dir)
    if usable is None and principal is not None:
        raise UsageError(
            f"--principal {principal}: this user has no ssh key that signs without a passphrase",
            remedy="--signing-key auto makes one; --signing-key PATH names one",
        )
    return present if usable is None else SigningChoice(str(usable), name)


def checked_by(session: BusSession) -> tuple[str, ...]:
    """Return the runners of the bus that say that their owner lists signers."""
    try:
        return tuple(sorted(b.runner for _, b in session.bus.read_beacons() if SIGNED_REQUESTS in b.capabilities))
    except InfrastructureError:
        return ()


def _candidates(settings: ClientSettings, environment: Mapping[str, str]) -> Iterator[Path]:
    """Yield key files in order: the one git signs with, the agent's, the user's usual ones, one made earlier."""
    home = Path(environment["HOME"]) if environment.get("HOME") else None
    named = _git(settings, "user.signingkey") if _git(settings, "gpg.format") == "ssh" else ""
    if named and not named.startswith(("key::", "ssh-")):  # what git takes for a key itself, which an agent holds
        yield Path(named).expanduser()
    if environment.get("SSH_AUTH_SOCK") and shutil.which("ssh-add", path=environment.get("PATH")) is not None:
        done = process.run(["ssh-add", "-L"], env=dict(environment), timeout_s=_WALL_S)
        for line in done.stdout.decode("utf-8", "replace").splitlines() if done.ok else ():
            public = settings.config_dir / f"agent-{fingerprint_of(line)[7:15].replace('/', '_')}.pub"
            write_atomically(public, f"{line}\n".encode())
            yield public
    if home is not None:
        yield from (home / ".ssh" / name for name in ("id_ed25519", "id_ecdsa", "id_rsa"))
    yield _made(settings.config_dir)


def _works(key: Path) -> bool:
    try:
        return key.is_file() and bool(sign(b"a trial", key))
    except KakeyaError:
        return False


def _made(config_dir: Path) -> Path:
    return config_dir / "signing_key"


def _make(config_dir: Path) -> Path:
    """Make a key of our own without passphrase, readable by its user alone.

    Raises:
        InfrastructureError: ssh-keygen did not make it.
    """
    path = _made(config_dir)
    config_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    argv = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "kakeya", "-f", str(path)]
    done = process.run(argv, timeout_s=_WALL_S)
    if not done.ok:
        raise InfrastructureError(f"no signing key could be made: {done.describe()}", remedy=f"look at {path}")
    return path


def _public_of(key: Path) -> str | None:
    """Return type and key of the public half, without its comment, None when it cannot be told."""
    beside = key if key.suffix == ".pub" else key.with_name(f"{key.name}.pub")
    if beside.is_file():
        text = beside.read_text("utf-8", "replace")
    else:
        done = process.run(["ssh-keygen", "-y", "-P", "", "-f", str(key)], timeout_s=_WALL_S)
        text = done.stdout.decode("utf-8", "replace") if done.ok else ""
    words = text.split()
    return " ".join(words[:2]) if len(words) >= 2 else None


def _own_name(settings: ClientSettings) -> str:
    """Return a principal for this user: the e-mail address git has, else the login name."""
    for text in (_git(settings, "user.email"), _login_name()):
        name = _NOT_A_NAME.sub("-", text).strip("-.@+_")[:128]
        if name and re.fullmatch(PRINCIPAL_PATTERN, name) and name != UNSIGNED:
            return name
    return "requester"


def _login_name() -> str:
    """Return the login name; empty where this machine has none for the user's number, as in many containers."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # the latter from Python 3.13 on
        return ""


def _git(settings: ClientSettings, key: str) -> str:
    from bridge.system.git import run_in_work_tree

    if settings.repository is None:
        return ""
    done = run_in_work_tree(settings.repository.top, ["config", "--get", key])
    return done.stdout.decode("utf-8", "replace").strip() if done.exit_code == 0 else ""
