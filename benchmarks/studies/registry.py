"""Which studies each area has."""

from __future__ import annotations

from benchmarks.areas import AREAS
from benchmarks.studies.bus import calls, chaos, listings
from benchmarks.studies.caches import evicted_bytes, page_recall, restored_recall
from benchmarks.studies.claims import forgeries
from benchmarks.studies.claims.claim_runs import campaign as claim_runs
from benchmarks.studies.claims.equal_arms import campaign as equal_arms
from benchmarks.studies.clusters import ray_runs, slurm_runs
from benchmarks.studies.drafters import remote_sweep
from benchmarks.studies.requester import command_costs
from benchmarks.studies.runner import kills
from benchmarks.studies.sandbox import hogs
from benchmarks.studies.sandbox.escapes import study as escapes
from benchmarks.studies.statistics import campaign, failures
from benchmarks.studies.study import Study

STUDIES: dict[str, tuple[Study, ...]] = dict.fromkeys(AREAS, ()) | {
    "requester": (command_costs.STUDY,),
    "bus": (listings.STUDY, calls.STUDY, chaos.STUDY),
    "executor": (escapes.STUDY, hogs.STUDY, kills.STUDY),
    "evidence": (campaign.STUDY, failures.STUDY, equal_arms.STUDY, claim_runs.STUDY, forgeries.STUDY),
    "restoration": (evicted_bytes.STUDY, page_recall.STUDY, restored_recall.STUDY),
    "distributed": (remote_sweep.STUDY,),
    "clusters": (slurm_runs.STUDY, ray_runs.STUDY),
}
