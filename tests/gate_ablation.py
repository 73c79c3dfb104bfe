"""Which checks of the gate decide: `python -m tests.gate_ablation`, or `make gate-ablation`.

Judges planted breaks, cheats, coordinated forgeries and one-place mutants of honest runs once each, and takes the
checks out one after another. A check decides a case where a claim of it may be quoted as soon as the check is out,
while all that were not taken out before still look. What decides nothing, or only the break that was planted for it,
is taken out unless `KEPT` says why it stays. Goes on where it stopped, by the gate's digest; `--write` writes
docs/gate/ablation.md.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from bridge.gate.catalogue import rules_catalogue
from bridge.gate.identity import identity
from bridge.gate.judging import judge
from bridge.records.verdict import Verdict
from tests.corpus.gate.breaks import BREAKS, CHANGES, honest
from tests.corpus.gate.builders import Case
from tests.corpus.gate.cheats import CHEATS
from tests.corpus.gate.mutator import Judge, Mutant, mutants
from tests.corpus.gate.studies import BUILDERS
from tests.corpus.gate.twins import TWINS

ROOT: Final = Path(__file__).parents[1]
PAGE: Final = ROOT / "docs" / "gate" / "ablation.md"
FORGERIES: Final = ROOT / "docs" / "evidence" / "studies" / "forgeries.jsonl"
SEED: Final = 3
MUTANTS: Final = 240
"""Most mutants of one honest run's report, and of its record."""
RECORDS: Final = ("probe", "turned", "claim", "request_code", "trained", "paired")
"""Honest runs whose record is changed too: the others' have the same fields."""
CLAIMED: Final = ("claim", "turned", "native", "acceptance", "request_code")
"""Honest runs that carry claims: what is planted in a small one, which carries none, is planted there too."""
SOURCES: Final = ("forgery", "cheat", "break", "report", "record")
KEPT: Final[Mapping[str, str]] = {
    "G1-PROFILE": "an unknown profile has no thresholds to judge by; only the job spec names it",
    "G2-AUTHORITY": "cases are judged as by their host; of a fetched result that nobody signed it is the only one",
    "G2-DRAWN": "kinds without a schedule of arms have no order to draw again: it alone asks them for the nonce",
    "G2-ENDPOINT": "which program answers on a port that was open before is in no file of the run",
    "G2-PEER": "G2-TRUST refuses the same runs; it names what was missing",
    "G2-TRUST": "whose code wrote the report is in no field of it",
    "G3-APART": "a server that works in the other's turns answers every request as it should",
    "G3-PROBE": "a probe that says no must not look like one that said yes",
    "G3-WAIT4": "owners' programs have no turns and no reference: processor time is all that is seen of them",
    "G4-ARMS": "which of two baselines is taken would be the program's choice",
    "G4-CLAIM": "rows that no claim can be computed of would pass as a run that claims nothing",
    "G4-SERVED": "requests that failed are in no time, so who refuses what is slow would look fast",
    "G5-BUDGET": "what is tolerated adds up: each part by itself passes (docs/evidence/simulation.md)",
    "G5-LAUNCHES": "a run that goes on after its rule stopped would choose its end; only the runner starts launches",
    "G5-PAIRS": "the error rates of a ratio were simulated for its rule over pairs and for no other",
    "G5-SEEDS": "who may choose seeds may choose the result; the runner makes them",
    "G5-UNKNOWN": "kept and prepared answers are right answers: only prompts that nobody knew show them",
    "G6-RUNGS": "two rungs that never drafted are equal, and the recompute command asks of drafts alone",
    "G7-BOUNDED": "the recompute command allocates by the same code; what a layout must hold is arithmetic",
    "G9-CAPS": "a result that no reader accepts is said before it is sealed",
}
"""Why a check stays that decides nothing here but the break that was planted for it."""


@dataclass(frozen=True)
class Outcome:
    """What stands against the claims of one case.

    Attributes:
        name: the case; of a planted break the check.
        source: one of `SOURCES`, or `twin` of an honest run.
        refusing: checks of which one is enough to refuse the whole run.
        claims: of each claim the checks of which one is enough to take it; None where something else takes it, too.
    """

    name: str
    source: str
    refusing: tuple[str, ...]
    claims: Mapping[str, tuple[str, ...] | None]

    @classmethod
    def of(cls, name: str, source: str, verdict: Verdict) -> Outcome:
        """Return what a verdict says of a case."""
        codes = {entry.code for entry in rules_catalogue()}
        refusing = {row.code for row in verdict.findings if row.severity == "reject" or row.premise == "bound"}
        claims: dict[str, tuple[str, ...] | None] = {}
        for claim in verdict.claims:
            reasons = [reason.partition(":")[0] for row in claim.premises if not row.held for reason in row.why]
            claims[claim.id] = tuple(sorted(set(reasons))) if codes.issuperset(reasons) else None
        return cls(name, source, tuple(sorted(refusing)), claims)

    @property
    def fired(self) -> set[str]:
        """The checks that stand against any of it."""
        return {*self.refusing, *(code for codes in self.claims.values() for code in codes or ())}

    def quotable(self, without: set[str]) -> frozenset[str]:
        """Return the claims that may be quoted once some checks are out."""
        if not without.issuperset(self.refusing):
            return frozenset()
        return frozenset(name for name, codes in self.claims.items() if codes is not None and without.issuperset(codes))


