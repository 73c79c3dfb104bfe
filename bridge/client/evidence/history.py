"""What a preset gave over time: a claim of each result that is stored here, with its run, commit and host."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from bridge.client.clone.config import ClientSettings
from bridge.client.clone.store import Store
from bridge.client.connection.pins import RefusedResultError, answer_about, pins
from bridge.client.connection.run_bus import is_own
from bridge.client.evidence.compare import claim_text
from bridge.client.evidence.judged import JudgedResult
from bridge.client.run.result import Result, read_result
from bridge.errors import IntegrityError
from bridge.records.quotation import QuotationWord
from bridge.records.run import RunRecord
from bridge.run.asked import parameters_text
from bridge.trust.verifier import verify_tree


@dataclass(frozen=True)
class HistoryRow:
    """One claim of one run.

    Attributes:
        ended: UTC.
        params: all parameters of the run on one line, those of the host's defaults too; runs that differ are no series.
        code: commit of the request's code, else what identifies the host's.
        decision: ``evidence``, ``valid`` or ``nothing``.
        role: ``primary`` for the claim that answers the preset's question.
    """

    id: str
    ended: str
    params: str
    host: str
    code: str
    metric: str
    value: float | None
    interval: tuple[float, float] | None
    unit: str
    better: str | None
    decision: str
    text: str
    quotation: QuotationWord
    profile: str
    role: str


def rows_of_preset(settings: ClientSettings, preset: str) -> Iterator[HistoryRow]:
    """Yield the claims of the intact results of a preset, judged here, oldest first; what is refused is left out."""
    store = Store(settings.state_dir)
    for run_id in sorted(run_id for run_id, _ in store.results()):
        try:
            tree = store.read_result(run_id)
            if verify_tree(tree.files, run_id=run_id):
                continue
            result = read_result(tree, run_id)
            record = result.record
            trusted = pins(settings, own=is_own(settings, store.sent(run_id)))
            if record is None or record.preset != preset or answer_about(tree.files, trusted).refused:
                continue
            judged = JudgedResult.of(result, trusted)
        except (IntegrityError, RefusedResultError):
            continue
        if (verdict := judged.verdict) is None:
            continue
        for claim in verdict.claims:
            answer = judged.quotation_of(claim)
            yield HistoryRow(
                id=run_id,
                ended=record.ended,
                params=params_of(result),
                host=record.host.name,
                code=_code(record),
                metric=claim.metric,
                value=claim.value,
                interval=claim.interval,
                unit=claim.unit,
                better=claim.detail.get("better"),
                decision=claim.decision,
                text=claim_text(claim, judged),
                quotation="measured" if answer is None else answer.word,
                profile=verdict.profile,
                role=claim.role,
            )


def by_number(rows: Iterable[HistoryRow]) -> dict[tuple[str, str], list[HistoryRow]]:
    """Return rows by metric and unit, in their order: numbers of two units are no series, whatever they are called."""
    groups: dict[tuple[str, str], list[HistoryRow]] = {}
    for row in rows:
        groups.setdefault((row.metric, row.unit), []).append(row)
    return groups


def params_of(result: Result) -> str:
    """Return the parameters with which a run went on one line, as the host bound them."""
    if result.spec is not None:
        return parameters_text(result.spec.params)
    return "" if result.request is None else parameters_text(result.request.params)


def _code(record: RunRecord) -> str:
    """Return the commit that ran, else the digest of the workload or of the host's code."""
    if record.code is None:
        return "unknown"
    return record.code.identity.removeprefix("workload ").removeprefix("sha256:")[:12]
