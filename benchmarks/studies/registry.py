"""Which studies each area has."""

from __future__ import annotations

from benchmarks.areas import AREAS
from benchmarks.claim_runs import campaign as claim_runs
from benchmarks.equal_arms import campaign as equal_arms
from benchmarks.simulation import campaign, failures
from benchmarks.studies import (
    bus_calls,
    bus_chaos,
    bus_listings,
    evicted_bytes,
    forgeries,
    hogs,
    page_recall,
    ray_runs,
    remote_sweep,
    requester_speed,
    restored_recall,
    runner_kills,
    slurm_runs,
)
from benchmarks.studies.escapes import study as escapes
from benchmarks.studies.study import Study

STUDIES: dict[str, tuple[Study, ...]] = dict.fromkeys(AREAS, ()) | {
    "requester": (requester_speed.STUDY,),
    "bus": (bus_listings.STUDY, bus_calls.STUDY, bus_chaos.STUDY),
    "executor": (escapes.STUDY, hogs.STUDY, runner_kills.STUDY),
    "evidence": (campaign.STUDY, failures.STUDY, equal_arms.STUDY, claim_runs.STUDY, forgeries.STUDY),
    "restoration": (evicted_bytes.STUDY, page_recall.STUDY, restored_recall.STUDY),
    "distributed": (remote_sweep.STUDY,),
    "clusters": (slurm_runs.STUDY, ray_runs.STUDY),
}
