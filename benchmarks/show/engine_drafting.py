"""What the issue on the engine's reach promises to show of drafting."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.show import own_tests
from benchmarks.show.line import Line
from benchmarks.show.proofs import proved
from benchmarks.studies.drafting_choice import CHOICE, COLD, NATIVE, SETS, SINGLE
from benchmarks.studies.report import FOLDER, report_of
from engine.measurement.ratio import paired_ratio

STUDIES = "make studies AREA=engine"
Spent = dict[tuple[str, str], float]


def spent(kind: str) -> dict[str, Spent]:
    """Return by set the seconds of each prompt and way."""
    found: dict[str, Spent] = {}
    for entry in report_of("engine", "drafting-choice", FOLDER).entries():
        for row in entry["rows"]:
            found.setdefault(entry["case"].split(",")[0], {})[row["prompt"], row["way"]] = row[kind]
    return found


def ratio(seconds: Spent, slow: str, fast: str) -> str:
    """Return how much faster one way was than another, with its interval over prompts."""
    prompts = sorted({prompt for prompt, _ in seconds})
    found = paired_ratio([seconds[each, slow] for each in prompts], [seconds[each, fast] for each in prompts])
    return f"{found.value:.2f}x [{found.low:.2f}, {found.high:.2f}]"


def best(seconds: Spent, ways: Sequence[str]) -> str:
    """Return the way that took least in all."""
    return min(ways, key=lambda way: sum(took for (_, each), took in seconds.items() if each == way))


def beside_singles() -> str | None:
    """Return by text the speed of choosing beside the best single drafter."""
    by_clock, by_processor = spent("wall_s"), spent("processor_s")
    if len(by_clock) < len(SETS):
        return None
    said = []
    for name in SETS:
        single = best(by_processor[name], [*SINGLE, NATIVE])
        processor, clock = (ratio(found[name], single, CHOICE) for found in (by_processor, by_clock))
        said.append(f"{name}: {processor} of {single} by processor time, {clock} by clock")
    return "; ".join(said)


def beside_plain() -> str | None:
    """Return by text the speed of choosing from cold beside the library's plain decoding, by clock."""
    found = spent("wall_s")
    return (
        "; ".join(f"{name}: {ratio(found[name], NATIVE, COLD)}" for name in SETS) if len(found) == len(SETS) else None
    )


LINES = (
    Line(
        "choosing a drafter at each step: ≥ 0.97 of the best single drafter of each text, better than each on mixed",
        STUDIES,
        beside_singles,
    ),
    Line("over 512 tokens, cold: lower bound ≥ .95 of plain decoding by wall clock", STUDIES, beside_plain),
    proved(
        "the same on recorded answers and costs: ≥ 0.97, better on mixed, cold ≥ .98 of plain decoding",
        "engine",
        "choices on recorded costs",
    ),
    own_tests.adds("engine"),
)
