"""Coordinated lies about what was put out and what it was asked, by a program whose turns the runner hands out."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from engine.turns import TurnsOfLaunch
from tests.integration.gate.in_turns import NEEDLE, SET, answer_of, drawn
from tests.integration.gate.lies.registry import turned
from tests.integration.gate.workload import (
    ARMS,
    DEPTH,
    TOKEN_BYTES,
    Decoding,
    Report,
    digest_of,
    next_token,
    prompt_ids,
)

BASELINE, CANDIDATE = ARMS


def garbage(
    *arms: str, first: int = 1, warmups: bool = True, measured: bool = True, most: int | None = None
) -> dict[str, Any]:
    """Return outputs that are none of the model's from a token on."""

    def alter_state(arm: str, prompt: str, state: Decoding) -> None:
        garbled = warmups if prompt.startswith("warm") else measured
        if arm in arms and garbled:
            end = len(state.tokens) if most is None else first + most
            state.tokens[first:end] = [6 + (token * 7 + 5) % 2000 for token in state.tokens[first:end]]

    return {"alter_state": alter_state}


def replayed(_arm: str, prompt: str, state: Decoding) -> None:
    """Put out what another prompt was answered."""
    if not prompt.startswith("warm"):
        key = digest_of(prompt_ids("prompt-elsewhere"))
        state.tokens[:] = [next_token(key, index) for index in range(len(state.tokens))]


def cut_short(arm: str, _prompt: str, state: Decoding) -> None:
    if arm == CANDIDATE:
        del state.tokens[20:]


def longer_steps(arm: str, _prompt: str, state: Decoding) -> None:
    """Say that every draft was accepted whole."""
    if arm == CANDIDATE:
        _steps_of(state, [len(state.tokens) - 1])


def merged_steps(arm: str, _prompt: str, state: Decoding) -> None:
    """Say that the steps of each turn were as few as they can be."""
    if arm == CANDIDATE:
        _steps_of(state, [b - a for a, b in zip(state.turn_ends, state.turn_ends[1:], strict=False)])


def _steps_of(state: Decoding, spans: list[int]) -> None:
    sizes = []
    for span in spans:
        whole, rest = divmod(span, DEPTH + 1)
        sizes += [*([rest] if rest else []), *[DEPTH + 1] * whole]
    left, state.accepted, state.drafted, state.silent = len(state.tokens) - 1, [], [], 0
    for size in sizes:
        state.accepted.append(size - 1)
        state.drafted.append(max(0, min(DEPTH, left - 1)))
        left -= size


def changed(change: Callable[[Report], Any]) -> dict[str, Any]:
    """Return a report that is changed after an honest measurement."""

    def finish(report: Report) -> Report:
        change(report)
        return report

    return {"finish": finish}


def every(report: Report) -> list[Report]:
    return [row for arm in report["arms"] for row in arm["samples"]]


def other_text(report: Report) -> None:
    for row in every(report):
        row["text"] = "w7 " + row["text"]


def a_copied_control(report: Report) -> None:
    control = copy.deepcopy(report["arms"][0]) | {"name": "autoregressive_again", "role": "control"}
    for row in control["samples"]:
        row["id"] = row["id"].replace(f"/{BASELINE}/", "/autoregressive_again/")
    report["arms"].insert(1, control)


def without_a_launch(report: Report) -> None:
    for arm in report["arms"]:
        arm["samples"] = [row for row in arm["samples"] if row["launch"] != 1]
    sample_ids = {row["id"] for row in every(report)}
    report["fallbacks"] = [row for row in report["fallbacks"] if row["sample"] in sample_ids]


def renamed(report: Report) -> None:
    """Call the prompts of one arm by each other's names."""
    for row in report["arms"][1]["samples"]:
        if not row["is_warmup"]:
            name = {"prompt-0": "prompt-1", "prompt-1": "prompt-0"}.get(row["prompt_id"], row["prompt_id"])
            row["id"], row["prompt_id"] = row["id"].replace(row["prompt_id"], name), name


def counted_warmups(report: Report) -> None:
    for row in every(report):
        row["is_warmup"] = False


