"""One way of breaking each rule: an honest run changed in one place, everything else sealed again."""

from tests.corpus.gate.breaks import design, documents, recorded, rows, sealed, servers, studies, substance, workloads
from tests.corpus.gate.breaks.registry import BREAKS, CHANGES, PASSES, candidate, honest, recomputed, retoken, samples

__all__ = [
    "BREAKS",
    "CHANGES",
    "PASSES",
    "candidate",
    "design",
    "documents",
    "honest",
    "recomputed",
    "recorded",
    "retoken",
    "rows",
    "samples",
    "sealed",
    "servers",
    "studies",
    "substance",
    "workloads",
]
