"""The rules for people: an entry and a page each, an index, the numbers; `docs/gate/` is generated from here."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from bridge.errors import UsageError
from bridge.gate import profiles
from bridge.gate.registry import rules
from bridge.gate.rule import RegisteredRule
from bridge.records import Severity

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
    "not_citable": "nothing it concerns may be quoted",
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
            f"no rule has the code {code!r}" + (f"; near: {', '.join(near[:6])}" if near else ""),
            remedy="kakeya-mac gate rules",
        )
    kinds = ", ".join(found.kinds) if found.kinds else "every kind"
    lines = [
        f"# {found.code}",
        "",
        found.message,
        "",
        f"- **Layer** {found.layer}, {LAYERS[found.layer]}",
        f"- **When it is violated** {CONSEQUENCE[found.severity]} (`{found.severity}`)",
        f"- **Looks at** {kinds}",
    ]
    if found.why:
        lines += ["", "## Why", "", found.why]
    lines += ["", "## What to do", "", found.remedy, ""]
    return "\n".join(lines)


def pages() -> dict[str, str]:
    """Return file name to text: a page per rule, the index, the numbers."""
    found = {f"{entry.code}.md": explain(entry.code) for entry in rules_catalogue()}
    found["README.md"] = "\n".join(_index()) + "\n"
    found["profiles.md"] = "\n".join(_numbers()) + "\n"
    return found


def _index() -> Iterator[str]:
    yield "# The rules of the evidence gate"
    yield ""
    yield "A number may be quoted only if the gate says `evidence`. Each rule has a code that never changes, a page, a"
    yield "remedy, and a run that breaks it in the tests. `kakeya-mac gate rules` lists them, `gate explain CODE` shows"
    yield "a page. The seed's codes are mapped in [from-the-seed.md](from-the-seed.md), the numbers are in"
    yield "[profiles.md](profiles.md)."
    for layer, name in LAYERS.items():
        mine = [entry for entry in rules_catalogue() if entry.layer == layer]
        yield ""
        yield f"## {layer} {name}"
        yield ""
        yield "| rule | what must hold | otherwise |"
        yield "|---|---|---|"
        for entry in mine:
            yield f"| [{entry.code}]({entry.code}.md) | {entry.message} | {CONSEQUENCE[entry.severity]} |"


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