def cases() -> Iterator[tuple[str, str, Callable[[], Verdict]]]:
    """Yield every case: its source, its name, and what judges it."""
    for code, build in BREAKS.items():
        authority = "unattested" if code == "G2-AUTHORITY" else "host"
        yield "break", code, lambda build=build, authority=authority: _judged(build(), authority)  # type: ignore[misc]
    for code, change in CHANGES.items():
        for base in CLAIMED:
            yield "break", f"{code} of {base}", lambda change=change, base=base: _changed(change, base)  # type: ignore[misc]
    for name, (_, _, build) in CHEATS.items():
        yield "cheat", name, lambda build=build: _judged(build())  # type: ignore[misc]
    for name, (build, _) in TWINS.items():
        yield "twin", name, lambda build=build: _judged(build())  # type: ignore[misc]
    for name in (*BUILDERS, "probe", "suite", "claim", "turned", "native", "smoke", "trained", "paired"):
        judging = Judge(honest(name))
        for document, value in judging.documents():
            if document == "report" or name in RECORDS:
                for mutant in _sampled(document, value):
                    place = f"{name} {mutant.pattern} {mutant.operator}"
                    yield document, place, lambda change=mutant, by=judging: by.verdict(change)  # type: ignore[misc]


def _sampled(document: str, value: Any) -> list[Mutant]:
    every = list(mutants(value, document, 1, SEED))
    return random.Random(SEED).sample(every, MUTANTS) if len(every) > MUTANTS else every


def _changed(change: Callable[[Case], Case | None], base: str) -> Verdict:
    """Judge an honest run that a planted break was made for another of; the honest one where it does not suit it."""
    case = honest(base)
    try:
        return _judged((change(case) or case).seal())
    except (AttributeError, IndexError, KeyError, TypeError, ValueError, AssertionError):
        return _judged(honest(base))


def _judged(case: Case, authority: Any = "host") -> Verdict:
    return judge(case.run_id, case.files(), case.record_value(), case.spec_value(), authority=authority)


def forgeries() -> Iterator[Outcome]:
    """Yield the coordinated forgeries that the real runner told, as their study recorded them."""
    codes = {entry.code: entry.premise for entry in rules_catalogue()}
    for line in FORGERIES.read_text("utf-8").splitlines():
        for row in json.loads(line).get("rows", ()):
            against = tuple(code for code in row["by"] if codes.get(code) == row["expected"])
            if against:
                name = row["forgery"] + (" at full size" if row["profile"] == "claim" else "")
                yield Outcome(name, "forgery", (), {f"premise {row['expected']}": against})


def outcomes(state: Path) -> list[Outcome]:
    """Return every case's outcome; those that the state holds are not judged again."""
    judged_before: dict[tuple[str, str], Outcome] = {}
    if state.exists():
        for line in state.read_text("utf-8").splitlines():
            row = json.loads(line)
            claims = {name: None if codes is None else tuple(codes) for name, codes in row["claims"].items()}
            judged_before[row["source"], row["name"]] = Outcome(
                row["name"], row["source"], tuple(row["refusing"]), claims
            )
    state.parent.mkdir(parents=True, exist_ok=True)
    last_line_s, result = time.monotonic(), list(forgeries())
    with state.open("a", encoding="utf-8") as lines:
        for source, name, verdict in cases():
            outcome = judged_before.get((source, name))
            if outcome is None:
                outcome = Outcome.of(name, source, verdict())
                lines.write(json.dumps(vars(outcome)) + "\n")
                lines.flush()
            result.append(outcome)
            if time.monotonic() - last_line_s > 30.0:
                last_line_s = time.monotonic()
                print(f"  {len(result)} cases, now {source} {name}", file=sys.stderr, flush=True)
    return result


