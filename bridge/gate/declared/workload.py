"""The kind of report that an owner's own program makes, from the definition in its job spec.

The same shape as `kinds/<kind>/kind.toml`; what follows from an aggregate is the gate's, the host only adds.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import MappingProxyType
from typing import Final

from bridge.gate.declared.kind import Confirmation, Kind, Metric
from bridge.records.verdict import Premise
from bridge.records.workload import KIND, MetricDefinition, WorkloadDefinition

PAIRED: Final = "ratio"
OVER_SEEDS: Final = frozenset({"median", "mean"})


def kind_of(definition: WorkloadDefinition) -> Kind:
    """Return the kind that a workload declares."""
    confirms = {one.name: Confirmation(one.way, one.tolerance) for one in definition.confirms}
    metrics = tuple(
        Metric(
            pattern=one.name,
            unit=one.unit,
            better=one.better,
            aggregate=one.aggregate,
            kind="programs" if one.aggregate == PAIRED else "reported",
            premises=(*one.premises, *_added(one, confirmed=one.name in confirms)),
        )
        for one in definition.metrics
    )
    return Kind(KIND, definition.name, frozenset(), metrics, MappingProxyType(confirms))


def _added(metric: MetricDefinition, *, confirmed: bool) -> Iterator[Premise]:
    """Yield what a claim says beyond its sort: an interval over seeds says that they were drawn."""
    if metric.aggregate in OVER_SEEDS:
        yield "inputs"
    if confirmed:
        yield "outputs"
