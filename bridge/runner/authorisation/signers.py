"""The host's own lists of keys, and what they say of a request, a cancel or a commit.

The lists are read anew each time, so `kakeya-runner trust` and `revoke` count at once. Each check works on a copy that
was read whole, from a file nobody but its owner can change. Knows nothing about presets, claims or git.
"""

from __future__ import annotations

import shlex
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

from bridge.errors import PolicyRefusedError, RequestRejectedError, UsageError
from bridge.records.request import Request
from bridge.request import UNSIGNED
from bridge.request.cancel import CancelRequest
from bridge.runner.authorisation.names import counts_as
from bridge.runner.authorisation.trust_files import keys_of
from bridge.runner.policy.model import Policy
from bridge.runner.policy.rights import file_problems
from bridge.runner.policy.trust import SignerSource
from bridge.system.clock import parse_rfc3339
from bridge.trust.judgement import KeyAuthority, Kind, NamedKey, Signed, may_say
from bridge.trust.root import TrustRoot
from bridge.trust.ssh_signatures import (
    COMMIT_NAMESPACE,
    NAMESPACE,
    Signer,
    fingerprint_of,
    made_with,
    public_key_in,
    verify,
    verify_commit,
)

LIST_MAX_BYTES: Final = 1024 * 1024
_KRL: Final = b"SSHKRL\n\0"


@dataclass(frozen=True)
class Revocations:
    """Who is trusted no more; `krl` is an OpenSSH revocation list, for ssh-keygen to read."""

    fingerprints: frozenset[str] = frozenset()
    principals: frozenset[str] = frozenset()
    krl: bytes | None = None


@dataclass(frozen=True)
class UnlistedSigner:
    """Who signed with a key that no list names: the name is the requester's own word, the key is what signed."""

    name: str
    fingerprint: str

    def __str__(self) -> str:
        return f"{UNSIGNED} (calls itself {self.name}, key {self.fingerprint})"


