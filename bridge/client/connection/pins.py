"""The keys a reader trusts, and the verdict of these keys on the signature of a result.

Keys come from an option, from this clone's or the user's own file (`init --runner-key`), from `kakeya.toml` as the
default branch of a remote has it, or on this machine's own bus from its runner's folder. Never from the result, never
from the work tree (a request branch could be checked out), and from the bus record only what a trusted key vouches for.

A pin is `NAME=KEY`: the key speaks for that runner alone. The bus record, which anybody may push, gives no key a name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import pydantic

from bridge.bus.open.embedded import embedded_folder
from bridge.client.clone import git_door as gitdoor
from bridge.client.clone.config import FILE_NAME, ClientSettings, committed_keys, pinned_keys
from bridge.errors import GitError, IntegrityError, UnknownSignerError, install_remedy
from bridge.limits import RESULT_MAX_BYTES
from bridge.records import BusRecord, Claim, KeyRecord, Manifest
from bridge.strictjson import StrictJsonError
from bridge.trust import keyring
from bridge.trust.attestation import ATTESTATION_FILE, Attested, is_available, key_id, verify_attestation
from bridge.trust.claim_chain import read_chain
from bridge.trust.seals import seal_in

PIN = "kakeya-mac init --runner-key NAME=KEY, with the name and key that the host's owner tells you"


@dataclass(frozen=True)
class Pins:
    """The trusted keys of one reader.

    Attributes:
        keys: trusted public keys, each under the name of the runner it counts for.
        where: where they come from, for people.
        required: whether a result without signature is refused.
        bus_id: the bus a result must be of, or None when any will do.
    """

    keys: tuple[KeyRecord, ...] = ()
    where: str = "nowhere"
    required: bool = False
    bus_id: str | None = None

    @property
    def texts(self) -> tuple[str, ...]:
        """The keys as a configuration file pins them."""
        return tuple(keyring.pin(key) for key in self.keys)


@dataclass(frozen=True)
class Signature:
    """The verdict on the signature of a result.

    Attributes:
        state: ``verified``; ``unsigned``, where nothing says that there was one; ``unpinned``: there is one and no
            pinned key to check it by; ``refused``: wrong, unknown to who pins keys, or missing where there was one.
        text: the reason in a few words.
    """

    state: Literal["verified", "unsigned", "unpinned", "refused"]
    text: str
    attested: Attested | None = None


def pins(
    settings: ClientSettings, *, option: Sequence[str] = (), record: BusRecord | None = None, own: bool = False
) -> Pins:
    """Return the keys this reader trusts.

    Args:
        settings: the clone and its configuration.
        option: keys named on the command line; they stand alone.
        record: the bus the result was read from, or None when only the result is here.
        own: whether it is of a run that this clone sent to this machine's own bus: that bus's runner must have signed.

    Raises:
        UsageError: a pinned key is malformed.
    """
    here = settings.bus.embedded and (own or record is not None)  # what a clone pins is another bus's
    texts, where = (tuple(option), "--runner-key") if option else ((), "") if here else pinned_keys(settings)
    if not texts and not here:
        texts, where = _committed(settings)
    keys = tuple(keyring.pinned(text, where) for text in texts)
    required = bool(keys) or (record is not None and record.attestation == "dsse")
    if not keys and settings.bus.embedded:
        keys, where = _embedded(settings), "this machine's own runner"
        required = required or (own and record is None and bool(keys))
    if record is not None and keys and is_available():
        keys = keyring.with_successors(keys, record.keys)
    return Pins(keys, where, required, None if record is None else record.bus_id)


def signature_of(files: Mapping[str, bytes], trusted: Pins, *, runner: str | None = None) -> Signature:
    """Judge the signature of a result tree.

    Args:
        files: the result tree.
        trusted: the keys of this reader.
        runner: the runner whose result it is said to be, None to take the signer's word.
    """
    if ATTESTATION_FILE not in files:
        return _missing(files, trusted)
    if not trusted.keys:
        return Signature("unpinned", f"signed, and no key is pinned to check it by: {PIN}")
    if not is_available():
        return Signature(
            "refused", f"signed, and the packages to check it are not installed; {install_remedy('trust')}"
        )
    return _checked(files, trusted, runner)


def _missing(files: Mapping[str, bytes], trusted: Pins) -> Signature:
    """Judge a result without a signature: refused where anything says that it had one."""
    if trusted.required:
        return Signature("refused", "carries no signature, and one is required here")
    if _says_signed(files):
        return Signature("refused", "carries no signature, and its manifest says that it is signed")
    if (runner := _claims_signed_by(files)) is not None:
        return Signature("refused", f"carries no signature, and {runner} signed its claims: it was taken off")
    return Signature("unsigned", "carries no signature")


def _claims_signed_by(files: Mapping[str, bytes]) -> str | None:
    """Return the runner whose signature a claim in a result carries, unchecked: who signs claims signs results."""
    try:
        messages = [link.message for link in read_chain(files.get("claims.jsonl", b""), hex_chars=40)]
    except ValueError:
        return None  # no claim chain, which is a finding of its own
    return next((seal.runner for seal in map(seal_in, messages) if seal is not None), None)


def _checked(files: Mapping[str, bytes], trusted: Pins, runner: str | None) -> Signature:
    try:
        attested = verify_attestation(files, trusted.keys)
    except UnknownSignerError as error:
        # Keys that were pinned for this bus must know it; this machine's own say nothing of a result from elsewhere.
        state: Literal["refused", "unpinned"] = "refused" if trusted.required else "unpinned"
        return Signature(state, f"{error.message} ({trusted.where})")
    except IntegrityError as error:
        return Signature("refused", f"{error.message} ({trusted.where})")
    if trusted.bus_id is not None and attested.predicate["bus_id"] != trusted.bus_id:
        return Signature("refused", f"signed for bus {attested.predicate['bus_id']}, this is bus {trusted.bus_id}")
    if runner is not None and attested.key.name != runner:
        return Signature("refused", f"signed by {attested.key.name}, and the claim of this run is {runner}'s")
    return Signature("verified", _said(attested, trusted), attested)


def require_not_refused(files: Mapping[str, bytes], trusted: Pins, claim: Claim) -> None:
    """Refuse a result whose signature is wrong, unknown, another runner's, or missing where it is required.

    Args:
        files: the result tree.
        trusted: the keys of this reader.
        claim: the end that names the result.

    Raises:
        IntegrityError: it is.
    """
    run_id = claim.id
    signature = signature_of(files, trusted, runner=claim.runner)
    if signature.state == "refused":
        raise IntegrityError(
            f"the published result of {run_id} does not verify: {signature.text}", remedy=f"kakeya-mac verify {run_id}"
        )


def key_lines(record: BusRecord, trusted: Pins) -> list[str]:
    """Return lines about the signatures of a bus: the pinned keys, or the question to the host's owner."""
    if trusted.required:
        return [f"of {key.name} must be signed by {key_id(key.public)[:16]} ({trusted.where})" for key in trusted.keys]
    if record.attestation == "none":
        return ["unsigned on this bus: they prove integrity, not origin"]
    offered = [f"the bus names {keyring.pin(key)}" for key in record.keys]
    return [
        *offered,
        "signed, not pinned: compare name and key with the host's owner, then kakeya-mac init --runner-key NAME=KEY",
    ]


