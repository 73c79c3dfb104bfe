"""What may be quoted is judged again: by this gate, over the files, for a reader who knows who signed them."""

from __future__ import annotations

import json

import pytest

from bridge.bus.tree import Tree
from bridge.client.evidence.judged import said_otherwise
from bridge.client.evidence.quote import quote
from bridge.client.run.result import Result
from bridge.gate.judging import judge
from bridge.records.manifest import Manifest
from bridge.records.verdict import StoredVerdict
from bridge.trust.judgement import TrustAnswer
from tests.corpus.gate.breaks import honest

VERIFIED = TrustAnswer("verified", "signed by desk")


def result(name: str, change=lambda case: None) -> Result:
    """Return the result tree of an honest run, or of one that was changed; only what is judged is in it."""
    case = honest(name)
    change(case)
    case.seal()
    verdict = judge(case.run_id, case.files(), case.record_value(), case.spec_value())
    files = {f"reports/{path}": data for path, data in case.files().items()}
    files |= {"run.json": case.record_value().canonical(), "spec.json": case.spec_value().canonical()}
    files["verdict.json"] = verdict.canonical()
    stored = StoredVerdict.parse(files["verdict.json"], max_bytes=1 << 26)
    reports = {path: json.loads(data) for path, data in case.files().items() if path == "report.json"}
    manifest = Manifest.model_construct(id=case.run_id)
    return Result(case.run_id, Tree(files), manifest, None, case.record_value(), stored, case.spec_value(), reports)


def test_a_quote_is_a_sentence_a_claim_and_the_command_that_checks_them():
    turned = result("turned")
    quoted = quote(turned, VERIFIED)
    assert quoted.lines[-1] == f"check: kakeya-mac verify {turned.id}"
    assert len(quoted.lines) == 11
    start = f"{turned.record.preset}: 1.87 committed tokens per target forward"
    assert quoted.lines[3].startswith(start)
    assert quoted.lines[3].endswith(f"; signed by desk; run {turned.id}")
    assert quoted.quotation == "quotable"
    lines = quote(turned, VERIFIED, markdown=True).lines
    assert lines[0].startswith("> ")
    assert lines[-1] == f"> `kakeya-mac verify {turned.id}`"


def test_a_run_that_was_begun_to_confirm_another_names_it():
    earlier = "01jd7zk3v8q4w2m6x9c5b7n1t0"
    acceptance = result("acceptance", lambda case: case.record["attempt"].update(confirms=earlier))
    assert f"; to confirm run {earlier}; " in quote(acceptance, VERIFIED).lines[0]


@pytest.mark.parametrize(
    ("counts", "words"),
    [
        ({"versions": 4}, "this host measured 4 versions of it within 30 days"),
        ({"others": 1}, "this host measured 1 other question within 30 days"),
        ({"versions": 2, "others": 7}, "this host measured 2 versions of it and 7 other questions within 30 days"),
    ],
)
def test_a_quote_names_the_versions_and_the_other_questions_it_could_have_been_chosen_from(counts, words):
    lines = quote(result("acceptance", lambda case: case.record["attempt"].update(counts)), VERIFIED).lines[:-1]
    assert lines
    assert all(f"; {words}; " in line for line in lines)


def test_a_quote_without_a_choice_names_none():
    assert not any("this host measured" in line for line in quote(result("acceptance"), VERIFIED).lines)


def test_a_claim_that_lacks_a_premise_is_refused_by_its_name_and_the_others_are_quoted():
    quoted = quote(result("claim"), VERIFIED)
    assert any(": identical on these 60 prompts" in line for line in quoted.lines)
    refused = {row.claim: row.why for row in quoted.refused}
    assert refused["decode_speedup"].startswith("not yet, because the runner handed out no turns")
    assert "(G4-TURNS)" in refused["decode_speedup"]
    assert not any("faster" in line for line in quoted.lines)


@pytest.mark.parametrize("word", ["unsigned", "untrusted", "altered"])
def test_what_nobody_known_signed_is_not_quoted(word):
    quoted = quote(result("acceptance"), TrustAnswer(word, "nobody known"))
    assert quoted.lines == []
    why = "judged away from the host" if word == "unsigned" else f"refused, because {word}: nobody known"
    assert all(why in row.why for row in quoted.refused)
    assert quoted.quotation == ("measured" if word == "unsigned" else "refused")


def test_a_stored_verdict_is_not_believed():
    def invent(case):
        case.raw["recompute.json"] = b'{"schema_version":1,"reports":{}}'

    acceptance = result("acceptance", invent)
    lied = json.loads(acceptance.tree.files["verdict.json"]) | {"decision": "evidence"}
    acceptance.tree.files["verdict.json"] = json.dumps(lied).encode()
    assert quote(acceptance, VERIFIED).lines == []


def test_a_verdict_that_this_gate_would_not_give_is_said():
    turned = result("turned")
    older = StoredVerdict(
        id=turned.id,
        decision="valid_not_citable",
        headline="",
        gate=turned.stored.gate.evolve(digest="ab" * 32),
    )
    judged = turned.judged(signed=True)
    assert said_otherwise(turned, judged) is None
    assert "says measured, by another gate (abababababab)" in said_otherwise(
        Result(**{**turned.__dict__, "stored": older}), judged
    )


def test_what_is_not_shown_beside_a_result_is_said_and_takes_nothing_from_it():
    quoted = quote(result("acceptance"), VERIFIED, note="not shown: 2 of mini (before 3 came run rrrrrrrr)")
    assert quoted.lines[-2] == "not shown: 2 of mini (before 3 came run rrrrrrrr)"
    assert [line for line in quoted.lines if "not shown" not in line] == [*quote(result("acceptance"), VERIFIED).lines]
