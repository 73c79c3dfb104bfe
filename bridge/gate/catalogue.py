"""The gate for people: what each printed word means, and one page of all of it, from which `docs/gate.md` is made."""

from __future__ import annotations

from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import Final

from bridge.errors import UsageError, meant
from bridge.gate import profiles
from bridge.gate.declared.kind import kinds
from bridge.gate.declared.premises import CLAIM_KINDS, PREMISES
from bridge.gate.registry import rules
from bridge.gate.rule import RegisteredRule
from bridge.gate.words import WORDS, meaning
from bridge.records.verdict import Premise, Severity
from bridge.run.outcomes import OUTCOMES

CONSEQUENCE: Final[dict[Severity, str]] = {
    "reject": "the run is rejected",
    "violation": "the premise falls from the claims it concerns",
    "note": "it is said, nothing more",
}


def rules_catalogue() -> tuple[RegisteredRule, ...]:
    """Return every rule in the order of its layer and code."""
    return tuple(rules().values())


def explain(word: str) -> str:
    """Return what a printed word means, as markdown: a check by its code, a premise, a claim, or a word of a line.

    Raises:
        UsageError: nothing prints it.
    """
    found = rules().get(word.upper())
    if found is not None:
        return check_page(found)
    lines = [text for text in (meaning(word), _ending(word), _premise(word), _needs(word)) if text]
    if lines:
        return "\n\n".join(lines)
    near = [code for code in rules() if word.upper() in code or code.split("-", 1)[0] == word.upper()]
    raise UsageError(
        f"nothing prints {word!r}; {meant(word.upper() if near else word, near or printed_words(), most=6)}",
        remedy="kakeya-mac gate explain",
    )


def printed_words() -> list[str]:
    """Return every word that `explain` answers for but the codes of checks."""
    claims = {metric.pattern.rstrip("_*") for kind in kinds().values() for metric in kind.metrics}
    return sorted({*WORDS, *PREMISES, *OUTCOMES, *claims})


def check_page(found: RegisteredRule, level: int = 1) -> str:
    """Return a check's page as markdown.

    Args:
        found: the check.
        level: of its heading.
    """
    kinds_ = ", ".join(found.kinds) if found.kinds else "every kind"
    lines = [
        f"{'#' * level} {found.code}",
        "",
        found.message,
        "",
        f"- **Guards** the premise `{found.premise}`: {PREMISES[found.premise].holds_when}",
        f"- **When it is violated** {CONSEQUENCE[found.severity]} (`{found.severity}`)",
        f"- **Looks at** {kinds_}",
        f"- **What to do** {found.remedy}",
    ]
    if found.why:
        lines += ["", found.why]
    return "\n".join([*lines, ""])


def _ending(word: str) -> str:
    """Return what a reason for the end of a run means; empty for another word."""
    row = OUTCOMES.get(word.lower())
    return "" if row is None else f"How a run ended: {row.meaning}. Commands that wait for it end in {row.exit_code}."


def _premise(word: str) -> str:
    """Return when a premise holds, who sees it and which checks guard it; empty for another word."""
    premise = next((name for name in PREMISES if name == word.lower()), None)
    if premise is None:
        return ""
    codes = " ".join(entry.code for entry in rules_catalogue() if entry.premise == premise)
    return f"{premise}: {PREMISES[premise].holds_when}; seen by {PREMISES[premise].seen_by}. Checked by {codes}."


def _needs(claim: str) -> str:
    """Return what a claim needs in every kind that makes it; empty where none does."""
    lines: list[str] = []
    for kind in kinds().values():
        for metric in kind.metrics:
            if fnmatchcase(claim, metric.pattern) or claim in {metric.pattern, metric.pattern.rstrip("_*")}:
                lines += [f"{claim} of {kind.name}: {CLAIM_KINDS[metric.kind].says} ({metric.kind})"]
                lines += [f"  {one:<9} {PREMISES[one].holds_when}; seen by {PREMISES[one].seen_by}; "
                          f"{' '.join(_guards(one, kind.name))}" for one in metric.needs]  # fmt: skip
    return "\n".join(lines)