def _said(attested: Attested, trusted: Pins) -> str:
    link = attested.link
    runner = attested.key.name
    return f"signed by {runner}, key {key_id(attested.key.public)[:16]} ({trusted.where}), its number {link.sequence}"


def _says_signed(files: Mapping[str, bytes]) -> bool:
    try:
        return Manifest.parse(files["manifest.json"], max_bytes=RESULT_MAX_BYTES).attestation == "dsse"
    except (KeyError, StrictJsonError, pydantic.ValidationError):
        return False  # no manifest to speak of, which is a finding of its own


def _committed(settings: ClientSettings) -> tuple[tuple[str, ...], str]:
    """Return the keys in `kakeya.toml` on the default branch of a remote, as this clone last saw it."""
    if settings.repository is None:
        return (), ""
    top = settings.repository.top
    remote = _own_remote(settings, list(gitdoor.remotes(top)))
    where = f"refs/remotes/{remote}/HEAD:{FILE_NAME}"
    try:
        text = gitdoor.git(top, "cat-file", "blob", where) if remote else ""
    except GitError:
        text = ""
    keys = committed_keys(text.encode(), where)
    return (keys, where) if keys else ((), "")


def _own_remote(settings: ClientSettings, remotes: Sequence[str]) -> str | None:
    """Return the remote whose default branch counts: a stranger's fork, added to look at it, pins nothing.

    It is the bus's where the reader chose that (a file of the work tree may be anybody's), else origin, else the only.
    """
    if settings.bus.source != "committed" and settings.bus.route in remotes:
        return settings.bus.route
    if "origin" in remotes:
        return "origin"
    return remotes[0] if len(remotes) == 1 else None


def _embedded(settings: ClientSettings) -> tuple[KeyRecord, ...]:
    path = embedded_folder(settings.data_dir) / "runner" / keyring.PUBLIC_FILE
    try:
        return keyring.decode(path.read_bytes())
    except (OSError, ValueError):
        return ()
