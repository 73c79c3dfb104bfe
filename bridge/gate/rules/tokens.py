"""Rules on emitted tokens: counts, text, answers, loops, identity with native decoding."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from bridge.gate.claims.generation import compare
from bridge.gate.declared.views import StatedConfig
from bridge.gate.facts.outputs import first_difference, first_words
from bridge.gate.facts.samples import Arm, Sample, arms_of, by_prompt
from bridge.gate.interface import Evidence, Report, Violation
from bridge.gate.report_kinds import ACCEPTANCE, DISTRIBUTED_E2E, INTERLEAVED, SAMPLED
from bridge.gate.rule import report_rule


@report_rule(
    "G4-TOKENS", "outputs", kinds=SAMPLED, remedy="Record the emitted token ids themselves, the stop token included."
)
def recount_tokens(report: Report, evidence: Evidence) -> Iterator[Violation]:
    """A sample's tokens fit the vocabulary, and end as their stop reason says.

    Everything else is computed from the raw tokens, so they must be all there and nothing but them.
    """
    config = report.body["config"]
    for arm, sample in arms_of(report, evidence).rows:
        for message in _sample_tokens(sample, config):
            yield Violation(message, arm.pointer(sample))


def _sample_tokens(sample: Sample, config: StatedConfig) -> Iterator[str]:
    tokens = sample["tokens"]
    vocabulary = config["target"]["vocab_size"]
    if max(tokens) >= vocabulary:
        yield f"token {max(tokens)} is outside a vocabulary of {vocabulary}"
    stopping, reason, budget = set(config["stopping_ids"]), sample["stop_reason"], config["max_new_tokens"]
    if any(token in stopping for token in tokens[:-1]):
        yield "decoding went on after a stop token"
    if (reason == "eos") != (tokens[-1] in stopping):
        yield f"stop_reason is {reason!r}, the last token {tokens[-1]}"
    if len(tokens) > budget or (reason == "budget" and len(tokens) != budget):
        yield f"{len(tokens)} tokens with a budget of {budget} and stop_reason {reason!r}"
    if reason == "cancelled":
        yield "the sample was cancelled before its end"


@report_rule("G4-ANSWERS", "outputs", kinds=SAMPLED, remedy="Ask for answers that differ, none of them empty.")
def require_answers_that_may_be_missed(report: Report, evidence: Evidence) -> Iterator[Violation]:
    """A known answer is one that a text may miss.

    Whether a text gives it is computed. `answer_text=""` made every answer of the seed right; where most prompts have
    the same answer, saying it always is no recall; nor is naming what others are asked for.
    """
    for arm in arms_of(report, evidence).all:
        for sample in arm.samples:
            if sample["expected"] is not None and not sample["expected"].strip():
                yield Violation("an empty answer is in every text", arm.pointer(sample))
        yield from _common_answer(arm)
        yield from _listed_answers(arm)


def _common_answer(arm: Arm) -> Iterator[Violation]:
    """Yield the answer that most prompts of an arm share."""
    asked = {s["prompt_id"]: s["expected"] for s in arm.measured if s["expected"] is not None}
    for answer, count in Counter(asked.values()).most_common(1):
        if len(asked) > 3 and count > len(asked) / 2:
            yield Violation(f"{answer!r} is the answer of {count} of {len(asked)} prompts", f"/arms/{arm.index}")


def _listed_answers(arm: Arm) -> Iterator[Violation]:
    """Yield the first answer that counts as right and names what another prompt asks for."""
    known = {sample["expected"] for sample in arm.samples if sample["expected"] is not None}
    for sample in arm.samples:
        others = (first_words(sample["text"]) & known) - {sample["expected"]} if sample["correct"] else ()
        if others:
            said = f"its first line names {len(others)} answers of other prompts beside its own: a list is no answer"
            yield Violation(said, arm.pointer(sample), severity="violation", arms=(arm.name,))
            return


@report_rule(
    "G4-MARGIN", "outputs", kinds=INTERLEAVED, remedy="Record top2_margin_at_divergence where outputs first differ."
)
def require_divergence_margins(report: Report, evidence: Evidence) -> Iterator[Violation]:
    """A sample carries the target's top-2 margin exactly when its tokens differ from the baseline's.

    A difference without a margin could be a near-tie or a wrong model.
    """
    arms = arms_of(report, evidence)
    if arms.baseline is None:
        return
    reference = by_prompt(arms.baseline.samples)
    for arm, sample in arms.rows:
        others = reference.get(sample["prompt_id"])
        if not others:
            continue
        differs = sample["tokens"] != others[0]["tokens"]
        if differs != (sample["top2_margin_at_divergence"] is not None):
            said = "differs" if differs else "does not differ"
            yield Violation(
                f"{said} from the baseline, top2_margin_at_divergence is {sample['top2_margin_at_divergence']}",
                arm.pointer(sample),
            )


@report_rule(
    "G6-IDENTITY",
    "outputs",
    severity="violation",
    kinds=(*INTERLEAVED, ACCEPTANCE, DISTRIBUTED_E2E),
    remedy="Find the first differing token and its margin in the report; check cache cropping and masks first.",
)
def compare_outputs(report: Report, evidence: Evidence) -> Iterator[Violation]:
    """Every candidate's tokens are the baseline's, recomputed token by token; the control's are too.

    "Byte-identical" outputs of the seed differed in 3 of 8. In fp32 a difference is a fault; in lower precision two
    kernels may break a near-tie differently, which is said with the place and the margin.
    """
    arms = arms_of(report, evidence)
    dtype = str(report.body["config"]["dtype"])
    pairs = [(arm, arms.baseline) for arm in arms.candidates if arms.baseline is not None]
    for arm, baseline in pairs:
        same, prompts, _, (where, margin) = compare(arm, baseline)
        if prompts and same != prompts:
            yield Violation(
                f"{prompts - same} of {prompts} prompts of {arm.name!r} differ from native decoding, first at token "
                f"{where} (top-2 margin {margin}, {dtype})",
                f"/arms/{arm.index}",
                severity="violation" if dtype == "float32" else "note",
                arms=(arm.name,),
            )
    if arms.baseline is not None and arms.control is not None:
        theirs, again = by_prompt(arms.baseline.measured), by_prompt(arms.control.measured)
        for prompt in theirs:
            place = (
                first_difference(theirs[prompt][0]["tokens"], again[prompt][0]["tokens"]) if prompt in again else None
            )
            if place is not None:
                yield Violation(
                    f"prompt {prompt!r}: native decoding differs from itself at token {place}",
                    "/arms",
                    arms=(arms.control.name,),
                )
    if arms.candidates and arms.baseline is not None:
        yield from _warmup_differences(report, evidence)
        yield from _length_differences(report, evidence)


def _warmup_differences(report: Report, evidence: Evidence) -> Iterator[Violation]:
    """Yield a warm-up whose arms differ in fp32: it is not counted, and still the same decoding."""
    if report.body["config"]["dtype"] != "float32":
        return
    seen: dict[tuple[int, str], tuple[int, ...]] = {}
    for arm, sample in arms_of(report, evidence).rows:
        key = (sample["launch"], sample["prompt_id"])
        if sample["is_warmup"] and seen.setdefault(key, tuple(sample["tokens"])) != tuple(sample["tokens"]):
            yield Violation(f"warm-up {sample['prompt_id']!r} differs between arms", arm.pointer(sample))


def _length_differences(report: Report, evidence: Evidence) -> Iterator[Violation]:
    """Yield prompts whose arms emitted different numbers of tokens: their times are of different work."""
    arms = arms_of(report, evidence)
    lengths: dict[str, set[int]] = {}
    for arm in arms.all:
        for sample in arm.measured:
            lengths.setdefault(sample["prompt_id"], set()).add(sample["output_tokens"])
    unequal = [prompt for prompt, found in lengths.items() if len(found) > 1]
    if unequal:
        yield Violation(
            f"{len(unequal)} prompts have outputs of different lengths, e.g. {unequal[0]!r}: times of different work",
            "/arms",
            premise="ratio",
        )
