"""`kakeya-runner trust` about the root of a bus: whose key is whose for everybody who uses it."""

from __future__ import annotations

import datetime as dt
import os
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from bridge.cli.host.places import open_route, policy_or_none, policy_path, require_route, route_of, state_for
from bridge.cli.host.signing import own_name
from bridge.cli.screen.answer import Answer, Talk
from bridge.cli.talk import CLOCK
from bridge.errors import UsageError
from bridge.runner.authorisation.trust_files import is_pin, who_is
from bridge.runner.policy.file import owner_folder, written_name
from bridge.system.clock import rfc3339
from bridge.trust.keyring import pinned

if TYPE_CHECKING:
    from bridge.cli.host.call import HostCall
    from bridge.cli.table.runner_options import (
        DoctorOptions,
        RootKeyOptions,
        RunnerBusOptions,
        TicketOptions,
        TrustInitOptions,
        TrustMergeOptions,
    )
    from bridge.runner.maintenance.owner import BusOwner
    from bridge.runner.policy.model import Policy
    from bridge.trust.root import RootContent, TrustRoot


def show(call: HostCall[DoctorOptions]) -> Answer:
    """Show what the root of a bus says."""
    owner, now_s = _owner(call.options), CLOCK.now().timestamp()
    root, content = owner.root, owner.root.content
    data = {
        "owner": root.owner, "owners": list(root.owners), "bus_id": root.bus_id, "version": root.version,
        "targets_version": root.targets_version, "runners": [vars(runner) for runner in content.runners],
        "signers": list(content.signers), "revoked": dict(content.revoked or {}),
    }  # fmt: skip
    lines = [
        f"owner    {root.owner}{'' if owner.owns else ' (this account does not hold its key)'}",
        f"version  {root.version}.{root.targets_version}",
        *(f"runner   {runner.name}={runner.key}{_end(runner.until, now_s)}" for runner in content.runners),
        *(f"signer   {line}" for line in content.signers),
        *(f"revoked  {key}" for key in content.revoked or {}),
    ]
    return Answer(data, lines)


def _end(until: float | None, now_s: float) -> str:
    """Return what is shown behind a key: nothing while it has no end."""
    if until is None:
        return ""
    return " retired" if until <= now_s else f" until {rfc3339(dt.datetime.fromtimestamp(until, dt.UTC))}"


def init(call: HostCall[TrustInitOptions]) -> Answer:
    """Own a bus that nobody owns, or whose owner's key is lost; this runner's key is listed."""
    from bridge.trust import runner_key

    owner, options, policy = _owner(call.options), call.options, policy_or_none(call.options)
    name = own_name() if policy is None else policy.name
    identity = state_for(options, name).identity
    newest = runner_key.published(identity)[-1:] if runner_key.has_key(identity) else ()
    runners = tuple(key.evolve(name=name) for key in newest)
    key = None if options.owner_key is None else Path(options.owner_key)
    return _owned(owner, owner.make(runners, key, anew=options.new_owner), "owns this bus now")


def rotate(call: HostCall[RunnerBusOptions]) -> Answer:
    """Make a new key for the owner."""
    owner = _owner(call.options)
    return _owned(owner, owner.rotate(), "is the owner's new key")


def _owned(owner: BusOwner, root: TrustRoot, what: str) -> Answer:
    pinning = f"{root.owner} {what}; requesters pin it with: kakeya-mac init --bus ROUTE --root-key {root.owner}"
    return Answer(lines=[root.owner, Talk("note", pinning), Talk("note", owner.backup_line(root.bus_id))])


def merge(call: HostCall[TrustMergeOptions]) -> Answer:
    """Unite the bus's root with this account's, and say which keys of the former were not taken."""
    owner = _owner(call.options)
    before = owner.root
    root, left = owner.merge(call.options.take or [])
    if root.files == before.files:
        return Answer(lines=[Talk("note", "the bus shows no other root than this account's: nothing to merge")])
    texts = [f"the bus's root is {root.version}.{root.targets_version}: revocations and ends of both count"]
    texts += [f"not taken: {key}; to let it count: kakeya-runner trust add {key} --bus ROUTE" for key in left]
    return Answer(lines=[Talk("note", text) for text in texts])


def retire(call: HostCall[RootKeyOptions]) -> Answer:
    """End a key from now on; what it signed still counts."""
    from bridge.runner.maintenance.owner import without

    return _end_key(call.options, without, "is retired: what it signed counts")


def revoke(call: HostCall[RootKeyOptions]) -> Answer:
    """End a key, also for what it signed before."""
    from bridge.runner.maintenance.owner import with_revoked

    return _end_key(call.options, with_revoked, "is revoked: nothing that it signed counts")


def _end_key(options: RootKeyOptions, edit: Callable[..., RootContent], past: str) -> Answer:
    who = " ".join(options.key)

    def end(content: RootContent) -> RootContent:
        try:
            return edit(content, who, CLOCK.now())
        except UsageError:
            if (key := _key_named(options.key)) == who:
                raise
            return edit(content, key, CLOCK.now())

    try:
        policy = policy_or_none(options)
    except UsageError:
        policy = None  # of a runner of this account; a no to a key is heard whatever it says
    root = _owner_by(options, policy).change(end)
    return Answer(lines=[Talk("note", f"{who} {past} ({root.version}.{root.targets_version})")])


def _key_named(words: list[str]) -> str:
    """Return the key that a command line names by its text, its file or as it is pinned, as a root has it.

    Raises:
        UsageError: it names none.
    """
    return pinned(words[0], "NAME=KEY").public if is_pin(words) else who_is(words)


def ticket(call: HostCall[TicketOptions]) -> Answer:
    """Make a ticket of the bus, in a file of this account's own.

    Raises:
        UsageError: the file cannot be a new one.
    """
    owner, name = _owner(call.options), call.options.name
    out = Path(call.options.out or f"{name}.ticket")
    if out.exists():
        raise UsageError(f"{out} exists", remedy="name another file: --out FILE")
    if not out.absolute().parent.is_dir():  # before the bus lists a key that nobody would hold
        raise UsageError(f"{out.absolute().parent} is no folder", remedy="name a file in one that exists: --out FILE")
    made = owner.ticket(name, call.options.for_)
    made.write(out)
    command = f"kakeya-runner once --ephemeral --ticket {shlex.quote(str(out))}"
    uses = f"who has this file signs as {name} until {made.until}: {command}"
    sooner = f"to end it sooner: kakeya-runner trust retire {name} --bus ROUTE"
    return Answer(lines=[str(out), Talk("note", uses), Talk("note", sooner)])


def owner_or_none(options: RunnerBusOptions) -> BusOwner | None:
    """Return this account as the owner of the bus that the command line or the policy names; None where neither does.

    Raises:
        UsageError: the policy is none.
    """
    return None if route_of(options, policy_or_none(options)) is None else _owner(options)


def _owner(options: RunnerBusOptions) -> BusOwner:
    return _owner_by(options, policy_or_none(options))


def _owner_by(options: RunnerBusOptions, policy: Policy | None) -> BusOwner:
    """Return this account as the owner of a bus, with what a policy says of its route and of who commits."""
    from bridge.runner.maintenance.owner import BusOwner

    route = require_route(options, policy)
    name = written_name(policy_path(options)) or own_name() if policy is None else policy.name
    state = state_for(options, name)
    state.create()
    bus = open_route(route, state, keys=False, by=None if policy is None else policy.identity.value)
    return BusOwner(bus, owner_folder(os.environ), CLOCK)
