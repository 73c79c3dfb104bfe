"""Examine a host as a runner needs it: try each thing a run uses, and name a remedy for each finding.

Returns findings; prints nothing.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from bridge.bus.sides.runner import RunnerBus
from bridge.diagnostics import Check, Level
from bridge.errors import KakeyaError, PolicyRefusedError, install_remedy, of_system
from bridge.executor.engines.executor import job_wall_s, node_paths
from bridge.executor.engines.interface import JobNeeds
from bridge.executor.engines.probe import NodeQuestion
from bridge.executor.interface import Executor, RunKind
from bridge.executor.observe.accelerators.find import VISIBLE_DEVICES
from bridge.executor.observe.condition import tool_output
from bridge.presets.installed import registry
from bridge.presets.model import Preset
from bridge.presets.resolution import longest_wall_s
from bridge.records.network import lesser
from bridge.run.clocks import check_clock
from bridge.runner.authorisation.signers import Signers
from bridge.runner.connection.known_keys import KnownKeys, known_keys
from bridge.runner.machine.identity import ask_interpreter
from bridge.runner.machine.machine import cards_of, engine_of
from bridge.runner.maintenance.bus_checks import check_listing, check_requests
from bridge.runner.maintenance.engine_checks import check_engine
from bridge.runner.maintenance.mac_checks import check_folders, check_interpreter, check_mac
from bridge.runner.maintenance.model_checks import check_models
from bridge.runner.maintenance.place_checks import (
    Place,
    check_cuda,
    check_packages,
    check_slots,
    this_place,
    why_no_sandbox,
)
from bridge.runner.maintenance.queue_checks import check_queue
from bridge.runner.maintenance.setup_checks import BY_ROOT, RECEIPT, check
from bridge.runner.maintenance.site_checks import check_site
from bridge.runner.maintenance.ssh_checks import check_ssh
from bridge.runner.policy.allow_lists import host_paths
from bridge.runner.policy.check import problems
from bridge.runner.policy.file import load_policy, own_presets
from bridge.runner.policy.model import Policy
from bridge.runner.policy.rights import file_problems
from bridge.runner.state.folder import NO_STATE_REMEDY, StateFolder
from bridge.runner.state.journal import verify_journal
from bridge.system.clock import Clock, parse_rfc3339
from bridge.trust.judgement import REVOKED_REMEDY
from bridge.trust.keyring import pin
from bridge.trust.runner_key import has_key, key_path, published


@dataclass(frozen=True)
class DoctorContext:
    """What is looked at.

    Attributes:
        open_bus: opens the configured bus; None when none is configured.
    """

    policy_path: Path
    state: StateFolder
    executor: Executor
    clock: Clock
    open_bus: Callable[[], RunnerBus] | None


def examine(context: DoctorContext) -> Iterator[Check]:
    """Yield findings, the cheap ones first."""
    yield _python()
    yield from _as_set_up(context.policy_path.parent / RECEIPT)
    policy = None
    for finding, found in _policy(context.policy_path):
        policy = found or policy
        yield finding
    yield from _state(context, policy)
    yield _key(context.state.identity, None if policy is None else policy.name)
    if policy is None or policy.executor.engine == "local":
        yield from _sandbox(context, policy)
    else:
        paths = host_paths(policy, context.state.root, context.state.identity)
        yield from check_engine(
            engine_of(policy, context.clock), context.state.root, sys.executable, context.clock,
            networked=_networked(policy),
            question=NodeQuestion(paths=node_paths(paths)),
            required=policy.sandbox.mode == "required" or policy.trust_pushers,
            labels=tuple(policy.executor.meanings()),
        )  # fmt: skip
        yield from check_queue(engine_of(policy, context.clock), _needs(policy), tuple(policy.executor.meanings()))
    yield from _presets(policy)
    if policy is not None:
        yield from _code(policy, context.executor.host().drivers)
        yield from check_interpreter(Path(policy.interpreter))
        listed = policy.environment.get(VISIBLE_DEVICES)
        yield from check_slots(policy.slots, cards_of(policy), listed=listed)
    if sys.platform == "darwin":
        yield from check_mac(tool_output)
        yield from () if policy is None else check_folders(policy, context.state.root, Path.home())
    yield from _bus(context, policy)
    yield from check_ssh(_route(context), tool_output, Path.home())
    if policy is not None:
        yield from check_site(policy, _route(context), os.environ)


def _python() -> Check:
    return Check("python", "ok", f"{'.'.join(map(str, sys.version_info[:3]))} at {sys.executable}")


def _as_set_up(receipt: Path) -> Iterator[Check]:
    """Make the checks of the set-up script, where this machine was set up by it."""
    checked = check(receipt)
    if checked is None:
        return
    yield from checked.problems
    if checked.hidden:
        yield Check("set-up", "warn", f"this user cannot read: {', '.join(checked.hidden)}", BY_ROOT)
    if not checked.problems:
        yield Check("set-up", "ok", f"as it was made: {checked.count} things looked at")


def _route(context: DoctorContext) -> str | None:
    """Return the route of the bus, None where it cannot be opened, which is said elsewhere."""
    try:
        return None if context.open_bus is None else context.open_bus().route
    except (KakeyaError, OSError):
        return None


def _policy(path: Path) -> Iterator[tuple[Check, Policy | None]]:
    for problem in problems(path):
        yield replace(problem, name="policy", text=f"{path}, {problem.name}: {problem.text}"), None
    try:
        policy = load_policy(path)
    except KakeyaError:
        return  # said already, with everything else that is wrong
    yield Check("policy", "ok", f"{path}, digest {policy.digest(embedded=False)[:12]}"), policy
    yield _signers(policy), None
    if policy.trust_pushers:
        text = "trust_pushers: whoever can push to the bus may have code run here"
        confined = policy.facts(embedded=False).apart
        advice = None if confined else "set sandbox.socket, own_users, or uid to an unprivileged user; refused without"
        yield Check("trust", "warn" if confined else "fail", text, advice), None


def _signers(policy: Policy) -> Check:
    """Say whose signatures count, and whether the lists can be relied on."""
    try:
        signers = Signers(policy)
        checks, gone = signers.checks_requests, signers.revocations()
    except PolicyRefusedError as error:
        return Check("signers", "fail", error.message, error.remedy)
    count = len(gone.fingerprints) + len(gone.principals)
    who = "signed requests are checked" if checks else "nobody may sign requests: all run the host's code only"
    if policy.require_signature and not checks:
        add = "kakeya-runner trust add KEY --principal NAME"
        why = "require_signature is set and nobody may sign: every request is refused"
        return Check("signers", "fail", why, add)
    return Check("signers", "ok", f"{who}; {count} revoked; kakeya-runner trust list")


def _state(context: DoctorContext, policy: Policy | None) -> Iterator[Check]:
    state = context.state
    try:
        state.create()
    except OSError as error:
        yield Check("state", "fail", f"{state.root}: {error.strerror}", NO_STATE_REMEDY)
        return
    yield Check("state", "ok", str(state.root))
    free = shutil.disk_usage(state.root).free
    floor = 0 if policy is None else policy.limits.disk_floor_bytes
    text = f"{free / 2**30:.1f} GiB free, {floor / 2**30:.1f} GiB are kept"
    yield Check("disk", "ok" if free >= floor else "fail", text, None if free >= floor else "kakeya-runner gc")
    if state.database.exists():
        try:
            yield Check("journal", "ok", f"{verify_journal(state.database)} events, the chain holds")
        except KakeyaError as error:
            yield Check("journal", "fail", error.message, error.remedy)
    for name, file, undo in (("paused", state.pause, "resume"), ("draining", state.drain, "serve")):
        if file.exists():
            yield Check(name, "warn", f"{file} exists: nothing new is taken", f"kakeya-runner {undo}")


def _key(folder: Path, name: str | None) -> Check:
    """Examine the key that signs results: who reads it can sign in this runner's name."""
    if not has_key(folder):
        return Check("key", "warn", "none: results are not signed", "kakeya-runner keygen")
    path = key_path(folder)
    wrong = file_problems(path)
    try:
        newest = [key.evolve(name=name or key.name) for key in published(path.parent)[-1:]]
        public = "".join(f", pinned as {pin(key)}" for key in newest)
    except KakeyaError as error:
        return Check("key", "fail", error.message, error.remedy)
    remedy = f"chmod 600 {shlex.quote(str(path))}; kakeya-runner keygen --rotate when somebody may have read it"
    return Check(
        "key", "fail" if wrong else "ok", f"{path}{': ' + wrong[0] if wrong else public}", remedy if wrong else None
    )


