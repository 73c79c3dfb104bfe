"""Check everything between here and a runner; every finding carries a remedy.

One function a check, in the order in which things break. The probe push goes to the request namespace and is removed
again: only a real push shows whether one is allowed.
"""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

from bridge.bus.store.gather import WorkBudget
from bridge.client.clone.config import ClientSettings
from bridge.client.connection.liveness import DISTRUSTED, look
from bridge.client.connection.session import BusSession
from bridge.diagnostics import Check, Level
from bridge.durations import age_text
from bridge.errors import KakeyaError
from bridge.hosting.checkup import check_place
from bridge.limits import DISK_FLOOR_BYTES
from bridge.presets.installed import registry
from bridge.run.clocks import check_clock
from bridge.system.clock import parse_rfc3339
from bridge.system.git import GIT_LEAST, GIT_NEEDED
from bridge.trust.judgement import REVOKED_REMEDY

MINIMUM_PYTHON: Final = (3, 11)
_PROBE: Final = "-env-probe"  # presets that look at a machine and measure nothing
CLAIM_FETCHES: Final = 24  # fetches that a look at all waiting claims may cost


def diagnose(
    settings: ClientSettings, connect: Callable[[ClientSettings], BusSession], environ: Mapping[str, str], *, push: bool
) -> Iterator[Check]:
    """Yield findings as they are made; stops after the bus when there is none to look at."""
    yield from _machine()
    yield from _configuration(settings)
    try:
        session = connect(settings)
    except KakeyaError as error:
        yield Check("bus", "fail", error.message, error.remedy or "kakeya-mac init --bus ROUTE")
        return
    checks: list[Callable[[BusSession], Iterator[Check]]] = [
        _bus,
        _signing,
        _runners,
        _clock,
        _claims,
        _state,
        _hosting(environ),
    ]
    if push:
        checks.insert(1, _probe_push)
    for check in checks:
        try:
            yield from check(session)
        except KakeyaError as error:
            yield Check(check.__name__.strip("_"), "fail", error.message, error.remedy or "kakeya-mac doctor")


def first_run(session: BusSession) -> list[str] | None:
    """Return the command that tries a whole run of a few seconds; None where no live runner offers one.

    A host with both is asked about MLX: importing torch takes many times as long.
    """
    live = (runner.beacon for runner in look(session.bus, session.record, session.clock.now()) if runner.live)
    probes = (name for beacon in live for name in beacon.presets if name.endswith(_PROBE) and name in registry())
    name = max(probes, default=None)
    return None if name is None else ["kakeya-mac", "run", name, "--wait", *session.settings.bus.words]


def _machine() -> Iterator[Check]:
    version = ".".join(str(part) for part in sys.version_info[:3])
    if sys.version_info < MINIMUM_PYTHON:
        yield Check("python", "fail", f"{version}; expected 3.11 or newer", "install a newer Python")
    else:
        yield Check("python", "ok", version)
    from bridge.client.clone.configuration import git_version

    try:
        installed_version = git_version()
        numbers = tuple(int(part) for part in re.findall(r"\d+", installed_version)[:2])
        if numbers < GIT_LEAST:
            yield Check("git", "fail", f"{installed_version}; expected {GIT_NEEDED}", f"install {GIT_NEEDED}")
        else:
            yield Check("git", "ok", installed_version)
    except KakeyaError as error:
        yield Check("git", "fail", error.message, error.remedy or "install git")


def _configuration(settings: ClientSettings) -> Iterator[Check]:
    choice = settings.bus
    if settings.repository is None:
        text = "not inside a git clone: requests carry no code, results go to the data folder"
        yield Check("repository", "warn", text, "run it inside a clone to test its code")
    else:
        yield _readable(settings.repository.top)
    if choice.embedded:
        yield Check("route", "ok", f"embedded, runs on THIS machine ({choice.where})")
    elif choice.bus_id is None:
        text = f"{choice.route} from {choice.where}, not pinned to a bus id"
        yield Check("route", "warn", text, f"kakeya-mac init --bus {shlex.quote(str(choice.route))}")
    else:
        yield Check("route", "ok", f"{choice.route or 'found by its id'} from {choice.where}, pinned")


def _readable(top: Path) -> Check:
    from bridge.bus.store.route import check_owner

    try:
        check_owner(top)
    except KakeyaError as error:
        return Check("repository", "fail", error.message, error.remedy)
    return Check("repository", "ok", str(top))


def _bus(session: BusSession) -> Iterator[Check]:
    record = session.record
    began_s = session.clock.steady_s()
    snapshot = session.bus.snapshot()
    took_ms = (session.clock.steady_s() - began_s) * 1000
    yield Check("bus", "ok", f"{record.bus_id}, wake {record.wake}, a listing takes {took_ms:.0f} ms")
    untaken = sum(request.id not in snapshot.claims for request in snapshot.requests)
    yield Check("requests", "ok", f"{len(snapshot.requests)} on the bus, {untaken} of them not taken yet")
    root = session.pins().root
    if root is not None:
        how = "pinned" if root.vouched else "first use"
        level: Level = "warn" if root.note is not None or not root.vouched else "ok"
        remedy = None if root.vouched else "compare it with the host's owner, then: kakeya-mac init --root-key KEY"
        yield Check("owner", level, f"{root.root.owner} ({how}){f'; {root.note}' if root.note else ''}", remedy)
    elif record.attestation == "none" and not session.embedded:
        text = "results on this bus carry no signature: verify proves integrity, not origin"
        yield Check(
            "signatures", "warn", text, f"on the host: kakeya-runner keygen --bus {shlex.quote(session.bus.route)}"
        )