def a_budget_twice_as_large(report: Report) -> None:
    report["config"]["max_new_tokens"] *= 2


def one_path(report: Report) -> None:
    report["arms"][1]["code_path"] = report["arms"][0]["code_path"]


def of(path: str, value: Any) -> dict[str, Any]:
    """Return a report with another value at a path."""

    def change(report: Report) -> None:
        *way, last = path.split("/")
        place: Any = report
        for step in way:
            place = place[int(step)] if step.isdigit() else place[step]
        place[last] = value

    return changed(change)


def inflated(arm: str, times: float) -> dict[str, Any]:
    """Return caches that are told so many times as large."""

    def alter_state(name: str, _prompt: str, state: Decoding) -> None:
        if name == arm:
            state.cache[:] = [bytes(TOKEN_BYTES)] * round(len(state.cache) * times)

    return {"alter_state": alter_state}


def before_decoding(arm: str) -> dict[str, Any]:
    def alter_state(name: str, prompt: str, state: Decoding) -> None:
        if name == arm:
            del state.cache[len(prompt_ids(prompt)) :]

    return {"alter_state": alter_state}


def right_answers(_arm: str, _prompt: str, state: Decoding) -> None:
    """Put out garbage but for the word that is asked for."""
    state.tokens[2:] = [6 + (token * 7 + 5) % 2000 for token in state.tokens[2:]]


def every_answer(_arm: str, prompt: str, state: Decoding) -> None:
    """Put out what any prompt of the set asks for, one after the other."""
    listed = [int(answer_of(name)[1:]) for name in (prompt, *SET)]
    state.tokens[:] = listed[: len(state.tokens)]


def answers_in_the_text(report: Report) -> None:
    """Write other answers into the questions, and the same into what was put out."""
    for row in every(report):
        row.update(expected="w9", correct=True, text="w9 " + row["text"])


def other_questions(report: Report) -> None:
    """Ask afterwards for what was put out first."""
    for row in every(report):
        row.update(expected=row["text"].split()[0], correct=True)


def all_right(report: Report) -> None:
    """Call an answer right that is none: the first token is not what was asked for."""
    for row in every(report):
        row.update(expected="w5", correct=True)


def met(choose: Callable[[list[str], TurnsOfLaunch], list[str]]) -> dict[str, Any]:
    return {"met": choose}


