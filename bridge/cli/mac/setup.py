"""`doctor`, `init`, `gc`, `config`, `completion`, `version`: setting up and tidying."""

from __future__ import annotations

import shlex
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

from bridge.cli.mac.context import Invocation

if TYPE_CHECKING:
    from bridge.client.clone.config import ClientSettings, IdentityChoice
    from bridge.client.connection.session import BusSession


def doctor(call: Invocation) -> int:
    """Check everything between here and a runner; exit 1 when a finding stands in the way."""
    from bridge.cli.screen.findings import print_findings
    from bridge.client.document.envelope import of_data
    from bridge.client.maintenance.doctor import diagnose, first_run

    found = diagnose(call.settings(), call.open, call.environment, push=not call.args.no_push)
    findings = print_findings(call.output, found)
    failed = sum(finding.level == "fail" for finding in findings)
    code = 1 if failed else 0
    call.output.say("doctor", f" {len(findings)} checks, {failed} in the way")
    following = None if failed else first_run(call.open(call.settings()))
    if following is not None:
        call.output.say("next", f"  {shlex.join(following)}")
    data = [
        {"check": check.name, "level": check.level, "text": check.text, "remedy": check.remedy} for check in findings
    ]
    steps = [] if following is None else [following]
    call.output.document(
        of_data("doctor", data, exit_code=code, reason="findings" if code else "ok", next_argv=steps)
    )  # fmt: skip
    return code


def init(call: Invocation) -> int:
    """Check a bus, pin its id, and write this clone's own configuration."""
    from bridge.cli.mac.agents.commands import offered_lines
    from bridge.cli.table.documents import write_agents_section
    from bridge.client.clone.config import check_template, write_clone_config
    from bridge.client.connection.branches import check_accepted, learned_template
    from bridge.client.connection.pins import compared_with_bus, key_lines, root_pin
    from bridge.client.connection.signing import choose, identity_of
    from bridge.client.document.envelope import of_data
    from bridge.errors import UsageError

    settings = call.settings()
    if settings.bus.embedded and call.args.bus is None:
        raise UsageError("no bus is named", remedy="kakeya-mac init --bus ROUTE; for this machine: --bus embedded")
    if call.args.branch_template is not None:
        check_template(call.args.branch_template, "--branch-template")
        settings = replace(settings, bus=replace(settings.bus, branch_template=call.args.branch_template))
    identity = _identity(call, settings)
    session = call.open(replace(settings, identity=identity))
    if call.args.branch_template is not None:
        check_accepted(session, call.args.branch_template)
    if call.args.new_owner and call.args.root_key is None:
        raise UsageError("--new-owner needs the new owner's key", remedy="kakeya-mac init --bus ROUTE --root-key KEY")
    _try_push(call, session)
    trusted = session.pins(call.args.runner_key or ())
    root = trusted.root
    choice = replace(
        settings.bus,
        bus_id=session.record.bus_id if not settings.bus.embedded else None,
        route=settings.bus.route or "embedded",
        branch_template=settings.bus.branch_template or learned_template(session),
        runner_keys=() if settings.bus.embedded else trusted.texts,
        root_key=root_pin(settings) if root is not None and root.vouched else None,
    )
    signing = choose(session, call.environment, key=call.args.signing_key, principal=call.args.principal)
    path = write_clone_config(settings, choice, signing, identity)
    call.output.row("bus", f"{choice.route} {session.record.bus_id}")
    for line in key_lines(session.record, trusted):
        call.output.row("results", line)
    known = None if session.roots is None else session.roots.accepted
    for same, line in compared_with_bus(call.args.runner_key or (), session.record, known):
        call.output.row("key" if same else "warn", line)
    who = identity_of(replace(session, settings=replace(settings, signing=signing)))
    if who is None:
        call.output.row("signing", "off: requests are unsigned; on with: kakeya-mac init --signing-key auto")
    else:
        call.output.row("signing", f"as {who.principal} with {who.fingerprint}, key {who.key}")
        call.output.say("send", f"  this line to the host's owner, who types it: {who.trust_command}")
    call.output.row("written", str(path))
    if call.args.agents_md and settings.repository is not None:
        agents = settings.repository.top / "AGENTS.md"
        changed = write_agents_section(agents, offered_lines(call))
        call.output.row("agents", f"{agents}{'' if changed else ' (unchanged)'}")
    call.output.say("next", "  kakeya-mac doctor")
    data = {
        "path": str(path),
        "route": choice.route,
        "bus_id": session.record.bus_id,
        "principal": None if who is None else who.principal,
        "signer": None if who is None else who.fingerprint,
        "public_key": None if who is None else who.public,
        "owner_key": None if root is None else root.root.owner,
        "first_use": root is not None and not root.vouched,
    }
    call.output.document(of_data("init", data, bus=session.bus_part(), next_argv=[["kakeya-mac", "doctor"]]))
    return 0


