"""Three words for a reader, whoever asks."""

from __future__ import annotations

import pytest

from bridge.records.quotation import Quotation, of_claim, of_verdict, reason_text, word_of
from tests.corpus.gate.breaks import BREAKS, honest
from tests.corpus.gate.builders import judged


def test_what_lacks_nothing_may_be_quoted_and_what_is_broken_is_refused_with_every_claim():
    verdict = judged(honest("turned"))
    assert (str(of_verdict(verdict)), of_verdict(verdict).because) == ("may be quoted", ())
    refused = judged(BREAKS["G4-MARKS"]())
    assert of_verdict(refused).word == "refused"
    assert refused.claims
    assert {of_claim(claim, refused) for claim in refused.claims} == {of_verdict(refused)}


def test_what_lacks_a_premise_is_not_quoted_yet_and_says_why_and_a_claim_beside_it_may_be():
    verdict = judged(honest("claim"))
    answers = {claim.id: of_claim(claim, verdict) for claim in verdict.claims}
    assert str(answers["decode_speedup"]).startswith("not yet, because the runner handed out no turns")
    assert answers["identical_prompts"].word == "quotable"
    assert of_verdict(verdict).word == "measured"


def test_a_reader_who_does_not_take_the_result_takes_no_claim_of_it():
    verdict = judged(honest("turned"))
    answers = {
        of_verdict(verdict, "altered: log.txt"),
        *(of_claim(claim, verdict, "altered: log.txt") for claim in verdict.claims),
    }
    assert answers == {Quotation("refused", ("altered: log.txt",))}


@pytest.mark.parametrize(
    ("reason", "text"),
    [
        ("times: G4-TURNS: nobody timed it", "nobody timed it (G4-TURNS)"),
        ("inputs: 1 of at least 6 seeds: no interval", "1 of at least 6 seeds: no interval (inputs)"),
        ("no claim is made", "no claim is made"),
    ],
)
def test_a_reason_says_what_was_found_first(reason, text):
    assert reason_text(reason) == text


def test_every_class_has_one_word():
    assert [word_of(decision) for decision in ("evidence", "valid", "recorded", "rejected")] == [
        "quotable", "measured", "measured", "refused",
    ]  # fmt: skip
    assert str(Quotation("measured", ("a", "b", "c"))) == "not yet, because a, and 2 more"