class Signers:
    """Reads the lists a policy names, and the one in the bus's root.

    Args:
        policy: the owner's policy.
        root: returns the bus's root as it is known now, None where there is none.
    """

    def __init__(self, policy: Policy, root: Callable[[], TrustRoot | None] = lambda: None) -> None:
        self._policy, self._root = policy, root
        self._seen: dict[tuple[object, ...], str] = {}

    @property
    def checks_requests(self) -> bool:
        """Whether the owner lists anybody who may sign requests, or gives rights to a name of the root."""
        named = self._root() is not None and bool(self._policy.names)
        return named or bool(_listed(self._policy.allowed_signers, NAMESPACE))

    def request(self, request: Request, data: bytes, signature: bytes | None) -> Signer | None:
        """Return who signed a request, None for an unsigned one and for one that counts as unsigned.

        Raises:
            RequestRejectedError: it names a principal and carries no signature, or the reverse.
            PolicyRefusedError: the signature does not hold here and now.
        """
        if (request.principal == UNSIGNED) != (signature is None):
            raise RequestRejectedError(
                f"request names principal {request.principal!r} and carries {'no' if signature is None else 'a'} "
                "signature; expected a name and a signature, or neither"
            )
        if signature is None or self.unlisted(request, data, signature) is not None:
            return None
        return self._check(request, data, signature)

    def unlisted(self, request: Request, data: bytes, signature: bytes) -> UnlistedSigner | None:
        """Return who signed a request that counts as unsigned: nobody here knows the name or the key.

        None where a list, a rule or a revocation names either, where the signature does not hold, and where this host
        takes signed requests only: then the signature is accepted or refused.

        Raises:
            PolicyRefusedError: the host's own lists cannot be relied on.
        """
        key = public_key_in(signature)
        if self._policy.require_signature or key is None or self._names(request.principal, key):
            return None
        alone = f'{request.principal} namespaces="{NAMESPACE}" {key}\n'.encode()
        at = parse_rfc3339(request.created).timestamp()
        try:
            with self._copied(alone) as (listed, krl):
                signer = verify(
                    data, signature, principal=request.principal, expected=request.signer, signers=listed, revoked=krl
                )
            self._judged("request", signer, at)
        except PolicyRefusedError:
            return None
        return UnlistedSigner(signer.principal, signer.fingerprint)

    def _names(self, principal: str, key: str) -> bool:
        """Return whether a list or a rule of this host or the bus names a principal or a key, whatever for.

        A certificate counts as named: whoever signed it may be listed.
        """
        kind, blob = key.split()
        if "-cert-" in kind or principal in {*self._policy.names, *self._policy.owners, *self._policy.quotas}:
            return True
        requests = self._lists(self._policy.allowed_signers, NAMESPACE)
        code = _listed(self._policy.code_signers, COMMIT_NAMESPACE)
        lines = (line.split() for text in (*(text for text, _ in requests), code) for line in _lines(text))
        return any(blob in words or _matches(principal, words[0]) for words in lines)

    def cancel(self, cancel: CancelRequest, data: bytes, signature: bytes | None) -> Signer:
        """Return who signed a cancel.

        Raises:
            PolicyRefusedError: nobody whose signature holds here and now.
        """
        if signature is None:
            raise PolicyRefusedError("the cancel is unsigned")
        return self._check(cancel, data, signature)

    def commit(self, payload: bytes, signature: bytes) -> Signer:
        """Return which code signer signed a commit.

        Raises:
            PolicyRefusedError: none whose signature holds now.
        """
        lists = self._lists(self._policy.code_signers, COMMIT_NAMESPACE)
        for number, (text, on_host) in enumerate(lists):
            try:
                with self._copied(text) as (listed, krl):
                    found = verify_commit(payload, signature, signers=listed, revoked=krl)
            except PolicyRefusedError:
                if number + 1 == len(lists):
                    raise
                continue
            return self._judged("code", replace(found, on_host=on_host), None)
        raise PolicyRefusedError("this host knows no code signers")

    def quota_name(self, request: Request | None, data: bytes, signature: bytes | None) -> str:
        """Return whose quota a request counts against: its principal if the signature holds, else ``unsigned``.

        Remembers its answer as long as no list changes; what it lets through is checked again before it runs.
        """
        if request is None or signature is None:
            return UNSIGNED
        key = (data, signature, self.stamp())
        if key not in self._seen:
            if len(self._seen) > 512:
                self._seen.clear()
            try:
                signer = counts_as(self._policy, self.request(request, data, signature))
            except (PolicyRefusedError, RequestRejectedError):
                signer = None
            self._seen[key] = UNSIGNED if signer is None else signer.principal
        return self._seen[key]

    def stamp(self) -> tuple[object, ...]:
        """Return what changes whenever one of the files does."""
        sources = (self._policy.allowed_signers, self._policy.code_signers, self._policy.revoked)
        root = self._root()
        version = None if root is None else (root.version, root.targets_version)
        return (version, *(_stamp(Path(one)) for one in sources if isinstance(one, str)))

    def revocations(self) -> Revocations:
        """Return who is trusted no more.

        Raises:
            PolicyRefusedError: the list is unreadable, or its folder is not there: then nobody is trusted.
        """
        data = b"" if self._policy.revoked is None else _read(Path(self._policy.revoked), in_folder=True)
        if data.startswith(_KRL):
            return Revocations(krl=data)
        fingerprints: set[str] = set()
        principals: set[str] = set()
        for line in data.decode("utf-8", "replace").splitlines():
            words = line.split("#")[0].split()
            if len(words) >= 2:
                try:
                    fingerprints.add(fingerprint_of(" ".join(words)))
                except UsageError as error:
                    raise PolicyRefusedError(f"the host's revocation list is unreadable: {error.message}") from error
            elif words:
                (fingerprints if words[0].startswith("SHA256:") else principals).add(words[0])
        return Revocations(frozenset(fingerprints), frozenset(principals))

    def _check(self, said: Request | CancelRequest, data: bytes, signature: bytes) -> Signer:
        """Return who signed, by the host's own list or, where that does not know the key, by the root's.

        Raises:
            PolicyRefusedError: nobody who may say this, here and now.
        """
        refusals = []
        for text, on_host in self._lists(self._policy.allowed_signers, NAMESPACE):
            try:
                with self._copied(text) as (listed, krl):
                    found = verify(
                        data, signature, principal=said.principal, expected=said.signer, signers=listed, revoked=krl
                    )
            except PolicyRefusedError as error:
                refusals.append(error)
                continue
            kind: Kind = "request" if isinstance(said, Request) else "cancel"
            at = parse_rfc3339(said.created if isinstance(said, Request) else said.time).timestamp()
            return self._judged(kind, replace(found, on_host=on_host), at)
        fingerprint = made_with(data, signature)
        if fingerprint is not None and {fingerprint, said.principal} & self._revoked().keys():
            raise _revoked_error(f"the owner has revoked {said.principal} or its key {fingerprint}")
        raise refusals[0]

    def _judged(self, kind: Kind, found: Signer, at: float | None) -> Signer:
        """Return a signer whose signature OpenSSH found valid, if that key may say this here and now.

        Raises:
            PolicyRefusedError: revoked, here or by the bus's owner.
        """
        root, revoked = self._root(), self._revoked()
        key = NamedKey(found.principal, found.fingerprint, "code" if kind == "code" else "requester")
        where = "allowed_signers" if found.on_host or root is None else root.authority(vouched=True).where
        answer = may_say(
            KeyAuthority((key,), revoked, where),
            Signed(kind, found.principal, present=True, key=found.fingerprint, at=at),
        )
        if answer.refused:
            raise _revoked_error(answer.why)
        return found

    def _revoked(self) -> dict[str, float]:
        """Return when a key or a name was revoked, by this host or by the bus's owner.

        A name that this host revoked takes along the keys that the root lists for it, under whatever other name.
        """
        root, gone = self._root(), self.revocations()
        keys = () if root is None else keys_of(root.content.signers, gone.principals)
        revoked = dict.fromkeys((*gone.fingerprints, *gone.principals, *keys), float("-inf"))
        return ({} if root is None else dict(root.content.revoked or {})) | revoked

    def _lists(self, source: SignerSource, namespace: str) -> list[tuple[bytes, bool]]:
        """Return the lists that say whose a key is, each with whether it is the host's own."""
        root = self._root()
        found = [(_listed(source, namespace), True)]
        if root is not None and root.content.signers:
            found.append(("".join(f"{line}\n" for line in root.content.signers).encode(), False))
        return found

    @contextmanager
    def _copied(self, text: bytes) -> Iterator[tuple[Path, Path | None]]:
        """Yield files that hold what the lists held at one moment; the first is absent when the list is empty."""
        revocations = self.revocations()
        with tempfile.TemporaryDirectory(prefix="kakeya-signers-") as folder:
            listed, krl = Path(folder) / "signers", Path(folder) / "revoked"
            if text:
                listed.write_bytes(text)
            if revocations.krl is not None:
                krl.write_bytes(revocations.krl)
            yield listed, (krl if revocations.krl is not None else None)


