"""Arms and samples of a report as values.

Knows the shape of samples, not what they prove.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, Literal, cast

from bridge.gate.declared.views import StatedConfig, StatedReport, StatedSample
from bridge.gate.facts.derived_samples import DerivedSamples
from bridge.gate.interface import Evidence, Report

Sample = StatedSample
StageName = Literal["prefill_s", "decode_s", "total_s"]


@dataclass(frozen=True)
class Arm:
    """One arm; `measured` leaves the warm-ups out."""

    index: int
    name: str
    role: str
    code_path: str
    samples: tuple[Sample, ...]

    @property
    def measured(self) -> tuple[Sample, ...]:
        """Samples that count."""
        return tuple(sample for sample in self.samples if not sample["is_warmup"])

    @cached_property
    def _places(self) -> dict[int, int]:
        """Each sample's place, by identity: a report may hold many thousands, and a rule may object to each."""
        return {id(sample): place for place, sample in enumerate(self.samples)}

    def pointer(self, sample: Sample) -> str:
        """Return where a sample is in the report."""
        return f"/arms/{self.index}/samples/{self._places[id(sample)]}"


@dataclass(frozen=True)
class Arms:
    """The arms of a report by role; None where the report has none."""

    all: tuple[Arm, ...]
    baseline: Arm | None
    control: Arm | None
    candidates: tuple[Arm, ...]

    @property
    def candidate(self) -> Arm | None:
        """The candidate of a kind that has one at most."""
        return self.candidates[0] if self.candidates else None

    @property
    def reference(self) -> tuple[Arm, ...]:
        """Baseline and control: the same code."""
        return tuple(arm for arm in (self.baseline, self.control) if arm is not None)

    def against(self, candidate: Arm) -> Arms:
        """Return the same arms with one of the candidates alone."""
        return Arms((*self.reference, candidate), self.baseline, self.control, (candidate,))

    @property
    def rows(self) -> Iterator[tuple[Arm, Sample]]:
        """Every sample with its arm, warm-ups too."""
        return ((arm, sample) for arm in self.all for sample in arm.samples)


def within(arms: Arms, launches: Set[int]) -> Arms:
    """Return the arms with the samples of some launches only."""

    def only(arm: Arm | None) -> Arm | None:
        if arm is None:
            return None
        return replace(arm, samples=tuple(sample for sample in arm.samples if sample["launch"] in launches))

    kept = tuple(one for one in map(only, arms.all) if one is not None)
    candidates = tuple(one for one in map(only, arms.candidates) if one is not None)
    return Arms(kept, only(arms.baseline), only(arms.control), candidates)


def arms_of(report: Report, evidence: Evidence) -> Arms:
    """Return the arms of a well-formed report, built once; what follows from their tokens and steps is computed."""
    return evidence.derived(("arms", id(report)), lambda: _arms(report.body))


def _arms(body: StatedReport) -> Arms:
    derived = DerivedSamples(body)
    built = tuple(
        Arm(index, arm["name"], arm["role"], arm["code_path"], derived.of(arm))
        for index, arm in enumerate(body["arms"])
    )
    by_role = {arm.role: arm for arm in reversed(built)}
    candidates = tuple(arm for arm in built if arm.role == "candidate")
    return Arms(built, by_role.get("baseline"), by_role.get("control"), candidates)


def by_prompt(
    samples: Iterable[Sample], key: Literal["prompt_id", "prompt_digest"] = "prompt_id"
) -> dict[str, list[Sample]]:
    """Return samples by prompt id or digest, in report order."""
    found: dict[str, list[Sample]] = {}
    for sample in samples:
        found.setdefault(sample[key], []).append(sample)
    return found


def stage_means(arm: Arm, stage: StageName) -> dict[str, float]:
    """Return the mean seconds of a stage by prompt, warm-ups left out."""
    return {
        prompt: sum(sample["stages"][stage] for sample in samples) / len(samples)
        for prompt, samples in by_prompt(arm.measured).items()
    }


def steps_before(sample: Sample, onset: int) -> int:
    """Return how many decode steps it took to commit the tokens before the onset."""
    accepted = sample["accepted_per_step"] or [0] * sample["counters"]["steps"]
    committed = 1  # the prefill's token
    for step, count in enumerate(accepted):
        if committed >= onset:
            return step
        committed += count + 1
    return len(accepted)


def idle_refusals(sample: Sample) -> int:
    """Return how many steps committed nothing because the guard refused their first row: as many as fit the tokens.

    A refused later row costs its block's tail only; the step still commits what it accepted and one token more. After
    a refused first row the loop takes one step without a draft.
    """
    accepted, drafted = sample["accepted_per_step"], sample["drafted_per_step"]
    refused = sample["counters"]["guard_rejections"]
    if not refused or accepted is None or drafted is None or len(accepted) != len(drafted):
        return 0
    pairs = zip(accepted, pairwise(drafted), strict=False)  # the last step has none after it
    could = sum(1 for taken, (asked, then) in pairs if asked and not taken and not then)
    excess: int = 1 + len(accepted) + sum(accepted) - sample["output_tokens"]
    return max(0, min(int(refused), could, excess))


def depth_of(config: StatedConfig) -> Mapping[str, Any]:
    """Return the depth policy of an arm that drafts, empty where none does."""
    depth = config.get("depth")
    return cast("Mapping[str, Any]", depth) if isinstance(depth, dict) else {}


def expected_drafts(sample: Sample, config: StatedConfig) -> list[int] | None:
    """Return how many tokens each step was to draft; None where the policy, or a refused row, decides at run time."""
    depth = depth_of(config)
    accepted = sample["accepted_per_step"]
    if depth.get("policy") != "fixed" or accepted is None or sample["counters"]["guard_rejections"]:
        return None
    expected, left = [], config["max_new_tokens"] - 1
    for count in accepted:
        expected.append(max(0, min(depth["tokens"], left - 1)))
        left -= count + 1
    return expected
