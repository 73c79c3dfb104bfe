"""The preset asks for thresholds this gate has.

An unknown profile must not fall back to somebody's defaults in silence.
"""

from __future__ import annotations

from collections.abc import Iterator

from bridge.gate import profiles
from bridge.gate.interface import Evidence, Skip, Violation
from bridge.gate.rule import rule


@rule("G1-PROFILE", remedy="Name a profile of this gate in the preset's gate_profile.")
def _look(evidence: Evidence) -> Iterator[Violation] | Skip:
    if evidence.spec is None:
        return Skip("no job spec")
    name = evidence.spec.gate_profile
    known = profiles.names()
    return iter(() if name in known else (Violation(f"unknown gate profile {name!r}; known: {', '.join(known)}"),))
