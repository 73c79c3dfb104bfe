"""What the gate says of inference servers that the runner started and asked."""

from __future__ import annotations

import pytest

from bridge.gate.judging import RECORD_NAME, SPEC_NAME, VERDICT_NAME, judge
from tests.corpus.gate.servers import PATH, served

EARLIER = "01jd7zk3v8q4w2m6x9c5b7n1t0"


def verdict(case):
    return judge(case.run_id, case.files(), case.record_value(), case.spec_value())


def claims(case):
    return {claim.id: claim for claim in verdict(case).claims}


def test_a_server_that_takes_half_again_as_long_is_the_slower_one():
    by_id = claims(served(slower=1.5))
    assert {claim.decision for claim in by_id.values()} == {"evidence"}, verdict(served()).findings
    ratio = by_id["answer_speedup"]
    assert ratio.value == pytest.approx(1.5, abs=0.02)
    assert "answer_speedup faster: 1.5" in ratio.wording.replace(" 1.49", " 1.5")


@pytest.mark.parametrize(("slower", "word"), [(1 / 1.1, "slower"), (1.0, "equivalent within 5 %")])
def test_a_tenth_is_seen_and_a_copy_is_equivalent(slower, word):
    assert claims(served(slower=slower))["answer_speedup"].detail["effect"] == word


def test_every_number_is_of_the_runner_and_over_launches():
    by_id = claims(served())
    first = by_id["candidate_first_token"]
    assert (first.n, first.unit) == (8, "s")
    assert first.interval[0] <= first.value <= first.interval[1]
    assert (
        "over 32 answers of 8 launches, lower is better; the asker itself takes 2 ms, seen by the runner"
        in first.wording
    )
    assert "p90" not in first.wording  # 36 answers have one
    assert "p90" in claims(served(launches=9))["candidate_first_token"].wording
    same = by_id["same_answers"]
    assert "1.000 [0.891, 1.000] 95 %, 32 of 32 prompts" in same.wording
    assert by_id["candidate_memory"].value == float(1 << 25)
    assert by_id["candidate_rate"].unit == "characters/s"


def test_beside_a_load_that_the_runner_draws_nothing_is_said_of_one_server_by_itself():
    """Half of the launches are of each load: a time over all of them is of neither, and the ratio says both."""
    case = served(launches=20)
    case.spec["commands"][0]["launches"] |= {"load": "drawn"}
    for launch in case.record["launches"]:
        launch["loaded"] = launch["number"] % 2
    by_id = claims(case.seal())
    assert set(by_id) == {"answer_speedup", "same_answers"}
    assert {claim.decision for claim in by_id.values()} == {"evidence"}
    assert "with half of them held" in by_id["answer_speedup"].wording


def test_servers_that_were_asked_about_in_a_word_have_no_number_that_is_counted():
    case = served()
    case.spec["commands"][0]["launches"] |= {"asks": {"word": "slower", "margin": 1.02}}
    by_id = claims(case)
    assert by_id["answer_speedup"].detail["answer"]["answer"] == "no"
    assert {by_id[name].missing for name in ("candidate_first_token", "candidate_rate", "same_answers")} == {
        ("attempts",)
    }


def test_texts_that_part_are_counted_and_placed():
    case = served()
    for row in case.reports[PATH]["answers"]:
        if row["arm"] == "candidate" and row["sample"] == 3:
            row["text"] = row["text"][:20] + "x" * (len(row["text"]) - 20)
    same = claims(case.seal())["same_answers"]
    assert "0.750" in same.wording
    assert "24 of 32 prompts; the first difference after 20 characters" in same.wording


def changed(**fields):
    case = served()
    for row in case.reports[PATH]["answers"]:
        if row["arm"] == "candidate":
            row.update(fields)
    return verdict(case.seal())


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"error": "answers 503: busy"}, "48 of 96 requests failed, e.g. candidate: answers 503: busy"),
        ({"text": "   "}, "32 of 64 answers hold no text, e.g. of candidate"),
        ({"tokens": 20, "counted": 12, "first_counted": 1}, "candidate states 20 tokens for a text of 12"),
        ({"first_text": "Something else"}, "prompts are answered with the same first text"),
        ({"counted": 12, "first_counted": 1, "ends": 2}, "candidate puts 2 end tokens into an answer"),
        ({"tokens": 14, "counted": 12, "first_counted": 1}, "candidate states 448 tokens in all for texts of 384"),
        ({"tokens": 10, "counted": 12, "first_counted": 1}, "candidate states 320 tokens in all for texts of 384"),
        ({"begins": "Something else"}, "0 of 48 answers of candidate begin as the host's own target does"),
    ],
    ids=["failed", "blank", "miscounted", "other text", "ends twice", "generous", "grudging", "begun otherwise"],
)
def test_answers_that_are_none_take_the_outputs(fields, says):
    findings = [finding.message for finding in changed(**fields).findings if finding.code == "G4-SERVED"]
    assert any(says in message for message in findings), findings


