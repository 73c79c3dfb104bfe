"""The rules for people: an entry and a page each, an index, the numbers; `docs/gate/` is generated from here."""

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
from bridge.records.verdict import Premise, Severity

LAYERS: Final = {
    "G0": "shape",
    "G1": "binding",
    "G2": "provenance",
    "G3": "liveness",
    "G4": "consistency",
    "G5": "statistics",
    "G6": "identity",
    "G7": "memory",
    "G8": "environment",
    "G9": "integrity",
}
CONSEQUENCE: Final[dict[Severity, str]] = {
    "reject": "the run is rejected",
    "violation": "the premise falls from the claims it concerns",
    "note": "it is said, nothing more",
}


def rules_catalogue() -> tuple[RegisteredRule, ...]:
    """Return every rule in the order of its layer and code."""
    return tuple(rules().values())


def explain(code: str) -> str:
    """Return a rule's page as markdown.

    Raises:
        UsageError: no rule has this code.
    """
    found = rules().get(code.upper())
    if found is None:
        near = [known for known in rules() if code.upper() in known or known.split("-", 1)[0] == code.upper()]
        raise UsageError(
            f"no rule has the code {code!r}; {meant(code.upper(), near or list(rules()), most=6)}",
            remedy="kakeya-mac gate rules",
        )
    kinds = ", ".join(found.kinds) if found.kinds else "every kind"
    lines = [
        f"# {found.code}",
        "",
        found.message,
        "",
        f"- **Layer** {found.layer}, {LAYERS[found.layer]}",
        f"- **Guards** the premise `{found.premise}`: {PREMISES[found.premise].holds_when}",
        f"- **When it is violated** {CONSEQUENCE[found.severity]} (`{found.severity}`)",
        f"- **Looks at** {kinds}",
    ]
    if found.why:
        lines += ["", "## Why", "", found.why]
    lines += ["", "## What to do", "", found.remedy, ""]
    return "\n".join(lines)


def needs(claim: str) -> str:
    """Return what a claim needs in every kind that makes it, as markdown.

    Raises:
        UsageError: no kind makes such a claim.
    """
    lines: list[str] = []
    for kind in kinds().values():
        for metric in kind.metrics:
            if fnmatchcase(claim, metric.pattern) or claim == metric.pattern:
                lines += [f"{claim} of {kind.name}: {CLAIM_KINDS[metric.kind].says} ({metric.kind})"]
                lines += [f"  {one:<9} {PREMISES[one].holds_when}; seen by {PREMISES[one].seen_by}; "
                          f"{' '.join(_guards(one, kind.name))}" for one in metric.needs]  # fmt: skip
    if not lines:
        known = sorted({metric.pattern.rstrip("_*") for kind in kinds().values() for metric in kind.metrics})
        raise UsageError(f"no kind of report claims {claim!r}; {meant(claim, known)}", remedy="kakeya-mac gate rules")
    return "\n".join(lines)


def _guards(premise: Premise, kind: str) -> list[str]:
    return [entry.code for entry in rules_catalogue() if entry.premise == premise and entry.looks_at(kind)]


def pages() -> dict[str, str]:
    """Return file name to text: a page per rule, the index, the numbers."""
    found = {f"{entry.code}.md": explain(entry.code) for entry in rules_catalogue()}
    found["README.md"] = "\n".join(_index()) + "\n"
    found["premises.md"] = "\n".join(_premises()) + "\n"
    found["profiles.md"] = "\n".join(_numbers()) + "\n"
    return found


def _index() -> Iterator[str]:
    yield "# The rules of the evidence gate"
    yield ""
    yield "A number may be quoted only if the gate says `evidence`. Each rule has a code that never changes, a page, a"
    yield "remedy, and a run that breaks it in the tests. `kakeya-mac gate rules` lists them, `gate explain CODE` shows"
    yield "a page. What claims rest on, and which rules guard what, is in [premises.md](premises.md). The seed's codes"
    yield "are mapped in [from-the-seed.md](from-the-seed.md), the numbers are in [profiles.md](profiles.md),"
    yield "which speeds can be quoted of which preset is in [speed-claims.md](speed-claims.md),"
    yield "and what coordinated cheats lose, or why nothing sees them, is in [forgeries.md](forgeries.md)."
    for layer, name in LAYERS.items():
        mine = [entry for entry in rules_catalogue() if entry.layer == layer]
        yield ""
        yield f"## {layer} {name}"
        yield ""
        yield "| rule | premise | what must hold | otherwise |"
        yield "|---|---|---|---|"
        for entry in mine:
            said = CONSEQUENCE[entry.severity]
            yield f"| [{entry.code}]({entry.code}.md) | `{entry.premise}` | {entry.message} | {said} |"


_RESTS: Final = """# What a claim rests on

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
        codes = [f"[{entry.code}]({entry.code}.md)" for entry in rules_catalogue() if entry.premise == name]
        yield f"| `{name}` | {premise.holds_when} | {premise.seen_by} | {' '.join(codes)} |"
    yield ""
    yield "## Least premises"
    yield ""
    yield "Fixed in the gate; a kind of report adds, never takes away."
    yield ""
    yield f"| claim | says | {' | '.join(PREMISES)} |"
    yield f"|---|---|{'---|' * len(PREMISES)}"
    for word, entry in CLAIM_KINDS.items():
        yield f"| {word} | {entry.says} | {' | '.join('x' if one in entry.least else '' for one in PREMISES)} |"
    yield ""
    yield "## Claims of every kind of report"
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
    yield "# The numbers"
    yield ""
    yield "Every threshold is data with a reason; changing one changes the gate's digest, which every verdict carries."
    smoke, claim = profiles.reasons("smoke"), profiles.reasons("claim")
    yield ""
    yield "| number | smoke | claim | why (claim) |"
    yield "|---|---|---|---|"
    for key, (value, why) in claim.items():
        yield f"| `{key}` | {smoke[key][0]} | {value} | {why} |"
