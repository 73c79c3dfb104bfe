"""Every study there is, by its name."""

from __future__ import annotations

from benchmarks.studies.bus import calls, chaos, faults, fresh_clone, listings, servers
from benchmarks.studies.caches import evicted_bytes, nats, page_recall, restored_elsewhere, restored_recall
from benchmarks.studies.claims import equal_sittings, forgeries, predicted_sittings, server_speeds
from benchmarks.studies.claims.claim_runs import campaign as claim_runs
from benchmarks.studies.claims.equal_arms import campaign as equal_arms
from benchmarks.studies.clusters import ray_runs, slurm_runs
from benchmarks.studies.drafters import link_worlds, remote_sweep
from benchmarks.studies.host import bare_roots
from benchmarks.studies.models import check as models_check
from benchmarks.studies.models import identity, llama_texts
from benchmarks.studies.requester import command_costs, foreign_programs
from benchmarks.studies.runner import disposable, kills
from benchmarks.studies.sandbox import hogs, wall_kills
from benchmarks.studies.sandbox.escapes import study as escapes
from benchmarks.studies.statistics import campaign, choices, failures, standing
from benchmarks.studies.study import Study

_ALL = (
    bare_roots.STUDY,
    command_costs.STUDY,
    foreign_programs.STUDY,
    calls.STUDY,
    listings.STUDY,
    fresh_clone.STUDY,
    chaos.STUDY,
    faults.STUDY,
    servers.STUDY,
    kills.STUDY,
    disposable.STUDY,
    escapes.STUDY,
    hogs.STUDY,
    wall_kills.STUDY,
    slurm_runs.STUDY,
    ray_runs.STUDY,
    campaign.STUDY,
    failures.STUDY,
    standing.STUDY,
    choices.STUDY,
    claim_runs.STUDY,
    equal_arms.STUDY,
    equal_sittings.STUDY,
    predicted_sittings.STUDY,
    forgeries.STUDY,
    server_speeds.STUDY,
    evicted_bytes.STUDY,
    nats.STUDY,
    models_check.STUDY,
    llama_texts.STUDY,
    identity.STUDY,
    page_recall.STUDY,
    restored_recall.STUDY,
    restored_elsewhere.STUDY,
    remote_sweep.STUDY,
    link_worlds.STUDY,
)
STUDIES: dict[str, Study] = {study.name: study for study in _ALL}
