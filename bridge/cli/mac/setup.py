"""`doctor`, `init`, `gc`, `config`, `completion`, `version`: setting up and tidying."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from bridge.cli.mac.context import Invocation
from bridge.cli.screen.answer import Answer, Line, Row, Talk
from bridge.client.document.parts import ConfigData, DoctorRow, InitData, VersionData

if TYPE_CHECKING:
    from bridge.cli.table.options import (
        BusOptions,
        CompletionOptions,
        DoctorOptions,
        GcOptions,
        InitOptions,
        JsonOptions,
    )
    from bridge.client.clone.config import ClientSettings, IdentityChoice
    from bridge.client.connection.session import BusSession


def doctor(call: Invocation[DoctorOptions]) -> Answer:
    """Check everything between here and a runner; exit 1 when a finding stands in the way."""
    from bridge.cli.screen.findings import print_findings
    from bridge.client.maintenance.doctor import diagnose, first_run

    checks = diagnose(call.settings(), call.open, call.environment, push=not call.options.no_push)
    findings = print_findings(call.output, checks)
    failed = sum(finding.level == "fail" for finding in findings)
    code = 1 if failed else 0
    lines: list[Line] = [Talk("doctor", f" {len(findings)} checks, {failed} in the way")]
    following = None if failed else first_run(call.open(call.settings()))
    if following is not None:
        lines.append(Talk("next", f"  {shlex.join(following)}"))
    data = [DoctorRow(check.name, check.level, check.text, check.remedy) for check in findings]
    steps = [] if following is None else [following]
    return Answer(data, lines, code, reason="findings" if code else "ok", following=steps)


def init(call: Invocation[InitOptions]) -> Answer:
    """Check a bus, pin its id, and write this clone's own configuration."""
    from bridge.client.clone.config import check_template, write_clone_config
    from bridge.client.connection.branches import check_accepted, learned_template
    from bridge.client.connection.pins import compared_with_bus, key_lines, root_pin
    from bridge.client.connection.signing import choose, identity_of
    from bridge.errors import UsageError

    settings = call.settings()
    if settings.bus.embedded and call.options.bus is None:
        raise UsageError("no bus is named", remedy="kakeya-mac init --bus ROUTE; for this machine: --bus embedded")
    if call.options.branch_template is not None:
        check_template(call.options.branch_template, "--branch-template")
        settings = replace(settings, bus=replace(settings.bus, branch_template=call.options.branch_template))
    identity = _identity(call, settings)
    session = call.open(replace(settings, identity=identity))
    if call.options.branch_template is not None:
        check_accepted(session, call.options.branch_template)
    if call.options.new_owner and call.options.root_key is None:
        raise UsageError("--new-owner needs the new owner's key", remedy="kakeya-mac init --bus ROUTE --root-key KEY")
    requests = list(_try_push(session))
    trusted = session.pins(call.options.runner_key or ())
    root = trusted.root
    choice = replace(
        settings.bus,
        bus_id=session.record.bus_id if not settings.bus.embedded else None,
        route=_route_to_write(settings),
        branch_template=settings.bus.branch_template or learned_template(session),
        runner_keys=() if settings.bus.embedded else trusted.texts,
        root_key=root_pin(settings) if root is not None and root.vouched else None,
    )
    signing = choose(session, call.environment, key=call.options.signing_key, principal=call.options.principal)
    path = write_clone_config(settings, choice, signing, identity)
    lines: list[Line] = [*requests, Row("bus", f"{choice.route or session.bus.route} {session.record.bus_id}")]
    lines += [Row("results", line) for line in key_lines(session.record, trusted)]
    accepted = None if session.roots is None else session.roots.accepted
    compared = compared_with_bus(call.options.runner_key or (), session.record, accepted)
    lines += [Row("key" if same else "warn", line) for same, line in compared]
    who = identity_of(replace(session, settings=replace(settings, signing=signing)))
    if who is None:
        lines.append(Row("signing", "off: requests are unsigned; on with: kakeya-mac init --signing-key auto"))
    else:
        lines.append(Row("signing", f"as {who.principal} with {who.fingerprint}, key {who.key}"))
        if root is not None and who.is_listed(root.root.content.signers):
            lines.append(Row("listed", "the bus's owner lists this key: there is nothing to send"))
        else:
            lines.append(Talk("send", f"  this line to the host's owner, who types it: {who.trust_command}"))
    lines.append(Row("written", str(path)))
    lines.append(Talk("next", "  kakeya-mac doctor"))
    data = InitData(
        path=str(path),
        route=choice.route or session.bus.route,
        bus_id=session.record.bus_id,
        principal=None if who is None else who.principal,
        signer=None if who is None else who.fingerprint,
        public_key=None if who is None else who.public,
        owner_key=None if root is None else root.root.owner,
        first_use=root is not None and not root.vouched,
    )
    return Answer(data, lines, bus=session.bus_part, following=[["kakeya-mac", "doctor"]])


