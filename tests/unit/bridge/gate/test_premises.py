"""What a claim rests on: what fell, of which arm, and what the host's own computation said."""

from __future__ import annotations

import json

import pytest

from bridge.gate.catalogue import CONSEQUENCE, explain
from bridge.gate.declared.kind import kinds, read_kind
from bridge.gate.declared.premises import CLAIM_KINDS, PREMISES, VALID
from bridge.gate.judging import judge
from bridge.gate.registry import rules
from tests.corpus.gate.breaks import honest, recomputed, retoken, samples
from tests.corpus.gate.builders import judged


def claims(case):
    return {claim.id: claim for claim in judged(case).claims}


def test_every_premise_is_guarded_and_every_rule_guards_one():
    guarded = {entry.premise for entry in rules().values()}
    assert guarded == set(PREMISES)
    assert set(CONSEQUENCE) >= {entry.severity for entry in rules().values()}


def test_what_is_recomputed_is_declared_with_its_unit():
    for name in ("claim", "needle_recall", "acceptance", "kv_quantisation", "verify_cost", "bounded_kv", "suite"):
        verdict = judged(honest(name))
        kind = honest(name).report["kind"]
        for claim in verdict.claims:
            assert kinds()[kind].metric(claim.id).unit == claim.unit, claim.id
            assert {premise.premise for premise in claim.premises} == set(kinds()[kind].metric(claim.id).needs)


def test_a_number_that_no_command_computes_again_is_not_called_recomputed():
    """Where tokens are computed again, what quantising loses is the program's word still."""
    claim = claims(honest("kv_quantisation"))["error_affine8"]
    assert claim.wording.endswith("bits per value, over 6 layers, reported by the host's program")
    assert claims(honest("bounded_recall"))["canary_noise"].wording.endswith(", recomputed")


def test_outputs_fall_for_the_arm_alone_whose_tokens_are_not_the_targets():
    case = honest("claim")
    sample = samples(case, 2)[0]
    retoken(case, sample, [*sample["tokens"][:-1], (sample["tokens"][-1] + 7) % 2000 + 6])
    sample["top2_margin_at_divergence"] = 0.5
    judged_claims = claims(case)
    assert "outputs" in judged_claims["acceptance_length"].missing
    assert judged_claims["identical_prompts"].decision == "valid"
    assert "outputs" not in judged_claims["baseline_tokens_per_s"].missing


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"worst_gap": 0.2, "worst_at": 7}, "its best token is better by up to 0.2 at token 7"),
        ({"worst_gap": 1e30}, "are not the target's"),
        ({"free_running": False}, "came out otherwise when the host decoded them"),
        ({"free_running": None}, "were decoded freely, 5 are asked"),
        ({"token_digest": "ab" * 32}, "were not computed again"),
    ],
)
def test_what_the_host_computed_otherwise_takes_outputs(change, reason):
    case = honest("acceptance")
    recomputed(case, **change)
    (claim,) = [claim for claim in judged(case).claims if claim.role == "primary"]
    assert claim.missing == ("outputs",)
    assert reason in "".join(claim.why)


def test_a_text_that_the_tokenizer_does_not_decode_contradicts_the_report():
    case = honest("acceptance")
    recomputed(case, text_sha256="cd" * 32)
    assert judged(case).decision == "rejected"


def test_a_recomputation_that_was_there_before_it_began_is_refused():
    case = honest("acceptance")
    case.record["commands"][-1]["before"].append(
        {"path": "recompute.json", "bytes": 0, "sha256": "", "after_start": True}
    )
    verdict = judged(case)
    assert verdict.decision == "rejected"
    assert any("was there before anything was computed again" in f.message for f in verdict.findings)


def test_a_report_that_changed_after_it_was_computed_again_is_refused():
    case = honest("acceptance")
    case.seal()
    case.record["commands"][-1]["before"][0]["sha256"] = "ef" * 32
    verdict = judge(case.run_id, case.files(), case.record_value(), case.spec_value())
    assert any("not the one that lay there" in f.message for f in verdict.findings)


@pytest.mark.parametrize("name", ["drafter_parity", "bounded_kv"])
def test_rows_that_no_nonce_drew_are_no_inputs(name):
    case = honest(name)
    assert all("inputs" not in claim.missing for claim in claims(case).values())
    case.record["nonce"] = None
    assert all("inputs" in claim.missing for claim in claims(case).values())


