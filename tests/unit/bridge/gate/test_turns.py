"""A run whose turns were handed out can make every claim but seconds; a report of other work than its turns cannot."""

from __future__ import annotations

import copy
import math

import pytest

from bridge.gate.claims.latency import LATENCIES
from bridge.gate.declared.kind import kinds
from bridge.gate.judging import RECORD_NAME
from tests.corpus.gate.breaks import honest as honest_run
from tests.corpus.gate.builders import judged
from tests.corpus.gate.generations import Plan, code_throughput
from tests.corpus.gate.launches import decode_early, in_order
from tests.corpus.gate.studies import BUILDERS
from tests.corpus.gate.turned import in_turns

CITABLE = (
    "decode_speedup", "prefill_speedup", "total_speedup", "acceptance_length", "acceptance_rate", "identical_prompts",
    *LATENCIES,
)  # fmt: skip
EARLIER = "01jd7zk3v8q4w2m6x9c5b7n1t0"


@pytest.fixture(scope="module")
def honest():
    return in_turns()


def found(verdict):
    return {f.code: f.message for f in verdict.findings if f.severity != "note"}


def test_identity_acceptance_and_what_was_stamped_may_be_quoted_and_tokens_a_second_may_not(honest):
    verdict = judged(honest.copy())
    claims = {claim.id: claim for claim in verdict.claims}
    assert verdict.decision == "evidence", found(verdict)
    citable = {name for name, claim in claims.items() if claim.citable}
    assert citable == set(CITABLE)
    assert claims["baseline_tokens_per_s"].missing == ("times",)
    assert claims["decode_speedup"].n == 10
    assert claims["decode_speedup"].value < claims["acceptance_length"].value


def scaled(case, factor):
    """Let the same run have happened on a machine that is so many times as fast, with as many more tokens a turn."""
    for launch in case.record["launches"]:
        for stamp in (*launch["turns"], *launch["solos"], *([launch["reference"]] if launch["reference"] else [])):
            stamp["done_s"] = stamp["go_s"] + (stamp["done_s"] - stamp["go_s"]) / factor
    for arm in case.report["arms"]:
        for sample in arm["samples"]:
            sample["stages"] = {name: value and value / factor for name, value in sample["stages"].items()}


def test_hardware_that_is_twenty_times_as_fast_can_make_every_claim(honest):
    claims = {claim.id: claim for claim in judged(in_turns(faster=20.0)).claims}
    assert [claims[name].decision for name in CITABLE] == ["evidence"] * len(CITABLE), claims["decode_speedup"].why


def test_samples_that_are_too_short_name_their_length(honest):
    case = honest.copy()
    scaled(case, 20)
    assert "a sample of arm 'speculative' decodes for 0.0" in found(judged(case))["G5-DURATION"]


def test_a_list_of_steps_that_were_not_taken_contradicts_the_turns(honest):
    case = honest.copy()
    mine = [
        turn for turn in case.record["launches"][2]["turns"] if turn["arm"] == "speculative" and turn["sample"] == 3
    ]
    mine[1]["tokens"] -= 1
    mine[2]["tokens"] += 1
    verdict = judged(case)
    assert verdict.decision == "rejected"
    assert any("the steps of the report give" in finding.message for finding in verdict.findings)


def in_whole_samples(case):
    """Let each sample be decoded in one turn behind its first one."""
    case.spec["commands"][0]["launches"]["unit"] = "samples"
    for launch in case.record["launches"]:
        launch["turn_tokens"], whole = 0, {}
        for turn in launch["turns"]:
            both = whole.setdefault((turn["arm"], turn["sample"]), [])
            if len(both) < 2:
                both.append(turn)
                continue
            both[1]["tokens"] += turn["tokens"]
            both[1]["done_s"] += turn["done_s"] - turn["go_s"]
            both[1]["over"] = turn["over"]
        launch["turns"] = sorted((turn for both in whole.values() for turn in both), key=lambda turn: turn["number"])
    in_order(case.record["launches"])
    return case


def test_a_first_turn_of_whole_samples_has_a_token_of_each_prompt_and_no_more(honest):
    """Told to have more of its sample's, it would say so many prompts, and each a part of its time."""
    case = in_whole_samples(honest.copy())
    assert judged(case).decision == "evidence", found(judged(case))
    first, second = [t for t in case.record["launches"][2]["turns"] if (t["arm"], t["sample"]) == ("speculative", 3)]
    first["tokens"] += 5
    second["tokens"] -= 5
    verdict = judged(case)
    assert verdict.decision == "rejected"
    assert any("the steps of the report give" in finding.message for finding in verdict.findings)


