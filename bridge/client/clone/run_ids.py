"""Turn what people type (a prefix, a suffix, @last) into one run id."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from bridge.errors import RunNotFoundError, UsageError
from bridge.ids import is_id, short

LAST = "@last"
_SHOWN = 5


def resolve(text: str, local_ids: Iterable[str], *further: Callable[[], Iterable[str]]) -> str:
    """Return the run id that a text means.

    Args:
        text: a full id, a unique prefix or suffix, or ``@last``.
        local_ids: ids this clone knows; asked first, so that most commands work offline.
        further: each lists more ids, such as those on the bus; called in turn as long as there is no match.

    Raises:
        UsageError: not a text that could mean an id.
        RunNotFoundError: no run, or more than one, matches.
    """
    part = text.lower()
    if is_id(part):
        return part
    if part != LAST and not (part.isalnum() and part.isascii()):
        raise UsageError(f"got {text[:60]!r}; expected a run id, a prefix or suffix of one, or {LAST}")
    matches = _matches(part, local_ids)
    for ids in further:
        matches = matches or _matches(part, ids())
    if not matches:
        what = "no run has been sent from here" if part == LAST else f"no run matches {text[:60]!r}"
        raise RunNotFoundError(what, remedy="kakeya-mac ls")
    if len(matches) > 1:
        shown = ", ".join(f"{run_id} ({short(run_id)})" for run_id in matches[:_SHOWN])
        raise RunNotFoundError(f"{len(matches)} runs match {text!r}: {shown}", remedy="type more of the id")
    return matches[0]


def _matches(part: str, ids: Iterable[str]) -> list[str]:
    every = sorted(set(ids), reverse=True)
    if part == LAST:
        return every[:1]
    return [run_id for run_id in every if run_id.startswith(part) or run_id.endswith(part)]
