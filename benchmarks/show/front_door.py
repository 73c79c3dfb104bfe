"""What the issue on the front door promises to show."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from benchmarks.show import own_tests
from benchmarks.show.line import Line
from benchmarks.show.proofs import proved
from benchmarks.studies import docs_site, inspector, pages, requester_size, requester_speed
from benchmarks.studies.report import ROOT, report_of

SCREENS = ROOT / "tests" / "unit" / "bridge" / "cli" / "golden" / "screens"
STUDIES = "make studies AREA=front-door"


def sizes() -> str | None:
    """Return what a requester installs."""
    measured = {entry["case"]: entry["rows"][0] for entry in report_of("front-door", "requester-size").entries()}
    said = [
        f"{case}: {row['bytes'] / 1e6:.0f} MB, {row['distributions']} distributions"
        for case in requester_size.CASES
        if (row := measured.get(case)) is not None
    ]
    return "; ".join(said) or None


def speed(case: str) -> Callable[[], str | None]:
    """Return a figure of what one command costs."""

    def figure() -> str | None:
        entries = report_of("front-door", requester_speed.STUDY.name).entries()
        row = next((entry["rows"][0] for entry in reversed(entries) if entry["case"] == case), None)
        return None if row is None else ", ".join(f"{name} {value}" for name, value in row.items())

    return figure


def looked_at() -> str | None:
    """Return what a browser made of the pages."""
    newest = {entry["case"]: entry["rows"] for entry in report_of("front-door", pages.STUDY.name).entries()}
    rows = [row for of in newest.values() for row in of]
    if not rows:
        return None
    overflow, said = max(row["overflow_px"] for row in rows), sum(len(row["console"]) for row in rows)
    return (
        f"{', '.join(newest)}: {len(rows)} views, {said} console messages, most overflow {overflow} px, "
        f"verdict found in {sum(row['verdict'] for row in rows)}, "
        f"at most {max(row['bytes'] for row in rows):,} bytes"
    )


def screens() -> str | None:
    """Return how many screens are kept at each width."""
    kept = Counter(path.stem.rpartition("-")[2] for path in SCREENS.glob("*.txt"))
    return "; ".join(f"{count} situations at {width} columns" for width, count in sorted(kept.items())) or None


def inspected() -> str | None:
    """Return what the MCP Inspector made of the tools, by situation."""
    newest = {entry["case"]: entry["rows"] for entry in report_of("front-door", inspector.STUDY.name).entries()}
    said = []
    for case, rows in newest.items():
        calls = [row for row in rows if "era" in row]
        counts = [f"{row['what']} {row['count']}" for row in rows if "count" in row]
        answers = f"{len(calls)} calls, {sum(row['error'] for row in calls)} answered with an error"
        said.append(f"{case}: {answers}, at most {max(row['bytes'] for row in calls):,} bytes")
        said[-1] += f" ({', '.join(counts)})" if counts else ""
    return "; ".join(said) or None


def site() -> str | None:
    """Return what came of the docs site."""
    rows = [entry["rows"][0] for entry in report_of("front-door", docs_site.STUDY.name).entries()]
    if not rows:
        return None
    row = rows[-1]
    return (
        f"{row['pages']} pages built with {', '.join(row['interfaces while it was built'])} as only interface; "
        f"{row['links inside']:,} links between them followed, {len(row['broken'])} broken"
    )


LINES = (
    Line(
        "a requester's installation: at most 65 MB and 26 distributions, with signature verification and judging",
        STUDIES,
        sizes,
    ),
    proved(
        "a scripted MCP client that reads only tool descriptions lists, runs, is cut off, resumes, reads a verdict, "
        "quotes; 1,000 malformed JSON-RPC messages: no crash, nothing run",
        "front-door",
        "a scripted MCP client",
    ),
    proved("a run of 2 h (virtual clock) under a client with 60 s time-outs", "front-door", "a run of two hours"),
    Line("`--help` at most 2x `python -c pass`", STUDIES, speed("help")),
    Line("`status` at most 0.35 s of CPU", STUDIES, speed("status")),
    Line("`ls` of 10,000 runs at most 0.5 s", STUDIES, speed("ls")),
    proved(
        "docs/comparison.md beside pueue, gh, uv, dstack, Buildkite's agent and GPU MCP servers, every have with its "
        "command",
        "front-door",
        "comparison",
    ),
    proved(
        "fresh HOME, requester only, over ssh and http remotes, with printed lines only", "front-door", "a fresh HOME"
    ),
    proved(
        "proxies (`https_proxy` only), tokens limited to one branch prefix and killed shells are tried",
        "front-door",
        "a closed place",
    ),
    proved("`summary.md` with a small plot for pull requests", "front-door", "a summary's plot"),
    proved("every command line in README and guides executed or parsed by a test", "front-door", "every command line"),
    Line(
        "pages of a claim run, a failure, a sweep, a rejected forgery: screenshots committed, looked at",
        STUDIES,
        looked_at,
    ),
    Line(
        "screens as text snapshots for 12 situations at 80 and 120 columns",
        "python -m pytest -n 0 -q tests/unit/bridge/cli/test_screens.py",
        screens,
    ),
    Line(
        f"the MCP Inspector over stdio: lists, runs, reads a verdict, quotes; {len(inspector.ODD)} odd calls send "
        "nothing",
        f"{STUDIES} STUDY={inspector.STUDY.name}",
        inspected,
    ),
    Line("docs site, built offline, links checked", f"{STUDIES} STUDY={docs_site.STUDY.name}", site),
    own_tests.adds("front-door"),
)
