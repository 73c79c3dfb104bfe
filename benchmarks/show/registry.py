"""Which lines each area has."""

from __future__ import annotations

from benchmarks.areas import AREAS
from benchmarks.show import (
    bounds,
    bus,
    claim_runs,
    clusters,
    distributed,
    engine_drafting,
    engine_folders,
    engine_models,
    escapes,
    front_door,
    hardware,
    identity,
    premises,
    restoration,
    rooms,
    statistics,
    supervisor,
    workloads,
)
from benchmarks.show.line import Line

LINES: dict[str, tuple[Line, ...]] = dict.fromkeys(AREAS, ()) | {
    "rooms": rooms.LINES,
    "bus": bus.LINES,
    "executor": (*escapes.LINES, *supervisor.LINES),
    "identity": identity.LINES,
    "evidence": (*claim_runs.LINES, *statistics.LINES, *premises.LINES, *bounds.LINES),
    "workloads": workloads.LINES,
    "front-door": front_door.LINES,
    "distributed": distributed.LINES,
    "clusters": clusters.LINES,
    "hardware": hardware.LINES,
    "restoration": restoration.LINES,
    "engine": (*engine_folders.LINES, *engine_models.LINES, *engine_drafting.LINES),
}