def _sandbox(context: DoctorContext, policy: Policy | None) -> Iterator[Check]:
    """Yield what the sandbox is, then every way out of it that was tried on this machine just now."""
    uid = None if policy is None else policy.sandbox.uid
    required = policy is not None and (policy.sandbox.mode == "required" or policy.trust_pushers)
    bad: Level = "fail" if required else "warn"
    applied = context.executor.sandbox(uid)
    if applied.kind != "none":
        text = f"{applied.kind} as uid {applied.uid}: {', '.join((*applied.namespaces, *applied.filters))}"
        why = applied.fallback_reason
        remedy = None if why is None else why_no_sandbox(why, _place(policy))[1]
        yield Check("sandbox", "ok" if why is None else "warn", text, remedy)
    else:
        why, remedy = why_no_sandbox(applied.reason or "unknown", _place(policy))
        yield Check("sandbox", bad, f"none: {why}", remedy)
    for escape in context.executor.escapes(uid):
        if escape.refused:
            yield Check("escape", "ok", f"{sys.platform}: a run is refused to {escape.what}")
        else:
            yield Check("escape", bad, f"{sys.platform}: a run can {escape.what}", _NOT_CONFINED)
    if applied.kind not in ("none", "landlock") and policy is not None:
        for name, user, kind in _further_kinds(policy):
            yield from _kind_of_run(context, name, user, kind)