def _revoked_error(why: str) -> PolicyRefusedError:
    return PolicyRefusedError(
        why,
        remedy="ask the owner; what this host revoked, kakeya-runner trust add KEY --principal NAME --here takes back",
    )


def _lines(text: bytes) -> Iterator[str]:
    """Yield the lines of a list that are neither empty nor a comment."""
    for line in text.decode("utf-8", "replace").splitlines():
        if line.strip() and not line.lstrip().startswith("#"):
            yield line


def _matches(principal: str, patterns: str) -> bool:
    """Return whether the first word of a list's line, names and patterns of * and ?, means a principal."""
    return any(fnmatchcase(principal, one.replace("[", "[[]")) for one in patterns.strip('"').split(","))


def _listed(source: SignerSource, namespace: str) -> bytes:
    if source is None or isinstance(source, str):
        return b"" if source is None else _read(Path(source))
    return "".join(f"{entry.line(namespace)}\n" for entry in source).encode()


def _read(path: Path, *, in_folder: bool = False) -> bytes:
    """Return the content of a file only its owner can change, nothing when there is none.

    Args:
        path: the file.
        in_folder: whether its folder has to be there: on a disk that is not mounted there may be such a file.

    Raises:
        PolicyRefusedError: others could have written it, it is too large, or its folder is not there.
    """
    is_there = path.exists() or path.is_symlink()
    if not is_there and (path.parent.is_dir() or not in_folder):
        return b""
    problems = file_problems(path, private=False)
    if problems or path.stat().st_size > LIST_MAX_BYTES:
        raise PolicyRefusedError(
            f"the host's own {path.name} cannot be relied on: {problems[0] if problems else 'it is too large'}",
            remedy=f"the host's owner: chmod 600 {shlex.quote(str(path))}; kakeya-runner trust list",
        )
    return path.read_bytes()


def _stamp(path: Path) -> tuple[int, ...] | None:
    try:
        found = path.lstat()
    except OSError:
        return None
    return (found.st_mtime_ns, found.st_size, found.st_ino, found.st_mode, found.st_uid)
