"""Which studies each area has."""

from __future__ import annotations

from benchmarks.areas import AREAS
from benchmarks.claim_runs import campaign as claim_runs
from benchmarks.equal_arms import campaign as equal_arms
from benchmarks.simulation import campaign, failures
from benchmarks.studies import (
    bus_calls,
    bus_chaos,
    bus_delays,
    bus_fleet,
    bus_listings,
    bus_own_tests,
    bus_service,
    confirmations,
    dispatch,
    drafting_choice,
    evicted_bytes,
    families,
    fast_demo,
    forgeries,
    fresh_clone,
    hog_leases,
    hogs,
    hostile_places,
    page_recall,
    pages,
    proofs,
    ratios,
    ray_runs,
    remote_faults,
    remote_identity,
    remote_link,
    remote_sweep,
    requester_size,
    requester_speed,
    restored_recall,
    runner_kills,
    served_examples,
    slow_tests,
    slurm_runs,
    state_cost,
    streamed_answers,
    streamed_speed,
    supervisor_cost,
    supervisor_overhead,
    workload_mutations,
)
from benchmarks.studies.escapes import study as escapes
from benchmarks.studies.study import Study

STUDIES: dict[str, tuple[Study, ...]] = dict.fromkeys(AREAS, ()) | {
    "rooms": (fresh_clone.STUDY, slow_tests.STUDY),
    "bus": (
        bus_listings.STUDY,
        bus_calls.STUDY,
        bus_chaos.STUDY,
        bus_delays.STUDY,
        bus_service.STUDY,
        bus_fleet.SMALL_STUDY,
        bus_fleet.LARGE_STUDY,
        bus_own_tests.STUDY,
    ),
    "executor": (
        escapes.STUDY,
        escapes.HOLES,
        escapes.TWO_USERS,
        proofs.STUDY,
        hogs.STUDY,
        hog_leases.STUDY,
        runner_kills.STUDY,
        supervisor_cost.STUDY,
        supervisor_overhead.STUDY,
    ),
    "evidence": (
        campaign.STUDY,
        failures.STUDY,
        equal_arms.STUDY,
        claim_runs.STUDY,
        forgeries.STUDY,
        confirmations.STUDY,
    ),
    "restoration": (
        streamed_answers.STUDY,
        evicted_bytes.STUDY,
        page_recall.STUDY,
        restored_recall.STUDY,
        streamed_speed.STUDY,
    ),
    "workloads": (workload_mutations.STUDY, ratios.STUDY, served_examples.STUDY),
    "distributed": (remote_identity.STUDY, remote_faults.STUDY, remote_link.STUDY, remote_sweep.STUDY),
    "clusters": (slurm_runs.STUDY, ray_runs.STUDY),
    "hardware": (hostile_places.STUDY,),
    "front-door": (requester_size.STUDY, requester_speed.STUDY, pages.STUDY),
    "engine": (fast_demo.STUDY, families.STUDY, state_cost.STUDY, dispatch.STUDY, drafting_choice.STUDY),
}
