"""Answers and bytes of bounded caches: its claims and its rules."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final

from bridge.gate.claims import ClaimDraft
from bridge.gate.declared.row_views import StatedAnswer, StatedCandidate, StatedLayerCanary
from bridge.gate.facts.model_sizes import (
    identity_least,
    index_least,
    kept_rows,
    latent_bytes,
    layout_bytes,
    made_least,
    native_bytes,
    shape_of,
)
from bridge.gate.facts.outputs import answered, first_words
from bridge.gate.facts.restoration import misnamed
from bridge.gate.interface import Evidence, Report, Violation
from bridge.gate.kinds.bounded_recall.drafts import declared_problems, drafted_problems, drafter_problems
from bridge.gate.report_kinds import BOUNDED_RECALL
from bridge.gate.rule import report_rule
from bridge.gate.stats.binomial import paired_difference_lower, preserved, rate_lower
from bridge.launches.figures import outward
from bridge.launches.wording import best_of
from bridge.records.run import CacheShape

_NATIVE: Final = "native"
_IDENTITY: Final = "+identity"
_EXACT_ROWS: Final = "+ftheta1"  # the layout of an arm whose rows are made again of the layers' own inputs
_STREAM_ROWS: Final = 128  # more evicted rows than that have filled a page, whatever still waits


def recompute(report: Report, evidence: Evidence) -> Iterator[ClaimDraft]:
    """Yield by arm its recall, beside the baseline's by prompt, and what it saves; then both canaries."""
    candidates: list[StatedCandidate] = report.body["rows"]["candidates"]
    by_arm = _by_arm(report)
    baseline = next((one["arm"] for one in candidates if one["role"] == "baseline"), None)
    native = by_arm.get(baseline or "", [])
    first = next((one["arm"] for one in candidates if one["role"] == "candidate"), None)
    for one in candidates:
        mine = by_arm.get(one["arm"], [])
        if mine:
            yield _recall(one, mine, native, evidence, primary=one["arm"] == first)
        if mine and native and one["role"] == "candidate":
            yield _saving(one["arm"], mine, native)
    yield from _canaries(report.body["rows"]["layer_canaries"])


def _canaries(rows: Sequence[StatedLayerCanary]) -> Iterator[ClaimDraft]:
    same, noise = [row["identity_logit_change"] for row in rows], [row["noise_logit_change"] for row in rows]
    for name, value, said in (
        ("canary_identity", max(same), "rows made again of a layer's own inputs change a logit by at most"),
        ("canary_noise", min(noise), "rows made of noise change a logit by at least"),
    ):
        told = f"{said} {value:.2e}"
        detail = {"summary": told}
        yield ClaimDraft(
            id=name, role="secondary", value=value, unit="logits", n=len(rows), wording=told, detail=detail
        )


def held(answer: StatedAnswer) -> int:
    """Return everything that was held for an answer: cache with pool and index, drafter's context, latents."""
    return answer["kv_bytes"] + answer["drafter_bytes"] + answer["latent_bytes"]


def _by_arm(report: Report) -> dict[str, list[StatedAnswer]]:
    found: dict[str, list[StatedAnswer]] = {}
    for answer in report.body["rows"]["answers"]:
        found.setdefault(answer["arm"], []).append(answer)
    return found


def _recall(
    one: StatedCandidate,
    mine: Sequence[StatedAnswer],
    native: Sequence[StatedAnswer],
    evidence: Evidence,
    *,
    primary: bool,
) -> ClaimDraft:
    confidence, margin = (float(evidence.profile[name]) for name in ("recall_confidence", "recall_margin"))
    right, n = sum(answer["correct"] for answer in mine), len(mine)
    low = rate_lower(right, n, evidence.confidence(confidence))
    least, _ = outward(low * 100.0, 100.0, 1)
    arm = one["arm"]
    wording = f"{arm}: {right} of {n} codes found, at least {least:.1f} % (95 % one-sided)"
    detail: dict[str, float] = {}
    theirs = {answer["prompt_digest"]: answer["correct"] for answer in native}
    common = [answer for answer in mine if answer["prompt_digest"] in theirs]
    if one["role"] == "candidate" and common:
        gained = sum(answer["correct"] and not theirs[answer["prompt_digest"]] for answer in common)
        lost = sum(theirs[answer["prompt_digest"]] and not answer["correct"] for answer in common)
        bound = paired_difference_lower(gained, lost, len(common), evidence.confidence(confidence))
        difference, _ = outward(bound * 100.0, 100.0, 1)
        known = preserved(sum(theirs.values()), len(theirs), bound, margin)
        kept = "preserved" if known else "not shown to be preserved"
        wording += f", {kept} within {margin * 100:.0f} points of native ({difference:+.1f})"
        detail = {"difference_lower_95": bound, "native": sum(theirs.values())}
    return ClaimDraft(
        id="recall" if primary else f"recall_{arm}",
        role="primary" if primary else "secondary",
        value=right / n,
        interval=(low, 1.0),
        confidence=confidence,
        unit="share",
        n=n,
        arms=(arm,),
        wording=f"{wording}{best_of(evidence.looks)}",
        detail={**detail, "summary": f"{arm}: {right}/{n}"},
    )


