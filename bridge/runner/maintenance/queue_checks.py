"""Check whether a cluster's queue would ever begin each allowed preset, as it is and under each label."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from bridge.diagnostics import Check, Level
from bridge.errors import InfrastructureError
from bridge.executor.engines.interface import ClusterEngine, JobNeeds

_CHANGE = "change [executor] or limits.wall_s of policy.toml; sinfo says what the partitions give"


def check_queue(engine: ClusterEngine, presets: Mapping[str, JobNeeds], labels: Sequence[str]) -> Iterator[Check]:
    """Yield a finding for each reason why runs would wait for ever, else one for all.

    Args:
        engine: where runs go.
        presets: what a run of each allowed preset asks of its engine without a label.
        labels: those that a request may add and that mean something to the engine.
    """
    refused: dict[tuple[str, str], list[str]] = {}
    answers: dict[JobNeeds, str | None] = {}
    for label in ("", *labels):
        for name, needs in presets.items():
            asked_for = JobNeeds(tuple(dict.fromkeys((*needs.labels, *filter(None, (label,))))), needs.wall_s)
            if asked_for not in answers:
                try:
                    answers[asked_for] = engine.never(asked_for)
                except InfrastructureError as error:
                    yield Check("queue", "warn", f"does not say what it would begin: {error.message}", error.remedy)
                    return
            reason = answers[asked_for]
            if reason is not None and name not in refused.get(("", reason), ()):  # a label changes nothing about that
                refused.setdefault((label, reason), []).append(name)
    for (label, reason), names in refused.items():
        every = len(names) == len(presets)
        what = "any preset" if every else ", ".join(names)
        under = f" under the label {label}" if label else ""
        level: Level = "fail" if every and not label else "warn"
        yield Check("queue", level, f"never begins {what}{under}: {reason}", _CHANGE)
    if presets and not refused:
        count = f"{len(answers)} kind{'s' if len(answers) > 1 else ''} of job"
        yield Check("queue", "ok", f"would begin every allowed preset, under every label ({count} tried)")
