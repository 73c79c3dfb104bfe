"""After a crash: end or go on with what this runner's own journal and claims say, once and at once.

The rule: a run that was only claimed may run; a run that was started is never run again. What it came to is judged and
published if it was kept, otherwise the run is finalised as ``runner_lost``; a result that was built is published as is.
"""

from __future__ import annotations

import shutil
from collections.abc import Container, Mapping
from dataclasses import dataclass
from typing import get_args

from bridge.bus.views import ClaimView, HeldClaim, RequestRef
from bridge.errors import BusError, FencedError, InfrastructureError
from bridge.records import Reason
from bridge.run.outcomes import Ending
from bridge.runner.connection.link import BusLink
from bridge.runner.host import Host
from bridge.runner.run.delivery import copy, deliver, terminal_claim
from bridge.runner.run.notifications import debtor, tell_late
from bridge.runner.state import kept
from bridge.runner.state.journal import JournalLine


@dataclass(frozen=True)
class Unfinished:
    """A run of ours that still has to go somewhere.

    Attributes:
        resume: whether it may run: it was claimed and certainly never started.
    """

    ref: RequestRef
    view: ClaimView
    resume: bool


def kill_leftovers(host: Host) -> None:
    """Kill whatever an earlier runner of this name left running, then remove the directories it left."""
    for run_id in host.journal.open_runs():
        for line in host.journal.of(run_id):
            if line.event == "process":
                pid, started, marker = (line.detail.get(name) for name in ("pid", "started", "marker"))
                killed = host.executor.kill_leftovers(int(pid or 0), float(started or 0.0), str(marker))
                if killed:
                    host.say(f"{run_id[-8:]} killed {killed} processes that an earlier runner left behind")
    for left in host.state.runs.iterdir():  # the lock is ours, so nothing runs in them; what counts is in `kept`
        shutil.rmtree(left, ignore_errors=True)


def recover(
    host: Host, link: BusLink, refs: Mapping[str, RequestRef], claims: Mapping[str, str], active: Container[str] = ()
) -> list[Unfinished]:
    """Settle what the journal can settle, and return what still needs a session.

    Args:
        host: whose journal is asked.
        link: the bus.
        refs: request branches by run id, as listed.
        claims: claim tips by run id, as listed.
        active: runs that are going on right now.
    """
    unfinished: list[Unfinished] = []
    for run_id in host.journal.open_runs():
        if run_id in active or _tell_of_delivered(host, link, run_id):
            continue
        if run_id not in claims:
            if run_id not in refs:
                host.journal.append("fenced", run_id)  # neither asked for nor claimed any more
            continue
        try:
            with link.lock:
                view = link.bus.read_claim(run_id, claims[run_id])
                if view is not None and view.signature.refused:
                    view = _last_own(host, link, run_id) or view  # displaced while this runner was down
            if view is None or not _ours(host, run_id, view):
                if any(line.event == "exited" for line in host.journal.of(run_id)):
                    host.say(f"{run_id[-8:]} came to its end here, but too late: another runner has ended it meanwhile")
                host.journal.append("fenced", run_id, claims[run_id])
            else:
                unfinished += _settle(host, link, run_id, refs.get(run_id), view)
        except FencedError:
            host.journal.append("fenced", run_id)
        except InfrastructureError as error:
            host.say(f"{run_id[-8:]} cannot be recovered yet: {error.message}")
    return unfinished


def saved(host: Host, *, run_id: str, oid: str) -> kept.KeptRun | None:
    """Return what a run came to before its runner died, or None when it is not known.

    Args:
        host: whose state is looked at.
        run_id: the run.
        oid: the request commit as it was claimed.
    """
    exits = [line.detail.get("kept_sha256") for line in host.journal.of(run_id) if line.event == "exited"]
    found = kept.load(host.state.kept, run_id, str(exits[-1]) if exits and exits[-1] is not None else None)
    return found if found is not None and found.request_oid == oid else None


def _ours(host: Host, run_id: str, view: ClaimView) -> bool:
    """Return whether a claim is this journal's: another host may use the same name, never the same nonce."""
    nonces = {line.detail.get("nonce") for line in host.journal.of(run_id) if line.event == "fetched"}
    return view.claim.runner == host.name and any(claim.nonce in nonces for claim in view.history)


def _last_own(host: Host, link: BusLink, run_id: str) -> ClaimView | None:
    """Return the claim of ours that the journal saw last, None when nothing here holds it any more."""
    oids = [line.oid for line in host.journal.of(run_id) if line.event in {"claimed", "started"} and line.oid]
    try:
        return link.bus.read_claim(run_id, oids[-1]) if oids else None
    except BusError:
        return None


def _settle(host: Host, link: BusLink, run_id: str, listed: RequestRef | None, view: ClaimView) -> list[Unfinished]:
    lines = host.journal.of(run_id)
    built = next((line for line in reversed(lines) if line.event == "result_built"), None)
    ref = _reference(run_id, listed, view, built)
    events = {line.event for line in lines}
    if view.claim.state == "terminal":
        if "terminal" not in events:
            host.journal.append("terminal", run_id, view.oid)
        if "copied" not in events and built is not None:
            copy(host, link, ref, view.claim.result_oid, tries=1)
            _tell_of_delivered(host, link, run_id)
        return []
    if built is not None and built.oid is not None:
        held = HeldClaim(view.oid, view.claim, view.chain)
        claim = terminal_claim(held, host, _ending(built), built.oid)
        deliver(host, link, ref, held, claim, tries=1)
        _tell_of_delivered(host, link, run_id)
        return []
    return [Unfinished(ref, view, resume=view.claim.state == "claimed" and "started" not in events)]


def _tell_of_delivered(host: Host, link: BusLink, run_id: str) -> bool:
    """Tell of a run whose result is delivered and not told of; return whether it is such a run.

    The journal alone decides: the claim of a run that ended long ago may be gone.
    """
    lines = {line.event: line for line in host.journal.of(run_id)}
    copied, built = lines.get("copied"), lines.get("result_built")
    if copied is None or copied.oid is None or built is None:
        return False
    tell_late(host, link, debtor(copied), _ending(built), copied.oid)
    return True


def _reference(run_id: str, listed: RequestRef | None, view: ClaimView, built: JournalLine | None) -> RequestRef:
    """Return the request as it was claimed: a branch that moved since is another request."""
    name = listed.ref if listed is not None else str(built.detail.get("ref", "")) if built is not None else ""
    return RequestRef(id=run_id, ref=name, oid=view.claim.request_oid)


def _ending(built: JournalLine) -> Ending:
    message = built.detail.get("message")
    said = None if message is None else str(message)
    known: Reason
    for known in get_args(Reason):
        if known == built.detail.get("reason"):
            return Ending(known, said)
    return Ending("infrastructure", said)
