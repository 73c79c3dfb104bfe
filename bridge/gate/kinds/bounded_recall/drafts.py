"""Who drafts in a study of bounded caches, and what that takes: what a report says of its drafter holds together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from bridge.gate.declared.row_views import StatedAnswer, StatedCandidate
from bridge.gate.facts.model_sizes import value_bytes
from bridge.gate.interface import Evidence, Report
from bridge.records.run import CacheShape

_LOOKUP: Final = "ngram"  # the format of a drafter that has no weights, and holds nothing on the device
_CONTEXT_LEAST: Final = 64  # positions that a drafter remembers at least where nothing bounds it further


def declared_problems(report: Report, evidence: Evidence) -> Iterator[tuple[str, str]]:
    """Yield what is said of the drafter that cannot be, and where: a depth without one, an arm that drafts or not."""
    config: Mapping[str, Any] = report.body["config"]
    depth, drafter = config["depth"], config["drafter"]
    if (depth > 0) != (drafter is not None):
        yield f"depth {depth} and the drafter {None if drafter is None else drafter['name']!r}", "/config/drafter"
    if drafter is not None and not _keeps_context(drafter) and drafter["format"] != _LOOKUP:
        said = f"drafter {drafter['name']!r} of the format {drafter['format']!r} has no digest"
        yield f"{said}: only prompt lookup has no weights", "/config/drafter/digest"
    chosen = _chosen(evidence)
    if drafter is not None and not _keeps_context(drafter) and chosen is not None:
        yield f"drafter {drafter['name']!r} holds no context, the host chose {chosen!r}", "/config/drafter"
    for index, one in enumerate(report.body["rows"]["candidates"]):
        if one["drafts"] != (one["role"] == "candidate" and depth > 0):
            said = f"{one['role']} {one['arm']} is said to draft: {one['drafts']}, the depth is {depth}"
            yield said, f"/rows/candidates/{index}/drafts"


def drafted_problems(answer: StatedAnswer, one: StatedCandidate, report: Report) -> Iterator[str]:
    """Yield more drafted tokens than the steps of an arm may draft."""
    config: Mapping[str, Any] = report.body["config"]
    most = config["depth"] * answer["steps"] if one["drafts"] else 0
    if answer["drafted"] > most:
        yield f"{one['arm']} drafted {answer['drafted']} tokens in {answer['steps']} steps, at most {most} are possible"


def drafter_problems(
    answer: StatedAnswer, one: StatedCandidate, report: Report, caches: tuple[CacheShape, ...] | None
) -> Iterator[str]:
    """Yield bytes of a context where there is none, and fewer than the context of a drafter takes."""
    drafter = report.body["config"]["drafter"]
    if not one["drafts"] or drafter is None or not _keeps_context(drafter):
        if answer["drafter_bytes"]:
            yield f"{one['arm']} has no drafter with a context, and {answer['drafter_bytes']} bytes of one"
        return
    shown = min(answer["prompt_tokens"], _CONTEXT_LEAST, report.body["config"]["drafter_context"] or _CONTEXT_LEAST)
    width = sum(cache.keys + cache.values for cache in caches or ()) or 1
    least = width * shown * value_bytes(report)[0]
    if answer["drafter_bytes"] < least:
        said = f"{shown} positions of it take {least:.0f}"
        yield f"{one['arm']} drafts with a context of {answer['drafter_bytes']} bytes, {said}"


def _chosen(evidence: Evidence) -> str | None:
    """Return the drafter with weights that the host chose and digested, None where a command may name another."""
    if evidence.record is None or (evidence.spec and any("--drafter" in one.argv for one in evidence.spec.commands)):
        return None
    name = dict(evidence.record.environment).get("KAKEYA_DRAFTER", "").rstrip("/").rsplit("/", 1)[-1]
    return name if name in {one.path.rsplit("/", 1)[-1] for one in evidence.record.models} else None


def _keeps_context(drafter: Mapping[str, Any]) -> bool:
    """Say whether a drafter has weights, and so a context that is held."""
    return drafter["digest"] is not None