def test_a_refused_row_hides_the_steps_of_its_own_sample_alone(honest):
    case = honest.copy()
    mine = [
        turn for turn in case.record["launches"][2]["turns"] if turn["arm"] == "speculative" and turn["sample"] == 3
    ]
    mine[1]["tokens"] -= 1
    mine[2]["tokens"] += 1
    samples = [
        sample for sample in case.report["arms"][1]["samples"] if sample["launch"] == 1 and not sample["is_warmup"]
    ]
    refused = {"arm": "speculative", "component": "target", "reason": "no finite logits", "count": 1}
    case.report["fallbacks"].append({**refused, "sample": samples[0]["id"]})
    assert any("sample 3: turns had" in finding.message for finding in judged(case).findings)
    case.report["fallbacks"] += [{**refused, "sample": sample["id"]} for sample in samples[1:]]
    assert not any("sample 3: turns had" in finding.message for finding in judged(case).findings)


def test_samples_of_a_launch_that_never_was_are_refused(honest):
    """Each is a right answer with longer drafts accepted than any turn saw, so that acceptance doubles."""
    case = honest.copy()
    for arm in case.report["arms"]:
        mine = [copy.deepcopy(sample) for sample in arm["samples"] if sample["launch"] == 0]
        for sample in mine:
            sample["launch"] = 10
            sample["id"] = f"10/{sample['order_index']}/{arm['name']}/{sample['prompt_id']}"
        arm["samples"] += mine
    refusing = [finding for finding in judged(case).findings if finding.severity == "reject"]
    assert ("outputs", "arm 'speculative' has samples of 1 launches that never were, e.g. 11") in [
        (finding.premise, finding.message) for finding in refusing if finding.code == "G4-TURNS"
    ]


def test_tokens_that_no_turn_had_are_refused(honest):
    case = honest.copy()
    case.record["launches"][3]["turns"][5]["tokens"] += 1
    verdict = judged(case)
    assert verdict.decision == "rejected"
    assert any("the turns had" in finding.message for finding in verdict.findings)


def test_a_program_cannot_have_spent_more_time_than_the_runner_saw(honest):
    case = honest.copy()
    for turn in case.record["launches"][2]["turns"]:
        turn["done_s"] -= 0.2 * (turn["done_s"] - turn["go_s"])
    verdict = judged(case)
    assert "its own clock says" in found(verdict)["G4-TURNS"]
    assert "times" in next(claim for claim in verdict.claims if claim.id == "decode_speedup").missing


def test_a_slowed_baseline_is_no_baseline_and_a_missing_reference_is_said(honest):
    case = honest.copy()
    for launch in case.record["launches"][1:]:
        launch["reference"]["done_s"] = launch["reference"]["go_s"] + 0.8 * (
            launch["reference"]["done_s"] - launch["reference"]["go_s"]
        )
    assert found(judged(case))["G5-REFERENCE"].startswith("the baseline takes at least 2")
    case.record["launches"][4]["reference"] = None
    assert "1 of 10 launches have no reference" in " ".join(f.message for f in judged(case).findings)


def scatter_alone(case, arm, spread, slower=1.0):
    """Let one arm, or the host's own loop, name tokens of its stretches alone that scatter from launch to launch."""
    for place, launch in enumerate(case.record["launches"][1:]):
        for stretch in (*launch["solos"], launch["reference"]):
            if stretch["arm"] == arm:
                factor = math.exp(spread if place % 2 else -spread) / slower
                stretch["tokens"] = max(1, round(stretch["tokens"] * factor))


@pytest.mark.parametrize(
    ("arm", "slower", "code"), [("speculative", 2.0, "G5-SOLO"), ("reference", 0.6, "G5-REFERENCE")]
)
def test_stretches_alone_that_scatter_do_not_hide_what_turns_do(honest, arm, slower, code):
    """Each is far off in the middle, and so wide that the interval includes agreement."""
    case = honest.copy()
    scatter_alone(case, arm, 1.0, slower)
    verdict = judged(case)
    assert code in found(verdict)
    assert "times" in next(claim for claim in verdict.claims if claim.id == "decode_speedup").missing