def test_other_weights_confirm_nothing():
    case = honest("acceptance")
    answer = json.loads(case.raw["recompute.json"])
    answer["reports"]["report.json"]["target"] = "12" * 32
    case.raw["recompute.json"] = json.dumps(answer).encode()
    assert "outputs" in claims(case)["identical_prompts"].missing


def test_a_reference_that_disagrees_with_itself_confirms_nothing():
    case = honest("acceptance")
    answer = json.loads(case.raw["recompute.json"])
    answer["reports"]["report.json"]["delta"] = 40.0
    case.raw["recompute.json"] = json.dumps(answer).encode()
    assert "disagrees with itself" in "".join(next(c for c in judged(case).claims if c.role == "primary").why)


@pytest.mark.parametrize(("strange", "words"), [(2, "2 prompts are none of the set"), (None, "has no prompt set")])
def test_prompts_that_the_host_does_not_know_are_no_inputs(strange, words):
    case = honest("acceptance")
    answer = json.loads(case.raw["recompute.json"])
    answer["reports"]["report.json"]["strange"] = strange
    case.raw["recompute.json"] = json.dumps(answer).encode()
    identity = claims(case)["identical_prompts"]
    assert identity.missing == ("inputs",)
    assert words in "".join(identity.why)


def test_prompts_of_the_set_that_its_rule_does_not_choose_are_no_inputs():
    """Sixty of two hundred that suit a drafter are in the set, and met in the order that the nonce draws."""
    case = honest("turned")
    answer = json.loads(case.raw["recompute.json"])
    answer["reports"]["report.json"]["unchosen"] = 41
    case.raw["recompute.json"] = json.dumps(answer).encode()
    judged_claims = claims(case)
    assert judged_claims["decode_speedup"].missing == judged_claims["acceptance_length"].missing == ("inputs",)
    assert "41 prompts are others of the set" in "".join(judged_claims["decode_speedup"].why)


def test_a_report_without_its_presets_primary_claim_is_recorded_whatever_else_it_says():
    """A candidate that came out badly can be left out: the baseline's tokens a second are another claim."""
    case = honest("turned")
    case.spec["primary_claim"] = "recall_preserved"
    verdict = judged(case)
    assert verdict.decision == "recorded"
    assert verdict.why[0] == "recall_preserved, the primary claim of its preset, is not made"
    assert verdict.headline.endswith(f"Not the primary claim: {verdict.why[0]}.")
    assert not [claim for claim in verdict.claims if claim.role == "primary"]


def test_a_preset_whose_parameter_names_other_arms_has_its_primary_claim_of_those():
    case = honest("kv_quantisation")
    case.spec["primary_claim"] = "recall_affine4"
    verdict = judged(case)
    assert {claim.id for claim in verdict.claims if claim.role == "primary"} == {"recall_affine8"}
    assert verdict.decision == "evidence"


def test_nobody_vouches_for_a_record_that_anybody_may_have_written():
    verdict = judged(honest("acceptance"), authority="unattested")
    assert verdict.decision == "recorded"
    assert {premise.seen_by for claim in verdict.claims for premise in claim.premises} == {"runner, unattested"}


def test_a_report_outside_a_run_is_bound_to_nothing():
    case = honest("acceptance")
    verdict = judge("0" * 26, {"report.json": case.files()["report.json"]}, None, None, authority="unattested")
    assert verdict.decision == "rejected"
    assert all(claim.decision == "nothing" for claim in verdict.claims)


@pytest.mark.parametrize("kind", CLAIM_KINDS)
def test_least_premises_are_those_of_the_design(kind):
    shown = ["bound", "code", "inputs", "outputs"]
    expected = {
        "identity": shown, "acceptance": shown, "recall": shown,
        "ratio": [*shown, "times", "ratio", "attempts"],
        "programs": ["bound", "code", "times", "ratio", "attempts"],
        "reported": ["bound", "code", "attempts"],
        "memory": [*shown, "memory", "attempts"],
        "absolute": [*shown, "times", "attempts", "machine"],
    }  # fmt: skip
    assert list(CLAIM_KINDS[kind].least) == expected[kind]
    assert {"bound", "code", "attempts"} == VALID


