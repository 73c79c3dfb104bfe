"""Rules on inference servers: who they are, whether one worked in the other's turns, whether any could be prepared."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Final

from bridge.gate.claims.workload import mean_interval
from bridge.gate.facts.served_answers import ARMS, CONTINUED, NEITHER, PINNED, WHOLE, Served, ServedAnswer, served_of
from bridge.gate.interface import Evidence, Report, Violation
from bridge.gate.rule import report_rule
from bridge.gate.stats.binomial import rate_upper
from bridge.records.workload import KIND, ServersDefinition

_OWN: Final = (KIND,)
IDLE_MOST: Final = 0.1
"""Of a processor, that a server may use while it is not asked: an event loop that polls takes some thousandths."""
POLLING_MOST: Final = 0.03
"""On a machine so busy that nobody gets much of a processor: there half of what the asked one got is too much."""
APART_MOST: Final = math.log(1.1)
FIRST_LEAST: Final = 0.9
STREAMED_LEAST: Final = 0.98
STREAMED_CONFIDENCE: Final = 0.9
"""One answer a launch is asked for again without streaming: of eight, two that begin otherwise are too many."""
ALONE_MOST: Final = math.log(2.0)
"""Between unlike prompts of one server: some take longer to read than others."""
STATED_SHARE: Final = 0.02
"""Of all tokens, beside one an answer: what is cut anew may be cut a little otherwise, and an end may be counted."""
CONFIDENCE: Final = 0.98
_BROKEN: Final = "\ufffd"
"""What stands for a part of a character."""


@report_rule(
    "G2-ENDPOINT",
    "code",
    severity="violation",
    kinds=_OWN,
    remedy="Let the runner start the server: command = [...] in [servers] in the place of endpoint.",
)
def require_a_started_server(_report: Report, evidence: Evidence) -> Iterator[Violation]:
    """The runner started the servers that it asked, from files that it had digested.

    Of a server that ran before nobody saw which program it is, with which weights, or what it had been asked.
    """
    servers = _servers(evidence)
    if servers is not None and servers.endpoint:
        yield Violation("the server ran before: nobody saw what runs there", "servers")


@report_rule(
    "G3-APART",
    "times",
    severity="violation",
    kinds=_OWN,
    remedy="Measure servers that wait while they are not asked; end what else a server starts.",
)
def require_idle_servers(report: Report, evidence: Evidence) -> Iterator[Violation]:
    """While one server is asked, the other one rests, and so does every other process of the run.

    A server that works in the other's turns makes it slower and itself look faster. The runner reads the processor time
    of each server's processes before and after every turn; what belongs to neither counts as the other's.
    """
    served = _served(report, evidence)
    if served is None:
        return
    if not served.turns or not all(turn.cpu_s for turn in served.turns):
        yield Violation("nobody read which server was on a processor in whose turns", "turns")
        return
    for arm in ARMS:
        turns = [turn for turn in served.turns if turn.arm == arm]
        others = {name for turn in turns for name in turn.cpu_s} - {arm}
        wall_s = math.fsum(turn.wall_s for turn in turns)
        for other in sorted(others) if len(_sides(evidence)) > 1 else [NEITHER]:
            busy = math.fsum(turn.cpu_s.get(other, 0.0) for turn in turns) / wall_s if wall_s > 0 else math.inf
            working = math.fsum(turn.cpu_s.get(arm, 0.0) for turn in turns) / wall_s if wall_s > 0 else 0.0
            if busy > min(IDLE_MOST, max(POLLING_MOST, working / 2)):
                whose = "processes of neither server" if other == NEITHER else other
                yield Violation(f"{whose} took {busy:.2f} of a processor while {arm} was asked", "turns")


@report_rule(
    "G5-UNKNOWN",
    "inputs",
    severity="violation",
    kinds=_OWN,
    remedy="Measure a server that computes its answers; a cache of whole answers is measured with other prompts.",
)
def compare_prompts_nobody_knew(report: Report, evidence: Evidence) -> Iterator[Violation]:
    """Prompts that nobody could know, or that were asked before, are answered no faster or slower than the others.

    Half of the prompts go on with a text that was made at temperature 1 after the servers had started, and one batch a
    launch is asked again behind another line. A server with prepared or kept answers is quick at one and not at the
    other. More than 10 % apart beyond the interval over launches takes the premise; too few launches take it as well.
    Of a server alone the two halves are unlike prompts: there twice as quick is too quick.
    """
    served = _served(report, evidence)
    if served is None:
        return
    halves = [pinned - continued for pinned, continued in served.half_log_ratios()]
    if len(_sides(evidence)) > 1:
        yield from _apart("pinned prompts against those that nobody could know", halves, both_ways=True)
    else:
        paces = mean_interval(served.pace_log_ratios(), CONFIDENCE)
        if paces is not None and paces[1] < -ALONE_MOST:
            times = f"{math.exp(paces[0]):.2f} to {math.exp(paces[1]):.2f}"
            yield Violation(f"pinned prompts take {times} times as long as those that nobody could know")
    for arm in ARMS:
        yield from _apart(f"{arm} asked again behind another line", served.repeat_log_ratios(arm), both_ways=False)


@report_rule(
    "G4-SERVED",
    "outputs",
    severity="violation",
    kinds=_OWN,
    remedy="Ask for prompts that the servers answer at full length; repair what ends or miscounts answers.",
)
def recount_served_answers(report: Report, evidence: Evidence) -> Iterator[Violation]:
    """Answers are whole, end once, begin alike with and without streaming, and hold the tokens that are stated.

    Stated tokens are those that the host's tokenizer counts, and no more than the answer has bytes; without a tokenizer
    two servers of the same weights state as many for a text. Of such servers most answers begin with the same text, in
    both halves of the prompts, and where the host has the target itself, with what it begins with; spaces before an
    answer count for nothing, as some servers drop them. A request that failed is in no number, so a server that refuses
    what is slow would look fast.
    """
    served = _served(report, evidence)
    if served is None:
        return
    yield from _whole(served)
    yield from _counted(served)
    yield from _begun_in_a_stream(served)
    yield from _begun_as_the_target(served)
    servers = _servers(evidence)
    if servers is not None and servers.same_weights:
        yield from _of_the_same_weights(served)


def _whole(served: Served) -> Iterator[Violation]:
    """Yield that requests failed, or that answers hold nothing or end more than once."""
    failed = [one for one in served.answers if one.error is not None]
    if failed:
        yield Violation(
            f"{len(failed)} of {len(served.answers)} requests failed, e.g. {failed[0].arm}: {failed[0].error}"
        )
    blank = [one for one in served.timed if not one.text.strip()]
    if blank:
        yield Violation(f"{len(blank)} of {len(served.timed)} answers hold no text, e.g. of {blank[0].arm}")
    ended = next((one for one in served.answers if (one.ends or 0) > 1), None)
    if ended is not None:
        yield Violation(f"{ended.arm} puts {ended.ends} end tokens into an answer")


def _counted(served: Served) -> Iterator[Violation]:
    """Yield that a server states more or fewer tokens than its answers hold."""
    many = next((one for one in served.timed if (one.tokens or 0) > len(one.text.encode()) + 1), None)
    if many is not None and many.counted is None:
        yield Violation(f"{many.arm} states {many.tokens} tokens for {len(many.text.encode())} bytes of text")
    other = next((one for one in served.timed if _miscounted(one)), None)
    if other is not None:
        yield Violation(f"{other.arm} states {other.tokens} tokens for a text of {other.counted}")
    for arm in ARMS:
        both = [(one.tokens, one.counted) for one in served.timed if one.arm == arm]
        pairs = [(tokens, counted) for tokens, counted in both if tokens is not None and counted is not None]
        stated, counted = (sum(pair[side] for pair in pairs) for side in (0, 1))
        if abs(stated - counted) > len(pairs) + STATED_SHARE * counted:
            yield Violation(f"{arm} states {stated} tokens in all for texts of {counted}")


def _begun_in_a_stream(served: Served) -> Iterator[Violation]:
    """Yield that a server's answers begin otherwise without streaming.

    Alone it computes in other shapes than among others, and may part from itself at a near tie, as two servers may.
    """
    streamed = {
        (answer.arm, *answer.place): answer for answer in served.answers if answer.half != WHOLE and not answer.again
    }
    for arm in ARMS:
        wholes = [
            answer for answer in served.answers if answer.arm == arm and answer.half == WHOLE and answer.error is None
        ]
        pairs = [(whole, streamed[arm, *whole.place]) for whole in wholes if (arm, *whole.place) in streamed]
        other = len(pairs) - sum(_begin_alike(*pair) for pair in pairs)
        if pairs and rate_upper(len(pairs) - other, len(pairs), STREAMED_CONFIDENCE) < STREAMED_LEAST:
            yield Violation(f"{arm} begins otherwise without streaming in {other} of {len(pairs)} launches")


def _begun_as_the_target(served: Served) -> Iterator[Violation]:
    """Yield that a server's answers begin otherwise than those of the host's own target."""
    for arm in ARMS:
        begun = [one for one in served.answers if one.arm == arm and one.error is None and one.begins]
        same = sum(_begins_as(one.begins or "", one) for one in begun)
        if begun and rate_upper(same, len(begun), 0.99) < FIRST_LEAST:
            yield Violation(f"{same} of {len(begun)} answers of {arm} begin as the host's own target does")


def _of_the_same_weights(served: Served) -> Iterator[Violation]:
    """Yield that two servers of the same weights begin otherwise, or state other lengths for a text."""
    if all(one.counted is None for one in served.timed):
        stated = mean_interval(served.stated_log_ratios(), CONFIDENCE)
        if stated is not None and (stated[0] > APART_MOST or stated[1] < -APART_MOST):
            times = f"{math.exp(stated[0]):.2f} to {math.exp(stated[1]):.2f}"
            yield Violation(f"for as many stated tokens candidate's text is {times} times as long as baseline's")
    for half in (PINNED, CONTINUED):
        pairs = served.pairs(half)
        same = sum(_begin_alike(*pair) for pair in pairs)
        if pairs and rate_upper(same, len(pairs), 0.99) < FIRST_LEAST:
            yield Violation(f"{same} of {len(pairs)} {half} prompts are answered with the same first text")


def _apart(what: str, logs: Sequence[float], *, both_ways: bool) -> Iterator[Violation]:
    """Yield that a log ratio over launches is more than a tenth from nothing, or that too few launches have one."""
    interval = mean_interval(logs, CONFIDENCE)
    if interval is None:
        yield Violation(f"{what}: {len(logs)} launches have such times, which is too few to compare")
    elif interval[1] < -APART_MOST or (both_ways and interval[0] > APART_MOST):
        shown = f"{math.exp(sum(logs) / len(logs)):.2f}x [{math.exp(interval[0]):.2f}, {math.exp(interval[1]):.2f}]"
        yield Violation(f"{what}: the time is {shown}")


def _miscounted(answer: ServedAnswer) -> bool:
    """Whether stated tokens are not those of the text; what is cut anew may be cut a little otherwise."""
    if answer.tokens is None or answer.counted is None:
        return False
    return abs(answer.tokens - answer.counted) > 2 + 0.1 * answer.counted


def _begins_as(beginning: str, answer: ServedAnswer) -> bool:
    """Whether an answer begins with a text, or with a part of it."""
    texts = sorted((beginning.rstrip(_BROKEN).lstrip(" "), answer.compared_first), key=len)
    return texts[1].startswith(texts[0])


def _begin_alike(one: ServedAnswer, other: ServedAnswer) -> bool:
    """Whether one answer begins with the first text of the other: a first chunk may hold one token or several."""
    texts = sorted((one.compared_first, other.compared_first), key=len)
    return bool(texts[0]) and texts[1].startswith(texts[0])


def _servers(evidence: Evidence) -> ServersDefinition | None:
    definition = None if evidence.spec is None else evidence.spec.workload
    return None if definition is None else definition.servers


def _sides(evidence: Evidence) -> tuple[str, ...]:
    servers = _servers(evidence)
    return () if servers is None else servers.sides


def _served(report: Report, evidence: Evidence) -> Served | None:
    return None if _servers(evidence) is None else served_of(report)
