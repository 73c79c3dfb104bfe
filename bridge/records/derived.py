"""What follows from the observations of a run's reports: nobody states it, anyone can compute it again."""

from typing import Literal

from bridge.records.base import Count, ParamValue, Record, RunId, Sha256, Text
from bridge.records.verdict import GateIdentity


class DerivedArm(Record):
    """One arm, from its tokens, its steps and the supervisor's stamps; warm-ups count in `warm_ups` alone.

    Attributes:
        stop_reasons: measured samples by why they ended.
        looping_samples: how many of them repeat themselves without end.
        target_forwards, drafted_tokens, accepted_tokens: sums over the steps; 0 of an arm whose steps nobody lists.
        asked_answers, right_answers: measured samples with a known answer, and those whose text gives it.
        own_clock_tokens_per_s: median over samples of decoded tokens a second by the program's own clock.
        turns_tokens_per_s: decoded tokens a second over all turns that the supervisor stamped; None without turns.
        outputs_sha256: over the digests of prompt and tokens of every sample, warm-ups too, in order.
    """

    name: Text
    role: Text
    prompts: Count
    samples: Count
    warm_ups: Count
    tokens: Count
    stop_reasons: dict[Text, Count]
    looping_samples: Count
    target_forwards: Count
    drafted_tokens: Count
    accepted_tokens: Count
    asked_answers: Count
    right_answers: Count
    own_clock_tokens_per_s: float | None
    turns_tokens_per_s: float | None
    outputs_sha256: Sha256


class DerivedNumber(Record):
    """A number of this run alone; what may be said of it, with earlier attempts, is in the verdict."""

    id: Text
    value: float | None
    unit: Text
    n: Count


class DerivedModel(Record):
    """The target, as the runner read its folder; `parameters` is the least that it has, None where nobody counted."""

    name: Text
    weights_sha256: Sha256
    parameters: Count | None


class DerivedReport(Record):
    """What follows from one report.

    Attributes:
        sha256: of the file; None where all repeats of an owner's own program are one report.
        kind: None where the file is no report.
        preset, params, profile: what the runner was asked; what the report says where no runner saw it.
        target: None where there is none, or no runner digested it.
        problem: why something could not be derived, None where all was.
    """

    path: Text
    sha256: Sha256 | None
    kind: Text | None
    preset: Text | None = None
    params: dict[str, ParamValue] | None = None
    profile: Text | None = None
    target: DerivedModel | None = None
    arms: tuple[DerivedArm, ...] = ()
    numbers: tuple[DerivedNumber, ...] = ()
    problem: Text | None = None


class Derived(Record):
    """`derived.json`: a function of the reports, `run.json`, `spec.json` and `recompute.json`."""

    schema_version: Literal[1] = 1
    id: RunId
    gate: GateIdentity
    reports: tuple[DerivedReport, ...]

    def report(self, path: str) -> DerivedReport | None:
        """Return what follows from the report at a path; None where none is there."""
        return next((report for report in self.reports if report.path == path), None)
