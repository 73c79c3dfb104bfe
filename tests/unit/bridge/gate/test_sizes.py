"""What follows from a model's sizes, and what a record from before they were read is worth."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from bridge.gate.facts.model_sizes import index_least, latent_bytes, layout_bytes, native_bytes
from bridge.gate.judging import judge
from bridge.records.run import CacheShape
from tests.corpus.gate.breaks import honest
from tests.corpus.gate.builders import state_claims
from tests.corpus.gate.generations import ROW_BYTES

FULL = CacheShape(keys=10, values=10, window=None)
SLIDING = CacheShape(keys=10, values=10, window=8)


def report(dtype="float32", backend="torch"):
    return SimpleNamespace(body={"environment": {"backend": backend}, "config": {"target": {"dtype": dtype}}})


def judged(case, authority="host"):
    return judge(case.run_id, case.files(), case.record_value(), case.spec_value(), authority=authority)


def severities(verdict, code):
    return {finding.severity for finding in verdict.findings if finding.code == code}


@pytest.mark.parametrize(
    ("dtype", "backend", "bounds"),
    [
        ("float32", "torch", (4 * 20 * (100 + 7), 4 * 20 * (101 + 8))),
        ("bfloat16", "torch", (2 * 20 * (100 + 7), 2 * 20 * (101 + 8))),
        ("affine4", "torch", (2 * 20 * (100 + 7), 4 * 20 * (101 + 8))),
        ("float32", "mlx", (4 * 20 * (100 + 7), 4 * 20 * (357 + 8))),
    ],
)
def test_a_native_cache_is_bounded_by_rows_windows_and_growth(dtype, backend, bounds):
    assert native_bytes((FULL, SLIDING), report(dtype, backend), 100) == bounds


@pytest.mark.parametrize(
    ("layout", "least"),
    [
        ("native", 4 * 20 * 107),
        ("full", 4 * 20 * 200),
        ("affine8", 20 * 107 * (1 + 2 * 4 / 64)),
        ("affine4/32", 20 * 107 * (0.5 + 2 * 4 / 32)),
        ("d4x4", 20 * 107 * (0.5 + 4 / 64)),
        ("e8x8/8", 20 * 107 * (1 + 4 / 8)),
        ("sink4+window16", 4 * 20 * (19 + 7)),
        ("sink4+window16+exact0", 4 * 20 * 107),
        ("sink4+window16+pages8x3", 4 * 20 * (19 + 24 + 7) + 10 / 4 * (100 - 20 - 8 - 32)),
        ("sink4+window16+pages8x3/recent", 4 * 20 * (19 + 24 + 7)),
        ("sink4+window16+pages8x3+stream+host", 4 * 20 * (19 + 24 + 7)),
        ("sink4+window16+pages8x99/recent", 4 * 20 * 107),
        ("sink4+window16+stream+ftheta64", 4 * 20 * (19 + 7)),
    ],
)
def test_a_layout_keeps_at_least_what_its_name_says(layout, least):
    bounds = layout_bytes(layout, (FULL, SLIDING), report(), 100)
    assert bounds[0] == least
    assert least < bounds[1] < (4 * 20 * 1500 if layout == "affine8" else least + 4 * 20 * 1400)


def test_a_sink_is_held_whole_however_short_the_prompt_is():
    bounds = layout_bytes("sink1000+window64", (FULL,), report(), 256)
    assert bounds[0] < 4 * 20 * (1001 + 95) < bounds[1]


@pytest.mark.parametrize("arm", ["sink4+window64+pages16x10", "sink4+window64+ftheta64"])
def test_an_answer_of_one_token_holds_what_the_last_chunk_of_the_prompt_needed(arm):
    case = honest("bounded_recall")
    cut = [answer for answer in case.report["rows"]["answers"] if answer["arm"] == arm][:5]
    for answer in cut:
        counts = dict.fromkeys(
            ("steps", "drafted", "accepted", "pages_moved", "bytes_read", "pool_bytes", "index_bytes"), 0
        )
        answer.update(counts, tokens=answer["tokens"][:1], text="", correct=False, kv_bytes=ROW_BYTES * 480)
        answer["positions_forwarded"] = answer["prompt_tokens"]
    rules = {"G3-INJECTED", "G4-BOUNDED", "G7-BOUNDED"}
    assert not rules & {finding.code for finding in judged(state_claims(case)).findings}
    cut[0]["kv_bytes"] = 1
    assert rules & {finding.code for finding in judged(state_claims(case)).findings} == {"G7-BOUNDED"}


def test_pages_on_one_layer_alone_are_counted_there():
    caches, index = (FULL, FULL, SLIDING), 10 / 4 * (100 - 20 - 8 - 32)
    layout = "sink4+window16+pages8x3+layer1"
    least, most = layout_bytes(layout, caches, report(), 100)
    assert least == 4 * 20 * (19 + 19 + 24 + 7) + index
    assert most < layout_bytes("sink4+window16+pages8x3", caches, report(), 100)[1]
    assert index_least(layout, caches, report(), 100) == index
    hosted = [layout_bytes(f"{layout}+host", caches, report(), count)[1] for count in (1_000, 9_000)]
    assert hosted[1] - hosted[0] == (4 * 20 + 10 / 4 + 4 * 10 / 8) * 8_000  # what layer 1 may have in memory


@pytest.mark.parametrize(
    "parts",
    [
        "+exact9",
        "+exact1",
        "+exact00",
        "+pages8x3+layer9",
        "+pages8x3+layer1",
        "+pages8x3+layer00",
        "+exact0+pages8x3+layer0",
        "+pages8x3+layer0+stream",
        "+pages8x3+layer0+ftheta4",
    ],
)
def test_a_layout_that_names_a_layer_it_cannot_bound_has_no_bytes(parts):
    assert layout_bytes(f"sink4+window16{parts}", (FULL, SLIDING), report(), 100) is None


@pytest.mark.parametrize(("layout", "bytes_a_value"), [("affine8/32", 1.25), ("d4x4/16", 0.75), ("e8x8/64", 1.0625)])
def test_a_group_that_is_named_leaves_only_the_rows_open(layout, bytes_a_value):
    least, most = layout_bytes(layout, (FULL,), report(), 100)
    assert (least, most) == (bytes_a_value * 20 * 100, bytes_a_value * 20 * (100 + 273))


def test_most_of_a_bounded_layout_does_not_grow_with_the_context():
    most = [layout_bytes("sink4+window16+stream", (FULL,), report(), positions)[1] for positions in (1_000, 32_000)]
    assert most[0] == most[1] < 4 * 20 * 600
    paged = [layout_bytes("sink4+window16+pages8x3", (FULL,), report(), positions)[1] for positions in (1_000, 32_000)]
    assert paged[1] - paged[0] == (10 / 4 + 4 * 10 / 8) * 31_000
    whole = [layout_bytes("sink4+window16+exact0", (FULL,), report(), positions)[1] for positions in (1_000, 32_000)]
    assert whole[1] - whole[0] == 4 * 20 * 31_000


def test_latents_take_the_values_of_their_rank_at_every_position():
    assert latent_bytes("sink4+window16+ftheta64", report(), 100) == (4 * 64 * 100, 4 * 128 * (100 + 273))
    assert latent_bytes("sink4+window16", report(), 100) is None


def test_a_name_that_says_no_layout_has_no_bytes():
    assert layout_bytes("magic", (FULL,), report(), 100) is None


def without_shapes(name):
    case = honest(name)
    for model in case.record["models"]:
        model["shape"] = None
    return case


@pytest.mark.parametrize(("name", "codes"), [("claim", {"G2-MODELS"}), ("bounded_kv", {"G2-MODELS", "G7-NATIVE"})])
def test_sizes_nobody_could_read_stop_a_host_and_are_noted_of_an_older_record(name, codes):
    case = without_shapes(name)
    fresh, old = judged(case), judged(case, "attested")
    assert fresh.decision == "valid"
    for code in codes:
        assert severities(fresh, code) == {"violation"}
        assert severities(old, code) == {"note"}
    assert not any(code in why for claim in old.claims for why in claim.why for code in codes)


def test_absent_prompts_are_excused_in_an_older_record_only():
    older, newer = without_shapes("claim"), honest("claim")
    for case in (older, newer):
        del case.report["prompts"]
        case.seal()
    assert severities(judged(older, "attested"), "G4-PROMPTS") == {"note"}
    assert severities(judged(older), "G4-PROMPTS") == {"violation"}
    assert severities(judged(newer, "attested"), "G4-PROMPTS") == {"violation"}


def test_a_target_outside_the_hosts_models_is_not_taken_for_its_choice():
    case = honest("verify_cost")
    case.report["config"]["target"]["name"] = "random-shapes"
    verdict = judged(case.seal())
    assert severities(verdict, "G2-MODELS") == {"violation"}


@pytest.mark.parametrize(("backend", "expected"), [("mlx", {"violation"}), ("torch", set())])
def test_only_torch_widens_what_it_loads(backend, expected):
    case = honest("verify_cost")
    case.record["models"][0]["shape"]["dtype"] = "bfloat16"
    case.report["environment"]["backend"] = backend
    assert severities(judged(case.seal()), "G2-MODELS") == expected


@pytest.mark.parametrize(
    ("text", "message"), [("AAAA", "no list of token ids"), ("A", None), ("====", None), ("//////////8=", "vocabulary")]
)
def test_a_prompt_that_is_no_list_of_tokens_is_refused(text, message):
    case = honest("smoke")
    case.report["prompts"][next(iter(case.report["prompts"]))] = text
    verdict = judged(case.seal())
    assert verdict.decision == "rejected"
    if message is not None:
        assert any(message in finding.message for finding in verdict.findings if finding.code == "G4-PROMPTS")


@pytest.mark.parametrize(("factor", "outlying"), [(2, False), (3, True)])
def test_a_buffer_that_doubles_for_a_longer_prompt_is_no_outlier(factor, outlying):
    """Prompts of people have many lengths, so some of a set cross a buffer's end and hold twice the bytes."""
    case = honest("claim")
    for arm in case.report["arms"]:
        rows = sorted(s["prompt_tokens"] + s["output_tokens"] for s in arm["samples"])
        longest = rows[-max(1, len(rows) // 4)]
        for sample in arm["samples"]:
            if sample["prompt_tokens"] + sample["output_tokens"] >= longest:
                sample["memory"]["drafter_bytes"] = (sample["memory"]["drafter_bytes"] or 0) * factor or None
    case.seal()
    outliers = [finding for finding in judged(case).findings if "the arm's median" in finding.message]
    assert bool(outliers) == outlying
