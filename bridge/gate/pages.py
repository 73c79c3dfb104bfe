"""The pages of `docs/gate/`, generated from the rules so that they cannot drift; who writes them is not known here."""

from __future__ import annotations

from collections.abc import Iterator

from bridge.gate import profiles
from bridge.gate.catalogue import CONSEQUENCE, LAYERS, explain, rules_catalogue


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
