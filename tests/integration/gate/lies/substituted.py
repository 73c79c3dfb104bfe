"""A report of something else than what ran: another baseline, machine, package, model or drafter."""

from __future__ import annotations

from tests.integration.gate.lies.registry import lie, plain_counters, rows, told
from tests.integration.gate.workload import Behaviour, Report


@lie("fused-with-zero-blocks", "G3-FALLBACKS", "G3-SELF", fell="outputs")
def _() -> Behaviour:
    def finish(report: Report) -> Report:
        report["fallbacks"] = []
        return report

    return Behaviour(drafts=False, finish=finish)


@told("a-flag-that-says-it-ran", "G0-SCHEMA", fell="bound")
def _(report: Report) -> None:
    for row in rows(report):
        row["restoration_active"] = True
        plain_counters(row)


@lie("a-baseline-against-itself", "G3-SELF", fell="ratio")
def _() -> Behaviour:
    def finish(report: Report) -> Report:
        report["arms"][1]["code_path"] = report["arms"][0]["code_path"]
        return report

    return Behaviour(finish=finish)


@lie("a-handicapped-baseline", "G3-PROCESSOR", fell="times", decision="valid", reason="passed")
def _() -> Behaviour:
    return Behaviour(token_s=0.06)


@told("a-baseline-of-its-own", "G4-CONFIG", fell="ratio")
def _(report: Report) -> None:
    report["arms"][0]["code_path"] = "engine.decoding.autoregressive:autoregressive"


@told("no-backend-at-all", "G4-CONFIG", fell="ratio")
def _(report: Report) -> None:
    report["environment"]["backend"] = "none"


@told("a-package-nobody-has", "G2-HOST", fell="code")
def _(report: Report) -> None:
    report["environment"]["versions"]["flash-nothing"] = "9.9"


@told("another-machine", "G2-HOST", fell="code")
def _(report: Report) -> None:
    report["environment"]["machine"] = "riscv64"


@told("other-weights", "G2-MODELS", fell="inputs")
def _(report: Report) -> None:
    report["config"]["target"]["digest"] = "cd" * 32


@told("a-declared-accelerator", "G3-ACCELERATOR", fell="times", decision="valid", reason="passed")
def _(report: Report) -> None:
    report["environment"]["device"] = "cuda:7"


@told("hidden-fallbacks", "G3-FALLBACKS", fell="outputs")
def _(report: Report) -> None:
    report["fallbacks"] = []


@told(
    "every-draft-accepted-where-nobody-hands-out-turns",
    unseen="without turns nothing outside of the program sees its steps, so no acceptance may be quoted of them",
    decision="valid",
    reason="passed",
)
def _(report: Report) -> None:
    depth = report["config"]["depth"]["tokens"]
    report["fallbacks"] = []
    for row in rows(report):
        left, accepted = row["output_tokens"] - 1, []
        while left > 0:
            accepted.append(min(depth, left - 1))
            left -= accepted[-1] + 1
        row["accepted_per_step"] = row["drafted_per_step"] = accepted
        row["counters"] |= {
            "steps": len(accepted),
            "target_forwards": len(accepted),
            "host_syncs": len(accepted) + 1,
            "drafter_forwards": sum(count > 0 for count in accepted),
            "drafted_tokens": sum(accepted),
            "accepted_tokens": sum(accepted),
        }


@lie("the-engine-then-a-program", "G2-CODE", fell="code", preset="aside", decision="valid", reason="passed")
def _() -> Behaviour:
    return Behaviour()
