"""Rules on claims: recomputed, physically possible, pooled over attempts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from bridge.gate.claims import claim_drafts
from bridge.gate.claims.workload import count_items, earlier_rows, rows_of
from bridge.gate.facts.earlier_attempts import left_out, standing_of
from bridge.gate.facts.launch_series import references, series_of
from bridge.gate.facts.roofline import forward_rate, most_flops
from bridge.gate.facts.samples import arms_of
from bridge.gate.interface import Evidence, Report, Skip, Violation
from bridge.gate.registry import rules
from bridge.gate.report_kinds import CODE_THROUGHPUT, PAIRED
from bridge.gate.rule import record_rule, report_rule
from bridge.gate.rules.workload import metric_problem
from bridge.launches.attempts import LOOK_DAYS, too_many_doubtful, too_many_unseen
from bridge.limits import ATTEMPTS_LISTED_COUNT
from bridge.records.jobspec import JobSpec
from bridge.records.run import Attempt, RunRecord
from bridge.records.workload import WorkloadDefinition

_BY_ITSELF: Final = ("G3", "G4", "G5")
_TRIED: Final = frozenset({"depth", "block_size"})
_RATE: Final = "baseline_tokens_per_s"


@report_rule("G4-CLAIM", "bound", remedy="Send rows that are all there; `kakeya-mac gate check` says what they give.")
def recompute_claims(report: Report, evidence: Evidence) -> Iterator[Violation]:
    """Every claim follows from the raw rows, and is a number that a verdict can hold.

    The seed's headline was an arithmetic mean of rates that contained the warm-up prompt. What a report claims itself
    is read nowhere.
    """
    try:
        claim_drafts(report, evidence)
    except ValueError as error:
        yield Violation(str(error), "/claims")


@report_rule("G5-PLAUSIBLE", "times", kinds=PAIRED, remedy="Use the fastest native baseline; check both arms' timers.")
def bound_speeds(report: Report, evidence: Evidence) -> Iterator[Violation]:
    """Speeds are possible: nothing is fifty times slower, no machine computes faster than its roofline.

    A rate above what the processors can multiply means a broken timer. A speed-up above 1.05 times the mean acceptance
    length says that a drafted forward costs less than a step of the baseline: fused kernels or captured graphs do that
    honestly, a handicapped baseline otherwise. G5-REFERENCE tells them apart where the host's own loop ran beside the
    baseline; where it did not, a note says what nobody compared.
    """
    found = {draft.id: draft for draft in claim_drafts(report, evidence)}
    speed, accepted = found.get("decode_speedup"), found.get("acceptance_length")
    profile = evidence.profile
    if speed is not None and speed.value is not None:
        if accepted is not None and report.kind == CODE_THROUGHPUT and not _beside_reference(report, evidence):
            length = float(accepted.detail["all_tokens"])
            if speed.value > float(profile["plausible_speedup_slack"]) * length:
                yield Violation(
                    f"{speed.value:.2f}x with {length:.2f} tokens per forward, and no reference of the host's own ran: "
                    "a forward of the candidate costs less than a step of the baseline, or the baseline is handicapped",
                    "/arms",
                    severity="note",
                )
        if speed.value < float(profile["plausible_speedup_min"]):
            yield Violation(f"{speed.value:.3f}x is a fault, not a measurement", "/arms")
    yield from _roofline(report, evidence)


def _beside_reference(report: Report, evidence: Evidence) -> bool:
    series = series_of(report, evidence)
    return series is not None and bool(references(series)[1])


def _roofline(report: Report, evidence: Evidence) -> Iterator[Violation]:
    most = most_flops(report, evidence)
    for arm, sample in arms_of(report, evidence).rows:
        seconds, tokens = sample["stages"]["decode_s"], sample["output_tokens"] - 1
        rows = tokens if sample["accepted_per_step"] is None else sample["counters"]["target_forwards"]
        if forward_rate(report, evidence, rows, seconds) > most:
            yield Violation(f"{rows} forwards in {seconds:.2e} s are beyond this machine", arm.pointer(sample))


@record_rule(
    "G5-ATTEMPTS",
    "attempts",
    severity="violation",
    remedy="Pool the attempts: judge with the earlier results beside this one, or change the code or the question.",
)
def require_pooled_attempts(record: RunRecord, evidence: Evidence) -> Iterator[Violation]:
    """From the second attempt within 30 days on, only the estimate pooled over all attempts is citable.

    The best of ten reruns of identical code is "faster" 22 % of the time. The runner counts; the earlier reports are
    read. One that was not this question, or that no gate would have let pass, is in no pool. An attempt that ended
    before it left a report is unseen: two of them bar nothing, since a run may be cancelled, three do.
    One of other code, or of a machine that slept or was not fit, is left out and named. One that lost times, inputs or
    outputs otherwise could have been spoilt by its own program: the claim is the interval that covers both with and
    without it, and the third of them bars the claim.
    The seeds of an owner's own program are pooled too, so a repeat that ended must have left a report that can be read;
    a share or count of one repeat has to come out as before.
    """
    if record.attempt is None:
        yield Violation("the runner did not count this attempt", "attempt")
    elif evidence.spec is None or evidence.spec.sitting is None:
        # A sitting stands by itself: whoever reads all of them sees whether one is missing between.
        yield from _earlier_attempts(evidence, record.attempt)
    if evidence.spec is not None:
        yield from _beside_a_ratio(evidence.spec)


def _beside_a_ratio(spec: JobSpec) -> Iterator[Violation]:
    """Yield why what stands beside a ratio is no claim of a run for an answer, or of one sitting: nobody counts it."""
    own, place, word = spec.workload, spec.sitting, spec.asked_word
    if own is not None:
        names = tuple(metric.name for metric in own.metrics if metric.aggregate != "ratio")
    else:
        names = (_RATE,) if spec.primary_claim == _RATE else ()
    if word is not None:
        why = f"it was asked whether it is {word.word}, and no number of it is counted; run it without --fail-if"
    elif place is not None:
        shown = "of which any could be shown: a set says ratios alone; run it with --profile claim"
        why = f"sitting {place.repeat + 1} of {place.count}, {shown}"
    else:
        return
    if names:
        yield Violation(why, "attempt", claims=names)


def _earlier_attempts(evidence: Evidence, attempt: Attempt) -> Iterator[Violation]:
    listed = min(attempt.number - 1, ATTEMPTS_LISTED_COUNT)
    if len(attempt.earlier) != listed or len(set(attempt.earlier)) != listed:
        yield Violation(
            f"attempt {attempt.number} with {len(attempt.earlier)} earlier ones", "attempt", severity="reject"
        )
    if evidence.run_id in attempt.earlier:
        yield Violation("this run is its own earlier attempt", "attempt", severity="reject")
    own = None if evidence.spec is None else evidence.spec.workload
    timed = any(report.value is not None and report.value["arms"] for report in evidence.reports)
    if not timed and own is None and not (evidence.record is not None and evidence.record.launches):
        return  # nothing timed, no seeds: repeating it changes nothing
    unseen = set(attempt.unseen)
    if not unseen <= set(attempt.earlier):
        yield Violation("an unseen attempt is no earlier one", "attempt", severity="reject")
    if too_many_unseen(len(unseen)):
        yield Violation(f"{len(unseen)} earlier attempts within {LOOK_DAYS} days left nothing to pool", "attempt")
    left = [one for one in attempt.earlier if one not in unseen and not left_out(one, evidence)]
    missing = [one for one in left if not _is_there(one, evidence, own)]
    count = len(missing) + attempt.number - 1 - listed
    if count:
        which = f"e.g. {missing[0]}" if missing else "as they are not listed"
        yield Violation(f"attempt {attempt.number}: {count} earlier attempts are not pooled, {which}", "attempt")
    yield from _too_many_doubtful(evidence)
    if own is not None:
        yield from _left_out(evidence, left, len(unseen))
        yield from _unlike_repeats(evidence, own)
        return
    ours = {report.path: report for report in evidence.reports if report.value is not None}
    for name, reports in evidence.earlier.items():
        for other in () if left_out(name, evidence) else reports:
            if other.value is None or other.path not in ours:
                continue
            why = _other_question(name, other, ours[other.path]) or _refusal(name, other, evidence)
            why = why or _spoilt(name, evidence)
            if why is not None:
                yield Violation(f"earlier attempt {name} cannot be pooled: {why}", "attempt", report=other.path)


def _spoilt(name: str, evidence: Evidence) -> str | None:
    """Return what an earlier attempt without launches lost, None when nothing: its samples are in no interval twice.

    That its times are its program's own word is so of every such attempt.
    """
    record, standing = evidence.earlier_records.get(name), standing_of(name, evidence)
    if (record is not None and record.launches) or standing.use != "doubtful":
        return None
    reasons = [reason for reason in standing.reasons if not reason.startswith("G4-TURNS")]
    return f"{standing.why}: {reasons[0]}" if reasons else None


def _too_many_doubtful(evidence: Evidence) -> Iterator[Violation]:
    """Yield attempts that lost what the claim rests on where there are so many that chance is no explanation.

    One that was cut is counted elsewhere.
    """
    whole = [
        name for name, record in evidence.earlier_records.items() if all(one.cut is None for one in record.launches)
    ]
    lost = [name for name in whole if name in evidence.earlier_verdicts]
    doubtful = [name for name in lost if standing_of(name, evidence).use == "doubtful"]
    if too_many_doubtful(len(doubtful)):
        said = f"{len(doubtful)} earlier attempts within {LOOK_DAYS} days lost what the claim rests on"
        yield Violation(f"{said}, e.g. {doubtful[0]}: {standing_of(doubtful[0], evidence).why}", "attempt")


def _is_there(name: str, evidence: Evidence, own: WorkloadDefinition | None) -> bool:
    """Whether what an earlier attempt left can be pooled."""
    if own is not None:
        return name in evidence.earlier_records and name in evidence.earlier_specs
    return name in evidence.earlier_records or any(report.value for report in evidence.earlier.get(name, ()))


def _left_out(evidence: Evidence, names: Sequence[str], unseen: int) -> Iterator[Violation]:
    """Yield repeats of earlier attempts of an owner's own program that are in no pool.

    One that ended well and left no report that can be read was thrown away. One that did not end may have been
    cancelled: its attempt is pooled with those that did, and counts with the attempts that left nothing.
    """
    rows, cut = earlier_rows(evidence), 0
    for name in names:
        spec, record = evidence.earlier_specs.get(name), evidence.earlier_records.get(name)
        if spec is None or record is None:
            continue
        asked = [one for one in spec.commands if one.folder is not None and not one.confirms]
        known = {row["path"].rpartition("/")[0] for row in rows.get(name, ())}
        ended = {one.name for one in record.commands if one.exit_code == 0}
        lost = [one for one in asked if one.folder not in known]
        gone = sum(one.name in ended for one in lost)
        cut += bool(lost) and not gone
        if gone:
            said = f"{gone} of {len(asked)} repeats ended and left no report that can be read"
            yield Violation(f"earlier attempt {name} cannot be pooled: {said}", "attempt")
    if cut and too_many_unseen(unseen + cut):
        said = f"{unseen + cut} earlier attempts within {LOOK_DAYS} days were cut before all their repeats had ended"
        yield Violation(said, "attempt")


def _unlike_repeats(evidence: Evidence, own: WorkloadDefinition) -> Iterator[Violation]:
    """Yield what earlier attempts of an owner's own program keep from being pooled.

    A share or count is of one repeat and in no pool: it has to come out as it did before.
    """
    mine = [row for report in evidence.reports if report.value is not None for row in rows_of(report)]
    for name, rows in earlier_rows(evidence).items():
        for metric in own.metrics if mine else ():
            if left_out(name, evidence, metric.name):
                continue
            wrong = next((said for row in rows if (said := metric_problem(metric, row["value"])) is not None), None)
            if wrong is not None:
                said = f"earlier attempt {name} cannot be pooled: {metric.name}: {wrong}"
                yield Violation(said, "attempt", claims=(metric.name,))
            elif metric.items is not None and metric_problem(metric, mine[0]["value"]) is None:
                now, then = (count_items(metric, one["value"]) for one in (mine[0], rows[0]))
                if now != then:
                    said = f"{metric.name} is {now[0]} of {now[1]}, in earlier attempt {name} {then[0]} of {then[1]}"
                    yield Violation(said, "attempt", claims=(metric.name,))


def _other_question(name: str, other: Report, ours: Report) -> str | None:
    """Return how an earlier report is not this question asked before, None when it is."""
    theirs, mine = _question(other), _question(ours)
    differs = sorted(part for part in mine if theirs[part] != mine[part])
    if other.body["run"]["id"] != name:
        return f"its report is of run {other.body['run']['id']}"
    if differs:
        return f"it has another {', '.join(differs)}"
    return "its rows are this run's own" if _stage_rows(other) == _stage_rows(ours) else None


def _question(report: Report) -> dict[str, Any]:
    body = report.body
    arms = [(arm["name"], arm["role"], arm["code_path"]) for arm in body["arms"]]
    where = {part: body["environment"][part] for part in ("backend", "device")}
    # Of one code and one parameter: where that leaves the depth to a trial, each attempt has the one it found.
    config = {part: value for part, value in body["config"].items() if part not in _TRIED}
    return {"kind": body["kind"], "config": config, "arms": arms, "environment": where}


def _stage_rows(report: Report) -> list[Any]:
    return [[sample["stages"] for sample in arm["samples"]] for arm in report.body["arms"]]


def _refusal(name: str, other: Report, evidence: Evidence) -> str | None:
    """Return what a rule of what a report says by itself refuses in an earlier one, None when nothing.

    Where turns were handed out, the report is of what was done in them: its record belongs to it.
    """
    record = evidence.earlier_records.get(name)
    stamped = record is not None and bool(record.launches)
    alone = Evidence(
        reports=(other,),
        record=record if stamped else None,
        spec=evidence.spec if stamped else None,
        profile=evidence.profile,
        run_id=name,
    )
    for code, entry in rules().items():
        if entry.layer not in _BY_ITSELF or code == "G5-ATTEMPTS":
            continue
        found = entry(alone)
        for violation in () if isinstance(found, Skip) else found:
            if (violation.severity or entry.severity) == "reject":
                return f"{code}: {violation.message}"
    return None
