"""`kakeya-runner trust` and `revoke`: whose key is whose on a bus, and whose requests and code this host trusts."""

from __future__ import annotations

import argparse
import datetime as dt
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pydantic

from bridge.errors import UsageError
from bridge.runner.authorisation.trust_files import NAMESPACES, TrustFiles, Use, check_principal, read_key, who_is
from bridge.runner.policy.file import load_policy, owner_folder
from bridge.runner.policy.trust import SignerEntry
from bridge.runner.service.serve import default_policy_path
from bridge.system.clock import rfc3339
from bridge.trust.ssh_signatures import fingerprint_of

if TYPE_CHECKING:
    from bridge.bus.sides.runner import RunnerBus
    from bridge.runner.maintenance.owner import BusOwner
    from bridge.system.clock import Clock
    from bridge.trust.root import TrustRoot

OpenBus = Callable[[], "RunnerBus | None"]
OF_BUS: Final = frozenset({"init", "merge", "retire", "revoke", "rotate", "show", "ticket"})


def trust(arguments: argparse.Namespace, open_bus: OpenBus, clock: Clock, state: Path, name: str) -> int:
    """Say whose key is whose: in the root of a bus that this account owns, or in this host's own lists.

    Args:
        arguments: of the command line.
        open_bus: opens the bus that the command line or the policy names; None where neither does.
        clock: the machine's clocks.
        state: where the runner's key is, which a new root lists.
        name: the runner's name.
    """
    if arguments.action in OF_BUS:
        return _of_bus(arguments, _owner(open_bus, clock), state, name, clock)
    files = _files(arguments)
    if arguments.action == "list":
        return _list(files, as_json=arguments.json)
    if not arguments.key:
        raise UsageError(f"trust {arguments.action} needs a key", remedy=f"kakeya-runner trust {arguments.action} KEY")
    use: Use = "code" if arguments.code else "request"
    if arguments.action == "add":
        named = arguments.bus is not None and not arguments.here
        asked = named or (not arguments.here and any(owner_folder(os.environ).glob("*")))
        owner = _owner_or_none(open_bus, clock) if asked else None
        runner = len(arguments.key) == 1 and "=" in arguments.key[0][1:-1] and not Path(arguments.key[0]).exists()
        if runner and owner is None:
            raise UsageError(
                "a runner's key belongs into the root of its bus",
                remedy="where the owner's key is: kakeya-runner trust add NAME=KEY --bus ROUTE",
            )
        if owner is not None and (named or runner or owner.owns):
            return _add_to_root(owner, use, arguments, clock, runner=runner)
        return _add(files, use, arguments)
    who = who_is(arguments.key)
    count = files.remove(use, who)
    if count == 0:
        raise UsageError(f"{who} is not trusted for {_WHAT[use]}", remedy="kakeya-runner trust list")
    _say(f"{who} is no longer trusted for {_WHAT[use]}; its running requests end within a second")
    return 0


def _of_bus(arguments: argparse.Namespace, owner: BusOwner, state: Path, name: str, clock: Clock) -> int:
    from bridge.runner.maintenance.owner import with_revoked, without
    from bridge.trust import runner_key

    action = arguments.action
    if action == "show":
        return _show(owner, clock.now().timestamp(), as_json=arguments.json)
    if action == "init":
        key = None if arguments.owner_key is None else Path(arguments.owner_key)
        mine = runner_key.published(state)[-1:] if runner_key.has_key(state) else ()
        runners = tuple(one.evolve(name=name) for one in mine)
        return _said(owner, owner.make(runners, key, anew=arguments.new_owner), "owns this bus now")
    if action == "rotate":
        return _said(owner, owner.rotate(), "is the owner's new key")
    if action == "merge":
        return _merge(owner, arguments.take)
    if not arguments.key:
        raise UsageError(f"trust {action} needs a name or key", remedy="kakeya-runner trust show")
    if action == "ticket":
        return _ticket(arguments, owner)
    who = " ".join(arguments.key)
    edit = without if action == "retire" else with_revoked
    root = owner.change(lambda content: edit(content, who, clock.now()))
    past = "is retired: what it signed counts" if action == "retire" else "is revoked: nothing that it signed counts"
    _say(f"{who} {past} ({root.version}.{root.targets_version})")
    return 0


def _merge(owner: BusOwner, take: list[str]) -> int:
    """Unite the bus's root with this account's, and say which keys of the former were not taken."""
    before = owner.root
    root, left = owner.merge(take)
    if root.files == before.files:
        _say("the bus shows no other root than this account's: nothing to merge")
        return 0
    _say(f"the bus's root is {root.version}.{root.targets_version}: revocations and ends of both count")
    for key in left:
        _say(f"not taken: {key}; to let it count: kakeya-runner trust add {key} --bus ROUTE")
    return 0


def _ticket(arguments: argparse.Namespace, owner: BusOwner) -> int:
    """Make a ticket of the bus, in a file of this account's own."""
    [name, *more] = arguments.key
    if more:
        raise UsageError(f"got {' '.join(arguments.key)[:120]!r}; expected one name of a runner, such as ci-1")
    out = Path(arguments.out or f"{name}.ticket")
    if out.exists():
        raise UsageError(f"{out} exists", remedy="name another file: --out FILE")
    if not out.absolute().parent.is_dir():  # before the bus lists a key that nobody would hold
        raise UsageError(f"{out.absolute().parent} is no folder", remedy="name a file in one that exists: --out FILE")
    ticket = owner.ticket(name, arguments.lasts)
    ticket.write(out)
    print(out)
    _say(f"who has this file signs as {name} until {ticket.until}: kakeya-runner once --ephemeral --ticket {out}")
    _say(f"to end it sooner: kakeya-runner trust retire {name} --bus ROUTE")
    return 0


