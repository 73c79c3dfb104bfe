"""`kakeya-runner welcome` and `who`: one person's key and rights on this host, written and shown in one place."""

from __future__ import annotations

import base64
import binascii
import fnmatch
import os
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from bridge.cli.host.places import policy_of, policy_path
from bridge.cli.host.root import owner_or_none
from bridge.cli.screen.answer import Answer, Talk
from bridge.cli.talk import CLOCK
from bridge.errors import UsageError, meant
from bridge.records.request import PRINCIPAL_PATTERN
from bridge.request import UNSIGNED
from bridge.runner.authorisation.trust_files import NAMESPACES, TrustFiles, Use
from bridge.runner.policy.file import own_presets, owner_folder
from bridge.runner.policy.model import Policy
from bridge.runner.policy.name_files import name_file, write_name_file
from bridge.runner.policy.names import NameRules
from bridge.runner.policy.trust import SignerEntry
from bridge.trust.ssh_signatures import fingerprint_of

if TYPE_CHECKING:
    from bridge.cli.host.call import HostCall
    from bridge.cli.table.runner_options import RunnerBusOptions, WelcomeOptions, WhoOptions
    from bridge.runner.maintenance.owner import BusOwner

FORM = "kakeya-runner welcome 'NAME ssh-ed25519 KEY', as `kakeya-mac init --signing-key auto` prints it"
_REVOKED = ", revoked"
_RETIRED = ", retired"
_ED25519 = "ssh-ed25519"
_KEY_BYTES = 51  # two lengths of four bytes, the name of the type, 32 bytes of the key


@dataclass(frozen=True)
class Place:
    """Where this host says who is who.

    Attributes:
        path: the policy file.
        policy: what it says.
        files: the host's own lists of keys.
        owner: of the bus, where this account holds its key; None elsewhere.
    """

    path: Path
    policy: Policy
    files: TrustFiles
    owner: BusOwner | None


def parse_line(words: Sequence[str]) -> tuple[str, str]:
    """Return name and public key of a line that somebody sent.

    Raises:
        UsageError: it is anything but one name and one ed25519 key.
    """
    line = " ".join(words)
    if odd := next((char for char in line if not char.isprintable()), None):
        raise UsageError(f"the line holds {odd!a}; expected one line without breaks and marks", remedy=FORM)
    parts = line.split()
    keys = [part for part in parts if re.match(r"(ssh|ecdsa|sk)-\S+$", part)]
    if len(keys) > 1:
        raise UsageError(f"the line holds {len(keys)} keys; expected one name and one key", remedy=FORM)
    if keys and keys[0] != _ED25519:
        raise UsageError(f"the key is of type {keys[0][:40]}; expected {_ED25519}", remedy=FORM)
    if len(parts) != 3 or parts[1] != _ED25519:
        raise UsageError(f"got {line[:80]!r}; expected one name and one key, three words", remedy=FORM)
    name, _, blob = parts
    if re.fullmatch(PRINCIPAL_PATTERN, name) is None or name == UNSIGNED:
        text = f"{name[:80]!r} is no name of one person; expected e.g. ada@example.org, without quotes around the line"
        raise UsageError(text, remedy=FORM)
    try:
        data = base64.b64decode(blob, validate=True)
    except binascii.Error:
        data = b""
    if len(data) != _KEY_BYTES or data[4:15] != _ED25519.encode():
        raise UsageError(f"{blob[:40]!r} is no ed25519 key: it is cut off, or changed on its way", remedy=FORM)
    return name, f"{_ED25519} {blob}"


