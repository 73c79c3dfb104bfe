"""What the front page shows of committed runs: its picture in a light and a dark theme, and lines of its first run.

Nothing in them is typed: both are what the commands say of the bundles in docs/evidence, judged by the gate here.
"""

from __future__ import annotations

import re
import shlex
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from bridge.client.connection.pins import Pins
from bridge.client.evidence.judged import JudgedResult
from bridge.client.evidence.quote import sentence
from bridge.gate.render.table import NAME_COLUMNS, rows
from bridge.records.verdict import ClaimResult
from bridge.trust.judgement import KeyAuthority, NamedKey
from tests.drift import ROOT
from tests.support.committed import EVIDENCE, SMOKE

PICTURED: Final = EVIDENCE / "line-fit.tar.xz"
DEMO: Final = re.compile(r"(<!-- generated: the first run -->\n```\n).*?(```\n<!-- end -->)", re.DOTALL)
SHOWN: Final = ("passed", "quote", "speed", "acceptance", "identity")
"""The lines of the first run that the front page shows."""
LINE_MOST_CHARS: Final = 118
WIDTH, LEFT, RIGHT = 880, 40, 840
WRAPPED_CHARS: Final = 98
KEY: Final = re.compile(r"--runner-key embedded=(\S+)")
THEMES: Final[Mapping[str, Mapping[str, str]]] = {
    "light": {"paper": "#fff", "edge": "#d0d7de", "ink": "#1f2328", "dim": "#59636e", "good": "#1a7f37", "dot": "#26c"},
    "dark": {"paper": "#0d1117", "edge": "#3d444d", "ink": "#eef", "dim": "#9198a1", "good": "#56d364", "dot": "#7bf"},
}  # fmt: skip


@dataclass(frozen=True)
class Axis:
    """Maps a claim's numbers onto the picture, with a fifth of their range free on either side."""

    low: float
    high: float

    def at(self, number: float) -> float:
        """Return where a number lies, in the picture's units."""
        margin = (self.high - self.low) / 5
        share = (number - self.low + margin) / (self.high - self.low + 2 * margin)
        return round(LEFT + share * (RIGHT - LEFT), 1)


def generate() -> dict[str, str]:
    """Return both pictures and the front page by path."""
    judged = quotable()
    pictures = {f"docs/pictures/first-claim-{theme}.svg": picture(judged, colours) for theme, colours in THEMES.items()}
    page = (ROOT / "README.md").read_text("utf-8")
    lines = "".join(f"{line}\n" for line in first_run())
    return pictures | {"README.md": DEMO.sub(lambda match: f"{match[1]}{lines}{match[2]}", page)}


def evidence_pins() -> Pins:
    """Return the keys that the page of the committed evidence gives.

    Raises:
        ValueError: it gives none.
    """
    keys = dict.fromkeys(KEY.findall((EVIDENCE / "README.md").read_text("utf-8")))
    if not keys:
        raise ValueError("docs/evidence/README.md gives no key; expected `--runner-key embedded=KEY` in a command")
    named = tuple(NamedKey("embedded", key) for key in keys)
    return Pins(KeyAuthority(named, where="docs/evidence/README.md", closed=False))


def quotable(path: Path = PICTURED) -> JudgedResult:
    """Return the committed result that is drawn.

    Raises:
        ValueError: nothing of it may be quoted, so that it is no picture of a claim.
    """
    judged = JudgedResult.of_folder(path, evidence_pins())
    if judged.quotation is None or judged.quotation.word != "quotable":
        raise ValueError(f"{path.name} may not be quoted here: {judged.quotation}; draw another result")
    return judged


def first_run() -> Iterator[str]:
    """Yield lines of the committed first run as its own host shows them, each cut to what a page shows."""
    result = JudgedResult.of_folder(SMOKE, Pins()).result
    for name, text in rows(result.judged(signed=True), result.record):
        if name in SHOWN:
            line = f"{name.ljust(NAME_COLUMNS - 1)} {text}"
            yield line if len(line) <= LINE_MOST_CHARS else f"{line[: LINE_MOST_CHARS - 1].rstrip()}…"


def picture(judged: JudgedResult, colours: Mapping[str, str]) -> str:
    """Return a claim of a result as SVG: the command, each seed's number, the interval, and what may be said."""
    result, verdict = judged.result, judged.verdict
    if verdict is None or result.record is None or result.request is None or judged.answer is None:
        raise ValueError(f"{result.id} lacks its verdict, record, request or signature")
    (claim,) = verdict.claims
    request = result.request
    params = " ".join(f"-p {shlex.quote(f'{name}={value}')}" for name, value in request.params.items())
    low, high = claim.interval or (0.0, 0.0)
    values: Sequence[float] = claim.detail["values"]
    axis = Axis(min(low, *values), max(high, *values))
    return _templates().get_template("picture.svg.jinja").render(
        colours=colours,
        width=WIDTH,
        command=f"kakeya-mac run {request.preset} {params} --profile {request.profile} --wait",
        ended=_row(dict(rows(verdict, result.record))["passed"]),
        label=f"{claim.metric}, {claim.unit}",
        marks=[axis.at(value) for value in values],
        low=axis.at(low),
        high=axis.at(high),
        middle=axis.at(_value(claim)),
        numbers=[(axis.at(number), f"{number:.4f}") for number in (low, _value(claim), high)],
        sentence=textwrap.wrap(sentence(claim, result, result.record, judged.answer), WRAPPED_CHARS),
    )  # fmt: skip


def _value(claim: ClaimResult) -> float:
    if claim.value is None:
        raise ValueError(f"{claim.id} has no value")
    return claim.value


def _row(text: str) -> str:
    return re.sub(r" {2,}", "  ·  ", text)


@cache
def _templates() -> Environment:
    return Environment(loader=FileSystemLoader(Path(__file__).parent), autoescape=True, undefined=StrictUndefined)
