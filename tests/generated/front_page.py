"""What the front page shows of committed runs: its picture in a light and a dark theme, and lines of its first run.

Nothing in them is typed: both are what the commands say of the bundles in docs/evidence, judged by the gate here.
"""

from __future__ import annotations

import math
import re
import shlex
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from bridge.client.clone.packed import SUFFIX
from bridge.client.connection.pins import Pins
from bridge.client.evidence.judged import JudgedResult
from bridge.client.evidence.standing import StandingSet, quote_set
from bridge.gate.render.table import NAME_COLUMNS, rows
from bridge.launches.attempts import ShownInterval
from bridge.presets.installed import registry
from bridge.trust.judgement import KeyAuthority, NamedKey
from tests.drift import ROOT
from tests.support.committed import EVIDENCE, SMOKE

PICTURED: Final = EVIDENCE / "standing"
"""The sittings of the standing claim that is drawn."""
DEMO: Final = re.compile(r"(<!-- generated: the first run -->\n```\n).*?(```\n<!-- end -->)", re.DOTALL)
SHOWN: Final = ("passed", "quote", "speed", "acceptance", "identity")
"""The lines of the first run that the front page shows."""
LINE_MOST_CHARS: Final = 118
WIDTH, LEFT, RIGHT = 880, 60, 820
LOAD_LEAST, LOAD_HEIGHT = 14.0, 110.0
"""Height of a sitting without load above the axis, and how much further up all of the machine would be."""
WRAPPED_CHARS: Final = 98
KEY: Final = re.compile(r"--runner-key embedded=(\S+)")
THEMES: Final[Mapping[str, Mapping[str, str]]] = {
    "light": {"paper": "#fff", "edge": "#d0d7de", "ink": "#1f2328", "dim": "#59636e", "good": "#1a7f37", "dot": "#26c"},
    "dark": {"paper": "#0d1117", "edge": "#3d444d", "ink": "#eef", "dim": "#9198a1", "good": "#56d364", "dot": "#7bf"},
}  # fmt: skip


@dataclass(frozen=True)
class Axis:
    """Maps ratios onto the picture from left to right.

    Attributes:
        low: tenth at the left end.
        high: tenth at the right end.
    """

    low: int
    high: int

    @classmethod
    def over(cls, ratios: Sequence[float]) -> Axis:
        """Return the axis of whole tenths that has room for all ratios."""
        return cls(math.floor(min(ratios) * 10), math.ceil(max(ratios) * 10))

    def at(self, ratio: float) -> float:
        """Return where a ratio lies, in the picture's units."""
        return round(LEFT + (ratio * 10 - self.low) / (self.high - self.low) * (RIGHT - LEFT), 1)

    def ticks(self) -> list[tuple[float, str]]:
        """Return where each tenth lies, with its text."""
        return [(self.at(tenth / 10), f"{tenth / 10:.1f}x") for tenth in range(self.low, self.high + 1)]


def generate() -> dict[str, str]:
    """Return both pictures and the front page by path."""
    standing = quotable()
    pictures = {
        f"docs/pictures/standing-claim-{theme}.svg": picture(standing, colours) for theme, colours in THEMES.items()
    }
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


def quotable(folder: Path = PICTURED) -> StandingSet:
    """Return the committed sittings whose claim is drawn.

    Raises:
        ValueError: their claim may not be quoted, so that it is no picture of one.
    """
    packed = sorted(folder.glob(f"*{SUFFIX}"))
    standing = StandingSet.of([JudgedResult.of_folder(path, evidence_pins()) for path in packed])
    if standing.primary is None or standing.primary.why:
        reasons = "no ratio" if standing.primary is None else "; ".join(standing.primary.why)
        raise ValueError(f"{folder.name} may not be quoted here: {reasons}; draw other results")
    return standing


def first_run() -> Iterator[str]:
    """Yield lines of the committed first run as its own host shows them, each cut to what a page shows."""
    result = JudgedResult.of_folder(SMOKE, Pins()).result
    for name, text in rows(result.judged(signed=True), result.record):
        if name in SHOWN:
            line = f"{name.ljust(NAME_COLUMNS - 1)} {text}"
            yield line if len(line) <= LINE_MOST_CHARS else f"{line[: LINE_MOST_CHARS - 1].rstrip()}…"


def picture(standing: StandingSet, colours: Mapping[str, str]) -> str:
    """Return a standing claim as SVG: the command, each sitting by ratio and load, the intervals, and its words."""
    claim, request = standing.primary, standing.sittings[0].result.request
    if claim is None or claim.ratio is None or request is None:
        raise ValueError("the sittings have no ratio or no request")
    ends = [(end, ShownInterval.of(end, claim.looks)) for end in claim.ratio.ends]
    ratios = [math.exp(sitting.log_ratio) for sitting in claim.sittings]
    axis = Axis.over([*ratios, *(bound for _, shown in ends for bound in (shown.low, shown.high))])
    usual = registry()[request.preset].params
    given = {name: value for name, value in request.params.items() if value != usual[name].default}
    params = "".join(f" -p {shlex.quote(f'{name}={value}')}" for name, value in given.items())
    return _templates().get_template("picture.svg.jinja").render(
        colours=colours,
        width=WIDTH,
        command=f"kakeya-mac run {request.preset}{params} --profile standing --sittings {len(ratios)} --wait",
        label="decode speed-up: a dot a sitting, higher where others used more of the machine",
        marks=[(axis.at(ratio), _height(sitting.load)) for ratio, sitting in zip(ratios, claim.sittings, strict=True)],
        ends=[
            (axis.at(shown.low), axis.at(shown.value), axis.at(shown.high), _height(end.load), f"{end.load or 0:.0%}")
            for end, shown in ends
        ],
        ticks=axis.ticks(),
        sentence=textwrap.wrap(quote_set(standing).lines[0], WRAPPED_CHARS),
    )  # fmt: skip


def _height(load: float | None) -> float:
    """Return how far above the axis a share of the machine lies, in the picture's units."""
    return round(LOAD_LEAST + (load or 0.0) * LOAD_HEIGHT, 1)


@cache
def _templates() -> Environment:
    return Environment(loader=FileSystemLoader(Path(__file__).parent), autoescape=True, undefined=StrictUndefined)
