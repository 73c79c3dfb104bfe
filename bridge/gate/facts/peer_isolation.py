"""What it takes to believe a measurement of code that nobody trusts: everything that counts was done out of its reach.

Two users in two sandboxes, prompts that follow from a nonce of the runner's, a peer that stood still while the host
measured itself, and every token the same as the oracle's. Reads facts of the executor and of host code alone.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any, Final

from bridge import strictjson
from bridge.gate.facts.samples import Arms, arms_of
from bridge.gate.interface import Evidence, Report, Violation
from bridge.gate.report_kinds import REQUEST_CODE
from bridge.records.jobspec import JobSpec
from bridge.records.run import CommandResult, PeerRecord, RunRecord, SandboxApplied

MEMBERS: Final = 6
NAMESPACES: Final = ("user", "pid", "ipc", "net", "uts", "mount")
FILTERS: Final = ("no new privileges", "no capabilities")
KILLED_WITHIN_S: Final = 20.0
HEADER: Final = (
    'class {title}:\n    """Hold one {noun}: {members}.\n\n'
    "    Parts: __init__, to_dict, from_dict, __repr__, __eq__, update.\n"
    '    """\n\n    fields = ({quoted})'
)


def made_by_runner(evidence: Evidence) -> bool:
    """Whether every report was made by host code about request code that could do nothing but answer."""
    reports = evidence.reports
    if not reports or any(report.value is None or report.kind != REQUEST_CODE for report in reports):
        return False
    return not any(violation for report in reports for violation in problems(report, evidence))


def problems(report: Report, evidence: Evidence) -> tuple[Violation, ...]:
    """Return what is missing, once; without record and job spec nothing is known to be there."""
    return evidence.derived(("peer isolation", report.path), lambda: tuple(_problems(report, evidence)))


def _problems(report: Report, evidence: Evidence) -> Iterator[Violation]:
    record, spec, arms = evidence.record, evidence.spec, arms_of(report, evidence)
    if record is None or spec is None:
        yield Violation("no RunRecord or no JobSpec says who was kept apart from whom")
        return
    yield from _commands(spec)
    yield from _apart(record, spec)
    yield from _peers(record, spec)
    yield from _drawn(report, record, arms)
    yield from _held(record, arms, float(evidence.profile["marks_outlier_max_s"]))
    yield from _tokens(arms)
    yield from _earlier(report, evidence)


def draw(nonce: str, number: int, words: list[str]) -> str:
    """Return the text that the engine draws for a prompt; a test holds the two together."""
    left, drawn = list(words), []
    for place in range(MEMBERS + 1):
        value = int.from_bytes(hashlib.sha256(f"{nonce}/{number}/{place}".encode()).digest(), "big")
        drawn.append(left.pop(value % len(left)))
    noun, members = drawn[0], drawn[1:]
    quoted = ", ".join(f'"{member}"' for member in members)
    return HEADER.format(title=noun.capitalize(), noun=noun, members=", ".join(members), quoted=quoted)


def _commands(spec: JobSpec) -> Iterator[Violation]:
    """Everything that can write a report is the host's isolated engine."""
    for command in spec.commands:
        if command.argv[1:4] != ("-I", "-m", "engine.cli"):
            yield Violation(f"command {command.name} is not the host's own engine", command.name)


def _apart(record: RunRecord, spec: JobSpec) -> Iterator[Violation]:
    if spec.sandbox.mode != "required":
        yield Violation(f"the sandbox is {spec.sandbox.mode}, expected required", "sandbox.mode")
    yield from _confined("the command", record.sandbox, spec.sandbox.uid)
    for peer in record.peers:
        yield from _confined(f"the peer of {peer.command}", peer.sandbox, spec.sandbox.peer_uid)
        if peer.sandbox.uid == record.sandbox.uid:
            yield Violation(f"the peer of {peer.command} ran as user {peer.sandbox.uid}, and so did what measured it")
        if peer.survivors:
            yield Violation(f"{peer.survivors} processes of the peer of {peer.command} could not be killed")


def _confined(who: str, applied: SandboxApplied, uid: int | None) -> Iterator[Violation]:
    whole = set(NAMESPACES) <= set(applied.namespaces) and set(FILTERS) <= set(applied.filters)
    if applied.kind != "bwrap" or applied.network or not whole:
        yield Violation(f"{who} was not confined: {applied.kind}, network {applied.network}", "sandbox")
    if uid is None or uid <= 0 or applied.uid != uid:
        yield Violation(f"{who} ran as user {applied.uid}, expected {uid}, an ordinary user", "sandbox.uid")