def _signing(session: BusSession) -> Iterator[Check]:
    """Say whether requests are signed, with what, and what is missing; tries the key."""
    from bridge.client.connection.signing import checked_by, identity_of

    who, checking = identity_of(session), checked_by(session)
    if who is not None:
        who.sign(b"a trial")
        checkers = f"checked by {', '.join(checking)}" if checking else "no runner here lists signers yet"
        text = f"requests are signed as {who.principal} with {who.fingerprint}; {checkers}"
        owner = None if checking else f"on the host: {who.trust_command}"
        yield Check("signing", "ok" if checking else "warn", text, owner)
    elif session.embedded:
        yield Check("signing", "ok", "requests are not signed: they stay on this machine")
    else:
        checkers = f", though {', '.join(checking)} would check a signature" if checking else ""
        text = f"requests are unsigned: they run the host's code only{checkers}"
        yield Check("signing", "warn" if checking else "ok", text, "kakeya-mac init --signing-key auto")


def _probe_push(session: BusSession) -> Iterator[Check]:
    """Push to the request namespace, look, remove, look again."""
    from bridge.client.send.push_trial import try_push

    began_s = session.clock.steady_s()
    trial = try_push(session)
    took_ms = (session.clock.steady_s() - began_s) * 1000
    if trial.refused is not None:
        yield Check("branches", "ok", f"{trial.refused} elsewhere: requests of this clone go to {trial.template}")
    if trial.left is None:
        yield Check("push", "ok", f"a probe branch was pushed and removed again in {took_ms:.0f} ms")
    else:
        text = f"pushing works; {trial.left} could not be removed, and the next probe uses it again"
        yield Check("push", "warn", text, f"git push {shlex.quote(session.bus.route)} :{trial.left}")


def _runners(session: BusSession) -> Iterator[Check]:
    runners = look(session.bus, session.record, session.clock.now())
    live = [runner for runner in runners if runner.live]
    if session.embedded:
        yield Check("runners", "ok", "the embedded runner starts with the first request")
    elif session.record.wake == "actions":
        yield Check("runners", "ok", "woken by pushed requests: none has to be awake")
    elif not live:
        last = (
            f"last seen {age_text(min(runner.age_s for runner in runners))} ago"
            if runners
            else "none has ever been seen"
        )
        doubted = len({refusal.runner for refusal in session.bus.refused if refusal.kind == "beacon"})
        if doubted and not runners:
            yield Check(
                "runners", "fail", f"no runner counts: {doubted} not signed by a key that counts here", DISTRUSTED
            )
        else:
            remedy = "on the host: kakeya-runner serve, kakeya-runner doctor"
            yield Check("runners", "fail", f"no live runner: {last}", remedy)
    for runner in live:
        beacon = runner.beacon
        unwell = beacon.disk_free_bytes < DISK_FLOOR_BYTES or beacon.state in {"paused", "draining"} or beacon.spooled
        level: Level = "warn" if unwell else "ok"
        free = f"{beacon.disk_free_bytes // 10**9} GB free"
        late = f", {len(beacon.spooled)} results it could not deliver yet" if beacon.spooled else ""
        why = f" ({beacon.not_taking})" if beacon.not_taking else ""
        text = f"{beacon.runner} is {beacon.state}{why}, {free}, {len(beacon.presets)} presets{late}"
        yield Check("runner", level, text, "on the host: kakeya-runner doctor" if level == "warn" else None)


def _clock(session: BusSession) -> Iterator[Check]:
    moments = {beacon.runner: parse_rfc3339(beacon.time) for _, beacon in session.bus.read_beacons()}
    yield check_clock(session.clock.now(), moments)


def _claims(session: BusSession) -> Iterator[Check]:
    """Say what on the bus does not count because of its signature: claims of waiting requests, and beacons."""
    snapshot = session.bus.snapshot()
    waiting = {ref.id for ref in snapshot.requests}
    tips = {run_id: oid for run_id, oid in snapshot.claims.items() if run_id in waiting}
    session.bus.newest_claims(tips, WorkBudget(CLAIM_FETCHES))
    for refusal in session.bus.refused:
        text = f"a {refusal.kind} in the name of {refusal.runner} at {refusal.ref} does not count: {refusal.why}"
        if refusal.revoked:
            yield Check("revoked", "warn", text, REVOKED_REMEDY)
            continue
        yield Check("forged", "warn", text, f"keep strangers from pushing there; {DISTRUSTED}")


def _hosting(environ: Mapping[str, str]) -> Callable[[BusSession], Iterator[Check]]:
    def hosting(session: BusSession) -> Iterator[Check]:
        """Say what the hosting site's API would add, on a bus that Actions wakes; git alone needs none of it."""
        if session.record.wake != "actions":
            return
        yield from check_place(session.bus.route, environ, ("runs", "runners", "cancel"))

    return hosting


def _state(session: BusSession) -> Iterator[Check]:
    folder = session.settings.state_dir
    probe = folder / ".doctor"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe.write_bytes(b"x")
        probe.unlink()
    except OSError as error:
        yield Check("results", "fail", f"{folder} cannot be written: {error.strerror}", f"make {folder} writable")
        return
    yield Check("results", "ok", f"kept in {session.settings.runs_dir}")
