"""The gate's mutation score: `python -m tests.gate_score`, or `make gate-score`.

Judges single-site mutants of honest reports of every kind and of RunRecords, prints the score per operator and field
class with and without equivalents, then a detection-limit curve for coordinated forgeries, which gets no score.
Exit 0 when every bound holds.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator

from bridge.gate.judging import judge
from tests.corpus.gate.breaks import honest
from tests.corpus.gate.builders import Case
from tests.corpus.gate.generations import with_claims
from tests.corpus.gate.mutator import OPERATORS, Score, informational, score
from tests.corpus.gate.studies import BUILDERS

MACRO_MIN, CELL_MIN, EQUIVALENT_MAX, STRUCTURAL_MIN = 0.95, 0.80, 0.10, 1.0
BOTH = ("claim", "probe", "turned")
"""Honest runs whose RunRecord is mutated too, with marks, telemetry or stamps of turns; other kinds have the same."""
LARGE = {
    "claim": 1200,
    "turned": 1200,
    "needle_recall": 150,
    "distributed_bench": 150,
    "commit_comparison": 150,
    "request_code": 150,
    "kv_quantisation": 150,
}
"""Most mutants of reports that take long to judge."""


def collect(quick: bool, seed: int, per_pattern: int | None) -> Score:
    """Judge mutants of every honest run and return one score."""
    whole = Score()
    for name in ("probe", "suite", *BUILDERS, "claim", "turned"):
        most = LARGE.get(name) if per_pattern is not None else None
        if quick:
            most = min(most or 60, 60)
        began = time.process_time()
        part = score(
            honest(name), per_pattern, seed, most=most, documents=("report", "record") if name in BOTH else ("report",)
        )
        whole.merge(part, name)
        spent, count = time.process_time() - began, sum(part.total.values())
        left = {place: " ".join(mutants) for place, mutants in sorted(part.survivors.items())}
        summary = f"  {name:<20} {count:>6} mutants {spent:>7.1f} s {len(left)} places survived"
        print(summary, file=sys.stderr, flush=True)
        for place, mutants in left.items():
            print(f"    {place}: {mutants}", file=sys.stderr, flush=True)
    return whole


def lines(result: Score) -> Iterator[str]:
    """Yield the tables."""
    with_, without = result.cells(with_equivalents=True), result.cells(with_equivalents=False)
    classes = sorted({kind for _, kind in result.total})
    yield "killed share, equivalents left out (with them), by operator and field class"
    yield f"{'':<12}" + "".join(f"{operator:>14}" for operator in OPERATORS)
    for kind in classes:
        cells = []
        for operator in OPERATORS:
            cell = (operator, kind)
            total = result.total.get(cell, 0)
            cells.append(
                f"{without[cell]:.2f} ({with_[cell]:.2f})" if cell in without else ("all equiv." if total else "-")
            )
        yield f"{kind:<12}" + "".join(f"{cell:>14}" for cell in cells)
    mutants, killed, same = (sum(counts.values()) for counts in (result.total, result.killed, result.equivalent))
    share, left = result.equivalent_share() * 100, mutants - killed - same
    yield f"{mutants} mutants, {killed} killed, {same} equivalent ({share:.1f} %), {left} survived"
    macro = [result.macro(with_equivalents=flag) for flag in (False, True)]
    yield f"macro-average {macro[0]:.4f} without equivalents, {macro[1]:.4f} with"
    yield f"least cell {min(without.values()):.3f}; structural {structural(result):.4f}"
    yield f"{len(informational())} paths are listed as informational"
    for place, operators in sorted(result.survivors.items()):
        yield f"  survived: {place}: {' '.join(operators)}"


def structural(result: Score) -> float:
    """Return the killed share of dropped and retyped schema fields, listed ones that may hold any value left out."""
    cells = [cell for cell in result.total if cell[1] == "structural"]
    total = sum(result.total[cell] - result.equivalent[cell] for cell in cells)
    killed = sum(count for (_, kind), count in result.killed.items() if kind == "structural")
    return killed / total if total else 0.0


def failures(result: Score, quick: bool) -> Iterator[str]:
    """Yield the bounds that do not hold; a reduced sample leaves cells too small for a bound of their own."""
    if result.macro(with_equivalents=False) < MACRO_MIN:
        yield f"the macro-average is below {MACRO_MIN}"
    if structural(result) < STRUCTURAL_MIN:
        yield "a dropped or retyped schema field survived"
    if result.equivalent_share() > EQUIVALENT_MAX and not quick:
        yield f"more than {EQUIVALENT_MAX * 100:.0f} % of the mutants are equivalent"
    for cell, value in result.cells(with_equivalents=False).items():
        if value < CELL_MIN and not quick:
            yield f"{cell[0]} of {cell[1]}: {value:.2f} is below {CELL_MIN}"


def detection_limits() -> Iterator[str]:
    """Yield what coordinated forgeries of the candidate's times meet, by factor."""
    yield "coordinated forgeries: all of the candidate's decode times scaled, stages and claims made to agree"
    for factor in (0.995, 0.99, 0.98, 0.97, 0.95, 0.9, 0.7, 0.5, 0.3):
        outcomes = []
        for marks in (False, True):
            case = forged(factor, marks=marks)
            verdict = judge(case.run_id, case.files(), case.record_value(), case.spec_value())
            codes = sorted({f.code for f in verdict.findings if f.severity != "note"})
            outcomes.append(f"{verdict.decision} {' '.join(codes)}".strip())
        yield f"  x{factor:<6} report alone: {outcomes[0]:<32} report and runner's marks: {outcomes[1]}"


def forged(factor: float, *, marks: bool) -> Case:
    """Return a run whose candidate is faster by a factor, in every place that says so."""
    case = honest("claim")
    cut: dict[str, float] = {}
    for sample in case.report["arms"][2]["samples"]:
        stages = sample["stages"]
        cut[sample["id"]] = stages["decode_s"] * (1.0 - factor)
        stages["decode_s"] *= factor
        stages["total_s"] = stages["prefill_s"] + stages["decode_s"]
    for mark in case.record["sample_marks"] if marks else ():
        if mark["event"] == "end":
            mark["t_s"] -= cut.get(mark["sample"], 0.0)
    return with_claims(case)


def main(argv: list[str]) -> int:
    """Print the score; exit 1 when a bound does not hold."""
    parser = argparse.ArgumentParser(prog="python -m tests.gate_score", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a reduced sample, as in CI")
    parser.add_argument("--per-pattern", type=int, default=1, help="mutants per field pattern and operator")
    parser.add_argument("--all", action="store_true", help="every place, exhaustively (hours)")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(argv)
    result = collect(options.quick, options.seed, None if options.all else options.per_pattern)
    print("\n".join(lines(result)))
    print("\n".join(detection_limits()))
    broken = list(failures(result, options.quick))
    print("\n".join(f"FAILED: {line}" for line in broken) or "every bound holds")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