SEEN = ("G2-RECOMPUTED",)
turned("garbage-after-a-right-first-token", *SEEN, fell="outputs", **garbage(*ARMS))
turned("garbage-after-a-right-half", *SEEN, fell="outputs", **garbage(*ARMS, first=16))
turned("the-first-arm-honest-and-the-second-not", *SEEN, fell="outputs", rejected=True, **garbage(CANDIDATE))
turned("the-second-arm-honest-and-the-first-not", *SEEN, fell="outputs", rejected=True, **garbage(BASELINE))
turned("one-wrong-token", *SEEN, fell="outputs", **garbage(*ARMS, first=31))
turned("one-wrong-token-in-the-middle", *SEEN, fell="outputs", **garbage(*ARMS, first=12, most=1))
turned("garbage-where-it-warms-up", *SEEN, fell="outputs", **garbage(*ARMS, measured=False))
turned("outputs-of-another-prompt", *SEEN, fell="outputs", alter_state=replayed)
turned("a-text-of-other-tokens", *SEEN, fell="outputs", rejected=True, **changed(other_text))
turned("an-arm-cut-short", "G4-TURNS", fell="outputs", rejected=True, alter_state=cut_short)
turned("a-budget-that-was-not-used", "G4-TOKENS", fell="outputs", rejected=True, **changed(a_budget_twice_as_large))
turned(
    "more-tokens-told-than-decoded",
    "G4-TURNS",
    fell="outputs",
    rejected=True,
    report_tokens=lambda arm, tokens: tokens * 2 if arm == CANDIDATE else tokens,
)
turned(
    "steps-that-were-not-taken",
    "G4-TURNS",
    fell="outputs",
    missed="the stand-in's drafter misses every fourth token, so turns of 8 or 16 end where whole drafts end, too; "
    "steps within a turn are the word of the identified program",
    rejected=True,
    alter_state=longer_steps,
)
turned(
    "steps-merged-within-a-turn",
    unseen="turns say how many tokens there were, not in how many steps: acceptance rests on the identified code",
    alter_state=merged_steps,
)
turned("a-copied-control", "G4-TURNS", fell="outputs", rejected=True, **changed(a_copied_control))
turned("a-launch-left-out", "G4-TURNS", fell="outputs", rejected=True, **changed(without_a_launch))
turned("prompts-in-an-order-of-its-own", "G4-ORDER", fell="inputs", rejected=True, **met(lambda p, _: sorted(p)))
turned(
    "prompts-in-an-order-known-before",
    "G4-ORDER",
    fell="inputs",
    rejected=True,
    **met(lambda p, launch: drawn(sorted(p), "known", launch.number)),
)
turned(
    "the-quickest-prompt-again-and-again",
    "G4-ORDER",
    fell="inputs",
    rejected=True,
    missed="at full size a block has twelve prompts, of which it tells three: no report is written, and the run fails",
    **met(lambda p, _: [p[0]] * 3),
)
turned("prompts-of-its-own", "G2-RECOMPUTED", fell="inputs", named="easy")
turned("prompts-of-the-set-that-suit-it", "G2-RECOMPUTED", fell="inputs", first=17)
turned("arms-that-met-other-prompts", "G4-ROWS", fell="inputs", rejected=True, **changed(renamed))
turned("warm-ups-counted-in-turns", "G4-ORDER", fell="inputs", rejected=True, **changed(counted_warmups))
turned("a-target-of-other-weights", "G2-MODELS", fell="inputs", rejected=True, **of("config/target/digest", "cd" * 32))
turned(
    "a-target-told-small",
    unseen="nobody reads what a report says of its own size: it is derived from the runner's record of the model",
    **of("config/target/parameters", 100),
)
turned("another-device-told", "G3-ACCELERATOR", fell="times", **of("environment/device", "cuda:0"))
turned("another-run-told", "G1-RUN", fell="bound", rejected=True, **of("run/id", "01jd7zk3v8q4w2m6x9c5b7n1tb"))
turned("one-path-for-both-arms", "G3-SELF", fell="ratio", rejected=True, **changed(one_path))
turned("no-drafts-in-turns", "G3-SELF", fell="ratio", rejected=True, drafts=False)
turned(
    "a-baseline-of-its-own-path",
    "G4-CONFIG",
    fell="ratio",
    rejected=True,
    **of("arms/0/code_path", "engine.decoding.autoregressive:autoregressive"),
)
turned("fallbacks-left-out", "G3-FALLBACKS", fell="outputs", rejected=True, **of("fallbacks", []))
turned("a-native-cache-told-large", "G7-NATIVE", fell="memory", rejected=True, **inflated(BASELINE, 40.0))
turned("a-native-cache-before-decoding", "G7-NATIVE", fell="memory", rejected=True, **before_decoding(BASELINE))
turned(
    "a-candidates-cache-before-decoding",
    unseen="nothing is claimed of the bytes of an arm that shares its process: G7-PROCESS says so of honest runs too",
    **before_decoding(CANDIDATE),
)
NEEDLES: dict[str, Any] = {"preset": "needles", "kind": NEEDLE}
turned("garbage-with-right-answers", *SEEN, fell="outputs", **NEEDLES, alter_state=right_answers)
turned("every-answer-listed", "G4-ANSWERS", fell="outputs", **NEEDLES, alter_state=every_answer)
turned("answers-written-into-the-text", *SEEN, fell="outputs", rejected=True, **NEEDLES, **changed(answers_in_the_text))
turned("questions-made-from-the-answers", *SEEN, fell="inputs", **NEEDLES, **changed(other_questions))
# Whether an answer is right follows from its text, whatever a report says: what is left is another question.
turned("wrong-answers-called-right", *SEEN, fell="inputs", **NEEDLES, **changed(all_right))
