"""Claim runs of a model against its copy, one a case: what every difference between them is worth.

A run is 8 launches of 4 prompts and 64 tokens, without blocks, after the launch that calibrates.
"""

from __future__ import annotations

import math
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from benchmarks.studies.claims.equal_arms.figures import figures
from benchmarks.studies.claims.equal_arms.program import ARMS
from benchmarks.studies.report import ROOT
from benchmarks.studies.sandbox.jobs import carry_out
from benchmarks.studies.study import Entry, Row, Study, rows_of
from bridge.executor.interface import Execution
from bridge.executor.trial import make_directory
from bridge.launches.attempts import ShownInterval
from bridge.launches.estimate import over_launches
from bridge.launches.wording import effect
from bridge.limits import MIB
from bridge.records.jobspec import Command, EnvironmentVariable, JobSpec, Limits, SandboxSpec
from bridge.records.turns import LaunchRecord, LaunchSeries, StopRule
from bridge.run.stop_rule import counting, finished

RUNS: Final = 40
LAUNCHES: Final = 8
PROMPTS: Final = 4
TOKENS: Final = 64
TARGET: Final = "kakeya-tiny-gemma4"
PLAN: Final = LaunchSeries(arms=ARMS, rule=StopRule(least=LAUNCHES, most=LAUNCHES), solo_s=1.0)
_BLAS: Final = ("LD_PRELOAD", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "TOKENIZERS_PARALLELISM")
_ZERO: Final = "0" * 64


def cases() -> tuple[str, ...]:
    """Return the names of the runs."""
    return tuple(f"run {number} of {RUNS}" for number in range(1, RUNS + 1))


def run(case: str, plan: LaunchSeries = PLAN, prompts: int = PROMPTS, tokens: int = TOKENS) -> list[Row]:
    """Measure one run and return what it came to.

    Raises:
        RuntimeError: it did not come to its end.
    """
    began, load = time.monotonic(), os.getloadavg()[0]
    ended = execute(plan, prompts, tokens)
    if not ended.ok or ended.ending != "exited" or ended.program_exit != 0:
        raise RuntimeError(f"{case}: {ended.ending}, exit {ended.program_exit}: {ended.log.decode('utf-8')[-1500:]}")
    return [
        {"run": case, "load": round(load, 2), "took_s": round(time.monotonic() - began, 1)}
        | result(plan, ended.launches)
    ]


def execute(plan: LaunchSeries, prompts: int, tokens: int) -> Execution:
    """Run the series under the real supervisor, without a sandbox."""
    program = f"import sys; sys.path.insert(0, {str(ROOT)!r}); "
    program += "from benchmarks.studies.claims.equal_arms import program; program.main(sys.argv[1:])"
    return execute_series("equal-arms", (sys.executable, "-c", program, str(prompts), str(tokens), TARGET), plan)


def execute_series(name: str, argv: tuple[str, ...], plan: LaunchSeries) -> Execution:
    """Run a command in launches under the real supervisor, without a sandbox.

    Args:
        name: of its command and preset.
        argv: what is launched.
        plan: its series.
    """
    passed = tuple(
        EnvironmentVariable(name=name, value=os.environ[name], origin="preset")
        for name in _BLAS
        if os.environ.get(name)
    )
    spec = JobSpec(
        id="01k9x3" + "0" * 20, request_digest=_ZERO, preset=name, preset_digest=_ZERO, policy_digest=_ZERO,
        params={}, profile="claim", code="host", trust_class="host", environment=passed,
        commands=(Command(name=name, argv=argv, launches=plan),),
        limits=Limits(
            wall_s=900.0, inactivity_s=300.0, grace_s=2.0, memory_bytes=8192 * MIB, processes=512, open_files=4096,
            output_bytes=32 * MIB, log_bytes=MIB,
        ),
        sandbox=SandboxSpec(mode="off"), outputs=(), gate_profile="claim",
    )  # fmt: skip
    root = Path(tempfile.mkdtemp(prefix=f"kakeya-{name}-"))
    try:
        return carry_out(spec, make_directory(root / "run"))
    finally:
        shutil.rmtree(root, ignore_errors=True)


def result(plan: LaunchSeries, records: Sequence[LaunchRecord]) -> dict[str, Any]:
    """Return the launches of a run, its ratio, and what one launch scatters by within."""
    launches = finished(plan, records)
    ratio = over_launches(launches, plan.rule.blocks)
    if ratio is None:
        raise RuntimeError(f"{len(launches)} launches finished a pair: {[launch.cut for launch in records]}")
    bounds = ShownInterval.of(ratio)
    pairs = [value for record in counting(records) for value in pair_ratios(plan.arms, record)]
    slow = [math.log(turn.done_s - turn.go_s) for record in counting(records) for turn in record.turns]
    return {
        "logs": [round(launch.log_ratio, 6) for launch in launches],
        "ratio": round(ratio.value, 5), "low": round(bounds.low, 5), "high": round(bounds.high, 5),
        "launch_sd": round(ratio.sd, 5), "said": effect(bounds),
        "pair_sd": round(_sd(pairs), 5), "pairs_a_launch": len(pairs) // len(launches),
        "turn_sd": round(_sd(slow), 5), "turn_lag_1": round(_lag(slow), 3),
        "turn_tokens": records[-1].turn_tokens,
        "slept_s": round(sum(record.slept_s for record in records), 2),
    }  # fmt: skip


def pair_ratios(arms: tuple[str, str], record: LaunchRecord) -> list[float]:
    """Return the log ratio of each two turns that followed each other on the same sample."""
    ratios, place = [], 0
    while place + 1 < len(record.turns):
        first, second = record.turns[place : place + 2]
        both = first.sample == second.sample and first.arm != second.arm
        if both and first.tokens == second.tokens:
            spent = {turn.arm: turn.done_s - turn.go_s for turn in (first, second)}
            ratios.append(math.log(spent[arms[0]] / spent[arms[1]]))
        place += 2 if both else 1
    return ratios


def _sd(values: Sequence[float]) -> float:
    if len(values) < 2:
        return 0.0
    mean = math.fsum(values) / len(values)
    return math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1))


def _lag(values: Sequence[float]) -> float:
    if len(values) < 3:
        return 0.0
    mean = math.fsum(values) / len(values)
    spread = math.fsum((value - mean) ** 2 for value in values)
    both = math.fsum((a - mean) * (b - mean) for a, b in pairwise(values))
    return both / spread if spread > 0.0 else 0.0


def summary(entries: Sequence[Entry]) -> list[str]:
    """Return what the runs come to together."""
    return [str(figures(rows_of(entries)) or "too few runs yet")]


STUDY = Study(
    "equal-arms",
    "How often is a model called faster or slower than its copy?",
    cases,
    run,
    "an hour and a half",
    summary,
)