@pytest.mark.parametrize(("words", "fits"), [(6, False), (11, True)])
def test_a_text_that_is_too_short_for_its_stated_tokens_takes_the_outputs(words, fits):
    case = served()
    for row in case.reports[PATH]["answers"]:
        if row["arm"] == "candidate":
            row["text"] = row["text"].partition("word ")[0] + "word " * words
    messages = [finding.message for finding in verdict(case.seal()).findings if finding.code == "G4-SERVED"]
    assert any("for as many stated tokens candidate's text is 0.5" in each for each in messages) is not fits, messages


@pytest.mark.parametrize(("launches", "lost"), [(1, False), (2, True)])
def test_a_server_parts_from_itself_without_streaming_at_a_near_tie_and_not_again_and_again(launches, lost):
    case = served()
    for row in case.reports[PATH]["answers"]:
        if row["arm"] == "candidate" and row["half"] == "whole" and 0 < row["launch"] <= launches:
            row["text"] = row["first_text"] = "Something else"
    messages = [finding.message for finding in verdict(case.seal()).findings if finding.code == "G4-SERVED"]
    assert messages == (["candidate begins otherwise without streaming in 2 of 8 launches"] if lost else [])


def test_a_beginning_that_is_a_part_of_a_character_says_nothing():
    case = served()
    for row in case.reports[PATH]["answers"]:
        row["begins"] = "answer"[: row["sample"]] + "\ufffd"
    assert [finding for finding in verdict(case.seal()).findings if finding.code == "G4-SERVED"] == []


def test_spaces_that_a_server_drops_before_its_answers_change_nothing():
    case = served()
    for row in case.reports[PATH]["answers"]:
        begins, row["begins"] = row["text"].partition(" ")[0], "  answer"
        assert begins == "answer"
        if row["arm"] == "baseline":
            row["text"], row["first_text"] = "  " + row["text"], "  " + row["first_text"]
    judged = verdict(case.seal())
    assert [finding.message for finding in judged.findings if finding.code == "G4-SERVED"] == []
    assert "32 of 32 prompts" in next(claim for claim in judged.claims if claim.id == "same_answers").wording


def test_a_cache_of_answers_takes_the_inputs():
    case = served()
    for row in case.reports[PATH]["answers"]:
        if row["arm"] == "candidate" and row["again"]:
            row["whole_s"] *= 0.5
    judged = verdict(case.seal())
    ratio = next(claim for claim in judged.claims if claim.id == "answer_speedup")
    assert ratio.decision == "valid"
    assert any("candidate asked again behind another line: the time is 0.50x" in reason for reason in ratio.why)


def test_of_a_server_that_ran_before_nothing_may_be_quoted():
    assert {claim.decision for claim in claims(served(endpoint=True)).values()} <= {"valid", "nothing"}


def again(earlier, case=None):
    """Return the claims of a second attempt, the first one beside it with what its own gate said."""
    earlier.record["id"] = earlier.spec["id"] = earlier.run_id = EARLIER
    earlier.seal()
    case = served() if case is None else case
    case.record["attempt"].update(number=2, earlier=[EARLIER])
    files = {
        **earlier.files(),
        RECORD_NAME: earlier.record_value().canonical(),
        SPEC_NAME: earlier.spec_value().canonical(),
        VERDICT_NAME: verdict(earlier).canonical(),
    }
    judged = judge(case.run_id, case.files(), case.record_value(), case.spec_value(), earlier={EARLIER: files})
    return {claim.id: claim for claim in judged.claims}


def test_an_earlier_attempt_is_in_every_number_and_not_in_the_ratio_alone():
    earlier = served(slower=1.0)
    for row in earlier.reports[PATH]["answers"]:
        row["whole_s"], row["first_s"] = 2.0 * row["whole_s"], 2.0 * row["first_s"]
    pooled, alone = again(earlier), claims(served())
    answer = pooled["candidate_answer"]
    assert (answer.n, answer.decision) == (16, "evidence"), answer.why
    assert answer.value > 1.2 * alone["candidate_answer"].value
    assert "over 64 answers of 16 launches of 2 runs, lower is better" in answer.wording
    assert "64 of 64 prompts of 2 runs" in pooled["same_answers"].wording
    assert {pooled[f"candidate_{name}"].n for name in ("rate", "memory", "first_token")} == {16}


def test_an_attempt_that_lost_its_outputs_is_in_and_out():
    earlier = served()
    for row in earlier.reports[PATH]["answers"]:
        row["first_text"] = f"{row['arm']} begins"
        row["whole_s"] *= 0.5
    answer, alone = again(earlier)["candidate_answer"], claims(served())["candidate_answer"]
    assert "1 earlier attempt in and out (lost outputs)" in answer.wording
    assert answer.interval[0] < 0.6 * alone.interval[0]
    assert answer.interval[1] == pytest.approx(alone.interval[1])


def test_one_of_several_cells_is_as_wide_as_that_asks_and_without_an_interval_it_is_no_claim():
    wide, none = served(), served()
    wide.record["attempt"]["looks"], none.record["attempt"]["looks"] = 4, 40
    assert "lower is better, best of 4" in claims(wide)["candidate_answer"].wording
    answer = claims(none)["candidate_answer"]
    assert (answer.interval, answer.missing) == (None, ("inputs",))