@pytest.mark.parametrize("arm", ["speculative", "autoregressive", "reference"])
def test_stretches_alone_of_an_honest_run_may_scatter_as_on_a_machine_that_others_use(honest, arm):
    case = honest.copy()
    scatter_alone(case, arm, 0.25)
    assert not {"G5-SOLO", "G5-REFERENCE"} & set(found(judged(case)))


def test_a_baseline_that_counts_its_tokens_alone_up_is_no_loop_of_the_library(honest):
    """Counted up on both arms, the stretches alone agree with any turns."""
    case = honest.copy()
    for launch in case.record["launches"][1:]:
        for stretch in launch["solos"]:
            stretch["tokens"] *= 3
    verdict = judged(case)
    assert "names at least 3.0 times as many tokens a second" in found(verdict)["G5-REFERENCE"]
    assert "times" in next(claim for claim in verdict.claims if claim.id == "decode_speedup").missing


def test_decoding_in_first_turns_takes_the_times_of_the_ratio_of_decoding_alone(honest):
    """Alone and end to end nothing has changed, so that no other rule sees it."""
    case = honest.copy()
    decode_early(case.record["launches"], "speculative", 0.13)
    for arm in case.report["arms"]:  # its own clock agrees with the turns
        for sample in arm["samples"] if arm["name"] == "speculative" else ():
            stages = sample["stages"]
            stages["prefill_s"] += 0.13 * stages["decode_s"]
            for name in ("decode_s", "draft_s", "verify_s", "other_s"):
                stages[name] = stages[name] and 0.87 * stages[name]
    verdict = judged(case)
    claims = {claim.id: claim for claim in verdict.claims}
    assert {claims[name].missing for name in ("decode_speedup", *LATENCIES)} == {("times",)}
    assert all("times: G5-PREFILL" in " ".join(claims[name].why) for name in ("decode_speedup", *LATENCIES))
    assert "of its decoding longer than 1.5 times the baseline's" in found(verdict)["G5-PREFILL"]
    assert claims["total_speedup"].decision == claims["prefill_speedup"].decision == "evidence", verdict.why


def test_a_candidate_that_puts_its_prefill_off_has_no_ratio_of_prefill(honest):
    case = honest.copy()
    for launch in case.record["launches"]:
        for sample in {turn["sample"] for turn in launch["turns"]}:
            first, second, *_ = [t for t in launch["turns"] if (t["arm"], t["sample"]) == ("speculative", sample)]
            moved = 0.8 * (first["done_s"] - first["go_s"])
            first["done_s"] -= moved
            second["done_s"] += moved
    in_order(case.record["launches"])
    verdict = judged(case)
    claims = {claim.id: claim for claim in verdict.claims}
    assert "times as quick as the baseline's" in found(verdict)["G5-PREFILL"]
    assert {claims[name].missing for name in ("prefill_speedup", *LATENCIES)} == {("times",)}
    assert claims["decode_speedup"].decision == claims["total_speedup"].decision == "evidence"


@pytest.mark.parametrize("put_off", [0.0, 0.95])
def test_a_baseline_that_puts_the_prefill_of_long_prompts_off_is_found_by_the_same_measure(honest, put_off):
    case = honest.copy()
    for launch in case.record["launches"]:
        for key in {(turn["arm"], turn["sample"]) for turn in launch["turns"]}:
            first, second, *_ = [turn for turn in launch["turns"] if (turn["arm"], turn["sample"]) == key]
            late = put_off if key[0] == "autoregressive" else 0.0
            first["done_s"] += 0.3 * (1.0 - late)
            second["done_s"] += 0.3 * late
    in_order(case.record["launches"])
    assert ("G5-PREFILL" in found(judged(case))) is bool(put_off)


def test_arms_that_sleep_while_each_runs_alone_are_said_to_whatever_else_used_the_processor(honest):
    case = honest.copy()
    for launch in case.record["launches"][1:]:
        for stretch in launch["solos"]:
            stretch["cpu_s"] = 0.08 * (stretch["done_s"] - stretch["go_s"])
    verdict = judged(case)
    assert "alone used or awaited the processor 8 %" in found(verdict)["G3-PROCESSOR"]
    assert "times" in next(claim for claim in verdict.claims if claim.id == "decode_speedup").missing


def takes(case, factor):
    """Let an arm or the reference take so many times as long where the supervisor looks."""
    for launch in case.record["launches"][1:]:
        for stamp in (*launch["turns"], *launch["solos"], launch["reference"]):
            stamp["done_s"] += (factor.get(stamp["arm"], 1.0) - 1.0) * (stamp["done_s"] - stamp["go_s"])
    in_order(case.record["launches"])
    return case


