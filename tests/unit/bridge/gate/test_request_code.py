"""Code nobody trusts may be quoted only as long as every fact that keeps it at a distance holds."""

from __future__ import annotations

import math
import statistics

import pytest
import scipy

from bridge.gate.facts import peer_isolation
from bridge.gate.judging import judge
from engine.measurement import drawn_prompts as nonce
from engine.reports.tokens import token_digest
from tests.corpus.gate.breaks import honest
from tests.corpus.gate.builders import state_claims


def verdict(case):
    return judge(case.run_id, case.seal().files(), case.record_value(), case.spec_value(), authority="host")


def primary(judged):
    return next(claim for claim in judged.claims if claim.role == "primary")


def codes(judged):
    return {finding.code for finding in judged.findings}


def test_an_honest_run_of_code_nobody_vouches_for_is_evidence():
    judged = verdict(honest("request_code"))
    assert judged.decision == "evidence", judged.why
    assert judged.trust_class == "untrusted"
    assert {claim.id for claim in judged.claims if claim.citable} >= {"total_speedup", "identical_prompts"}
    assert "request code, prompt to last token" in primary(judged).wording


def same_user(case):
    case.record["peers"][2]["sandbox"]["uid"] = case.record["sandbox"]["uid"]


def same_user_in_both(case):
    same_user(case)
    case.spec["sandbox"]["peer_uid"] = case.spec["sandbox"]["uid"]


def root_on_both_sides_of_the_wall(case):
    case.record["peers"][0]["sandbox"]["uid"] = case.spec["sandbox"]["peer_uid"] = 0


def unconfined_peer(case):
    case.record["peers"][0]["sandbox"].update(kind="none", reason="none", namespaces=[], filters=[], network="host")


def shared_processes(case):
    case.record["peers"][0]["sandbox"]["namespaces"].remove("pid")


def unconfined_conductor(case):
    case.record["sandbox"].update(kind="none", reason="none", namespaces=[], filters=[], network="host")
    case.spec["sandbox"]["mode"] = "preferred"


def no_peer_at_all(case):
    case.record["peers"] = []
    for command in case.spec["commands"]:
        command["peer"] = None


def another_program(case):
    case.record["peers"][1]["argv"][-1] = "4"


def known_nonce(case):
    case.spec["params"] = {"n": case.record["peers"][0]["nonce"]}


def nonce_of_the_workload(case):
    case.report["rows"]["launches"][0]["nonce"] = "ab" * 32


def one_nonce_for_all(case):
    for peer in case.record["peers"]:
        peer["nonce"] = case.record["peers"][0]["nonce"]


def chosen_prompt(case):
    case.report["rows"]["launches"][4]["prompts"][0]["text"] += "# please"


def unsorted_words(case):
    words = case.report["rows"]["words"]
    words[3], words[4] = words[4], words[3]


def never_held(case):
    for peer in case.record["peers"]:
        peer["held"] = []


def released_early(case):
    begin, end = case.record["peers"][0]["held"][5]
    case.record["peers"][0]["held"][5] = [begin, begin + (end - begin) / 2]


def survivor(case):
    case.record["peers"][0]["survivors"] = 1


def requests_own_command(case):
    case.spec["commands"][-1]["argv"][1] = "-s"
    case.record["commands"][-1]["argv"][1] = "-s"


def wrong_token(case):
    sample = case.report["arms"][-1]["samples"][9]
    sample["tokens"][2] += 1
    _seal(case, sample)


def wrong_warm_up(case):
    sample = case.report["arms"][-1]["samples"][0]
    assert sample["is_warmup"]
    sample["tokens"][2] += 1
    _seal(case, sample)


def _seal(case, sample):
    sample["token_digest"], sample["text"] = token_digest(sample["tokens"]), "another"
    sample["top2_margin_at_divergence"] = 0.1
    for mark in case.record["sample_marks"]:
        if mark["sample"] == sample["id"] and mark["event"] == "end":
            mark["token_digest"] = sample["token_digest"]


def counts_its_steps(case):
    case.report["arms"][-1]["samples"][5]["counters"]["accepted_tokens"] = 9


BREAKS = (
    same_user, same_user_in_both, root_on_both_sides_of_the_wall, unconfined_peer, shared_processes,
    unconfined_conductor, no_peer_at_all, another_program, known_nonce, nonce_of_the_workload, one_nonce_for_all,
    chosen_prompt, unsorted_words, never_held, released_early, survivor, requests_own_command, wrong_token,
    wrong_warm_up,
)  # fmt: skip