def _try_push(call: Invocation, session: BusSession) -> None:
    """Push a probe to where requests will go, and say what the remote does not allow; reading goes on all the same."""
    from bridge.client.send.push_trial import try_push
    from bridge.errors import RemoteError

    if session.embedded:
        return
    try:
        trial = try_push(session)
    except RemoteError as error:
        call.output.row("warn", f"requests cannot be pushed: {error.message}")
        call.output.say("next", f"  {error.remedy}")
        return
    elsewhere = "" if trial.refused is None else f", as the usual branches are refused ({trial.refused})"
    call.output.row("requests", f"go to {trial.template}{elsewhere}")


def _identity(call: Invocation, settings: ClientSettings) -> IdentityChoice:
    """Return who commits from now on: whom the options name, else whom the clone names already.

    Raises:
        UsageError: an option has line breaks, or names nobody.
    """
    from bridge.client.clone.config import check_identity

    before, who, prefix = settings.identity, call.args.commit_as, call.args.message_prefix
    return check_identity(
        before.committer if who is None else who, before.message_prefix if prefix is None else prefix, "init"
    )


def gc(call: Invocation) -> int:
    """Remove old results here, and on request finished branches on the bus."""
    from bridge.client.document.envelope import of_data
    from bridge.client.maintenance.collect import tidy

    session = call.connect()
    removed = list(
        tidy(session, older_than_s=call.args.older_than, branches=call.args.branches, dry_run=call.args.dry_run)
    )
    for one in removed:
        call.output.row(one.kind, one.name)
    call.output.say("gc", f"{len(removed)} {'would go' if call.args.dry_run else 'removed'}")
    call.output.document(of_data("gc", [asdict(one) for one in removed], bus=session.bus_part()))
    return 0


def config(call: Invocation) -> int:
    """Show the bus and where that came from; asks no bus."""
    from bridge.client.clone.config import candidates
    from bridge.client.document.envelope import BusPart, of_data

    settings = call.settings()
    choice = settings.bus
    route = "embedded: runs on THIS machine" if choice.embedded else choice.route or "(found by its id)"
    call.output.row("bus", f"{route}{f' #{choice.bus_id}' if choice.bus_id else ''}")
    for source, where, used in candidates(settings):
        call.output.row("used" if used else "", f"{source:<10} {where}")
    call.output.row("results", str(settings.runs_dir))
    data = {
        "route": choice.route,
        "bus_id": choice.bus_id,
        "embedded": choice.embedded,
        "source": choice.source,
        "branch_template": choice.branch_template,
        "runs": str(settings.runs_dir),
        "looked_at": [{"source": s, "where": w, "used": used} for s, w, used in candidates(settings)],
    }
    bus = BusPart(
        id=choice.bus_id, route=choice.route, source=choice.source, where=choice.where, embedded=choice.embedded
    )
    call.output.document(of_data("config", data, bus=bus))
    return 0


def completion(call: Invocation) -> int:
    """Print a completion script."""
    from bridge.cli.table.completion import script

    call.output.data(script(call.args.shell).rstrip("\n"))
    return 0


def version(call: Invocation) -> int:
    """Print versions of program, gate and schemas."""
    from bridge.client.document.envelope import SCHEMA, of_data
    from bridge.gate.identity import identity

    gate = identity()
    data = {"kakeya": gate.version, "gate": gate.version, "gate_digest": gate.digest, "envelope": SCHEMA, "request": 2}
    rows = {"kakeya": gate.version, "gate": f"{gate.version} {gate.digest}", "schemas": f"{SCHEMA}, request 2"}
    for label, text in rows.items():
        call.output.row(label, text)
    call.output.document(of_data("version", data))
    return 0
