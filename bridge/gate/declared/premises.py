"""What claims rest on: the premises, who can see each, and the least that each sort of claim needs.

The tables are the gate's and fixed; a kind of report or a workload adds premises, never takes one away. Knows neither
rules nor reports.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Literal

from bridge.records.verdict import Premise

ClaimKind = Literal["identity", "acceptance", "recall", "ratio", "programs", "reported", "memory", "absolute"]
RUNNER: Final = "runner"
COMPUTED: Final = "computed"


@dataclass(frozen=True)
class PremiseEntry:
    """When a premise holds, and who saw it."""

    holds_when: str
    seen_by: str


@dataclass(frozen=True)
class ClaimKindEntry:
    """What a sort of claim says, and what it needs at least."""

    says: str
    least: tuple[Premise, ...]


PREMISES: Final[Mapping[Premise, PremiseEntry]] = MappingProxyType(
    {
        "bound": PremiseEntry("report, record and files belong to this run and this request, digest by digest", RUNNER),
        "code": PremiseEntry("the program of every command is identified, and whose it is", RUNNER),
        "inputs": PremiseEntry("what was asked is pinned by digest, its order drawn after the start", RUNNER),
        "outputs": PremiseEntry("a recompute command of the runner's confirms what was put out", RUNNER),
        "times": PremiseEntry("the runner's own stamps say how long it took, and who worked", RUNNER),
        "ratio": PremiseEntry("the arms are what they are called, and the statistics of their ratio hold", COMPUTED),
        "memory": PremiseEntry("buffers and allocator agree, a process an arm", "program, bounded by runner"),
        "attempts": PremiseEntry("every attempt is counted, and none is left out", RUNNER),
        "machine": PremiseEntry("the machine kept its speed and was not busy with other work", RUNNER),
    }
)

_SHOWN: Final[tuple[Premise, ...]] = ("bound", "code", "inputs", "outputs")

CLAIM_KINDS: Final[Mapping[ClaimKind, ClaimKindEntry]] = MappingProxyType(
    {
        "identity": ClaimKindEntry("one arm's tokens are another's", _SHOWN),
        "acceptance": ClaimKindEntry("how many drafted tokens the target accepts", _SHOWN),
        "recall": ClaimKindEntry("how many questions are answered", _SHOWN),
        "ratio": ClaimKindEntry("a ratio of times of the engine's arms", (*_SHOWN, "times", "ratio", "attempts")),
        "programs": ClaimKindEntry(
            "a ratio of times of two programs, both as identified", ("bound", "code", "times", "ratio", "attempts")
        ),
        "reported": ClaimKindEntry(
            "a median, mean, share or count: reported by its program, or recomputed", ("bound", "code", "attempts")
        ),
        "memory": ClaimKindEntry("bytes that are held", (*_SHOWN, "memory", "attempts")),
        "absolute": ClaimKindEntry("seconds, or tokens a second", (*_SHOWN, "times", "attempts", "machine")),
    }
)

VALID: Final[frozenset[Premise]] = frozenset({"bound", "code", "attempts"})
"""What makes a claim this run's word: a claim that has these and lacks others is `valid`."""