def welcome(call: HostCall[WelcomeOptions]) -> Answer:
    """Give one person a name, a key and rights here, once somebody said yes to them.

    Raises:
        UsageError: the line is none, or the name or the key is somebody's already.
    """
    options = call.options
    name, key = parse_line(options.line)
    place, fingerprint, may = _place(options), fingerprint_of(key), options.may or []
    _refuse_taken(place, name, key, fingerprint)
    presets = own_presets(place.policy)
    for pattern in may:
        if not any(fnmatch.fnmatchcase(preset, pattern) for preset in presets):
            own = sorted(preset for preset, definition in presets.items() if definition.workload)
            raise UsageError(
                f"this host has no preset {pattern!r}; {meant(pattern, own or presets)}",
                remedy="kakeya-mac presets --all",
            )
    rules = NameRules(presets=tuple(may)) if may else NameRules(own_code=False)
    for line in (f"name   {name}", f"key    {fingerprint}", *_rights(place.policy, rules, code=options.code)):
        call.output.data(line)
    if not options.yes and not _say_yes(name):
        return Answer(lines=[Talk("note", "nothing was written")], exit_code=1)
    uses: tuple[Use, ...] = ("request", "code") if options.code else ("request",)
    for use in uses:
        where = _list(place, use, SignerEntry(principals=(name,), key=key))
    path = write_name_file(place.path, name, rules)
    text = f"welcome {name}: key in {where}, rights in {path}; a running runner sees both at once"
    return Answer(lines=[Talk("note", text)])


def _say_yes(name: str) -> bool:
    if not sys.stdin.isatty():
        raise UsageError("nobody is here to say yes", remedy="look at the fingerprint, then add --yes")
    return input(f"welcome {name} with these rights? [y/N] ").strip().lower() in {"y", "yes"}


def _list(place: Place, use: Use, entry: SignerEntry) -> str:
    """Put a key where this account may: into the root of its bus, else into this host's own list."""
    if place.owner is None:
        return str(place.files.add(use, entry))
    from bridge.runner.maintenance.owner import with_signer

    place.owner.change(lambda content: with_signer(content, entry.line(NAMESPACES[use])))
    return "the root of the bus"


def _refuse_taken(place: Place, name: str, key: str, fingerprint: str) -> None:
    """Refuse a name that is somebody else's, and a key that is.

    Raises:
        UsageError: saying whose.
    """
    runners = {place.policy.name}
    if place.owner is not None:
        runners |= {runner.name for runner in place.owner.root.content.runners}
    if name in runners:
        raise UsageError(f"{name} is a runner of this bus", remedy="another name for the person")
    for line in place.files.listed():
        if line.use == "revoked" and (line.matches(name) or line.matches(fingerprint)):
            raise UsageError(
                f"{name} or the key is revoked on this host",
                remedy=f"kakeya-runner trust add '{key}' --principal {name} --here takes both off that list",
            )
    for principals, listed_key, ending in _known(place):
        if listed_key != fingerprint and name in principals:
            raise UsageError(
                f"{name} is listed with another key, {listed_key}",
                remedy=f"if it is no longer used: kakeya-runner trust {ending} {name}, then welcome again",
            )
        if listed_key == fingerprint and principals != (name,):
            raise UsageError(
                f"the key is {', '.join(principals)}'s already", remedy=f"kakeya-runner who {principals[0]}"
            )
    if name in place.policy.names and not name_file(place.path, name).exists():
        raise UsageError(
            f'policy.toml says what {name} may do: [names."{name}"]',
            remedy=f"kakeya-runner trust add '{key}' --principal {name} lists the key alone",
        )


def _known(place: Place) -> Iterator[tuple[tuple[str, ...], str, str]]:
    """Yield names and fingerprint of each key that a list names, with the action of `trust` that ends it there."""
    for line in place.files.listed():
        if line.use != "revoked":
            yield line.principals, line.fingerprint, "remove" if line.use == "request" else "remove --code"
    for entry, names, key in _root_signers(place):
        if "valid-before" not in entry:
            yield names, key, "retire"


def _root_signers(place: Place) -> Iterator[tuple[str, tuple[str, ...], str]]:
    """Yield each line of the root of the bus that names a key, with its names and the key's fingerprint."""
    for line in () if place.owner is None else place.owner.root.content.signers:
        words = line.split()
        at = next((number for number, word in enumerate(words) if word.startswith(("ssh-", "ecdsa-", "sk-"))), None)
        if at is not None:
            yield line, tuple(words[0].split(",")), fingerprint_of(" ".join(words[at : at + 2]))