@pytest.mark.parametrize("share", [0.8, 0.5])
def test_a_forward_that_costs_less_than_a_step_of_the_library_is_no_handicap(share):
    """Captured graphs and fused kernels do that; the reference says that the baseline is what it should be."""
    plan = Plan(token_s=Plan().token_s / share)
    verdict = judged(in_turns(report=code_throughput(plan).report))
    claims = {claim.id: claim for claim in verdict.claims}
    speed, length = claims["decode_speedup"], claims["acceptance_length"]
    assert speed.value > 1.05 * length.value
    assert verdict.decision == "evidence", found(verdict)
    assert speed.citable
    assert not [finding for finding in verdict.findings if finding.code == "G5-PLAUSIBLE"]


def test_a_library_that_is_slow_everywhere_is_no_handicapped_baseline(honest):
    case = takes(honest.copy(), {"autoregressive": 1.3, "reference": 1.3})
    assert "G5-PLAUSIBLE" not in found(judged(case))


def test_a_baseline_slowed_by_itself_is_found_beside_the_reference(honest):
    verdict = judged(takes(honest.copy(), {"autoregressive": 1.3}))
    assert "longer a token than the host's own loop" in found(verdict)["G5-REFERENCE"]
    assert not next(claim for claim in verdict.claims if claim.id == "decode_speedup").citable


def test_tolerances_that_add_up_take_the_ratio_and_one_of_them_alone_does_not(honest):
    def slowed(alone, together, early):
        case = honest.copy()
        for launch in case.record["launches"]:
            for factor, stamps in ((alone, launch["solos"]), (alone * together, launch["turns"])):
                for stamp in stamps:
                    if stamp["arm"] == "autoregressive":
                        stamp["done_s"] += (factor - 1.0) * (stamp["done_s"] - stamp["go_s"])
        in_order(case.record["launches"])
        if early:
            decode_early(case.record["launches"], "speculative", early)
        return judged(case)

    assert slowed(1.04, 1.0, 0).decision == slowed(1.0, 1.04, 0).decision == "evidence"
    verdict = slowed(1.04, 1.05, 0.04)
    assert not {"G5-REFERENCE", "G5-SOLO", "G5-PREFILL"} & found(verdict).keys()
    assert "the ratio owes at least" in found(verdict)["G5-BUDGET"]
    assert not next(claim for claim in verdict.claims if claim.id == "decode_speedup").citable
    hidden = slowed(1.0, 1.0, 0.07)
    assert "G5-PREFILL" not in found(hidden)
    taken = {claim.id for claim in hidden.claims if claim.id in CITABLE and not claim.citable}
    assert taken == {"decode_speedup", *LATENCIES}


def test_a_speed_up_beyond_its_drafts_is_noted_where_no_reference_ran(honest):
    case = takes(honest.copy(), {"speculative": 0.5})
    for launch in case.record["launches"]:
        launch["reference"] = None
    verdict = judged(case)
    (note,) = [finding for finding in verdict.findings if finding.code == "G5-PLAUSIBLE"]
    assert (note.severity, note.premise) == ("note", None)
    assert "no reference of the host's own ran" in note.message


def test_prompts_in_another_order_or_block_were_not_drawn(honest):
    case = honest.copy()
    case.record["launches"][1]["nonce"] = "ab" * 32
    verdict = judged(case)
    assert "did not meet the prompts of block 0" in found(verdict)["G4-ORDER"]
    assert verdict.decision == "rejected"


def test_a_launch_that_its_program_cut_once_it_had_seen_how_it_went_times_nothing(honest):
    case = honest.copy()
    launch = case.record["launches"][4]
    begun = max(turn["sample"] for turn in launch["turns"])
    launch["turns"] = [turn for turn in launch["turns"] if turn["sample"] < begun]
    launch.update(cut="done was expected, not b''", solos=[], reference=None)
    met = [row["prompt_id"] for row in case.report["arms"][0]["samples"] if row["launch"] == 3]
    for arm in case.report["arms"]:
        arm["samples"] = [row for row in arm["samples"] if (row["launch"], row["prompt_id"]) != (3, met[-1])]
    message = found(judged(case))["G4-TURNS"]
    assert message == "1 of 10 launches that count were cut before their end, e.g. launch 4: done was expected, not b''"


