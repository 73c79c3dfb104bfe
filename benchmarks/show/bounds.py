"""What the gate's bounds on scatter, first turns and long launches would refuse of the committed claim runs."""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable

from benchmarks.claim_runs.campaign import KEPT
from benchmarks.show.line import Line
from bridge.gate.facts.launch_series import Series, decoded_early, references, solo_ratios
from bridge.gate.rules.launches import LONGEST_MOST
from bridge.launches.checks import DECODING_MOST, HANDICAP_UNKNOWN, PREFILL_MOST, handicap_at_most, solo_unknown
from bridge.limits import REPORT_MAX_BYTES
from bridge.records import JobSpec, RunRecord
from bridge.run.stop_rule import finished

RUNS, COUNTS, SEED = 4000, (8, 10, 15, 20), 1
Pairs = list[tuple[float, float]]


def series() -> list[Series]:
    """Return the launches of each committed claim run."""
    found = []
    for folder in sorted(path.parent for path in KEPT.glob("*/run.json")):
        spec = JobSpec.parse((folder / "spec.json").read_bytes(), max_bytes=REPORT_MAX_BYTES)
        record = RunRecord.parse((folder / "run.json").read_bytes(), max_bytes=REPORT_MAX_BYTES)
        (plan,) = (command.launches for command in spec.commands if command.launches is not None)
        found.append(Series(plan, record.launches, tuple(finished(plan, record.launches, "decode"))))
    return found


def kept_share(values: Pairs, count: int, keeps: Callable[[list[float], list[float]], bool]) -> float:
    """Return how many of ``RUNS`` runs of so many launches, drawn from one run's own, keep a bound."""
    drawn, kept_runs = random.Random(SEED), 0
    for _ in range(RUNS):
        first, second = zip(*drawn.choices(values, k=count), strict=True)
        kept_runs += keeps(list(first), list(second))
    return kept_runs / RUNS


def _steady(solo: list[float], turns: list[float]) -> bool:
    return not solo_unknown(solo, turns)


def _known(own: list[float], reference: list[float]) -> bool:
    return handicap_at_most(own, reference) <= HANDICAP_UNKNOWN


def kept() -> str | None:
    """Return what the bounds leave of runs resampled from the committed ones, and how near these come to the others."""
    runs = series()
    if not runs:
        return None
    said = []
    for count in COUNTS:
        least = [
            min(kept_share(list(zip(*of(one), strict=True)), count, keeps) for one in runs)
            for of, keeps in ((solo_ratios, _steady), (references, _known))
        ]
        said.append(f"{count} launches: {least[0] * 100:.1f} % alone, {least[1] * 100:.1f} % beside the reference")
    early = [statistics.fmean(decoded_early(one, PREFILL_MOST)) for one in runs]
    lasted = [[record.ended_s - record.started_s for record in one.counted] for one in runs]
    longest = max(max(times) / statistics.median(times) for times in lasted)
    return (
        f"of {RUNS} runs drawn from the launches of the run that scatters most keep the bounds on scatter, with "
        f"{'; '.join(said)}; first turns beyond {PREFILL_MOST:g} times the baseline's "
        f"{min(early):.2f} to {max(early):.2f} of decoding (at most {DECODING_MOST:g}); longest launch {longest:.2f} "
        f"times the median (at most {LONGEST_MOST:g})"
    )


LINES = (
    Line(
        "bounds that claim runs have to keep, on launches resampled from the committed ones",
        "make show AREA=evidence",
        kept,
    ),
)
