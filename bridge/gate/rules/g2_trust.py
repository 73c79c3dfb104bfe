"""Untrusted code is never better than valid, not citable.

Code that nobody the host trusts has vouched for can write any report it likes, whatever ran. Only what the host's own
code asked, timed and checked from outside says something of it: G2-PEER names what that takes.
"""

from __future__ import annotations

from collections.abc import Iterator

from bridge.gate import outside
from bridge.gate.interface import Evidence, Skip, Violation
from bridge.gate.rule import rule


@rule(
    "G2-TRUST",
    severity="not_citable",
    remedy="Have the code vouched for: merge it to a protected ref, or `kakeya-runner trust add KEY --code`.",
)
def _look(evidence: Evidence) -> Iterator[Violation] | Skip:
    if evidence.spec is None:
        return Skip("no job spec")
    if evidence.spec.trust_class == "untrusted" and not outside.made_by_runner(evidence):
        return iter((Violation("untrusted_code: nobody this host trusts vouches for the code that wrote the report"),))
    return iter(())
