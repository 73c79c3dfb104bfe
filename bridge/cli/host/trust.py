"""`kakeya-runner trust` and `revoke`: whose requests and code this host trusts, in its own lists or its bus's root."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pydantic

from bridge.cli.host.places import policy_or_none, policy_path
from bridge.cli.host.root import owner_or_none
from bridge.cli.screen.answer import Answer, Talk
from bridge.cli.talk import CLOCK
from bridge.errors import UsageError
from bridge.runner.authorisation.trust_files import (
    NAMESPACES,
    TrustFiles,
    Use,
    check_principal,
    is_pin,
    read_key,
    who_is,
)
from bridge.runner.policy.file import TRUST_FILES, owner_folder, written_lists
from bridge.runner.policy.trust import SignerEntry
from bridge.trust.ssh_signatures import fingerprint_of

if TYPE_CHECKING:
    from bridge.cli.host.call import HostCall
    from bridge.cli.table.runner_options import (
        PlaceOptions,
        RevokeOptions,
        StatusOptions,
        TrustAddOptions,
        TrustRemoveOptions,
    )
    from bridge.runner.maintenance.owner import BusOwner

_WHAT: Final[dict[Use, str]] = {"request": "signing requests", "code": "vouching for code"}


def add(call: HostCall[TrustAddOptions]) -> Answer:
    """List a key: in the root of a bus that this account owns, or in this host's own list."""
    options = call.options
    runner = is_pin(options.key)
    of_bus = options.bus is not None and not options.here
    asks_bus = of_bus or (not options.here and any(owner_folder(os.environ).glob("*")))
    owner = owner_or_none(options) if asks_bus else None
    if runner and owner is None:
        raise UsageError(
            "a runner's key belongs into the root of its bus",
            remedy="where the owner's key is: kakeya-runner trust add NAME=KEY --bus ROUTE",
        )
    if owner is not None and runner:
        return _add_runner(owner, options.key[0])
    use: Use = "code" if options.code else "request"
    if owner is not None and (of_bus or owner.owns):
        return _add_signer(owner, use, _entry(options))
    entry = _entry(options)
    path = _files(options).add(use, entry)
    text = f"{', '.join(entry.principals)} is trusted for {_WHAT[use]} ({path}); a running runner sees it at once"
    return Answer(lines=[fingerprint_of(entry.key), Talk("note", text)])


def _add_runner(owner: BusOwner, words: str) -> Answer:
    from bridge.runner.maintenance.owner import with_runner
    from bridge.trust.keyring import pinned

    key = pinned(words, "trust add")
    owner.change(lambda content: with_runner(content, key, CLOCK.now()))
    return Answer(lines=[Talk("note", f"runner {key.name} may sign with {key.public}")])


def _add_signer(owner: BusOwner, use: Use, entry: SignerEntry) -> Answer:
    from bridge.runner.maintenance.owner import with_signer

    owner.change(lambda content: with_signer(content, entry.line(NAMESPACES[use])))
    names = ", ".join(entry.principals)
    text = f"the key is {names}'s on this bus; what {names} may do on a host, its policy.toml says:"
    rules = f'  [names."{entry.principals[0]}"]'
    return Answer(lines=[fingerprint_of(entry.key), Talk("note", text), Talk("", rules)])


def _entry(options: TrustAddOptions) -> SignerEntry:
    key, comment = read_key(options.key)
    names = tuple(check_principal(name) for name in (options.principal or [comment]))
    try:
        return SignerEntry(
            principals=names, key=key, valid_after=options.valid_after, valid_before=options.valid_before
        )
    except pydantic.ValidationError as error:
        first = error.errors()[0]
        raise UsageError(
            f"{first['loc'][0]}: got {first['input']!r}; expected YYYYMMDD[HHMM[SS]][Z]",
            remedy="kakeya-runner trust add --help",
        ) from error


def remove(call: HostCall[TrustRemoveOptions]) -> Answer:
    """Take a key or a name off this host's own list.

    Raises:
        UsageError: it is not on it.
    """
    use: Use = "code" if call.options.code else "request"
    who, (files, problem) = who_is(call.options.key), _written_files(call.options)
    if files.remove(use, who) == 0:
        raise UsageError(f"{who} is not trusted for {_WHAT[use]}", remedy="kakeya-runner trust list")
    text = f"{who} is no longer trusted for {_WHAT[use]}; its running requests end within a second"
    return Answer(lines=[Talk("note", line) for line in (text, *problem)])


def show_list(call: HostCall[StatusOptions]) -> Answer:
    """Show whom this host's own lists name."""
    entries = _files(call.options).listed()
    rows = ((entry, ",".join(entry.principals)) for entry in entries)
    lines = [
        f"{entry.use:<8} {names or '-':<32} {entry.fingerprint or '-':<50} {entry.options}".rstrip()
        for entry, names in rows
    ]
    nobody = Talk("note", "nobody is trusted: unsigned requests run the host's code only; kakeya-runner trust add KEY")
    return Answer([vars(entry) for entry in entries], lines or [nobody])


def revoke(call: HostCall[RevokeOptions]) -> Answer:
    """Refuse a principal or a key from now on, and end what runs for it."""
    who, (files, problem) = who_is(call.options.who), _written_files(call.options)
    is_listed = any(who in {*entry.principals, entry.fingerprint} for entry in files.listed())
    done = files.revoke(who)
    also = f", and with it {', '.join(done.keys)}" if done.keys else ""
    ends = "its running requests end within a second, its results stay as they are"
    texts = [f"{who} is revoked{also} ({done.path}); {ends}"]
    if not is_listed:
        texts.append("no list of this host names it: what it signs is refused all the same; kakeya-runner trust list")
    if done.others:
        names = ", ".join(done.others)
        texts.append(f"the same key was listed for {names}: refused too, until trusted with a key of their own")
    for key in done.authorities:
        text = f"certificate authority {key} stays trusted: others' certificates hang on it; kakeya-runner revoke {key}"
        texts.append(text)
    return Answer(lines=[Talk("note", text) for text in (*texts, *problem)])


def _files(options: PlaceOptions) -> TrustFiles:
    return TrustFiles(policy_or_none(options), policy_path(options).absolute().parent)


def _written_files(options: PlaceOptions) -> tuple[TrustFiles, tuple[str, ...]]:
    """Return the lists that an owner's no goes to: it is heard also where the policy cannot be used, and that is said.

    Raises:
        UsageError: no runner has its policy or a list there, or the policy is another user's, whose runner relies on no
            list of ours.
    """
    path = policy_path(options).absolute()
    if not any(_is_there(place) for place in (path, *map(path.with_name, TRUST_FILES))):
        raise UsageError(
            f"no runner has its policy in {path.parent}: nobody would hear it",
            remedy="give the runner's own --policy FILE; for a whole bus: kakeya-runner trust revoke NAME --bus ROUTE",
        )
    try:
        return _files(options), ()
    except UsageError as error:
        owner = path.lstat().st_uid
        if owner not in {0, os.geteuid()}:
            raise UsageError(error.message, remedy=f"type the same as the policy's user, uid {owner}") from error
        again = "its lists were read as far as can be: once kakeya-runner policy check is content, type this again"
        return TrustFiles(written_lists(path), path.parent), (f"{error.message}; {again}",)


def _is_there(path: Path) -> bool:
    """Return whether there is anything of this path; in a folder that is closed to us nobody can tell.

    Raises:
        OSError: it is closed.
    """
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True
