"""Edit the owner's lists of trusted and revoked keys: one line a key, in OpenSSH's own format.

Knows files and their lines; what a list means for a request is in `bridge.runner.authorisation.signers`.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final, Literal

from bridge.errors import UsageError
from bridge.records.request import FINGERPRINT_PATTERN, PRINCIPAL_PATTERN
from bridge.request import UNSIGNED
from bridge.runner.policy.trust import SignerEntry, TrustPolicy
from bridge.system.durable import folder_in_turn, write_atomically
from bridge.trust.ssh_signatures import COMMIT_NAMESPACE, NAMESPACE, fingerprint_of

Use = Literal["request", "code"]
NAMESPACES: Final[dict[Use, str]] = {"request": NAMESPACE, "code": COMMIT_NAMESPACE}
_FILES: Final[dict[Use, str]] = {"request": "allowed_signers", "code": "code_signers"}
_LINE = re.compile(r"(\S+)\s+(?:((?:[^\s\"]|\"[^\"]*\")+)\s+)??((?:ssh|ecdsa|sk)-\S+)\s+([A-Za-z0-9+/=]+)(?:\s+(.*))?")


@dataclass(frozen=True)
class Listed:
    """One line of a list; `use` is what its key is trusted for."""

    use: Use | Literal["revoked"]
    principals: tuple[str, ...]
    fingerprint: str
    options: str

    def matches(self, who: str) -> bool:
        """Return whether a principal, or a key by its fingerprint, names this line."""
        return who in self.principals or who == self.fingerprint

    def lets(self, who: str) -> bool:
        """Return whether its key can sign as this principal, by name or by one of OpenSSH's patterns."""
        return any(_is_meant(who, pattern) for pattern in self.principals)

    @property
    def is_authority(self) -> bool:
        """Whether the key signs others' certificates, so that it is nobody's own."""
        return "cert-authority" in self.options.lower()


@dataclass(frozen=True)
class Revoked:
    """What a revocation came to: the list, the keys that went with the principal, whom else that concerns.

    Attributes:
        authorities: fingerprints that stay, as others' certificates hang on them.
    """

    path: Path
    keys: tuple[str, ...]
    others: tuple[str, ...]
    authorities: tuple[str, ...]


class TrustFiles:
    """The lists a policy names, or those beside it; one command at a time changes them, so that none loses another's.

    Args:
        policy: the policy, None when there is none yet.
        folder: where lists lie that the policy does not name.
    """

    def __init__(self, policy: TrustPolicy | None, folder: Path) -> None:
        self._policy, self._folder = policy, folder

    def add(self, use: Use, entry: SignerEntry) -> Path:
        """Trust a key, replacing an older line of it, and take it and its principals off the revoked list.

        Raises:
            UsageError: the policy lists its keys itself.
        """
        fingerprint = fingerprint_of(entry.key)
        path, revoked = self._path(use), self._revoked()
        with folder_in_turn(revoked.parent):
            others = [line for line in _lines(path) if _fingerprint(line) != fingerprint]
            _write(path, [*others, entry.line(NAMESPACES[use])])
            if revoked.exists():
                gone = {fingerprint, *entry.principals}
                _write(revoked, [line for line in _lines(revoked) if _revoked_name(line) not in gone])
        return path

    def remove(self, use: Use, who: str) -> int:
        """Trust a key or a principal no more; return how many lines went."""
        path = self._path(use)
        with folder_in_turn(self._revoked().parent):
            lines = _lines(path)
            others = [line for line in lines if (found := _parsed(use, line)) is None or not found.matches(who)]
            if len(others) != len(lines):
                _write(path, others)
        return len(lines) - len(others)

    def revoke(self, who: str) -> Revoked:
        """Put a key's fingerprint, or a principal and every key listed for it, on the revoked list.

        A name alone would leave its key to any other name it is listed under.

        Raises:
            UsageError: the list is an OpenSSH revocation list, which ssh-keygen writes.
        """
        path = self._revoked()
        with folder_in_turn(path.parent):
            listed = [line for line in self.listed() if line.use != "revoked"]
            keys = tuple(sorted({line.fingerprint for line in listed if line.lets(who) and not line.is_authority}))
            others = {name for line in listed if line.fingerprint in {*keys, who} for name in line.principals} - {who}
            left = tuple(sorted({line.fingerprint for line in listed if line.lets(who) and line.is_authority}))
            lines = _lines(path)
            known = {_revoked_name(line) for line in lines}
            added = [name for name in dict.fromkeys((who, *keys)) if name not in known]
            if added:
                _write(path, [*lines, *added])
        return Revoked(path, keys, tuple(sorted(others)), left)

    def listed(self) -> list[Listed]:
        """Return every line of every list."""
        found = [one for use in NAMESPACES for line in self._all(use) if (one := _parsed(use, line)) is not None]
        for line in _lines(self._revoked()):
            name = _revoked_name(line)
            is_key = name.startswith("SHA256:")
            if name:
                found.append(Listed("revoked", () if is_key else (name,), name if is_key else "", ""))
        return found

    def _all(self, use: Use) -> list[str]:
        source = None if self._policy is None else getattr(self._policy, _FILES[use])
        if isinstance(source, tuple):
            return [entry.line(NAMESPACES[use]) for entry in source]
        return _lines(self._path(use))

    def _path(self, use: Use) -> Path:
        source = None if self._policy is None else getattr(self._policy, _FILES[use])
        if isinstance(source, tuple):
            raise UsageError(
                f"policy.toml lists its {_FILES[use]} itself", remedy="edit it there, or let it name a file"
            )
        return self._folder / _FILES[use] if source is None else Path(source)

    def _revoked(self) -> Path:
        named = None if self._policy is None else self._policy.revoked
        return self._folder / "revoked" if named is None else Path(named)


