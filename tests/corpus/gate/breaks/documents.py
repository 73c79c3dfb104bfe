"""Breaks of what arrived: documents, outputs, specification and profile (G0, G1)."""

from __future__ import annotations

import hashlib

from tests.corpus.gate.breaks.registry import breaks, samples
from tests.corpus.gate.builders import Case, sha


@breaks("G0-JSON")
def _(case: Case) -> None:
    data = case.files()["report.json"].replace(b'"fallbacks"', b'"claims": [], "fallbacks"', 1)
    case.raw["report.json"] = data


@breaks("G0-KIND")
def _(case: Case) -> None:
    case.report["kind"] = "speed_of_light"


@breaks("G0-SCHEMA")
def _(case: Case) -> None:
    samples(case)[0]["counters"]["steps"] = 23.0


@breaks("G0-RECORD")
def _(case: Case) -> None:
    case.record = None


@breaks("G1-RUN")
def _(case: Case) -> None:
    case.report["run"]["id"] = "01jd7zk3v8q4w2m6x9c5b7n1tb"


@breaks("G1-DECLARED")
def _(case: Case) -> None:
    case.reports.clear()
    case.record["outputs"].clear()


@breaks("G1-EXTRA")
def _(case: Case) -> None:
    case.raw["second.json"] = b"{}"
    digest = hashlib.sha256(b"{}").hexdigest()
    case.record["outputs"].append({"path": "second.json", "bytes": 2, "sha256": digest, "after_start": True})


@breaks("G1-KIND")
def _(case: Case) -> None:
    case.spec["outputs"][0]["kind"] = "needle_recall"


@breaks("G1-FRESH")
def _(case: Case) -> None:
    case.record["outputs"][0]["after_start"] = False


@breaks("G1-SPEC")
def _(case: Case) -> None:
    case.record["policy_digest"] = sha("another policy")


@breaks("G1-PROFILE")
def _(case: Case) -> None:
    case.spec["gate_profile"] = "lenient"