def _place(policy: Policy | None) -> Place:
    return this_place() if policy is None else this_place(interpreter=policy.interpreter)


_NOT_CONFINED = "no run here is confined: set sandbox.mode to required, and nothing runs that needs to be"


def _further_kinds(policy: Policy) -> Iterator[tuple[str, int | None, RunKind]]:
    """Yield the kinds of run that get another sandbox than the host's programs, each with its user."""
    own = policy.sandbox
    yield "request code", own.uid, RunKind("request")
    if own.peer_uid is not None:
        yield "a peer", own.peer_uid, RunKind("peer")
    if own.network:
        yield "a run with a network of names", own.uid, RunKind("host", network="proxy")
    if own.network == "host":
        yield "a run with the network of this host", own.uid, RunKind("host", network="host")
    if own.devices:
        yield "a run with devices", own.uid, RunKind("host", devices=True)


def _kind_of_run(context: DoctorContext, name: str, uid: int | None, kind: RunKind) -> Iterator[Check]:
    """Yield one line for a kind of run whose sandbox holds, else what is open."""
    applied, escapes = context.executor.sandbox(uid, kind), context.executor.escapes(uid, kind)
    if applied.kind != "none":
        text = f"{name}, uid {applied.uid}: refused to do any of {len(escapes)} things that were tried"
        yield Check("sandbox", "ok", text)
        return
    yield Check("sandbox", "fail", f"{name}: {applied.reason}", "such runs are refused until the sandbox holds")
    for escape in escapes:
        if not escape.refused:
            yield Check("escape", "fail", f"{sys.platform}: {name} can {escape.what}", _NOT_CONFINED)


def _presets(policy: Policy | None) -> Iterator[Check]:
    try:
        known = dict(registry()) if policy is None else own_presets(policy)
    except KakeyaError as error:
        yield Check("presets", "fail", error.message, error.remedy)
        return
    ready = [preset.name for preset in known.values() if preset.status == "ready"]
    if policy is None:
        yield Check("presets", "ok", f"{len(ready)} ready")
        return
    allowed = [name for name in ready if policy.facts(embedded=False).allows(name)]
    advice = None if allowed else "add names or patterns to presets.allow"
    yield Check("presets", "ok" if allowed else "warn", f"{len(allowed)} of {len(ready)} allowed", advice)


def _networked(policy: Policy) -> tuple[str, ...]:
    """Return the presets that may run here and whose runs reach the network of their host."""
    given = policy.sandbox.network
    return tuple(preset.name for preset in _allowed(policy) if lesser(preset.sandbox.network, given) == "host")


def _needs(policy: Policy) -> dict[str, JobNeeds]:
    """Return what the longest run of each allowed preset asks of the engine."""
    facts, meanings = policy.facts(embedded=False), policy.executor.meanings()
    return {
        preset.name: JobNeeds(
            tuple(label for label in preset.needs if label in meanings),
            job_wall_s(longest_wall_s(preset, facts), facts.grace_s),
        )
        for preset in _allowed(policy)
    }