def _saving(arm: str, mine: Sequence[StatedAnswer], native: Sequence[StatedAnswer]) -> ClaimDraft:
    ours, theirs = (statistics.median(held(answer) for answer in side) for side in (mine, native))
    parts = {
        "cache": statistics.median(answer["kv_bytes"] for answer in mine),
        "pool": statistics.median(answer["pool_bytes"] for answer in mine),
        "index": statistics.median(answer["index_bytes"] for answer in mine),
        "drafter": statistics.median(answer["drafter_bytes"] for answer in mine),
        "latents": statistics.median(answer["latent_bytes"] for answer in mine),
    }
    below = f"the native cache {theirs / 1e6:.2f} MB ({theirs / ours:.2f} times)"
    told = f"{arm} holds {ours / 1e6:.2f} MB in buffers, {below}"
    return ClaimDraft(
        id=f"saving_{arm}",
        role="secondary",
        value=theirs / ours,
        unit="ratio",
        n=len(mine),
        baseline=native[0]["arm"],
        arms=(arm, native[0]["arm"]),
        wording=told,
        detail={**parts, "summary": told},
    )


@report_rule(
    "G4-BOUNDED",
    "outputs",
    kinds=(BOUNDED_RECALL,),
    remedy="Answer every prompt once on every arm, score the decoded text, count where it happens.",
)
def require_every_answer(report: Report, evidence: Evidence) -> Iterator[Violation]:
    """Every arm asked for answers the same prompts once, is scored by its text, and its counts follow from its tokens.

    Beside another baseline than the library's own cache any cache finds as much, or is small. An arm that leaves out
    the prompts it fails recalls more. Whoever drafts has a drafter, whose context is held, and proposes no more than
    the depth a step. A step forwards its block and no more, so the positions that were forwarded bound what was
    computed: a prompt at most twice, and one row queued ahead.
    """
    candidates: list[StatedCandidate] = report.body["rows"]["candidates"]
    names = [one["arm"] for one in candidates]
    for message in _candidate_problems(candidates):
        yield Violation(message, "/rows/candidates")
    for message in _otherwise_asked(report, evidence):
        yield Violation(message, "/config")
    for message, where in declared_problems(report, evidence):
        yield Violation(message, where)
    by_arm = _by_arm(report)
    wanted: Counter[tuple[str, str, int]] | None = None
    for arm in names:
        met = Counter((a["prompt_digest"], a["expected"], a["prompt_tokens"]) for a in by_arm.get(arm, ()))
        wanted = met if wanted is None else wanted
        if met != wanted or max(met.values(), default=0) != 1:
            yield Violation(f"arm {arm!r} did not answer each prompt once, as every other", "/rows/answers")
    if by_arm.keys() - set(names):
        yield Violation(f"answers of {sorted(by_arm.keys() - set(names))}, which are no candidates", "/rows/answers")
    asked = {answer["expected"] for answer in report.body["rows"]["answers"]}
    named = {one["arm"]: one for one in candidates}
    for index, answer in enumerate(report.body["rows"]["answers"]):
        for message in _answer_problems(answer, named.get(answer["arm"]), report):
            yield Violation(message, f"/rows/answers/{index}")
        if answer["correct"] and (first_words(answer["text"]) & asked) - {answer["expected"]}:
            said = "its first line names what other prompts ask for beside its own: a list is no answer"
            yield Violation(said, f"/rows/answers/{index}", severity="violation", arms=(answer["arm"],))


def _candidate_problems(candidates: Sequence[StatedCandidate]) -> Iterator[str]:
    """Yield arms that are named twice or ran another layout than they name, and a baseline that is not native."""
    names = [one["arm"] for one in candidates]
    if len(set(names)) < len(names) or [one["role"] for one in candidates].count("baseline") != 1:
        yield f"arms {names}: expected distinct ones and one baseline"
    for one in candidates:
        if one["role"] == "baseline" and (one["arm"], one["layout"], one["restored_from"]) != (_NATIVE, _NATIVE, None):
            said = f"the baseline {one['arm']!r} ran {one['layout']!r}, restored from {one['restored_from']!r}"
            yield f"{said}: expected the library's own cache, {_NATIVE!r}"
        # What is claimed is claimed of an arm's name.
        said = one["arm"].removesuffix(_IDENTITY) + (_EXACT_ROWS if one["arm"].endswith(_IDENTITY) else "")
        if one["layout"] != said:
            yield f"arm {one['arm']!r} ran the layout {one['layout']!r}"


