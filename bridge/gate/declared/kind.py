"""Read what a kind of report declares in its folder: traits, metrics, premises, recompute.

`kind.toml` of `kinds/<kind>/` has the shape of a host's own workload; no kind is named here or in a rule.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import Any, Final, Literal, get_args

from bridge.gate.declared.premises import CLAIM_KINDS, PREMISES, ClaimKind
from bridge.records.verdict import Premise

Better = Literal["higher", "lower"]
Way = Literal["exact", "near", "drawn", "numeric"]
REPORTED: Final = frozenset({"median", "mean", "share", "count"})
"""Aggregates of what a program says; any other word of `claim` is a sort of claim of its own."""
TRAITS: Final = frozenset(
    {
        "sampled",
        "paired",
        "interleaved",
        "marked",
        "one_each",
        "same_prompts",
        "own_baseline",
        "rows",
        "outside",
        "drawn",
    }
)
_METRIC_KEYS: Final = frozenset({"unit", "better", "claim", "premises"})


@dataclass(frozen=True)
class Metric:
    """One number that a kind claims.

    Attributes:
        pattern: the claim's id; ``*`` where ids hold an arm or a size.
        better: which direction is an improvement, None where none is.
        aggregate: the word of `claim`: an aggregate of reported numbers, or the sort of claim.
        kind: the sort of claim, which fixes its least premises.
        premises: what it needs beyond them.
    """

    pattern: str
    unit: str
    better: Better | None
    aggregate: str
    kind: ClaimKind
    premises: tuple[Premise, ...] = ()

    @property
    def needs(self) -> tuple[Premise, ...]:
        """Every premise of the claim, in the order of the table."""
        wanted = {*CLAIM_KINDS[self.kind].least, *self.premises}
        return tuple(one for one in PREMISES if one in wanted)


@dataclass(frozen=True)
class Confirmation:
    """How the recompute command confirms a field: in which way, and within which tolerance where that is a number's."""

    way: Way
    tolerance: float = 0.0


@dataclass(frozen=True)
class Kind:
    """A kind of report as its folder declares it.

    Attributes:
        traits: what rules ask of a report's shape, see `TRAITS`.
        metrics: the first decides the class of a report whose preset names no claim.
        confirms: ``tokens``, the rows of a name, or the id of a claim, to how the recompute command confirms it.
    """

    name: str
    title: str
    traits: frozenset[str]
    metrics: tuple[Metric, ...]
    confirms: Mapping[str, Confirmation]

    def metric(self, claim: str) -> Metric:
        """Return what is declared of a claim.

        Raises:
            KeyError: nothing is.
        """
        for metric in self.metrics:
            if fnmatchcase(claim, metric.pattern):
                return metric
        raise KeyError(f"kind {self.name} declares no metric {claim!r}")


def read_kind(name: str, text: str) -> Kind:
    """Return the kind that a `kind.toml` declares.

    Raises:
        ValueError: a key, trait, claim, premise or way that is none; the message names it.
    """
    value = tomllib.loads(text)
    strange = sorted(value.keys() - {"title", "traits", "metrics", "recompute"})
    traits = frozenset(value.get("traits", ()))
    confirmed = value.get("recompute", {}).get("confirms", {})
    confirms = {field: _confirmation(name, field, said) for field, said in confirmed.items()}
    if strange or traits - TRAITS:
        raise ValueError(f"kind {name}: unknown {', '.join(strange or sorted(traits - TRAITS))}")
    metrics = tuple(_metric(name, pattern, entry) for pattern, entry in value["metrics"].items())
    return Kind(name, value["title"], traits, metrics, MappingProxyType(confirms))


def _confirmation(kind: str, field: str, said: Any) -> Confirmation:
    if isinstance(said, dict) and said.keys() == {"numeric"} and type(said["numeric"]) in {int, float}:
        return Confirmation("numeric", float(said["numeric"]))
    if said not in ("exact", "near", "drawn"):
        raise ValueError(f"kind {kind}: {field} is confirmed by {said!r}; exact, near, drawn or {{ numeric = 0.01 }}")
    return Confirmation(said)


def _metric(kind: str, pattern: str, entry: Mapping[str, Any]) -> Metric:
    strange = sorted(entry.keys() - _METRIC_KEYS)
    word, better, added = entry["claim"], entry.get("better"), tuple(entry.get("premises", ()))
    said: ClaimKind = "reported" if word in REPORTED else word
    if strange or said not in CLAIM_KINDS or better not in (None, *get_args(Better)) or set(added) - set(PREMISES):
        raise ValueError(f"kind {kind}, metric {pattern}: got {dict(entry)}, unknown key or value {strange or ''}")
    return Metric(pattern, entry["unit"], better, word, said, added)


@cache
def kinds() -> Mapping[str, Kind]:
    """Return every kind of report by name."""
    found = {
        folder.name: read_kind(folder.name, folder.joinpath("kind.toml").read_text("utf-8"))
        for folder in files("bridge.gate").joinpath("kinds").iterdir()
        if folder.joinpath("kind.toml").is_file()
    }
    return MappingProxyType(dict(sorted(found.items())))


def having(trait: str) -> tuple[str, ...]:
    """Return the kinds with a trait."""
    return tuple(name for name, kind in kinds().items() if trait in kind.traits)