WORKLOAD = """title = "My training"
traits = []
[metrics.final_loss]
unit = "nats"
better = "lower"
claim = "median"
premises = ["outputs"]
[recompute]
confirms = { final_loss = { numeric = 0.01 } }
"""


def test_a_kind_of_an_owner_has_the_same_shape_and_adds_premises():
    kind = read_kind("my-train", WORKLOAD)
    (metric,) = kind.metrics
    assert (metric.kind, metric.aggregate, metric.needs) == (
        "reported", "median", ("bound", "code", "outputs", "attempts"),
    )  # fmt: skip
    assert (kind.confirms["final_loss"].way, kind.confirms["final_loss"].tolerance) == ("numeric", 0.01)


@pytest.mark.parametrize(
    "change",
    [
        ('claim = "median"', 'claim = "best"'),
        ('better = "lower"', 'better = "smaller"'),
        ('premises = ["outputs"]', 'premises = ["luck"]'),
        ("traits = []", 'traits = ["quick"]'),
        ("{ numeric = 0.01 }", '"roughly"'),
        ('unit = "nats"', 'unit = "nats"\ncolour = "red"'),
    ],
)
def test_what_a_kind_may_not_say_is_an_error_that_names_it(change):
    with pytest.raises(ValueError, match="my-train"):
        read_kind("my-train", WORKLOAD.replace(*change))


def test_what_a_claim_needs_is_said_without_a_run():
    text = explain("decode_speedup")
    assert "decode_speedup of code_throughput: a ratio of times of the engine's arms (ratio)" in text
    assert "G4-TURNS" in text
    assert "a ratio of times of two programs" in text  # of two commits


@pytest.mark.parametrize(
    ("kind", "rows", "field"),
    [
        ("bounded_kv", "points", "kv_bytes"),
        ("bounded_recall", "answers", "index_bytes"),
        ("fused_graph_probe", "blocks", "accepted"),
        ("verify_cost", "verify", "token_digest"),
        ("verify_cost", "draft", "token_digest"),
    ],
)
def test_rows_that_come_out_otherwise_contradict_the_report(kind, rows, field):
    case = honest(kind)
    answer = json.loads(case.raw["recompute.json"])
    (report,) = answer["reports"].values()
    for row in report["exactly"][rows]:
        row[field] = "ab" * 32 if isinstance(row[field], str) else row[field] + 1
    case.raw["recompute.json"] = json.dumps(answer).encode()
    verdict = judged(case.seal())
    assert verdict.decision == "rejected"
    assert any(f"{field} came out otherwise" in finding.message for finding in verdict.findings)


def test_a_number_that_comes_out_otherwise_contradicts_the_report():
    case = honest("drafter_parity")
    answer = json.loads(case.raw["recompute.json"])
    (report,) = answer["reports"].values()
    report["values"]["agreed_tokens"] -= 1
    case.raw["recompute.json"] = json.dumps(answer).encode()
    assert judged(case.seal()).decision == "rejected"


def test_a_library_that_was_patched_leaves_no_claim():
    case = honest("claim")
    case.record["code"]["altered"] = ["mlx_lm/generate.py"]
    verdict = judged(case.seal())
    assert verdict.decision == "recorded"
    assert [finding.message for finding in verdict.findings if finding.code == "G2-CODE"] == [
        "files of packages that are not what was installed: mlx_lm/generate.py"
    ]


def test_an_output_of_a_lossy_cache_is_only_confirmed_on_its_own_layout():
    case = honest("kv_quantisation")
    answer = json.loads(case.raw["recompute.json"])
    (report,) = answer["reports"].values()
    report["rows"] = [row for row in report["rows"] if row["layout"] is None]
    case.raw["recompute.json"] = json.dumps(answer).encode()
    claims = {claim.id: claim for claim in judged(case.seal()).claims}
    assert "outputs" in claims["recall_affine8"].missing
    assert "outputs" not in claims["recall_native"].missing


def test_every_kind_whose_interleaved_arms_make_a_ratio_is_held_to_the_rules_on_ratios():
    timed = {name for name, kind in kinds().items() if any(metric.kind == "ratio" for metric in kind.metrics)}
    interleaved = {name for name in timed if "interleaved" in kinds()[name].traits}
    assert "needle_recall" in interleaved
    assert {name for name in interleaved if "paired" not in kinds()[name].traits} == set()
