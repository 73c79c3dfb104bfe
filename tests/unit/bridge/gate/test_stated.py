"""What a report calls things is no claim: a sentence has words that the gate derived, or says whose word it is."""

from __future__ import annotations

import pytest

from bridge.client.evidence.quote import quote
from bridge.gate.facts.accelerators import device_words
from tests.corpus.gate.breaks import honest
from tests.corpus.gate.builders import judged
from tests.unit.bridge.client.test_quote import VERIFIED, result


def claim(verdict, name):
    return next(claim for claim in verdict.claims if claim.id == name)


@pytest.mark.parametrize("role", ["baseline", "candidate"])
def test_what_an_arm_calls_its_code_stands_in_no_sentence(role):
    def rename(case):
        for arm in case.report["arms"]:
            if arm["role"] in {role, "control" if role == "baseline" else role}:
                arm["code_path"] = "mlx_lm.generate:the_fastest_there_is"

    case = honest("turned")
    rename(case)
    verdict = judged(case)
    assert not any("fastest" in (claim.wording + str(claim.detail.get("summary"))) for claim in verdict.claims)
    assert "vs mlx_lm generate_step" in claim(verdict, "decode_speedup").wording


@pytest.mark.parametrize(
    ("backend", "device", "words"),
    [
        ("mlx", "cpu", "mlx cpu"),
        ("torch", "cuda:NVIDIA H200", "torch cuda NVIDIA H200"),
        ("torch", "cuda:the fastest there is", "torch cuda"),
        ("mlx", "cpu:metal", "mlx, a device that nobody knows"),
        ("trust me", "metal", "an unnamed library metal"),
    ],
)
def test_a_device_is_said_in_words_that_are_not_the_programs_own(backend, device, words):
    assert device_words(backend, device, ("NVIDIA H200",)) == words


def test_a_quote_names_no_device_that_only_the_report_knows():
    def lie(case):
        case.report["environment"]["blas"] = None
        case.report["environment"]["device"] = "cpu:metal"

    lines = quote(result("acceptance", lie), VERIFIED).lines
    assert not any("cpu:metal" in line for line in lines)
    assert not any("trust me" in line for line in lines)


def test_a_probe_of_a_device_that_nobody_knows_says_so():
    case = honest("probe")
    case.report["environment"]["device"] = "cpu:metal"
    (checks,) = judged(case).claims
    assert "cpu:metal" not in checks.wording
    assert "mlx cpu" in judged(honest("probe")).claims[0].wording


def test_drafts_that_nobody_saw_are_the_programs_own_count_and_quoted_of_no_report():
    word = ", as its program counts its steps"
    alone, in_turns = (claim(judged(honest(name)), "acceptance_length") for name in ("acceptance", "turned"))
    assert (alone.wording.endswith(word), in_turns.wording.endswith(word)) == (True, False)
    assert (alone.missing, in_turns.citable) == (("outputs",), True)
    assert "nobody handed out turns" in " ".join(alone.why)
    rate = claim(judged(honest("acceptance")), "acceptance_rate")
    assert rate.wording.endswith(word)
    assert rate.detail["summary"].endswith(word)


def test_a_rate_whose_drafts_only_its_program_counted_is_no_output_though_turns_were_handed_out():
    """A depth that is decided at run time lets a program leave out every draft that was refused."""

    def leave_out_what_was_refused(case):
        case.report["config"]["depth"] = {"policy": "controller", "longest": case.report["config"]["depth"]["tokens"]}
        for arm in case.report["arms"]:
            for sample in arm["samples"]:
                sample["drafted_per_step"] = sample["accepted_per_step"]
        case.report["fallbacks"] = []

    honest_claims, case = judged(honest("turned")), honest("turned")
    leave_out_what_was_refused(case)
    verdict = judged(case)
    assert claim(honest_claims, "acceptance_rate").citable
    assert claim(verdict, "acceptance_rate").value == 1.0
    assert claim(verdict, "acceptance_rate").missing == ("outputs",)
    length = claim(verdict, "acceptance_length")
    assert (length.citable, length.value) == (True, claim(honest_claims, "acceptance_length").value)


def test_an_error_over_the_layers_that_one_likes_lacks_its_inputs():
    """Half the layers: of a model whose caches the runner counted that is a lie, of another nobody knows."""
    case = honest("kv_quantisation")
    assert claim(judged(case.copy()), "error_affine8").citable
    rows = case.report["rows"]
    rows["errors"] = [row for row in rows["errors"] if row["layer"] < 3]
    assert judged(case.copy()).decision == "rejected"
    for model in case.record["models"]:
        if model["shape"] is not None:
            model["shape"]["caches"] = None
    error = claim(judged(case), "error_affine8")
    assert (error.missing, error.citable) == (("inputs",), False)
    assert "over 3 layers, reported by" in error.wording


def test_the_size_of_a_target_is_the_folders_whatever_the_report_says():
    from bridge.gate.facts.model_sizes import parameters_of
    from bridge.gate.interface import Evidence
    from bridge.gate.reports.loading import load

    def counted(case):
        case.seal()
        (report, *_), _ = load({"report.json": case.files()["report.json"]})
        return parameters_of(report, Evidence(reports=(report,), record=case.record_value(), spec=None, profile={}))

    case = honest("turned")
    case.record["models"][0]["shape"]["text_only"] = False
    before = counted(case)
    case.report["config"]["target"]["parameters"] = round(0.55 * case.report["config"]["target"]["parameters"])
    assert counted(case) == before
