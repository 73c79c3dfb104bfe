"""Breaks of what the runner recorded of code, machine, models and ending (G2), and of processor time (G3)."""

from __future__ import annotations

from tests.corpus.gate.breaks.registry import breaks
from tests.corpus.gate.builders import Case, sha


@breaks("G2-ENDING")
def _(case: Case) -> None:
    case.record["program_exit"] = 1


@breaks("G2-COMMANDS")
def _(case: Case) -> None:
    case.record["commands"][0]["argv"].append("--fast")


@breaks("G2-CODE")
def _(case: Case) -> None:
    case.record["code"]["packages"]["mlx"] = "0.32.5"


@breaks("G2-TRUST")
def _(case: Case) -> None:
    case.spec["trust_class"] = case.record["code"]["trust_class"] = "untrusted"
    case.spec["code"] = case.record["code"]["origin"] = "request"
    case.record["imported"]["path"] = case.record["imported"]["work"] + "/engine/__init__.py"


@breaks("G2-SANDBOX")
def _(case: Case) -> None:
    case.spec["sandbox"]["mode"] = "required"
    case.record["sandbox"] = {
        "kind": "none",
        "reason": "no bwrap",
        "network": "host",
        "namespaces": [],
        "filters": [],
        "uid": 1000,
    }


@breaks("G2-MODELS")
def _(case: Case) -> None:
    case.report["config"]["target"]["digest"] = sha("other weights")


@breaks("G2-HOST")
def _(case: Case) -> None:
    case.report["environment"]["machine"] = "arm64"


@breaks("G2-COMPLETE")
def _(case: Case) -> None:
    case.record["host"]["cpu"] = "unknown"


@breaks("G2-TIMES")
def _(case: Case) -> None:
    case.record["ended"] = case.record["started"]


@breaks("G3-PROCESSOR")
def _(case: Case) -> None:
    case.record["commands"][0]["cpu_s"] = 0.5