def _said(owner: BusOwner, root: TrustRoot, what: str) -> int:
    print(root.owner)
    _say(f"{root.owner} {what}; requesters pin it with: kakeya-mac init --bus ROUTE --root-key {root.owner}")
    _say(owner.backup_line(root.bus_id))
    return 0


def _show(owner: BusOwner, now_s: float, *, as_json: bool) -> int:
    """Print what the root of a bus says."""
    root, content = owner.root, owner.root.content
    if as_json:
        data = {
            "owner": root.owner, "owners": list(root.owners), "bus_id": root.bus_id, "version": root.version,
            "targets_version": root.targets_version, "runners": [vars(one) for one in content.runners],
            "signers": list(content.signers), "revoked": dict(content.revoked or {}),
        }  # fmt: skip
        print(json.dumps(data, indent=1))
        return 0
    print(f"owner    {root.owner}{'' if owner.owns else ' (this account does not hold its key)'}")
    print(f"version  {root.version}.{root.targets_version}")
    for one in content.runners:
        print(f"runner   {one.name}={one.key}{_end(one.until, now_s)}")
    for line in content.signers:
        print(f"signer   {line}")
    for key in content.revoked or {}:
        print(f"revoked  {key}")
    return 0


def _end(until: float | None, now_s: float) -> str:
    """Return what is shown behind a key: nothing while it has no end."""
    if until is None:
        return ""
    return " retired" if until <= now_s else f" until {rfc3339(dt.datetime.fromtimestamp(until, dt.UTC))}"


def _add_to_root(owner: BusOwner, use: Use, arguments: argparse.Namespace, clock: Clock, *, runner: bool) -> int:
    from bridge.runner.maintenance.owner import with_runner, with_signer
    from bridge.trust.keyring import pinned

    if runner:
        key = pinned(arguments.key[0], "trust add")
        owner.change(lambda content: with_runner(content, key, clock.now()))
        _say(f"runner {key.name} may sign with {key.public}")
        return 0
    entry = _entry(arguments)
    owner.change(lambda content: with_signer(content, entry.line(NAMESPACES[use])))
    print(fingerprint_of(entry.key))
    names = ", ".join(entry.principals)
    _say(f"the key is {names}'s on this bus; what {names} may do on a host, its policy.toml says:")
    _say(f'  [names."{entry.principals[0]}"]')
    return 0


def _owner(open_bus: OpenBus, clock: Clock) -> BusOwner:
    found = _owner_or_none(open_bus, clock)
    if found is None:
        raise UsageError("no bus is named", remedy="give --bus ROUTE, or set bus in policy.toml")
    return found


def _owner_or_none(open_bus: OpenBus, clock: Clock) -> BusOwner | None:
    from bridge.runner.maintenance.owner import BusOwner

    bus = open_bus()
    return None if bus is None else BusOwner(bus, owner_folder(os.environ), clock)


def revoke(arguments: argparse.Namespace) -> int:
    """Refuse a principal or a key from now on, and end what runs for it."""
    who = who_is(arguments.who)
    done = _files(arguments).revoke(who)
    also = f", and with it {', '.join(done.keys)}" if done.keys else ""
    _say(
        f"{who} is revoked{also} ({done.path}); its running requests end within a second, its results stay as they are"
    )
    if done.others:
        _say(
            f"the same key was listed for {', '.join(done.others)}: refused too, until trusted with a key of their own"
        )
    for key in done.authorities:
        _say(f"certificate authority {key} stays trusted: others' certificates hang on it; kakeya-runner revoke {key}")
    return 0


def _add(files: TrustFiles, use: Use, arguments: argparse.Namespace) -> int:
    entry = _entry(arguments)
    path = files.add(use, entry)
    print(fingerprint_of(entry.key))
    names = ", ".join(entry.principals)
    _say(f"{names} is trusted for {_WHAT[use]} ({path}); a running runner sees it at once")
    return 0


def _entry(arguments: argparse.Namespace) -> SignerEntry:
    key, comment = read_key(arguments.key)
    names = tuple(check_principal(name) for name in (arguments.principal or [comment]))
    try:
        return SignerEntry(
            principals=names, key=key, valid_after=arguments.valid_after, valid_before=arguments.valid_before
        )
    except pydantic.ValidationError as error:
        first = error.errors()[0]
        raise UsageError(
            f"{first['loc'][0]}: got {first['input']!r}; expected YYYYMMDD[HHMM[SS]][Z]",
            remedy="kakeya-runner trust --help",
        ) from error


def _list(files: TrustFiles, *, as_json: bool) -> int:
    found = files.listed()
    if as_json:
        print(json.dumps([vars(one) for one in found], indent=1))
        return 0
    for one in found:
        print(f"{one.use:<8} {','.join(one.principals) or '-':<32} {one.fingerprint or '-':<50} {one.options}".rstrip())
    if not found:
        _say("nobody is trusted: unsigned requests run the host's code only; kakeya-runner trust add KEY")
    return 0


def _files(arguments: argparse.Namespace) -> TrustFiles:
    path = default_policy_path() if arguments.policy is None else Path(arguments.policy)
    return TrustFiles(load_policy(path) if path.exists() else None, path.absolute().parent)


def _say(line: str) -> None:
    print(line, file=sys.stderr)


_WHAT: Final[dict[Use, str]] = {"request": "signing requests", "code": "vouching for code"}
