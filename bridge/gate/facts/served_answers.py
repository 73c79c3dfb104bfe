"""What the runner saw of inference servers: each answer with its times, each turn with who worked, by launch.

The runner wrote it, not a program; knows shapes and sums, and nothing of what may be said of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from bridge.gate.interface import Report
from bridge.gate.reports.workload import NAME

ARMS: Final = ("baseline", "candidate")
PINNED: Final = "pinned"
CONTINUED: Final = "continued"
WHOLE: Final = "whole"
NEITHER: Final = "neither"


@dataclass(frozen=True)
class ServedAnswer:
    """One answer of one server.

    Attributes:
        arm: which server was asked.
        half: whether its prompt was pinned, or continued by a text that nobody could know; `whole` without streaming.
        again: whether the prompt had been asked behind another line, outside of the ratio.
        first_s: to the first chunk whose text is not blank.
        tokens: as the server states it, None where it does not.
        counted, first_counted: tokens of both texts by the host's tokenizer; None where no tokenizer is named.
        ends: how many of its tokens end an answer; None where no tokenizer is named.
        begins: what the host's own target begins with, of the first answer of a batch; None where nobody asked it.
        error: why there is no whole answer, None where there is one.
    """

    launch: int
    turn: int
    arm: str
    sample: int
    stream: int
    half: str
    again: bool
    text: str
    first_text: str
    first_s: float
    whole_s: float
    tokens: int | None
    counted: int | None
    first_counted: int | None
    ends: int | None
    begins: str | None
    error: str | None

    @property
    def length(self) -> int:
        """Tokens as counted, else characters."""
        return len(self.text) if self.counted is None else self.counted

    @property
    def compared(self) -> str:
        """The text without spaces before it: some servers, mlx_lm's for one, drop them."""
        return self.text.lstrip(" ")

    @property
    def compared_first(self) -> str:
        """The first text, else all of it, without spaces before it."""
        return (self.first_text or self.text).lstrip(" ")

    @property
    def place(self) -> tuple[int, int, int]:
        """What both servers were asked alike."""
        return self.launch, self.sample, self.stream


@dataclass(frozen=True)
class ServedTurn:
    """One turn: who was asked, for how long, and how long each server was on a processor meanwhile."""

    launch: int
    arm: str
    sample: int
    wall_s: float
    cpu_s: Mapping[str, float]


