"""How much a bounded cache grows is said over contexts: repeats of one are copies of a number."""

from __future__ import annotations

import scipy

from bridge.gate import profiles
from bridge.gate.claims import claim_drafts
from bridge.gate.interface import Evidence, Report
from tests.corpus.gate.studies import bounded_kv


def growth(copies):
    """Return the claim on growth where every point is there so many times."""
    case = bounded_kv()
    for point in case.report["rows"]["points"]:
        if point["role"] == "candidate":
            point["kv_bytes"] += {256: 0, 512: 900, 1024: 100, 2048: 700}[point["context_tokens"]]
    case.report["rows"]["points"] *= copies
    evidence = Evidence(reports=(), record=None, spec=None, profile=profiles.named("default", "claim"))
    (draft,) = (
        draft for draft in claim_drafts(Report("r.json", b"", case.report), evidence) if draft.id.startswith("flat_")
    )
    return draft


def test_the_bound_is_that_of_a_line_over_the_contexts():
    draft, points = growth(1), bounded_kv().report["rows"]["points"]
    own = [point for point in points if point["role"] == "candidate"]
    contexts = [256, 512, 1024, 2048]
    total_bytes = own[0]["kv_bytes"] + own[0]["drafter_bytes"] + own[0]["latent_bytes"]
    fit = scipy.stats.linregress(contexts, [total_bytes, total_bytes + 900, total_bytes + 100, total_bytes + 700])
    upper = fit.slope + scipy.stats.t.ppf(0.95, 2) * fit.stderr
    assert abs(draft.value - upper * 2048 / (total_bytes + 400)) < 1e-9
    assert draft.n == 4


def test_copies_of_a_point_narrow_no_bound():
    assert growth(3).value == growth(1).value
    assert growth(3).wording == growth(1).wording
