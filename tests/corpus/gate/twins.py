"""Honest twins of cheats: runs that look like one and are none, each with what may be quoted of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tests.corpus.gate.breaks import honest
from tests.corpus.gate.builders import Case
from tests.corpus.gate.generations import Plan, code_throughput
from tests.corpus.gate.turned import commits_in_turns, in_turns
from tests.corpus.gate.workloads import trained

SPEED: Final = ("decode_speedup", "identical_prompts", "acceptance_length")


def cheaper_forward(share: float) -> Case:
    """Return a run whose candidate's forward costs this share of the library's step."""
    return in_turns(report=code_throughput(Plan(token_s=Plan().token_s / share)).report)


def busy(share: float) -> Case:
    """Return a run beside whose arms others used this share of the machine."""
    case = honest("turned")
    for sample in case.record["telemetry"]["samples"] if case.record else ():
        sample["other_cpu_share"] = share
    return case.seal()


TWINS: Final[dict[str, tuple[Callable[[], Case], tuple[str, ...]]]] = {
    "a forward at 0.8 of the library's step": (lambda: cheaper_forward(0.8), SPEED),
    "a forward at 0.5 of the library's step": (lambda: cheaper_forward(0.5), SPEED),
    "a machine twenty times faster": (lambda: in_turns(faster=20.0), SPEED),
    "a machine of which others use three quarters": (lambda: busy(0.75), SPEED),
    "a suite that passes six of six": (lambda: trained((1.0,) * 6, aggregate="mean", unit="share"), ("final_loss",)),
    "the size of a file": (lambda: trained((12345.0,) * 6, again=False, unit="bytes", bounds=None), ("final_loss",)),
    "one training run": (lambda: trained((1.91,), again=False), ("final_loss",)),
    "equal commits": (commits_in_turns, ("decode_speedup",)),
    "a native baseline alone": (lambda: honest("native"), ("baseline_tokens_per_s",)),
}
"""Name to what builds it, and the claims that may be quoted."""
