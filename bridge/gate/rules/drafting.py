"""Rules on draft and verification: calls, steps, counters, fallbacks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from bridge.gate.declared.views import StatedConfig
from bridge.gate.facts.samples import Sample, arms_of, expected_drafts, idle_refusals
from bridge.gate.interface import Evidence, Report, Violation
from bridge.gate.report_kinds import SAMPLED, UNSEEN
from bridge.gate.rule import report_rule


@report_rule(
    "G3-FALLBACKS", "outputs", kinds=SAMPLED, remedy="Let the decoding loop report what it skipped or refused, and why."
)
def recount_fallbacks(report: Report, evidence: Evidence) -> Iterator[Violation]:
    """Fallbacks are counted where they happened: a known arm, a known sample, no more than its steps.

    The seed's `fallbacks_taken` was a literal empty list.
    """
    samples = {s["id"]: (arm.name, s) for arm in arms_of(report, evidence).all for s in arm.samples}
    places: list[tuple[int, int]] = []
    counts: Counter[tuple[str, str]] = Counter()
    seen: set[tuple[str, str, str]] = set()
    for index, row in enumerate(report.body["fallbacks"]):
        where = f"/fallbacks/{index}"
        name = row["sample"]
        home = None if name is None else samples.get(name)
        if name is None or home is None or home[0] != row["arm"]:
            yield Violation(f"sample {row['sample']!r} of arm {row['arm']!r} is not in the report", where)
            continue
        places.append((home[1]["launch"], home[1]["order_index"]))
        key = (name, row["component"], row["reason"])
        if key in seen:
            yield Violation("counted twice", where)
        seen.add(key)
        if row["component"] not in {"drafter", "target", "graphs"}:
            yield Violation(f"unknown component {row['component']!r}", where)
        counts[name, row["component"]] += row["count"]
    if places != sorted(places):
        yield Violation("fallbacks are not in running order", "/fallbacks")
    for name, (_, sample) in samples.items():
        yield from _against_steps(name, sample, counts, report.body["config"])


def _against_steps(
    name: str, sample: Sample, counts: Counter[tuple[str, str]], config: StatedConfig
) -> Iterator[Violation]:
    drafted = sample["drafted_per_step"] or ()
    wanted = expected_drafts(sample, config)
    if wanted is None:  # the policy itself may choose not to draft
        idle = sum(1 for count in drafted if count == 0)
        if counts[name, "drafter"] > idle:
            yield Violation(f"{counts[name, 'drafter']} steps fell back, {idle} drafted nothing", name)
    else:
        idle = sum(1 for count, asked in zip(drafted, wanted, strict=True) if count == 0 < asked)
        if counts[name, "drafter"] != idle:
            yield Violation(f"{idle} steps drafted nothing, {counts[name, 'drafter']} are counted", name)
    # One more of either may have been queued ahead of the last token.
    forwards = sample["counters"]["target_forwards"] + sample["counters"]["drafter_forwards"] + 2
    if counts[name, "graphs"] > forwards:
        yield Violation(f"{counts[name, 'graphs']} forwards fell back, {forwards} ran", name)


@report_rule("G3-IDLE", "outputs", severity="note", kinds=SAMPLED, remedy="Read the fallbacks beside the number.")
def count_idle_steps(report: Report, evidence: Evidence) -> Iterator[Violation]:
    """Steps without a draft are said.

    A candidate that mostly decodes plainly is a baseline under another name.
    """
    reasons: Counter[str] = Counter()
    for row in report.body["fallbacks"]:
        reasons[f"{row['component']}: {row['reason']}"] += row["count"]
    for arm in arms_of(report, evidence).all:
        lists = [sample["drafted_per_step"] for sample in arm.measured if sample["drafted_per_step"]]
        steps = sum(len(drafted) for drafted in lists)
        idle = sum(1 for drafted in lists for count in drafted if count == 0)
        if idle:
            why = "; ".join(f"{reason} ({count})" for reason, count in reasons.most_common(3)) or "by the depth policy"
            yield Violation(f"{idle} of {steps} steps of arm {arm.name!r} drafted nothing: {why}", f"/arms/{arm.index}")


@report_rule("G4-STEPS", "outputs", kinds=SAMPLED, remedy="List every step: what it drafted and what it accepted.")
def fit_steps_to_tokens(report: Report, evidence: Evidence) -> Iterator[Violation]:
    """A sample's tokens follow from its steps, and each step fits its depth.

    A step commits its accepted tokens and one more; whoever changes a step changes how many tokens there must be.
    Only a step whose first row was refused (no finite logits, no token of the vocabulary) commits nothing, and is
    followed by one without a draft; a refused later row costs the rest of its draft alone.
    """
    for arm, sample in arms_of(report, evidence).rows:
        check = _peer_steps if arm.name in UNSEEN else _steps_and_tokens
        for message in check(sample, report.body["config"]):
            yield Violation(message, arm.pointer(sample))


def _peer_steps(sample: Sample, _config: StatedConfig) -> Iterator[str]:
    told = [name for name, count in sample["counters"].items() if count]
    told += [name for name in ("accepted_per_step", "drafted_per_step") if sample[name] is not None]
    if told:
        yield f"{', '.join(told)} of an arm that is seen from outside only"


def _steps_and_tokens(sample: Sample, config: StatedConfig) -> Iterator[str]:
    accepted, drafted = sample["accepted_per_step"], sample["drafted_per_step"]
    if accepted is None and drafted is None:
        return
    if accepted is None or drafted is None or len(drafted) != len(accepted):
        yield "accepted_per_step and drafted_per_step have different lengths"
        return
    if any(a > d for a, d in zip(accepted, drafted, strict=True)):
        yield "a step accepted more than was drafted"
    block = config.get("block_size")
    if block is not None and drafted and max(drafted) > block - 1:
        yield f"a step drafted {max(drafted)} tokens with a block of {block}"
    refused, cut = sample["counters"]["guard_rejections"], sum(a < d for a, d in zip(accepted, drafted, strict=True))
    if refused > cut:
        yield f"{refused} rows were refused, {cut} steps lost a part of their draft"
    committed = 1 + len(accepted) - idle_refusals(sample) + sum(accepted)
    surplus = committed - sample["output_tokens"]
    if not 0 <= surplus <= (accepted[-1] if accepted else 0):
        yield f"the steps commit {committed} tokens, {sample['output_tokens']} were emitted"
    expected = expected_drafts(sample, config)
    looks_up = _looks_up(config)
    if expected is not None:
        odd = [
            i
            for i, (d, e) in enumerate(zip(drafted, expected, strict=True))
            if d != e and not (d == 0 or (looks_up and d < e))
        ]
        if odd:
            yield f"step {odd[0]} drafted {drafted[odd[0]]} tokens, the depth and the budget say {expected[odd[0]]}"


def _looks_up(config: StatedConfig) -> bool:
    """Say whether the drafter drafts what it finds, and calls no model."""
    drafter = config.get("drafter")
    return drafter is not None and drafter["format"] == "ngram"
