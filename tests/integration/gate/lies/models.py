"""Models and prompts that are not what the report calls them."""

from __future__ import annotations

from tests.integration.gate.lies.registry import told
from tests.integration.gate.workload import Report


@told("a-target-said-to-be-small", decision="valid", reason="passed")
def _(report: Report) -> None:
    report["config"]["target"]["parameters"] = 10


@told("the-drafter-called-the-target", "G2-MODELS", fell="inputs")
def _(report: Report) -> None:
    drafter = report["config"]["drafter"]
    report["config"]["target"].update(name=drafter["name"], digest=drafter["digest"])


@told("one-prompt-under-many-digests", "G4-PROMPTS", fell="inputs")
def _(report: Report) -> None:
    prompt = next(iter(report["prompts"].values()))
    report["prompts"] = dict.fromkeys(report["prompts"], prompt)


@told("prompts-nobody-can-see", "G4-PROMPTS", fell="inputs", decision="valid", reason="passed")
def _(report: Report) -> None:
    del report["prompts"]
