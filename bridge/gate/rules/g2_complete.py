"""The runner's record leaves nothing out that a reader needs to repeat the run.

Provenance with holes is a place to hide in: the host, its processor, its memory and the start of the run are known, and
no line of the sample pipe was lost.
"""

from __future__ import annotations

from collections.abc import Iterator

from bridge.gate.interface import Evidence, Skip, Violation
from bridge.gate.rule import rule
from bridge.records import RunRecord


@rule(
    "G2-COMPLETE", severity="not_citable", remedy="Run `kakeya-runner doctor` on the host: it names the missing source."
)
def _look(evidence: Evidence) -> Iterator[Violation] | Skip:
    return Skip("no RunRecord") if evidence.record is None else _holes(evidence.record)


def _holes(record: RunRecord) -> Iterator[Violation]:
    for name in ("os", "os_version", "machine", "cpu"):
        if getattr(record.host, name).strip().lower() in {"", "unknown"}:
            yield Violation(f"the host's {name} is unknown", f"host.{name}")
    if record.host.cpu_count < 1 or record.host.memory_bytes < 1:
        yield Violation("the host's processors or memory are unknown", "host")
    if not record.claims:
        yield Violation("no claim chain: it is unknown who took the request", "claims")
    if len(set(record.claims)) != len(record.claims):
        yield Violation("a claim occurs twice in the chain", "claims", severity="reject")
    if len({model.path for model in record.models}) != len(record.models):
        yield Violation("a model is digested twice", "models", severity="reject")
    for model in record.models:
        if (
            not (model.path.startswith("/") and model.path.endswith(model.name.rsplit("/", 1)[-1]))
            or not model.files
            or not model.bytes
        ):
            yield Violation(
                f"model {model.name!r} at {model.path!r}: {model.files} files, {model.bytes} bytes", "models"
            )
    if record.started is None:
        yield Violation("the start of the run is unknown", "started")
    if record.sample_marks_dropped:
        yield Violation(f"{record.sample_marks_dropped} lines of the sample pipe were lost", "sample_marks_dropped")
    cut = any(hit.limit == "log_bytes" for hit in record.limits_hit)
    if bool(record.log_truncated_bytes) != cut:
        said = f"{record.log_truncated_bytes} bytes of the log were cut, the bound on it was {'' if cut else 'not '}met"
        yield Violation(said, "log_truncated_bytes", severity="reject")
