"""Build and write a schema 3 report; every harness goes through here.

Knows the shape, not the meaning: whether a claim holds is the gate's business.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from engine.reports.context import RunContext
from engine.reports.sample import Sample
from engine.reports.tokens import packed_tokens

SCHEMA_VERSION = 3


@dataclass(frozen=True)
class Arm:
    """One way of doing the work; `role` is baseline, control or candidate."""

    name: str
    role: str
    code_path: str
    samples: tuple[Sample, ...]


@dataclass(frozen=True)
class ReportClaim:
    """A statement the gate recomputes: candidate arm first, baseline second."""

    id: str
    metric: str
    arms: tuple[str, ...]
    value: float
    unit: str
    wording: str | None = None


@dataclass(frozen=True)
class Fallback:
    """Something intended that did not run, how often, and why."""

    arm: str
    component: str
    sample: str | None
    reason: str
    count: int


@dataclass(frozen=True)
class Report:
    """All parts of a report but the run's own facts.

    Attributes:
        prompts: packed tokens of prompts by digest, beyond those that the samples carry.
    """

    kind: str
    config: Mapping[str, Any]
    environment: Mapping[str, Any]
    started_at: str
    ended_at: str
    wall_s: float
    arms: tuple[Arm, ...] = ()
    claims: tuple[ReportClaim, ...] = ()
    fallbacks: tuple[Fallback, ...] = ()
    rows: Mapping[str, Any] | None = field(default=None)
    prompts: Mapping[str, str] = field(default_factory=dict)

    def as_json(self, context: RunContext) -> dict[str, Any]:
        """Return the report as JSON values."""
        value: dict[str, Any] = {
            "kind": self.kind,
            "schema_version": SCHEMA_VERSION,
            "run": context.as_run(),
            "config": dict(self.config),
            "environment": dict(self.environment),
            "started_at": self.started_at,
            "ended_at": self.ended_at,
            "wall_s": self.wall_s,
            "arms": [_arm(arm) for arm in self.arms],
            "claims": [asdict(claim) for claim in self.claims],
            "fallbacks": [asdict(fallback) for fallback in self.fallbacks],
        }
        if self.rows is not None:
            value["rows"] = dict(self.rows)
        prompts = dict(self.prompts) | _prompts(self.arms)
        if prompts:
            value["prompts"] = prompts
        return value


def _arm(arm: Arm) -> dict[str, Any]:
    """Return an arm without what is stored once a prompt."""
    value = asdict(arm)
    for sample in value["samples"]:
        del sample["prompt_ids"]
    return value


def _prompts(arms: tuple[Arm, ...]) -> dict[str, str]:
    """Return the packed tokens of every prompt that the samples carry, by digest."""
    ids_by_digest = {
        sample.prompt_digest: sample.prompt_ids for arm in arms for sample in arm.samples if sample.prompt_ids
    }
    return {digest: packed_tokens(ids) for digest, ids in ids_by_digest.items()}


def write_report(report: Report, context: RunContext, name: str) -> Path:
    """Write a report below the run's report directory, whole or not at all.

    Raises:
        ValueError: a value is NaN, infinite or no JSON value.
        OSError: the directory cannot be written.
    """
    data = json.dumps(report.as_json(context), allow_nan=False, ensure_ascii=False, sort_keys=True, indent=1).encode()
    path = context.out / name
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".partial")
    with partial.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)
    return path