def _guards(premise: Premise, kind: str) -> list[str]:
    return [entry.code for entry in rules_catalogue() if entry.premise == premise and entry.looks_at(kind)]


def page() -> str:
    """Return `docs/gate.md`: what claims rest on, every check, the words of a line, the numbers."""
    return "\n".join([*_opening(), *_premises(), *_checks(), *_words(), *_numbers()]) + "\n"


def _opening() -> Iterator[str]:
    yield "# The evidence gate"
    yield ""
    yield "Generated. A number may be quoted only where nothing stands against it. Each check has a code that never"
    yield "changes, a remedy, and a run that breaks it in the tests; `kakeya-mac gate explain WORD` answers for every"
    yield "word that is printed, and `gate explain WORD ID` for what it comes to in a run. The seed's codes are mapped"
    yield "in [from-the-seed.md](gate/from-the-seed.md), which speeds can be quoted of which preset is in"
    yield "[speed-claims.md](gate/speed-claims.md), and what coordinated cheats lose, or why nothing sees them, in"
    yield "[forgeries.md](gate/forgeries.md)."
    yield ""


def _checks() -> Iterator[str]:
    """Yield every check, by the premise that it guards."""
    for premise in PREMISES:
        yield ""
        yield f"## Checks of `{premise}`"
        for entry in rules_catalogue():
            if entry.premise == premise:
                yield ""
                yield check_page(entry, 3).rstrip("\n")


def _words() -> Iterator[str]:
    yield ""
    yield "## Words"
    yield ""
    for word, text in sorted(WORDS.items()):
        yield f"- **{word}**: {text}"
    yield ""


_RESTS: Final = """## What a claim rests on

A rule violates a premise of an arm or of a report, never "everything". A claim is **evidence** where no premise that it
needs is missing; **valid** where `bound`, `code` and `attempts` hold and others, which are named, do not; **nothing**
otherwise. A report has the class of its primary claim, or is **recorded**. It is **rejected** where `bound` falls or a
recomputation contradicts it. `kakeya-mac gate explain CLAIM ID` shows the premises of a claim of a run.
"""


def _premises() -> Iterator[str]:
    yield _RESTS
    yield "| premise | holds when | seen by | rules |"
    yield "|---|---|---|---|"
    for name, premise in PREMISES.items():
        codes = [f"[{entry.code}](#{entry.code.lower()})" for entry in rules_catalogue() if entry.premise == name]
        yield f"| `{name}` | {premise.holds_when} | {premise.seen_by} | {' '.join(codes)} |"
    yield ""
    yield "### Least premises"
    yield ""
    yield "Fixed in the gate; a kind of report adds, never takes away."
    yield ""
    yield f"| claim | says | {' | '.join(PREMISES)} |"
    yield f"|---|---|{'---|' * len(PREMISES)}"
    for word, entry in CLAIM_KINDS.items():
        yield f"| {word} | {entry.says} | {' | '.join('x' if one in entry.least else '' for one in PREMISES)} |"
    yield ""
    yield "### Claims of every kind of report"
    yield ""
    yield "| kind | claim | unit | better | sort | rules that guard it |"
    yield "|---|---|---|---|---|---|"
    for kind in kinds().values():
        for metric in kind.metrics:
            codes = [code for one in metric.needs for code in _guards(one, kind.name)]
            yield (
                f"| {kind.name} | `{metric.pattern}` | {metric.unit} | {metric.better or '-'} | {metric.kind} | "
                f"{' '.join(codes)} |"
            )


def _numbers() -> Iterator[str]:
    yield "## The numbers"
    yield ""
    yield "Every threshold is data with a reason; changing one changes the gate's digest, which every verdict carries."
    smoke, claim = profiles.reasons("smoke"), profiles.reasons("claim")
    yield ""
    yield "| number | smoke | claim | why (claim) |"
    yield "|---|---|---|---|"
    for key, (value, why) in claim.items():
        yield f"| `{key}` | {smoke[key][0]} | {value} | {why} |"