@dataclass(frozen=True)
class Served:
    """All of a run's launches that count.

    Attributes:
        asker_s: by launch, what the asker takes for an answer that is there at once.
        rss_bytes: by launch and server the most memory at the end of a turn.
        unlike: how many batches were answered at unlike lengths, of how many.
    """

    answers: Sequence[ServedAnswer]
    turns: Sequence[ServedTurn]
    asker_s: Sequence[float]
    rss_bytes: Sequence[Mapping[str, float]]
    unlike: tuple[int, int]

    @property
    def timed(self) -> list[ServedAnswer]:
        """Whole answers of the turns that the ratio is made of."""
        return [one for one in self.answers if not one.again and one.error is None]

    def by_launch(self, answers: Sequence[ServedAnswer]) -> list[list[ServedAnswer]]:
        """Return answers in a list a launch."""
        launches = sorted({one.launch for one in answers})
        return [[one for one in answers if one.launch == launch] for launch in launches]

    def pairs(self, half: str | None = None) -> list[tuple[ServedAnswer, ServedAnswer]]:
        """Return what both servers answered alike asked, the baseline first."""
        by_arm = {arm: {one.place: one for one in self.timed if one.arm == arm} for arm in ARMS}
        places = [place for place in by_arm[ARMS[0]] if place in by_arm[ARMS[1]]]
        both = [(by_arm[ARMS[0]][place], by_arm[ARMS[1]][place]) for place in places]
        return [pair for pair in both if half in {None, pair[0].half}]

    def half_log_ratios(self) -> list[tuple[float, float]]:
        """Return by launch the log ratio of times over pinned and over continued prompts of equal length."""
        ratios = []
        for pairs in _in_launches(self.pairs()):
            logs = [_log_ratio([pair for pair in pairs if pair[0].half == half]) for half in (PINNED, CONTINUED)]
            if logs[0] is not None and logs[1] is not None:
                ratios.append((logs[0], logs[1]))
        return ratios

    def pace_log_ratios(self) -> list[float]:
        """Return by launch the log ratio of the time a token, or character, over pinned and over continued prompts."""
        ratios = []
        for answers in self.by_launch(self.timed):
            paces = [_pace_s([one for one in answers if one.half == half]) for half in (PINNED, CONTINUED)]
            if min(paces) > 0:
                ratios.append(math.log(paces[0] / paces[1]))
        return ratios

    def stated_log_ratios(self) -> list[float]:
        """Return by launch the log of candidate's bytes a stated token by baseline's, over answers of like length."""
        ratios = []
        for pairs in _in_launches(self.pairs()):
            alike = [pair for pair in pairs if _alike(*pair) and all(one.tokens for one in pair)]
            bytes_ = [sum(len(pair[side].text.encode()) for pair in alike) for side in (0, 1)]
            tokens = [sum(pair[side].tokens or 0 for pair in alike) for side in (0, 1)]
            if min(*bytes_, *tokens) > 0:
                ratios.append(math.log(bytes_[1] / tokens[1] * tokens[0] / bytes_[0]))
        return ratios

    def repeat_log_ratios(self, arm: str) -> list[float]:
        """Return by launch the log of the time of prompts asked again by that of the first time, at like length."""
        first = {one.place: one for one in self.timed if one.arm == arm}
        again = [one for one in self.answers
                 if one.again and one.half != WHOLE and one.arm == arm and one.error is None]  # fmt: skip
        logs = []
        for answers in self.by_launch(again):
            pairs = [(one, first[one.place]) for one in answers if one.place in first]
            pairs = [(one, before) for one, before in pairs if _alike(one, before)]
            if pairs and all(one.whole_s > 0 and before.whole_s > 0 for one, before in pairs):
                logs.append(math.log(sum(one.whole_s for one, _ in pairs) / sum(one.whole_s for _, one in pairs)))
        return logs


def served_of(report: Report) -> Served | None:
    """Return what the runner saw of servers; None where the report is not of its own making.

    Raises:
        KeyError, TypeError: it is no such report.
    """
    rows: list[dict[str, Any]] = report.body[NAME]  # type: ignore[typeddict-item]
    if len(rows) != 1 or "answers" not in rows[0]["value"]:
        return None
    value = rows[0]["value"]
    counted = [one for one in value["launches"] if one["launch"] > 0]
    turns = [ServedTurn(one["launch"], one["arm"], one["sample"], one["wall_s"], one["cpu_s"])
             for one in value["turns"] if one["launch"] > 0]  # fmt: skip
    unlike = sum(len(one["unlike_lengths"]) for one in counted)
    return Served(
        answers=[ServedAnswer(**one) for one in value["answers"] if one["launch"] > 0],
        turns=turns,
        asker_s=[one["asker_s"] for one in counted if one["asker_s"] is not None],
        rss_bytes=[one["rss_bytes"] for one in counted],
        unlike=(unlike, len({(one.launch, one.sample) for one in turns})),
    )


def _in_launches(
    pairs: Sequence[tuple[ServedAnswer, ServedAnswer]],
) -> Iterator[list[tuple[ServedAnswer, ServedAnswer]]]:
    for launch in sorted({pair[0].launch for pair in pairs}):
        yield [pair for pair in pairs if pair[0].launch == launch]


def _pace_s(answers: Sequence[ServedAnswer]) -> float:
    length = sum(one.length for one in answers)
    return math.fsum(one.whole_s for one in answers) / length if length else 0.0


def _log_ratio(pairs: Sequence[tuple[ServedAnswer, ServedAnswer]]) -> float | None:
    alike = [pair for pair in pairs if _alike(*pair)]
    sums = [sum(pair[side].whole_s for pair in alike) for side in (0, 1)]
    return math.log(sums[0] / sums[1]) if alike and min(sums) > 0 else None


def _alike(one: ServedAnswer, other: ServedAnswer) -> bool:
    """Whether two answers are of like length: a tenth apart at most."""
    lengths = (one.length, other.length)
    if one.counted is None and one.tokens is not None and other.tokens is not None:
        lengths = (one.tokens, other.tokens)
    return min(lengths) >= 0.9 * max(lengths) > 0