def keys_of(lines: Iterable[str], names: Collection[str]) -> Iterator[str]:
    """Yield the fingerprints of the keys that lines of a list have for any of some names; an authority is nobody's."""
    for text in lines if names else ():
        line = _parsed("request", text)
        if line is not None and not line.is_authority and any(map(line.lets, names)):
            yield line.fingerprint


def read_key(words: list[str]) -> tuple[str, str]:
    """Return (public key ``TYPE BASE64``, comment) of a file's path or of the key's own text.

    Raises:
        UsageError: it is neither.
    """
    text = " ".join(words)
    path = Path(text).expanduser()
    if len(words) == 1 and _is_file(path):
        public = path if path.suffix == ".pub" else path.with_name(f"{path.name}.pub")
        if not public.is_file():
            remedy = f"ssh-keygen -y -f {shlex.quote(str(path))} > {shlex.quote(str(public))}"
            raise UsageError(f"{path} has no public half beside it", remedy=remedy)
        text = public.read_text("utf-8", "replace").strip()
    fingerprint_of(text)
    parts = text.split(None, 2)
    return " ".join(parts[:2]), parts[2].strip() if len(parts) > 2 else ""


def who_is(words: list[str]) -> str:
    """Return the principal or fingerprint that a command line names: a name, SHA256:..., a key or a key file.

    Raises:
        UsageError: it is none of these.
    """
    text = " ".join(words)
    if re.fullmatch(FINGERPRINT_PATTERN, text):
        return text
    if len(words) == 1 and re.fullmatch(PRINCIPAL_PATTERN, text) and not _is_file(Path(text).expanduser()):
        return text
    return fingerprint_of(read_key(words)[0])


def is_pin(words: list[str]) -> bool:
    """Return whether a command line names a runner's key as it is pinned, ``NAME=KEY``, and no file."""
    return len(words) == 1 and re.fullmatch(r"[^\s=]+=\S+", words[0]) is not None and not _is_file(Path(words[0]))


def check_principal(name: str) -> str:
    """Return a principal's name.

    Raises:
        UsageError: it is none; give one.
    """
    if not re.fullmatch(PRINCIPAL_PATTERN, name) or name == UNSIGNED:
        raise UsageError(
            f"got principal {name[:80]!r}; expected a name such as agent@example.org", remedy="give --principal NAME"
        )
    return name


def _is_file(path: Path) -> bool:
    """Return whether there is a file of this path; the text of a key may be longer than any is."""
    try:
        return path.is_file()
    except OSError:
        return False


def _is_meant(who: str, pattern: str) -> bool:
    """Return whether a line's principal is this one; OpenSSH's lists may hold patterns of * and ?."""
    return who == pattern or (not pattern.startswith("!") and fnmatchcase(who, pattern.replace("[", "[[]")))


def _parsed(use: Use, line: str) -> Listed | None:
    match = _LINE.fullmatch(line.strip())
    fingerprint = _fingerprint(line)
    if match is None or fingerprint is None:
        return None
    return Listed(use, tuple(match[1].split(",")), fingerprint, match[2] or "")


def _fingerprint(line: str) -> str | None:
    match = _LINE.fullmatch(line.strip())
    try:
        return None if match is None else fingerprint_of(f"{match[3]} {match[4]}")
    except UsageError:
        return None


def _revoked_name(line: str) -> str:
    words = line.split("#", maxsplit=1)[0].split()
    if len(words) < 2:
        return "".join(words)
    try:
        return fingerprint_of(" ".join(words))
    except UsageError:
        return " ".join(words)


def _lines(path: Path) -> list[str]:
    if not path.exists():
        return []
    data = path.read_bytes()
    if data.startswith(b"SSHKRL"):
        remedy = f"ssh-keygen -k -u -f {shlex.quote(str(path))} KEY.pub"
        raise UsageError(f"{path} is an OpenSSH revocation list", remedy=remedy)
    return data.decode("utf-8", "replace").splitlines()


def _write(path: Path, lines: list[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    write_atomically(path, "".join(f"{line}\n" for line in lines).encode())
