"""Cheats in what bounded caches answer and hold."""

from __future__ import annotations

from typing import Any

from tests.corpus.gate.bounded import bounded_recall
from tests.corpus.gate.builders import Case, sha, state_claims
from tests.corpus.gate.cheats.registry import cheat
from tests.corpus.gate.generations import LAYERS, ROW_BYTES


@cheat("a native cache whose bytes no allocator counts", "G7-BUFFERS", base="bounded_kv")
def _(case: Case) -> Case:
    for point in case.report["rows"]["points"]:
        if point["role"] == "baseline":
            point.update(host_bytes=point["kv_bytes"], allocator_active_bytes=point["allocator_idle_bytes"])
    return state_claims(case)


@cheat("a native cache with a drafter beside it", "G7-NATIVE", base="bounded_kv")
def _(case: Case) -> Case:
    for point in case.report["rows"]["points"]:
        if point["role"] == "baseline":
            point["drafter_bytes"] += point["kv_bytes"]
            point["allocator_active_bytes"] += point["kv_bytes"]
    return state_claims(case)


def _of_arms(case: Case, ending: str, **changes: Any) -> Case:
    for answer in case.report["rows"]["answers"]:
        if answer["arm"].endswith(ending):
            answer.update(changes)
    return state_claims(case)


@cheat("a restored arm that was given no row", "G3-INJECTED", base="bounded_recall")
def _(case: Case) -> Case:
    return _of_arms(case, "+ftheta64", rows_injected=0)


@cheat("as many of the drawn prompts as look best", "G5-DESIGN", base="bounded_recall", at_best="valid")
def _(case: Case) -> Case:
    return bounded_recall(case.report["config"]["target"], 63)


def _renamed(case: Case, new: str, **changes: Any) -> Case:
    """Return a run whose restored arm has another layout, and other counts."""
    old = "sink4+window64+ftheta64"
    for row in (*case.report["rows"]["candidates"], *case.report["rows"]["answers"]):
        row.update({name: new for name in ("arm", "layout") if row.get(name) == old})
    return _of_arms(case, new, **changes)


@cheat("restored rows whose f_theta nothing names", "G3-INJECTED", base="bounded_recall")
def _(case: Case) -> Case:
    case.report["config"]["restoration"] = None
    return case


@cheat("an f_theta that is named where nothing restores", "G3-INJECTED", base="bounded_recall")
def _(case: Case) -> Case:
    for row in ("candidates", "answers"):
        rows = [entry for entry in case.report["rows"][row] if not entry["arm"].endswith("+ftheta64")]
        case.report["rows"][row] = rows
    return state_claims(case)


@cheat("the digest of another f_theta than the host's", "G2-RECOMPUTED", base="bounded_recall", at_best="valid")
def _(case: Case) -> Case:
    case.report["config"]["restoration"]["digest"] = sha("a better one")
    return case


@cheat("the name of another f_theta than the host's", "G2-RECOMPUTED", base="bounded_recall", at_best="valid")
def _(case: Case) -> Case:
    case.report["config"]["restoration"]["name"] = "kakeya-huge-ftheta512"
    return case


@cheat("a restored cache of bytes whose f_theta nothing names", "G7-NATIVE", base="bounded_kv")
def _(case: Case) -> Case:
    for point in case.report["rows"]["points"]:
        if point["role"] == "candidate":
            point["arm"] += "+ftheta64"
            more = 512 * (point["context_tokens"] + point["decode_steps"]) - point["latent_bytes"]
            point["latent_bytes"] += more
            point["allocator_active_bytes"] += more
    return state_claims(case)


@cheat("a window that no context fills", "G7-NATIVE", base="bounded_kv")
def _(case: Case) -> Case:
    for point in case.report["rows"]["points"]:
        if point["role"] == "candidate":
            more = ROW_BYTES * (point["context_tokens"] + point["decode_steps"]) - point["kv_bytes"]
            point["arm"] = "sink4+window2044"
            for name in ("kv_bytes", "kv_bytes_peak", "allocator_active_bytes"):
                point[name] += more
    return state_claims(case)


@cheat("a stream of which one row was made again", "G3-INJECTED", base="bounded_recall")
def _(case: Case) -> Case:
    return _renamed(case, "sink4+window64+stream+ftheta64", rows_injected=1)


@cheat("chosen pages of which one row was made again", "G3-INJECTED", base="bounded_recall")
def _(case: Case) -> Case:
    pages = {"pool_bytes": ROW_BYTES * 160, "index_bytes": 57_600, "kv_bytes": ROW_BYTES * 228 + 57_600}
    return _renamed(case, "sink4+window64+pages16x10+ftheta64", rows_injected=1, pages_moved=60, **pages)


@cheat("rows that were made again for the first step alone", "G3-INJECTED", base="bounded_recall")
def _(case: Case) -> Case:
    return _of_arms(case, "+ftheta64", rows_injected=412 * LAYERS)