def _rights(policy: Policy, rules: NameRules, *, code: bool) -> Iterator[str]:
    """Yield what a name may do here, a line each."""
    presets = own_presets(policy)
    allowed = [preset for preset in presets if any(fnmatch.fnmatchcase(preset, rule) for rule in policy.presets.allow)]
    may = [preset for preset in allowed if rules.allows(preset) and (rules.own_code or presets[preset].code == "host")]
    mine = [preset for preset in may if presets[preset].workload is not None]
    yield f"may    ask for {len(may)} presets; of this host's own: {', '.join(mine) or 'none'}"
    takes = [preset for preset in may if presets[preset].code == "request"]
    if takes:
        yield f"       bring code of its own, sandboxed, to {', '.join(takes)}"
    elif not rules.own_code:
        yield "       bring no code: no more than an unsigned request may"
    if code:
        yield "code   commits signed with the key are trusted code: the numbers of what runs in them may be quoted"


def who(call: HostCall[WhoOptions]) -> Answer:
    """Show all rights of one name; 1 where nothing here knows it.

    Raises:
        UsageError: it is no name.
    """
    name = call.options.name
    if re.fullmatch(PRINCIPAL_PATTERN, name) is None:
        raise UsageError(f"got {name[:80]!r}; expected a name such as ada@example.org")
    place = _place(call.options)
    about = list(_about(name, place))
    if not about:
        text = f"no list and no rule of this host names {name}: its requests count as unsigned, where those are taken"
        return Answer(lines=[f"name   {name}", Talk("note", text)], exit_code=1)
    on_host = any(line.use == "request" and line.lets(name) for line in place.files.listed())
    rules = place.policy.names.get(name) or NameRules(own_code=on_host)  # one that the root alone names counts as none
    rights = _rights(
        place.policy,
        rules,
        code=any(line.startswith("code ") and not line.endswith((_REVOKED, _RETIRED)) for line in about),
    )
    count = place.policy.quota(name)
    most = f"       send {'as many requests as it likes' if count == 0 else f'{count} requests an hour'}"
    return Answer(lines=[f"name   {name}", *about, *rights, most])


def _about(name: str, place: Place) -> Iterator[str]:
    lines = place.files.listed()
    gone = {line.fingerprint for line in lines if line.use == "revoked"}
    gone |= set() if place.owner is None else set(place.owner.root.content.revoked or {})
    for line in lines:
        if line.use == "revoked" and line.matches(name):
            yield "REVOKED on this host: nothing that it signs is taken"
        elif line.use != "revoked" and line.lets(name):
            use, end = "key" if line.use == "request" else "code", _end(line.fingerprint in gone, line.options)
            yield f"{use:<6} {line.fingerprint} {line.options} (this host's list){end}"
    for entry, names, fingerprint in _root_signers(place):
        if name in names:
            use, end = "code" if NAMESPACES["code"] in entry else "key", _end(fingerprint in gone, entry)
            yield f"{use:<6} {fingerprint} (the root of the bus){end}"
    if name in place.policy.names:
        own = name_file(place.path, name)
        yield f"rules  {own if own.exists() else place.path}"
    if name in place.policy.owners:
        yield "owner  its signed cancels count for everybody's runs"


def _end(revoked: bool, options: str) -> str:
    """Return what is said of a key that counts no more, by its revocation or by the options of its line."""
    until = re.search(r'valid-before="([0-9]+)(Z?)"', options)
    if revoked or until is None:
        return _REVOKED if revoked else ""
    now = CLOCK.now() if until[2] else CLOCK.now().astimezone()  # without a Z it is this machine's time
    return _RETIRED if now.strftime("%Y%m%d%H%M%S")[: len(until[1])] >= until[1] else ""


def _place(options: RunnerBusOptions) -> Place:
    """Return where this host says who is who; a bus is opened where one is named and this account owns any."""
    path, policy = policy_path(options), policy_of(options)
    candidate = owner_or_none(options) if any(owner_folder(os.environ).glob("*")) else None
    owner = candidate if candidate is not None and candidate.owns else None
    return Place(path, policy, TrustFiles(policy, path.absolute().parent), owner)