def _allowed(policy: Policy) -> tuple[Preset, ...]:
    """Return the presets that may run here."""
    try:
        known = own_presets(policy).values()
    except KakeyaError:
        return ()  # said with the presets
    allows = policy.facts(embedded=False).allows
    return tuple(one for one in known if one.status == "ready" and allows(one.name))


def _code(policy: Policy, drivers: Mapping[str, str]) -> Iterator[Check]:
    install = f"{install_remedy('mlx', policy.interpreter)} (or [torch])"
    facts = ask_interpreter(policy.interpreter)
    if facts.problem is not None:
        yield Check("engine", "fail", facts.problem, install)
        return
    backends = [f"{name} {facts.packages[name]}" for name in ("mlx", "mlx-lm", "torch") if name in facts.packages]
    level: Level = "ok" if backends else "warn"
    remedy = None if backends else install
    yield Check("engine", level, f"Python {facts.version}, {', '.join(backends) or 'no array library'}", remedy)
    yield from check_cuda(facts.packages, drivers)
    yield from check_packages(facts.sites, facts.strange)
    if facts.dirty is not False:
        text = f"{facts.identity}; " + (
            "it has local changes" if facts.dirty else "it cannot be told whether it is unchanged"
        )
        yield Check(
            "code", "warn", text, "install kakeya from a wheel or a clean checkout; numbers are not citable otherwise"
        )
    else:
        yield Check("code", "ok", facts.identity)
    yield from check_models(policy, _allowed(policy), facts.engine)


def _root(context: DoctorContext, keys: KnownKeys, policy: Policy | None) -> Iterator[Check]:
    """Say who owns the bus, and whether its root lists this runner's key."""
    known = keys.known
    if known is None:
        return
    root, now_s = known.root, context.clock.now().timestamp()
    yield Check("owner", "ok", f"{root.owner}, root {root.version}.{root.targets_version}, pinned with --root-key")
    if context.state.root_contested.exists():
        text = f"somebody keeps replacing the bus's root: {known.note or 'put back for now'}"
        yield Check("root", "warn", text, "protect the root's ref on the remote; keep strangers from pushing")
    if root.expires < now_s:
        yield Check(
            "root", "warn", "the owner should have signed it anew", "the bus's owner: kakeya-runner trust rotate"
        )
    if (why := keys.ended()) is not None:
        yield Check("revoked", "fail", why, REVOKED_REMEDY)
        return
    mine = published(context.state.identity)[-1:]
    listed = any(one.key == key.public and one.until is None for key in mine for one in root.content.runners)
    if mine and not listed and policy is not None:
        line = pin(mine[0].evolve(name=policy.name))
        yield Check("listed", "warn", "the root does not list this runner's key: its results are untrusted",
                    f"the bus's owner: kakeya-runner trust add {line}")  # fmt: skip


def _bus(context: DoctorContext, policy: Policy | None) -> Iterator[Check]:
    if context.open_bus is None:
        yield Check("bus", "warn", "none named", "give --bus ROUTE, or set bus in policy.toml")
        return
    keys: KnownKeys | None = None
    try:
        bus = context.open_bus()
        record = bus.identity()
        if policy is not None and record.wake != "embedded":
            keys = known_keys(context.state.identity, policy, bus.route)
            bus.use_root(keys.judge_root)
            record, mine = bus.identity(), keys.seals()
            if mine is not None:
                bus.use_seals(mine)
        beacons = bus.read_beacons()
        yield check_listing(bus, context.clock)
        yield check_requests(bus)
    except KakeyaError as error:
        yield Check("bus", "fail", error.message, error.remedy or "kakeya-runner serve --create-bus")
        return
    except OSError as error:  # what a runner knows of its bus lies in its state folder
        yield Check("bus", "fail", of_system(error).message, NO_STATE_REMEDY)
        return
    yield Check("bus", "ok", f"{bus.route}, id {record.bus_id}, {record.wake}, {len(beacons)} runners seen")
    if keys is not None and keys.known is not None:
        yield from _root(context, keys, policy)
    for one in bus.refused:
        text = f"a {one.kind} in the name of {one.runner} does not count: {one.why}"
        if one.revoked:
            yield Check("revoked", "warn", text, REVOKED_REMEDY)
            continue
        yield Check("forged", "warn", text, "keep strangers from pushing to the runners' refs; upgrade old runners")
    own = None if policy is None else policy.name
    moments = {beacon.runner: parse_rfc3339(beacon.time) for _, beacon in beacons if beacon.runner != own}
    yield check_clock(context.clock.now(), moments)