@cheat("inputs of all layers in one byte", "G7-BOUNDED", base="bounded_recall")
def _(case: Case) -> Case:
    return _of_arms(case, "+identity", latent_bytes=1)


@cheat("an injection that is cut before the attention", "G3-CANARY", base="bounded_recall")
def _(case: Case) -> Case:
    # What a window alone gives: rows are made, and whatever they are made of, they change nothing.
    case.report["rows"]["layer_canaries"][0].update(identity_logit_change=3.1, noise_logit_change=0.0)
    return state_claims(case)


@cheat("a canary of the one layer that is shown restored rows", "G3-CANARY", base="bounded_recall")
def _(case: Case) -> Case:
    case.report["rows"]["layer_canaries"][0]["layers"] = [0]
    return case


@cheat("a dtype that forgives more than the target's", "G3-CANARY", base="bounded_recall")
def _(case: Case) -> Case:
    case.report["config"]["dtype"] = "bfloat16"
    case.report["rows"]["layer_canaries"][0]["identity_logit_change"] = 5e-4
    return state_claims(case)


@cheat("another cache instead of the native one", "G4-BOUNDED", base="bounded_recall")
def _(case: Case) -> Case:
    # It keeps every row of every layer, those of sliding layers too.
    for row in (*case.report["rows"]["candidates"], *case.report["rows"]["answers"]):
        row.update({name: "full" for name in ("arm", "layout") if row.get(name) == "native"})
    return state_claims(case)


@cheat("a native cache larger than its library's", "G7-BOUNDED", base="bounded_recall")
def _(case: Case) -> Case:
    # The library's cache on torch grows by what is appended.
    case.report["environment"]["backend"] = "torch"
    return _of_arms(case, "native", kv_bytes=ROW_BYTES * 600)


@cheat("a pool as large as the context", "G7-BOUNDED", base="bounded_recall")
def _(case: Case) -> Case:
    old, new = "sink4+window64+pages16x10", "sink4+window64+pages16x30"
    for row in (*case.report["rows"]["candidates"], *case.report["rows"]["answers"]):
        row.update({name: new for name in ("arm", "layout") if row.get(name) == old})
    return _of_arms(case, "x30", kv_bytes=ROW_BYTES * 548 + 57_600, pool_bytes=ROW_BYTES * 480)


@cheat("an index left out of the bytes", "G7-BOUNDED", base="bounded_recall")
def _(case: Case) -> Case:
    return _of_arms(case, "x10", kv_bytes=ROW_BYTES * 228, index_bytes=0)


@cheat("a drafter's context left out of the bytes", "G7-BOUNDED", base="bounded_recall")
def _(case: Case) -> Case:
    return _of_arms(case, "", drafter_bytes=0)


@cheat("arms that draft and say that they do not", "G4-BOUNDED", base="bounded_recall")
def _(case: Case) -> Case:
    for candidate in case.report["rows"]["candidates"]:
        candidate["drafts"] = False
    return _of_arms(case, "", drafter_bytes=0)


@cheat("drafted tokens without a drafter", "G4-BOUNDED", base="bounded_recall")
def _(case: Case) -> Case:
    case.report["config"]["drafter"] = None
    return _of_arms(case, "", drafter_bytes=0)


@cheat("a drafter whose weights are not named", "G4-BOUNDED", base="bounded_recall")
def _(case: Case) -> Case:
    case.report["config"]["drafter"]["digest"] = None
    return _of_arms(case, "", drafter_bytes=0)


@cheat("a drafter with a context that is called prompt lookup", "G4-BOUNDED", base="bounded_recall")
def _(case: Case) -> Case:
    drafter = case.report["config"]["drafter"]
    case.record["environment"].append(["KAKEYA_DRAFTER", drafter["name"]])
    case.spec["environment"].append(
        {"name": "KAKEYA_DRAFTER", "value": drafter["name"], "origin": "preset", "secret": False}
    )
    drafter.update(name="ngram", digest=None, format="ngram", parameters=0, block_size=None)
    return _of_arms(case, "", drafter_bytes=0)


@cheat("more drafted tokens than the steps have room for", "G4-BOUNDED", base="bounded_recall")
def _(case: Case) -> Case:
    case.report["config"]["depth"] = 2
    return case


@cheat("an answer that lists what every prompt asks for", "G4-BOUNDED", base="bounded_recall", at_best="valid")
def _(case: Case) -> Case:
    return _of_arms(case, "x10", text=" ".join(str(4000 + number) for number in range(60)))


@cheat("pages that another policy chose", "G4-BOUNDED", base="bounded_recall")
def _(case: Case) -> Case:
    for candidate in case.report["rows"]["candidates"]:
        if candidate["arm"].endswith("x10"):
            candidate["layout"] += "/recent"
    return state_claims(case)
