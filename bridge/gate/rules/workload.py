"""Rules on an owner's own program: what it promised, what it is made of, its seeds, its recomputation, its pairs."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from bridge import strictjson
from bridge.gate.claims.workload import count_items, counts, earlier_rows, rows_of
from bridge.gate.facts.earlier_attempts import left_out
from bridge.gate.facts.launch_series import Series, incomparable, solo_ratios
from bridge.gate.facts.pair_series import processor_shares, series_named
from bridge.gate.interface import Evidence, Report, Violation
from bridge.gate.reports.workload import found_at, number_at
from bridge.gate.rule import report_rule
from bridge.gate.rules.launches import SLEPT_MOST_S, STUDIED, WORKED_LEAST, answered_only, one_of, unlike_drawn_loads
from bridge.launches.checks import is_clock, solo_disagrees, solo_unknown
from bridge.launches.stopping import decide, seconds_needed, stopping_point
from bridge.launches.wording import too_few
from bridge.records.jobspec import JobSpec
from bridge.records.run import RunRecord
from bridge.records.workload import KIND, ConfirmedMetric, MetricDefinition, WorkloadDefinition, seed_of, started_by

_OWN: Final = (KIND,)
_PAIR_LEAST_S: Final = 0.02
"""Below this a process is mostly its own start; the ratio would be that of two starts."""


@report_rule(
    "G4-METRICS",
    "bound",
    kinds=_OWN,
    remedy="Write what workload.toml declares: a finite number at the pointer, within the bounds.",
)
def require_metrics(report: Report, evidence: Evidence) -> Iterator[Violation]:
    """Every declared metric stands in every repeat's report where the owner said, and is possible.

    A number that is absent, not finite or out of the declared bounds is a fault of the program or of its declaration;
    either way nothing that the report says can be read.
    """
    definition = _definition(evidence)
    for metric in () if definition is None or definition.servers is not None else definition.metrics:
        for row in rows_of(report) if metric.aggregate != "ratio" else ():
            said = metric_problem(metric, row["value"])
            if said is not None:
                yield Violation(f"{metric.name}: {said}", row["path"])


def metric_problem(metric: MetricDefinition, value: Any) -> str | None:
    """Return what is wrong with a metric of one report, None when nothing is."""
    try:
        if metric.items is not None:
            listed = found_at(value, metric.items)
            if not isinstance(listed, list) or not listed:
                return f"{metric.items} holds no list of items"
            # Escaped, because a program may write half of a character, which has no bytes of UTF-8.
            distinct = {json.dumps(item, sort_keys=True) for item in listed}
            for item in listed:
                counts(item, metric.correct)
            whole = isinstance(listed[0], dict)
            return f"{len(listed) - len(distinct)} items occur twice" if whole and len(distinct) < len(listed) else None
        if metric.pointer is None:
            return None
        number = number_at(value, metric.pointer)
    except (KeyError, ValueError) as error:
        return str(error.args[0])
    low, high = metric.bounds or (-math.inf, math.inf)
    return None if low <= number <= high else f"{number:g} is outside of the declared bounds [{low:g}, {high:g}]"


@report_rule(
    "G2-PROGRAMS",
    "code",
    severity="violation",
    kinds=_OWN,
    remedy="Leave the workload's folder alone while it runs; restart the runner after you changed it.",
)
def identify_programs(_report: Report, evidence: Evidence) -> Iterator[Violation]:
    """Everything that ran is what the runner had read of the workload, digest by digest, just before it started.

    Folders, interpreter, installed packages and pinned inputs are digested as files. What an interpreter's standard
    library holds is known by the interpreter's own digest only.
    """
    definition, record, spec = _definition(evidence), evidence.record, evidence.spec
    if definition is None or record is None or spec is None or record.code is None:
        return
    now = {(one.role, one.path): one for one in record.code.programs}
    for one in definition.programs:
        found = now.get((one.role, one.path))
        if found is None:
            yield Violation(f"{one.role} {one.path} could not be read before the start", "programs")
        elif found != one:
            yield Violation(f"{one.role} {one.path} changed after the runner had read it", "programs")
    if not definition.programs:
        yield Violation("the workload names nothing that it is made of", "programs")
    yield from _unknown_programs(spec, definition)


def _unknown_programs(spec: JobSpec, definition: WorkloadDefinition) -> Iterator[Violation]:
    """Yield commands whose program is in none of the folders that were digested."""
    own = {one.path for one in definition.programs if one.role in {"timer", "reader"}}
    for command in spec.commands:
        argv = command.argv
        starts = len(argv) > 3 and argv[3] in own
        # Who times its own processes has to be the runner's program; who takes turns itself is also seen alone.
        own_word = command.launches is not None and command.launches.solo_s <= 0.0
        arms = list(started_by(argv)) if starts else [()] if own_word else [argv]
        for words in arms:
            if words[:1] == ("--@in",) and spec.base is not None and spec.tree is not None:
                continue  # the trees of two commits, which the job spec names
            if not _identified(words, definition):
                said = f"command {command.name} runs {' '.join(words[:2])!r}, which is not identified"
                yield Violation(said, command.name)


def _identified(words: tuple[str, ...], definition: WorkloadDefinition) -> bool:
    """Whether a command line is a digested program, or one of a digested folder, by itself or by an interpreter."""
    folders = [f"{one.path}/" for one in definition.programs if one.role == "folder"]
    words = words[:1] + words[2:] if words[1:2] and words[1].startswith("-") else words
    if words[:1] and words[0] in {one.path for one in definition.programs if one.role == "program"}:
        return True
    own = [any(word.startswith(folder) for folder in folders) for word in words[:2]]
    by_interpreter = any(one.role == "interpreter" for one in definition.programs)
    return own[:1] == [True] or (by_interpreter and own[1:2] == [True])


@report_rule(
    "G5-SEEDS", "inputs", kinds=_OWN, remedy="Keep spec.json as the runner wrote it; the runner makes the seeds."
)
def compare_seeds(_report: Report, evidence: Evidence) -> Iterator[Violation]:
    """The repeats ran with the seeds that follow from the request, one after the other.

    Who may choose seeds may choose the result. The id that they follow from is drawn where the request is made: a
    requester who has the program and tries many ids at home is seen by no rule.
    """
    spec = evidence.spec
    if spec is None or spec.seed_basis is None:
        return
    for command in spec.commands:
        if command.seed is not None and command.folder is not None:
            repeat = int(command.folder.rpartition("-")[2])
            if command.seed != seed_of(spec.seed_basis, repeat):
                yield Violation(f"seed {command.seed} is not that of repeat {repeat}", command.name)


@report_rule(
    "G2-CONFIRMED",
    "outputs",
    severity="violation",
    kinds=_OWN,
    remedy='Let the recompute command print one JSON object as its last line: {"METRIC": number}.',
)
def compare_recomputed_metrics(report: Report, evidence: Evidence) -> Iterator[Violation]:
    """What the workload's recompute command computes again, in another process, is what the report says.

    It is the owner's own second program: it shows that the number follows from what was kept, not that it is right.
    """
    definition, spec, record = _definition(evidence), evidence.spec, evidence.record
    if definition is None or spec is None or record is None or not definition.confirms:
        return
    yield from _unconfirmed(rows_of(report), spec, definition, record)
    for name, rows in earlier_rows(evidence).items():
        if left_out(name, evidence):
            continue
        for one in _unconfirmed(rows, spec, definition, evidence.earlier_records.get(name)):
            # That attempt was judged in its time; here it takes the premise from the number that pools it.
            yield replace(one, message=f"earlier attempt {name}: {one.message}"[:300], severity="violation")


def _unconfirmed(
    rows: Sequence[Mapping[str, Any]], spec: JobSpec, definition: WorkloadDefinition, record: RunRecord | None
) -> Iterator[Violation]:
    """Yield the numbers of repeats that the recompute command did not give again."""
    answers = {} if record is None else {one.name: one.answer for one in record.commands}
    for row in rows:
        folder = row["path"].rpartition("/")[0]
        command = next((one.name for one in spec.commands if one.confirms and one.folder == folder), "")
        answer = _answer(answers.get(command))
        for confirmed in definition.confirms:
            metric = next((one for one in definition.metrics if one.name == confirmed.name), None)
            if metric is not None and metric_problem(metric, row["value"]) is None:  # G4-METRICS says what is wrong
                yield from _compare(metric, confirmed, row, answer)


def _answer(line: str | None) -> Mapping[str, Any] | None:
    try:
        value = None if line is None else strictjson.decode(line.encode())
    except strictjson.StrictJsonError:
        return None
    return value if isinstance(value, dict) else None


def _compare(
    metric: MetricDefinition, confirmed: ConfirmedMetric, row: Mapping[str, Any], answer: Mapping[str, Any] | None
) -> Iterator[Violation]:
    name = metric.name
    again = None if answer is None else answer.get(name)
    if isinstance(again, bool) or not isinstance(again, int | float):
        said = "the recompute command's last line is no JSON object" if answer is None else "it names no such number"
        yield Violation(f"{name} was not computed again: {said}", row["path"], claims=(name,))
        return
    stated = _stated(metric, row["value"])
    if not abs(again - stated) <= confirmed.tolerance:
        yield Violation(
            f"{name} is {stated!r}, computed again {again!r}, at most {confirmed.tolerance:g} apart",
            row["path"],
            severity="reject",
            claims=(name,),
        )


def _stated(metric: MetricDefinition, value: Any) -> float:
    """Return what a repeat says of a metric, as its claim does: of a share of items the share."""
    if metric.pointer is not None:
        return number_at(value, metric.pointer)
    right, every = count_items(metric, value)
    return right / every if metric.aggregate == "share" else float(right)


@report_rule(
    "G5-PAIRS",
    "ratio",
    severity="violation",
    kinds=_OWN,
    remedy="Give the run the minutes it names; let one process of each program last 0.1 s or more.",
)
def require_pairs(_report: Report, evidence: Evidence) -> Iterator[Violation]:
    """Enough pairs of processes ran, they ended when the rule over launches says so, and each is longer than a start.

    The runner draws which program goes first, starts each as a process, and stamps it; the stamps are the data.
    """
    for name, record in _ratios(evidence):
        series = series_named(name, evidence, record)
        if series is None:
            yield Violation(f"no launch of {name} was recorded", "launches", claims=(name,))
            continue
        if evidence.spec is not None and evidence.spec.sitting is not None:
            yield Violation(one_of(evidence.spec.sitting), "launches", claims=(name,))
        elif series.plan.asks is not None:
            yield from answered_only(series, (name,))
        elif series.plan.load is not None:
            yield from unlike_drawn_loads(series, (name,))
        else:
            yield from _unlike_the_rule(name, series)
        shortest = min((t.done_s - t.go_s for one in series.counted for t in one.turns), default=math.inf)
        if shortest < _PAIR_LEAST_S:
            said = f"a turn lasted {shortest * 1000:.0f} ms, which is mostly its start"
            yield Violation(said, "launches", claims=(name,))


def _unlike_the_rule(name: str, series: Series) -> Iterator[Violation]:
    """Yield how the launches of a ratio are not those after which its rule stops."""
    if series.rule not in STUDIED:
        yield Violation(f"{name} followed a rule whose error rates nobody simulated: {series.rule}", claims=(name,))
    decision = decide(series.rule, series.launches)
    if decision.launches < series.rule.least:
        spent = [one.ended_s - one.started_s for one in series.counted]
        said = too_few(decision.launches, series.rule.least, seconds_needed(series.rule, spent))
        yield Violation(said, "launches", claims=(name,))
    end = stopping_point(series.rule, series.launches)
    if end is not None and end < len(series.launches):
        said = f"{len(series.launches)} launches finished a pair, the rule stops after {end}"
        yield Violation(said, "launches", severity="reject", claims=(name,))


@report_rule(
    "G3-WAIT4", "times", severity="violation", kinds=_OWN, remedy="Compare programs that compute, on a machine awake."
)
def require_work(_report: Report, evidence: Evidence) -> Iterator[Violation]:
    """Neither program mostly slept while the other worked, and the clock is one.

    wait4 says to the microsecond how long each process was on a processor; of a program that holds both sides the
    runner reads it while each side works alone, and what they take alone has to agree with their turns. A baseline that
    sleeps makes any candidate fast. A launch that its own program cut counts what the program had seen of it.
    """
    for name, record in _ratios(evidence):
        series = series_named(name, evidence, record)
        if series is None:
            continue
        shares = processor_shares(series)
        if shares is None:
            yield Violation("nobody collected the processor time of the processes", "launches", claims=(name,))
        elif min(shares) < WORKED_LEAST * max(shares):
            lazy = series.plan.arms[shares.index(min(shares))]
            said = f"{lazy} was on a processor {min(shares):.2f} of its time, the other {max(shares):.2f}"
            yield Violation(said, "launches", claims=(name,))
        if silent := incomparable(series):
            said = f"in {silent} of {len(series.counted)} launches a side put out nothing alone"
            yield Violation(said, "launches", claims=(name,))
        solo, turns = solo_ratios(series)
        if solo and solo_disagrees(solo, turns):
            yield Violation("what each side takes alone disagrees with its turns", "launches", claims=(name,))
        elif series.rule in STUDIED and len(solo) >= series.rule.least and solo_unknown(solo, turns):
            yield Violation("what each side takes alone scatters too much to agree", "launches", claims=(name,))
        for arm in series.plan.arms:
            if not is_clock([t.done_s - t.go_s for one in series.counted for t in one.turns if t.arm == arm]):
                yield Violation(f"times of {arm} repeat each other", "launches", claims=(name,))
        if any(one.slept_s > SLEPT_MOST_S for one in series.records):
            yield Violation("the machine slept meanwhile", "launches", claims=(name,))
        if said := series.cut_short():
            yield Violation(said, "launches", claims=(name,))


def _ratios(evidence: Evidence) -> list[tuple[str, RunRecord]]:
    definition, record = _definition(evidence), evidence.record
    if definition is None or record is None:
        return []
    return [(one.name, record) for one in definition.metrics if one.aggregate == "ratio"]


def _definition(evidence: Evidence) -> WorkloadDefinition | None:
    return None if evidence.spec is None else evidence.spec.workload