def _peers(record: RunRecord, spec: JobSpec) -> Iterator[Violation]:
    wanted = [(command.name, command.peer) for command in spec.commands if command.peer is not None]
    if not wanted or [(peer.command, peer.argv) for peer in record.peers] != wanted:
        got = [peer.command for peer in record.peers]
        yield Violation(f"peers answered {got}, the job spec says {[name for name, _ in wanted]}", "peers")
    text = strictjson.encode(spec.model_dump(mode="json")).decode()
    for peer in record.peers:
        if peer.nonce in text or peer.nonce == record.request_digest:
            yield Violation(f"the nonce of {peer.command} was known before the run", "peers")
    if len({peer.nonce for peer in record.peers}) != len(record.peers):
        yield Violation("two launches have the same nonce", "peers")
    began = {command.name: command for command in record.commands}
    for peer in record.peers:
        command = began.get(peer.command)
        if command is None or not _overlap(peer, command):
            yield Violation(f"the peer of {peer.command} did not run beside it", "peers")


def _overlap(peer: PeerRecord, command: CommandResult) -> bool:
    """Whether a peer ran beside its command, and not much longer: it is killed when that has ended."""
    return peer.started_s <= peer.ended_s <= command.ended_s + KILLED_WITHIN_S and peer.started_s <= command.ended_s


def _drawn(report: Report, record: RunRecord, arms: Arms) -> Iterator[Violation]:
    """What was asked follows from the nonces, which the request's author could not know."""
    rows = report.body["rows"]
    words = rows["words"]
    if words != sorted(set(words)):
        yield Violation("the words are not sorted, each once", "/rows/words")
        return
    launches = rows["launches"]
    nonces = [(number, peer.nonce) for number, peer in enumerate(record.peers)]
    if [(launch["launch"], launch["nonce"]) for launch in launches] != nonces:
        yield Violation("launches and nonces are not the runner's", "/rows/launches")
        return
    for place, launch in enumerate(launches):
        where = f"/rows/launches/{place}"
        texts = [prompt["text"] for prompt in launch["prompts"]]
        if texts != [draw(launch["nonce"], number, words) for number in range(len(texts))]:
            yield Violation("the prompts do not follow from the nonce", where)
        names = [f"nonce-{place}-{number:03d}" for number in range(len(texts))]
        if [prompt["id"] for prompt in launch["prompts"]] != names:
            yield Violation("the prompts are not numbered", where)
        asked = {sample["prompt_id"] for arm in arms.all for sample in arm.samples if sample["launch"] == place}
        if asked != set(names):
            yield Violation(f"{len(asked)} prompts were asked, {len(set(names))} were drawn", where)


def _held(record: RunRecord, arms: Arms, late_s: float) -> Iterator[Violation]:
    """The peer stood still whenever the host measured itself: a busy peer would slow the baseline down.

    A span is at least as long as its one sample and holds its start; the last mark may be stamped late, as G4-MARKS
    allows it of any mark.
    """
    spans = sorted(span for peer in record.peers for span in peer.held)
    marks: dict[str, dict[str, float]] = {}
    for mark in record.sample_marks:
        marks.setdefault(mark.sample, {})[mark.event] = mark.t_s
    taken: set[tuple[float, float]] = set()
    free = []
    for sample in (sample for arm in arms.reference for sample in arm.samples):
        seen = marks.get(sample["id"], {})
        start, end = seen.get("start", -1.0), seen.get("end", -1.0)
        span = next((one for one in spans if one[0] <= start <= one[1]), None)
        whole = span is not None and end <= span[1] + late_s and sample["stages"]["total_s"] <= span[1] - span[0]
        if span is None or span in taken or not whole:
            free.append(sample["id"])
        else:
            taken.add(span)
    if free:
        yield Violation(
            f"the peer could run during {len(free)} samples of the host's own, e.g. {free[0]}",
            "peers",
            severity="violation",
            premise="times",
        )


def _tokens(arms: Arms) -> Iterator[Violation]:
    """Every answer, warm-ups too, is what the host's own native decoding gives."""
    oracle: dict[str, Any] = {}
    for arm in arms.reference:
        for sample in arm.samples:
            oracle.setdefault(sample["prompt_id"], sample["tokens"])
    peer = arms.candidate
    wrong = [s["prompt_id"] for s in peer.samples if s["tokens"] != oracle.get(s["prompt_id"])] if peer else ["all"]
    if wrong:
        yield Violation(
            f"{len(wrong)} answers are not the oracle's, e.g. to {wrong[0]}",
            "/arms",
            severity="violation",
            premise="outputs",
        )


def _earlier(report: Report, evidence: Evidence) -> Iterator[Violation]:
    """Earlier attempts are pooled into the claim, so that their answers count as much."""
    for name, reports in evidence.earlier.items():
        for other in reports:
            if other.value is not None and (other.path, other.kind) == (report.path, report.kind):
                for violation in _tokens(arms_of(other, evidence)):
                    said = f"earlier attempt {name}: {violation.message}"
                    yield Violation(said, severity=violation.severity, premise="attempts")