@pytest.mark.parametrize(("ran", "whole"), [(1, 0), (3, 0), (4, 0), (7, 5)])
def test_a_machine_that_had_time_for_few_launches_has_valid_numbers(honest, ran, whole):
    """It never met all blocks of the set, and drew those that it met."""
    case = honest.copy()
    case.record["launches"] = case.record["launches"][: ran + 1]
    for arm in case.report["arms"]:
        arm["samples"] = [row for row in arm["samples"] if row["launch"] < ran]
    met = {row["prompt_digest"] for arm in case.report["arms"] for row in arm["samples"]}
    case.report["prompts"] = {digest: ids for digest, ids in case.report["prompts"].items() if digest in met}
    names = {row["id"] for arm in case.report["arms"] for row in arm["samples"]}
    case.report["fallbacks"] = [row for row in case.report["fallbacks"] if row["sample"] in names]
    case.report["wall_s"] += 30.0
    verdict = judged(case)
    assert verdict.decision == "valid", found(verdict)
    counted = f"{ran} launch{'' if ran == 1 else 'es'}, {whole or 'none'} of them in a whole rotation, a claim needs 10"
    assert counted in found(verdict)["G5-LAUNCHES"]
    last = case.record["launches"][-1]
    last["nonce"] = "cd" * 32
    assert "did not meet the prompts of block" in found(judged(case))["G4-ORDER"]


def test_few_launches_whose_blocks_were_exchanged_are_found(honest):
    case = honest.copy()
    case.record["launches"] = case.record["launches"][:3]
    case.record["launches"][1]["block"], case.record["launches"][2]["block"] = 1, 0
    for arm in case.report["arms"]:
        arm["samples"] = [row for row in arm["samples"] if row["launch"] < 2]
    assert "did not meet the prompts of block" in found(judged(case))["G4-ORDER"]


def test_an_earlier_attempt_of_the_same_code_is_pooled(honest):
    earlier, case = in_turns(seed=5), honest.copy()
    earlier.report["run"]["id"] = EARLIER
    earlier.record["id"] = EARLIER
    earlier.seal()
    case.record["attempt"].update(number=2, earlier=[EARLIER])
    record = earlier.record_value().canonical()
    verdict = judged(case, {EARLIER: {**earlier.files(), RECORD_NAME: record}})
    speed = next(claim for claim in verdict.claims if claim.id == "decode_speedup")
    assert (speed.citable, speed.n) == (True, 20), found(verdict)


@pytest.mark.parametrize(("changes", "pooled"), [({"depth", "block_size"}, True), ({"prompt_set"}, False)])
def test_an_earlier_attempt_whose_trial_proposed_another_depth_is_the_same_question(honest, changes, pooled):
    earlier, case = in_turns(seed=5), honest.copy()
    other = {"depth": {"policy": "controller", "longest": 7}, "block_size": 8, "prompt_set": "code-raw"}
    earlier.report["config"] |= {name: other[name] for name in changes}
    earlier.report["run"]["id"] = earlier.record["id"] = EARLIER
    earlier.seal()
    case.record["attempt"].update(number=2, earlier=[EARLIER])
    verdict = judged(case, {EARLIER: {**earlier.files(), RECORD_NAME: earlier.record_value().canonical()}})
    speed = next(claim for claim in verdict.claims if claim.id == "decode_speedup")
    assert ("attempts" not in speed.missing) is pooled, found(verdict)


def test_decode_prefill_and_the_whole_are_ratios_of_their_own_turns(honest):
    claims = {claim.id: claim for claim in judged(honest.copy()).claims}
    logs = []
    for launch in honest.record["launches"][1:]:
        first = {(turn["arm"], turn["sample"]): turn for turn in reversed(launch["turns"])}
        spent = {
            arm: sum(turn["done_s"] - turn["go_s"] for (name, _), turn in first.items() if name == arm)
            for arm in ("autoregressive", "speculative")
        }
        logs.append(math.log(spent["autoregressive"] / spent["speculative"]))
    assert claims["prefill_speedup"].value == pytest.approx(math.exp(sum(logs) / len(logs)))
    low, high = sorted(claims[name].value for name in ("prefill_speedup", "decode_speedup"))
    assert low < claims["total_speedup"].value < high