def _otherwise_asked(report: Report, evidence: Evidence) -> Iterator[str]:
    """Yield what was measured otherwise than the request says: other arms, or the best one first; other lengths."""
    params = {} if evidence.spec is None else evidence.spec.params
    config: Mapping[str, Any] = report.body["config"]
    candidates = report.body["rows"]["candidates"]
    if "arms" in params:
        wanted = [one.strip() for one in str(params["arms"]).split(",") if one.strip()]
        mine = [one["arm"] for one in candidates if one["role"] == "candidate"]
        if mine != wanted:
            yield f"arms {mine}, the request asks for {wanted}"
    for name in sorted({"least_tokens", "depth", "drafter_context"} & params.keys()):
        if config[name] != params[name] and not (name == "drafter_context" and config["depth"] == 0):
            yield f"{name} is {config[name]}, the request says {params[name]}"


def _answer_problems(answer: StatedAnswer, one: StatedCandidate | None, report: Report) -> Iterator[str]:
    config, tokens = report.body["config"], answer["tokens"]
    if one is not None:
        yield from drafted_problems(answer, one, report)
    if answer["prompt_tokens"] < config["least_tokens"]:
        yield f"a prompt of {answer['prompt_tokens']} tokens, at least {config['least_tokens']} are asked"
    if answered(answer["expected"], answer["text"]) != answer["correct"]:
        yield f"correct is {answer['correct']}, the text says otherwise"
    if not 1 <= len(tokens) <= config["max_new_tokens"] or max(tokens) >= config["target"]["vocab_size"]:
        yield f"{len(tokens)} tokens with a budget of {config['max_new_tokens']}, or one outside the vocabulary"
    committed = 1 + answer["steps"] + answer["accepted"]
    if not 0 <= committed - len(tokens) <= max(0, answer["accepted"]) or answer["accepted"] > answer["drafted"]:
        said = f"{answer['steps']} steps with {answer['accepted']} accepted commit {committed} tokens"
        yield f"{said}, {len(tokens)} are there"
    least = answer["prompt_tokens"] + answer["steps"] + answer["drafted"]
    if not least <= answer["positions_forwarded"] <= least + answer["prompt_tokens"] + 1:
        yield f"{answer['positions_forwarded']} positions forwarded, prompt and blocks have {least}"


@report_rule(
    "G3-INJECTED",
    "outputs",
    kinds=(BOUNDED_RECALL,),
    remedy="Check that rows that are made again reach the attention they claim to; count them where that happens.",
)
def require_injected_rows(report: Report, evidence: Evidence) -> Iterator[Violation]:
    """An arm that makes evicted rows again was given them, and one that does not was given none.

    Whoever cuts the injection has a window under another name. A forward behind the window is shown every evicted row
    of every layer that is restored, or its pages, so their number has a floor that grows with the steps. Pages leave,
    so that pages are moved or read. What made the rows has a name and a digest: two f_thetas recall differently.
    """
    restores = any(one["restored_from"] == "f_theta" for one in report.body["rows"]["candidates"])
    if (wrong := misnamed(report, restores=restores)) is not None:
        yield Violation(wrong, "/config/restoration")
    shape = shape_of(report, evidence)
    caches = () if shape is None or shape.caches is None else shape.caches
    named = {one["arm"]: one for one in report.body["rows"]["candidates"]}
    for index, answer in enumerate(report.body["rows"]["answers"]):
        one = named.get(answer["arm"])
        if one is not None:
            for message in _injection_problems(answer, one, caches):
                yield Violation(message, f"/rows/answers/{index}")


