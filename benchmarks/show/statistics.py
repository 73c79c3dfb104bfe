"""What the issue on evidence promises to show of the rule over launches."""

from __future__ import annotations

from benchmarks.equal_arms import campaign
from benchmarks.equal_arms.figures import figures
from benchmarks.show.line import Line
from benchmarks.simulation.page import bars, done, rows
from benchmarks.studies import confirmations

STUDIES = "make studies AREA=evidence"


def simulated() -> str | None:
    """Return every bar with its worst cell, and how much of the simulation is done."""
    found = bars(rows("simulation"))
    count, of = done()
    return "; ".join(str(bar) for bar in found) + f"; {count} of {of} cases done" if found else None


def known_failures() -> str | None:
    """Return the coverage of two-mode launches and of ratios that persist."""
    two = [row["covered"] / row["runs"] for row in rows("simulation") if row["effect"] == "two-mode" and row["sd"] > 0]
    kept = [row["covered"] / row["runs"] for row in rows("known-failures") if "persists" in row["name"]]
    if not two or not kept:
        return None
    (low, high), (least, most) = ((min(shares), max(shares)) for shares in (two, kept))
    return f"two-mode launches cover {low:.2f} to {high:.2f}, ratios that persist {least:.2f} to {most:.2f}"


def beginnings() -> str | None:
    """Return what cancelling runs that begin badly gains."""
    for row in rows("known-failures"):
        if "false_faster_dropped" in row:
            dropped, taken = (row[name] / row["runs"] * 100 for name in ("false_faster_dropped", "false_faster"))
            return (
                f"equal programs called faster: {dropped:.2f} % if cut launches were dropped, {taken:.2f} % by the rule"
            )
    return None


def equal_arms() -> str | None:
    """Return what the runs of a model against its copy came to, and how many of them are done."""
    found = figures(rows(campaign.STUDY.name))
    return None if found is None else f"{found.runs} of {campaign.RUNS}: {found}"


def confirmed() -> str | None:
    """Return how a run that was begun to confirm another is counted, and what is refused."""
    found = rows(confirmations.STUDY.name)
    return confirmations.summary(found) if found else None


LINES = (
    Line(
        "simulated, Gaussian and t3 launches: coverage ≥ .94, false citable ≤ .5 % each sign, 5 % slower faster in "
        "≤ 1 of 10⁴, power ≥ 90 % at 1.10 in every turn cell up to launch sd 6 %",
        STUDIES,
        simulated,
    ),
    Line("two-mode launches and persisting ratios printed beside, no bar", STUDIES, known_failures),
    Line("dropping bad beginnings gains nothing", STUDIES, beginnings),
    Line(
        "an A/A campaign of 40 claim runs of 8 launches of 64 tokens, without blocks (≤ 2 minutes each; copied "
        "candidate): the count, its bound, the between-run sd, the rate by resampling launches across runs",
        STUDIES,
        equal_arms,
    ),
    Line("a run begun with --confirms is one look, and only of its own question", STUDIES, confirmed),
)