def _route_to_write(settings: ClientSettings) -> str | None:
    """Return the route for a file that is read in other folders and work trees too: a relative path as a whole one.

    None where the id of the bus alone names it.
    """
    from bridge.client.clone.configuration import remotes

    route, repository = settings.bus.route, settings.repository
    if settings.bus.embedded:
        return "embedded"
    if route is None or "://" in route or Path(route).is_absolute():
        return route
    if repository is not None and route in remotes(repository.top):
        return route
    path = ((settings.directory if repository is None else repository.top) / route).resolve()
    return str(path) if path.is_dir() and "#" not in str(path) else route  # what is behind a # is the id of a bus


def _try_push(session: BusSession) -> Iterator[Line]:
    """Push a probe to where requests will go, and yield what the remote does not allow; reading works all the same."""
    from bridge.client.send.push_trial import try_push
    from bridge.errors import RemoteError

    if session.embedded:
        return
    try:
        trial = try_push(session)
    except RemoteError as error:
        yield Row("warn", f"requests cannot be pushed: {error.message}")
        yield Talk("next", f"  {error.remedy}")
        return
    elsewhere = "" if trial.refused is None else f", as the usual branches are refused ({trial.refused})"
    yield Row("requests", f"go to {trial.template}{elsewhere}")


def _identity(call: Invocation[InitOptions], settings: ClientSettings) -> IdentityChoice:
    """Return who commits from now on: whom the options name, else whom the clone names already.

    Raises:
        UsageError: an option has line breaks, or names nobody.
    """
    from bridge.client.clone.config import check_identity

    before, who, prefix = settings.identity, call.options.commit_as, call.options.message_prefix
    return check_identity(
        before.committer if who is None else who, before.message_prefix if prefix is None else prefix, "init"
    )


def gc(call: Invocation[GcOptions]) -> Answer:
    """Remove old results here, and on request finished branches on the bus."""
    from bridge.client.maintenance.collect import tidy

    session = call.connect()
    removed = list(
        tidy(
            session, older_than_s=call.options.older_than, branches=call.options.branches, dry_run=call.options.dry_run
        )
    )
    lines: list[Line] = [Row(removal.kind, removal.name) for removal in removed]
    lines.append(Talk("gc", f"{len(removed)} {'would go' if call.options.dry_run else 'removed'}"))
    return Answer(removed, lines, bus=session.bus_part)


def config(call: Invocation[BusOptions]) -> Answer:
    """Show the bus and where that came from; asks no bus."""
    from bridge.client.clone.config import candidates

    settings = call.settings()
    choice = settings.bus
    route = "embedded: runs on THIS machine" if choice.embedded else choice.route or "(found by its id)"
    places = candidates(settings)
    lines = [Row("bus", f"{route}{f' #{choice.bus_id}' if choice.bus_id else ''}")]
    lines += [Row("used" if place.used else "", f"{place.source:<10} {place.where}") for place in places]
    lines.append(Row("results", str(settings.runs_dir)))
    pinned = (choice.route, choice.bus_id, choice.embedded, choice.source, choice.branch_template)
    data = ConfigData(*pinned, str(settings.runs_dir), places)
    return Answer(data, lines, bus=choice.part)


def completion(call: Invocation[CompletionOptions]) -> Answer:
    """Print a completion script."""
    from bridge.cli.table.completion import script

    return Answer(lines=[script(call.options.shell).rstrip("\n")])


def version(_call: Invocation[JsonOptions]) -> Answer:
    """Print versions of program, gate and schemas."""
    from bridge.client.document.envelope import SCHEMA
    from bridge.gate.identity import identity

    gate = identity()
    data = VersionData(gate.version, gate.version, gate.digest, SCHEMA, 2)
    rows = {"kakeya": gate.version, "gate": f"{gate.version} {gate.digest}", "schemas": f"{SCHEMA}, request 2"}
    return Answer(data, [Row(label, text) for label, text in rows.items()])