def test_the_baseline_alone_takes_turns_with_itself_and_its_rate_is_the_supervisors():
    case = in_turns(names=("autoregressive", "autoregressive_again"))
    (claim,) = [claim for claim in judged(case).claims if claim.role == "primary"]
    assert (claim.id, claim.decision, claim.n) == ("baseline_tokens_per_s", "evidence", 10), claim.why
    assert claim.wording.startswith("in one sitting, ")
    assert claim.wording.endswith("95 %, 10 launches")
    turns = [turn for launch in case.record["launches"] for turn in launch["turns"] if turn["arm"] == "autoregressive"]
    scaled(case, 2.0)
    (faster,) = [claim for claim in judged(case).claims if claim.role == "primary"]
    assert turns
    assert faster.value == pytest.approx(2.0 * claim.value)


def test_a_baseline_alone_with_fewer_launches_has_no_rate_to_quote():
    case = in_turns(names=("autoregressive", "autoregressive_again"))
    case.record["launches"] = case.record["launches"][:6]
    for arm in case.report["arms"]:
        arm["samples"] = [sample for sample in arm["samples"] if sample["launch"] < 5]
    (claim,) = [claim for claim in judged(case).claims if claim.role == "primary"]
    assert "times" in claim.missing


def swapped(launches):
    turns = launches[2]["turns"]
    turns[4]["go_s"], turns[4]["done_s"] = turns[2]["go_s"], turns[2]["done_s"]


def before_it_was_ready(launches):
    launches[2]["ready_s"] = launches[2]["turns"][0]["done_s"]


def behind_its_end(launches):
    launches[2]["ended_s"] = launches[2]["solos"][-1]["go_s"]


def never_ready(launches):
    launches[2]["ready_s"] = None


def twice_the_same_number(launches):
    launches[2]["turns"][1]["number"] = launches[2]["turns"][0]["number"]


def beside_the_one_before(launches):
    launches[2]["started_s"] = launches[1]["ended_s"] - 0.5


def in_the_middle_of_its_reference(launches):
    launches[2]["reference"]["go_s"] = launches[2]["ended_s"] - 0.5


def left_out(launches):
    del launches[9]


def longer_than_their_command(launches):
    launches[-1]["reference"]["go_s"] += 500.0
    launches[-1]["reference"]["done_s"] += 500.0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (swapped, "its stamps go back"),
        (before_it_was_ready, "its stamps go back"),
        (behind_its_end, "its stamps go back"),
        (never_ready, "handed turns and never ready"),
        (twice_the_same_number, "two turns have one number"),
        (beside_the_one_before, "began before the one before it was over"),
        (in_the_middle_of_its_reference, "its stamps go back"),
        (left_out, "launch 10 of verb-0 is the one numbered 9 in order"),
        (longer_than_their_command, "of turns do not fit into"),
    ],
)
def test_stamps_that_no_supervisor_makes_one_after_the_other_are_refused(honest, change, message):
    case = honest.copy()
    assert "G4-STAMPS" not in found(judged(case))
    change(case.record["launches"])
    verdict = judged(case)
    assert message in found(verdict)["G4-STAMPS"]
    assert verdict.decision == "rejected"
    assert "times" in next(claim for claim in verdict.claims if claim.id == "decode_speedup").missing


@pytest.mark.parametrize("name", sorted({"claim", *BUILDERS}))
def test_no_claim_of_speed_is_citable_where_the_runner_handed_out_no_turns(name):
    case = honest_run(name)
    case.record["launches"] = []
    for command in case.spec["commands"]:
        command.pop("launches", None)
    kind = kinds()[case.report["kind"]]
    speeds = [claim for claim in judged(case.seal()).claims if "times" in kind.metric(claim.id).needs]
    timed = {claim.id for claim in speeds if "times" not in claim.missing}
    # What the host's own code asked and timed from outside, answer by answer, is no program's word: G2-PEER.
    assert timed == ({"total_speedup"} if name == "request_code" else set())
    assert speeds or not any("times" in metric.needs for metric in kind.metrics)


def test_what_a_busy_machine_takes_around_a_command_bars_nothing(honest):
    case = honest.copy()
    launches = case.record["launches"]
    began = launches[0]["started_s"]
    for launch in launches:
        for entry in (launch, *launch["turns"], *launch.get("solos", ()), launch["reference"] or {}):
            for name in entry.keys() & {"started_s", "ready_s", "go_s", "done_s", "ended_s"}:
                entry[name] += 300.0
    launches[0]["started_s"] = began
    launches[-1]["reference"] = None
    launches[-1]["ended_s"] += 300.0
    assert "G4-STAMPS" not in found(judged(case))
