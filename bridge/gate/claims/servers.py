"""The claims of inference servers beside the ratio: how soon they begin, how fast they go on, whether they agree.

The unit is a launch, one start of the servers: answers within one are not independent. Knows what the runner saw; a
server's own `usage` is in no number but where it says that two answers are of one length.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from bridge.gate.claims import CONFIDENCE, ClaimDraft, Role
from bridge.gate.claims.percentiles import Bounded, Percentiles
from bridge.gate.facts.served_answers import ARMS, Served, ServedAnswer, served_of
from bridge.gate.interface import Report
from bridge.gate.stats.binomial import rate_lower, rate_upper
from bridge.records.workload import MetricDefinition, WorkloadDefinition


def of_servers(
    metric: MetricDefinition, role: Role, report: Report, definition: WorkloadDefinition
) -> ClaimDraft | None:
    """Return a claim over what the runner saw of servers; None where it saw too little for one.

    Args:
        metric: of the definition.
        role: of the claim.
        report: of the runner.
        definition: of the workload.
    """
    served = served_of(report)
    if served is None or definition.servers is None:
        return None
    if metric.aggregate == "share":
        return _same_answers(metric, role, served)
    side, _, name = metric.name.partition("_")
    arms = ARMS if len(definition.servers.sides) == 1 else (side,)
    launches = served.by_launch([one for one in served.timed if one.arm in arms])
    if name == "memory":
        values = [float(seen[side]) for seen in served.rss_bytes if seen.get(side)]
        return _of_launches(metric, role, served, values)
    if name == "rate":
        return _of_launches(metric, role, served, [_rate(served, answers, arms) for answers in launches])
    observe = {
        "first_token": lambda one: one.first_s,
        "answer": lambda one: one.whole_s,
        "token": _next_s,
        "character": _next_s,
    }[name]
    seen = [[value for one in answers if (value := observe(one)) is not None] for answers in launches]
    return _of_answers(metric, role, served, [values for values in seen if values])


def _of_launches(metric: MetricDefinition, role: Role, served: Served, values: Sequence[float]) -> ClaimDraft | None:
    """Return the claim of a number of each launch."""
    if not values:
        return None
    number = Bounded.median_launch(values)
    return _claim(metric, role, served, number, f"{number.text(metric.unit)} over {len(values)} launches", len(values))


def _of_answers(
    metric: MetricDefinition, role: Role, served: Served, launches: Sequence[Sequence[float]]
) -> ClaimDraft | None:
    """Return the claim of a number of each answer."""
    if not launches:
        return None
    numbers = Percentiles.of(launches)
    over = f"{sum(map(len, launches))} answers of {len(launches)} launches"
    return _claim(metric, role, served, numbers.p50, f"{numbers.words(metric.unit)} over {over}", len(launches))


def _claim(  # noqa: PLR0917 - one place
    metric: MetricDefinition, role: Role, served: Served, number: Bounded, said: str, launches: int
) -> ClaimDraft:
    """Return a claim over launches."""
    delay = f"; the asker itself takes {statistics.median(served.asker_s) * 1e3:.2g} ms" if served.asker_s else ""
    unlike = f", {served.unlike[0]} of {served.unlike[1]} batches at unlike lengths" if served.unlike[0] else ""
    direction = "" if metric.better is None else f", {metric.better} is better"
    shown = f"{said}{direction}{unlike}{delay}"
    return ClaimDraft(
        id=metric.name,
        role=role,
        value=number.value,
        interval=number.interval,
        confidence=number.confidence,
        unit=metric.unit,
        n=launches,
        wording=f"{metric.name} {shown}",
        detail={"aggregate": metric.aggregate, "better": metric.better, "over": "launches", "summary": shown},
    )


def _same_answers(metric: MetricDefinition, role: Role, served: Served) -> ClaimDraft | None:
    """Return the share of prompts that both servers answered with the same text, and where they first part.

    Spaces before an answer count for nothing.
    """
    pairs = served.pairs()
    if not pairs:
        return None
    texts = [(first.compared, second.compared) for first, second in pairs]
    same = sum(first == second for first, second in texts)
    tail = 1.0 - (1.0 - CONFIDENCE) / 2.0
    interval = (rate_lower(same, len(pairs), tail), rate_upper(same, len(pairs), tail))
    parted = [_common_length(first, second) for first, second in texts if first != second]
    where = f"; the first difference after {min(parted)} characters" if parted else ""
    shown = (
        f"{same / len(pairs):.3f} [{interval[0]:.3f}, {interval[1]:.3f}] 95 %, {same} of {len(pairs)} prompts{where}"
    )
    return ClaimDraft(
        id=metric.name,
        role=role,
        value=same / len(pairs),
        interval=interval,
        confidence=CONFIDENCE,
        unit=metric.unit,
        n=len(pairs),
        wording=f"{metric.name} {shown}",
        detail={"aggregate": "share", "better": None, "over": "items", "summary": shown},
    )


def _rate(served: Served, answers: Sequence[ServedAnswer], arms: Sequence[str]) -> float:
    """Return the tokens or characters a second that a launch's turns came to, all requests at once."""
    launch = answers[0].launch
    wall_s = math.fsum(turn.wall_s for turn in served.turns if turn.launch == launch and turn.arm in arms)
    return sum(one.length for one in answers) / wall_s if wall_s > 0 else 0.0


def _next_s(answer: ServedAnswer) -> float | None:
    """Return the seconds a token or character after the first; None for an answer that has no more."""
    rest = answer.length - (len(answer.first_text) if answer.first_counted is None else answer.first_counted)
    return (answer.whole_s - answer.first_s) / rest if rest > 0 else None


def _common_length(text: str, other: str) -> int:
    """Return after how many characters two texts part."""
    return next(
        (place for place, (a, b) in enumerate(zip(text, other, strict=False)) if a != b), min(len(text), len(other))
    )