def decided(code: str, every: Sequence[Outcome], out: set[str]) -> list[tuple[Outcome, frozenset[str]]]:
    """Return the cases that a check decides once others are out, each with the claims that could be quoted without."""
    cases_decided = []
    for outcome in every:
        if code in outcome.fired:
            more = outcome.quotable(out | {code}) - outcome.quotable(out)
            if more:
                cases_decided.append((outcome, more))
    return cases_decided


def is_own(code: str, outcome: Outcome) -> bool:
    """Whether a case is the break that was planted for a check."""
    return outcome.source == "break" and outcome.name.partition(" ")[0] == code


def sequence(every: Sequence[Outcome], reasons: Mapping[str, str] = KEPT) -> tuple[list[str], set[str]]:
    """Return the checks that can go one after another, and those that then decide nothing but their own break."""
    ours = [entry.code for entry in rules_catalogue() if entry.severity != "note"]
    every = [outcome for outcome in every if outcome.source != "twin"]
    by_check = {code: [outcome for outcome in every if code in outcome.fired] for code in ours}
    out: list[str] = []
    while True:
        alone: dict[str, int] = {}
        for code in ours:
            mine = [] if code in out else decided(code, by_check[code], set(out))
            if code not in out and all(is_own(code, outcome) for outcome, _ in mine):
                alone[code] = len(mine)
        free = sorted((code for code in alone if code not in reasons), key=lambda code: (alone[code], code))
        if not free:
            return out, set(alone)
        out.append(free[0])


def page(every: Sequence[Outcome]) -> str:
    """Return the tables as markdown."""
    lines = [_HEAD.format(cases=len(every), **{name: sum(case.source == name for case in every) for name in SOURCES})]
    lines += [f"| check | premise | {' | '.join(_COLUMNS)} | own break | for example |", f"|---|---|{'---|' * 7}"]
    only = []
    for entry in rules_catalogue():
        mine = decided(entry.code, every, set())
        others = [(case, more) for case, more in mine if not is_own(entry.code, case)]
        counts = [str(sum(case.source == source for case, _ in others) or "") for source in SOURCES]
        own = "yes" if len(others) < len(mine) else ""
        example = "" if not others else f"{others[0][0].name}: {', '.join(sorted(others[0][1])[:2])}"
        lines.append(f"| {entry.code} | {entry.premise} | {' | '.join(counts)} | {own} | {_cell(example)} |")
        if not others:
            only.append((entry.code, entry.severity))
    lines += ["", "## Kept though they decide only their own break, or nothing", "", "| check | why |", "|---|---|"]
    lines += [f"| {code} | {'a note: it takes nothing' if note == 'note' else KEPT.get(code, '**no reason yet**')} |"
              for code, note in only]  # fmt: skip
    lines += ["", "## Honest twins", "", "| run | may be quoted |", "|---|---|"]
    lines += [f"| {case.name} | {', '.join(sorted(case.quotable(set()))) or 'nothing'} |" for case in every
              if case.source == "twin"]  # fmt: skip
    return "\n".join(lines) + "\n"


_COLUMNS: Final = ("forgeries", "cheats", "others' breaks", "reports", "records")
_HEAD: Final = """# What each check decides

Generated by `python -m tests.gate_ablation --write`. A check decides a case where something of it could be quoted as
soon as the check is out and all others look. Of {cases} cases: {forgery} coordinated forgeries told through the real
runner ([forgeries.md](forgeries.md)), {cheat} cheats and {break} planted breaks, {report} reports of honest runs that
were changed in one place where they observe something, and {record} records so changed. Mutants are drawn with a
fixed seed.
"""


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def main(argv: list[str]) -> int:
    """Print the table; exit 1 when a check can go for which no reason is given."""
    parser = argparse.ArgumentParser(prog="python -m tests.gate_ablation", description=__doc__)
    parser.add_argument("--write", action="store_true", help="write docs/gate/ablation.md")
    parser.add_argument("--state", type=Path, help="file to go on with, by default one of this gate's digest")
    parser.add_argument("--show", metavar="CODE", help="print every case that a check decides")
    options = parser.parse_args(argv)
    state = options.state or Path(tempfile.gettempdir()) / "gate-ablation" / f"{identity().digest}.jsonl"
    every = outcomes(state)
    if options.show:
        for outcome, more in decided(options.show, every, set()):
            print(f"{outcome.source} {outcome.name}: {', '.join(sorted(more))}")
        return 0
    text = page(every)
    if options.write:
        PAGE.write_text(text, "utf-8")
    out, alone = sequence(every)
    print(text)
    print("\n".join(f"can go: {code}" for code in out) or "no check can go")
    stale = sorted(set(KEPT) - alone)
    print("\n".join(f"kept for no need: {code}" for code in stale), end="")
    return 1 if out or stale else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