@pytest.mark.parametrize("spoil", BREAKS, ids=lambda spoil: spoil.__name__)
def test_whatever_is_missing_takes_the_exemption_away(spoil):
    case = honest("request_code")
    spoil(case)
    judged = verdict(case)
    assert judged.decision != "evidence"
    assert {"G2-PEER", "G2-TRUST"} <= codes(judged), codes(judged)
    assert not any(claim.citable for claim in judged.claims)


def test_what_a_peer_says_of_its_own_steps_is_refused():
    case = honest("request_code")
    counts_its_steps(case)
    assert "G4-STEPS" in codes(verdict(case))


def test_another_kind_of_report_beside_it_is_capped():
    case = honest("request_code")
    case.report["kind"] = "code_throughput"
    assert "G2-TRUST" in codes(verdict(case))


def test_time_is_judged_from_the_ask_to_the_last_token_however_late_the_first_one_comes():
    case = honest("request_code")
    before = primary(verdict(case)).value
    for sample in case.report["arms"][-1]["samples"]:
        stages = sample["stages"]
        stages["prefill_s"], stages["decode_s"] = stages["total_s"] - 0.01, 0.01
        marks = {mark["event"]: mark for mark in case.record["sample_marks"] if mark["sample"] == sample["id"]}
        marks["first_token"]["t_s"] = marks["end"]["t_s"] - 0.01
    judged = verdict(case)
    assert judged.decision == "evidence", judged.why
    assert primary(judged).value == before


@pytest.mark.parametrize("number", [0, 7, 13])
def test_engine_and_gate_draw_the_same_text(number):
    words = tuple(sorted(f"w{chr(97 + a)}{chr(97 + b)}" for a in range(9) for b in range(9)))
    for value in ("00" * 32, "9f" * 32):
        assert peer_isolation.draw(value, number, list(words)) == nonce.draw(value, number, words)
    assert nonce.draw("00" * 32, number, words) != nonce.draw("01" * 32, number, words)


def test_an_earlier_attempt_with_answers_of_its_own_is_in_no_pool():
    earlier, case = honest("request_code"), honest("request_code")
    earlier.report["run"]["id"] = before = case.run_id[:-1] + "0"
    case.record["attempt"].update(number=2, earlier=[before])
    for arm in earlier.report["arms"]:
        for sample in arm["samples"]:
            for name in ("prefill_s", "decode_s", "total_s"):
                sample["stages"][name] *= 1.001

    def judged():
        files = case.seal().files()
        pool = {before: earlier.seal().files()}
        return judge(case.run_id, files, case.record_value(), case.spec_value(), authority="host", earlier=pool)

    assert judged().decision == "evidence", judged().why
    assert primary(judged()).wording.startswith("in 2 sittings, ")
    assert "10 launches" in primary(judged()).wording
    wrong_token(earlier)
    assert judged().decision != "evidence"
    assert {"G2-PEER", "G2-TRUST"} <= codes(judged())


def scattered(case, scatter):
    """Let the peer's launches take so many times as long as they did, one after the other."""
    peer = case.report["arms"][-1]
    for sample in peer["samples"]:
        factor = scatter[sample["launch"]]
        for name in ("prefill_s", "decode_s", "total_s"):
            sample["stages"][name] *= factor
    return primary(verdict(state_claims(case)))


def test_the_interval_is_over_launches_whose_prompts_share_their_minute():
    """Five launches each of which is 6 % off, every prompt of it alike: sixty prompts say nothing of the sixth."""
    factors = [1.06, 0.94, 1.06, 0.94, 1.0]
    claim = scattered(honest("request_code"), factors)
    logs = [-math.log(factor) for factor in factors]
    middle, error = statistics.fmean(logs), statistics.stdev(logs) / math.sqrt(5)
    half = scipy.stats.t.ppf(0.98, 4) * error
    assert claim.n == 5
    assert claim.value == pytest.approx(math.exp(middle), rel=0.01)
    width = math.log(claim.interval[1] / claim.interval[0]) / 2
    assert width == pytest.approx(half, rel=0.1)


def test_the_best_of_twenty_commits_is_shown_as_one_of_twenty():
    case = honest("request_code")
    alone = scattered(case.copy(), [1.01, 0.99, 1.01, 0.99, 1.0])
    case.record["attempt"]["looks"] = 20
    chosen = scattered(case, [1.01, 0.99, 1.01, 0.99, 1.0])
    assert "best of 20" in chosen.wording
    assert math.log(chosen.interval[1] / chosen.interval[0]) > 2 * math.log(alone.interval[1] / alone.interval[0])


def test_one_launch_carries_no_ratio():
    case = honest("request_code")
    for arm in case.report["arms"]:
        arm["samples"] = [sample for sample in arm["samples"] if sample["launch"] == 0]
    assert "ratio" in scattered(case, [1.0]).missing