def _injection_problems(answer: StatedAnswer, one: StatedCandidate, caches: tuple[CacheShape, ...]) -> Iterator[str]:
    restored, layout, given = one["restored_from"] is not None, one["layout"], answer["rows_injected"]
    if ("+ftheta" in layout) != restored or (one["restored_from"] == "identity") != one["arm"].endswith(_IDENTITY):
        yield f"{one['arm']} restores from {one['restored_from']!r} on layout {layout}"
    evicted = answer["prompt_tokens"] - (kept_rows(layout) or 0)
    least = made_least(layout, caches, answer["prompt_tokens"], answer["steps"])
    if restored and given < least:
        yield f"{one['arm']} was given {given} rows, its steps are shown at least {least}: the injection is cut"
    if given and not restored:
        yield f"{one['arm']} restores nothing and was given {given} rows"
    moved, read = answer["pages_moved"], answer["bytes_read"]
    streams = "+stream" in layout and not restored
    if (moved or read) and not ("+pages" in layout or streams):
        yield f"{one['arm']} has no pages, moved {moved} and read {read} bytes"
    stepped = len(answer["tokens"]) > 1  # a prompt of one chunk is answered before anything has left
    if stepped and not (moved or read) and ("+pages" in layout or (streams and evicted > _STREAM_ROWS)):
        yield f"{one['arm']} moved no page and read none: {evicted} rows were evicted"


@report_rule(
    "G7-BOUNDED",
    "outputs",
    kinds=(BOUNDED_RECALL,),
    remedy="Sum every buffer: cache with pool and index, the drafter's context, latents; take longer prompts.",
)
def bound_answer_bytes(report: Report, evidence: Evidence) -> Iterator[Violation]:
    """The bytes of an answer are those of its layout's rows, and no part is left out.

    A pool as large as the context evicts nothing, and its recall says nothing. An index without bytes or a drafter
    without a context makes any cache small, and so does a native one that is inflated. The runner reads from the
    model's folder how many values each layer keeps.
    """
    shape, drafter = shape_of(report, evidence), shape_of(report, evidence, "drafter")
    if shape is None or shape.caches is None:
        if evidence.record is not None:
            said = "the runner could not read how many values a position takes in the caches of this model"
            yield Violation(said, "/config/target", severity="violation")
        return
    named = {one["arm"]: one for one in report.body["rows"]["candidates"]}
    context = None if drafter is None else drafter.caches
    for index, answer in enumerate(report.body["rows"]["answers"]):
        one = named.get(answer["arm"])
        if one is not None:
            for message in _byte_problems(answer, one, report, shape.caches):
                yield Violation(message, f"/rows/answers/{index}")
            for message in drafter_problems(answer, one, report, context):
                yield Violation(message, f"/rows/answers/{index}")


def _byte_problems(
    answer: StatedAnswer, one: StatedCandidate, report: Report, caches: tuple[CacheShape, ...]
) -> Iterator[str]:
    layout, positions = one["layout"], answer["prompt_tokens"] + len(answer["tokens"]) - 1
    stepped = len(answer["tokens"]) > 1  # before a step an arm holds what the last chunk of the prompt needed
    native = one["role"] == "baseline" and stepped
    bounds = (native_bytes if native else partial(layout_bytes, layout))(caches, report, positions)
    kept = kept_rows(layout)
    if kept is not None and kept >= answer["prompt_tokens"]:
        yield f"{one['arm']} keeps {kept} rows of a prompt of {answer['prompt_tokens']}: nothing was left out"
    if bounds is None:
        yield f"arm {one['arm']!r} names no cache layout: nobody knows what it must hold"
    elif not bounds[0] <= answer["kv_bytes"] <= (bounds[1] if stepped else math.inf):
        rows = f"its rows take {bounds[0]:.0f} to {bounds[1]:.0f}"
        yield f"{one['arm']} holds {answer['kv_bytes']} bytes of {positions} positions, {rows}"
    least = index_least(layout, caches, report, positions)
    if stepped and answer["index_bytes"] < least:
        yield f"{one['arm']} chooses its pages by {answer['index_bytes']} bytes, its index takes at least {least:.0f}"
    pool, index = answer["pool_bytes"], answer["index_bytes"]
    pages = "+pages" in layout and (stepped or pool > 0)
    if pool + index > answer["kv_bytes"] or bool(pool) != pages:
        yield f"{one['arm']} has a pool of {pool} bytes in {answer['kv_bytes']}"
    latents, kept_bytes = latent_bytes(layout, report, positions), answer["latent_bytes"]
    if one["restored_from"] == "f_theta" and latents is not None and not latents[0] <= kept_bytes <= latents[1]:
        said = f"its rank takes {latents[0]:.0f} to {latents[1]:.0f}"
        yield f"{one['arm']} restores from {kept_bytes} bytes, {said}"
    if one["restored_from"] == "identity":
        inputs = identity_least(layout, caches, report, positions)
        if kept_bytes < inputs:
            yield f"{one['arm']} restores from {kept_bytes} bytes, its layers' inputs take at least {inputs:.0f}"
    if bool(kept_bytes) != (one["restored_from"] is not None):
        yield f"{one['arm']} keeps latents of {kept_bytes} bytes"
