"""What the gate says of an owner's own program."""

from __future__ import annotations

import json

import pytest

from bridge import strictjson
from bridge.client.evidence.compare import value_text
from bridge.gate import render
from bridge.gate.claims.percentiles import median_interval
from bridge.gate.judging import judge
from tests.corpus.gate.workloads import LOSSES, paired, taking_turns, trained


def verdict(case):
    return judge(case.run_id, case.files(), case.record_value(), case.spec_value())


def claim(case):
    return verdict(case).claims[0]


def test_a_median_over_six_seeds_is_reported_with_its_range():
    median = claim(trained(again=False))
    assert median.decision == "evidence", verdict(trained(again=False)).findings
    assert median.value == pytest.approx(1.935)
    assert median.interval == (1.90, 1.97)
    assert "1.935 nats [1.900, 1.970] 96.9 %, lower is better, reported by train.py@" in median.wording
    assert median.wording.endswith("over 6 seeds")
    assert [premise.seen_by for premise in median.premises] == ["runner"] * 4


def free(losses, aggregate="median"):
    """Return repeats of a metric without declared bounds."""
    case = trained(losses, again=False)
    case.spec["workload"]["metrics"][0].update(aggregate=aggregate, bounds=None)
    return case


@pytest.mark.parametrize("large", [1.7e308, 1e151])
@pytest.mark.parametrize("aggregate", ["median", "mean"])
def test_a_number_too_large_to_compute_with_is_named(large, aggregate):
    judged = verdict(free((1.0, 2.0, 3.0, 4.0, large, 1.7e308), aggregate))
    assert judged.decision == "rejected"
    assert {finding.code for finding in judged.findings if finding.severity == "reject"} == {"G4-METRICS"}
    assert "at /metrics/final_loss is no number of at most 1e+150" in judged.findings[0].message


def test_an_integer_that_no_double_holds_is_not_read():
    judged = verdict(free((1.0, 2.0, 3.0, 4.0, 10**400, 5.0), "median"))
    assert judged.decision == "rejected"
    assert (judged.findings[0].code, judged.findings[0].message) == (
        "G0-JSON",
        "an integer of 401 digits, at most 64 are read",
    )


def test_a_mean_of_many_values_says_what_they_lie_between():
    few, many = (claim(free(tuple(1.0 + n / 1000 for n in range(count)), "mean")) for count in (48, 200))
    assert ", 1.046, 1.047, if seeds scatter symmetrically" in few.wording
    assert many.n == 200
    assert "the mean of 200 values from 1 to 1.199, if seeds scatter symmetrically" in many.wording
    assert many.detail["values"][100] == 1.1


def test_a_mean_of_long_whole_numbers_fits_into_its_sentence():
    mean = claim(free(tuple(1_234_567_890_123.0 + 10_000_000 * n for n in range(48)), "mean"))
    assert mean.n == 48
    assert "the mean of 48 values from 1,234,567,890,123 to 1,235,037,890,123, if seeds" in mean.wording


def test_each_value_of_a_few_or_of_a_mean_keeps_its_prefix():
    """A value without one is a million times less than it was, beside a whole number that is printed whole."""
    values = (2_500_000.5, 3_000_000.0, 2_750_000.5)
    few = claim(free(values, "median"))
    assert "the median of 3 runs: 2.500 M, 2.750 M, 3,000,000" in few.wording, few.wording
    mean = claim(free((*values, 3_100_000.5, 3_200_000.5, 3_300_000.5), "mean"))
    assert "the mean of 2.500 M, 2.750 M, 3,000,000, 3.100 M, 3.200 M, 3.300 M, if seeds" in mean.wording, mean.wording


def test_a_confirmed_median_is_recomputed():
    median = claim(trained())
    assert median.decision == "evidence"
    assert "recomputed from what train.py@" in median.wording


@pytest.mark.parametrize("again", [True, False])
@pytest.mark.parametrize("aggregate", ["median", "mean"])
def test_a_number_that_no_run_changes_is_quoted_as_that_and_without_an_interval(aggregate, again):
    size = claim(trained((12345.0,) * 6, again=again, aggregate=aggregate, bounds=None))
    assert (size.decision, size.interval, size.n) == ("evidence", None, 6)
    assert "12,345 nats, the same in 6 of 6 runs: the seed changes nothing" in size.wording
    assert "seeds of" not in size.wording


def test_runs_that_differ_in_the_twelfth_digit_have_no_interval_of_their_noise():
    values = tuple(1.935012 + 1e-12 * place for place in range(6))
    assert "1.93501 nats, the same in 6 of 6 runs" in claim(trained(values, again=False)).wording
    finer = claim(trained(values, again=False, digits=15))
    assert (finer.interval is not None, "the same" in finer.wording) == (True, False)


def test_sizes_that_differ_in_the_seventh_digit_are_quoted_with_no_digit_in_which_they_differ():
    size = claim(trained((12345678.0, 12345712.0) * 3, again=False, bounds=None, unit="bytes"))
    assert (size.value, size.interval, size.decision) == (12345700.0, None, "evidence")
    assert size.wording.startswith("final_loss 12,345,700 bytes, the same in 6 of 6 runs to 6 digits, lower is better")
    coarse = claim(trained((12345.0, 12346.0) * 3, again=False, bounds=None, digits=3))
    assert "12,300 nats, the same in 6 of 6 runs to 3 digits" in coarse.wording


def test_tables_show_what_every_run_gave_with_the_digits_of_its_sentence():
    size = claim(trained((12.34561,) * 6, again=False, bounds=None))
    assert size.wording.startswith("final_loss 12.3456 nats, the same in 6 of 6 runs")
    assert value_text(size) == "12.3456 nats"
    few = claim(trained((12.34561, 12.5, 12.6), again=False, bounds=None))
    assert few.wording.startswith("final_loss 12.50 nats, the median of 3 runs: ")
    assert value_text(few) == "12.50 nats"


def test_the_interval_of_one_of_very_many_is_not_printed_as_sure():
    case = free(tuple(1.0 + n / 1000 for n in range(8)), "mean")
    case.record["attempt"]["looks"] = 200
    chosen = claim(case.seal())
    assert chosen.confidence == pytest.approx(1.0 - 0.05 / 200)
    assert "] 99.9 %, the mean of 1, 1.001, " in chosen.wording, chosen.wording


def test_what_was_declared_exact_and_differs_carries_no_claim():
    values = (1.0, 1.0, 1.0, 1.0, 1.0, 1.0 + 1e-9)
    assert claim(trained(values, again=False)).decision == "evidence"
    exact = claim(trained(values, again=False, exact=True))
    assert (exact.decision, exact.why) == ("valid", ("inputs: declared exact, and 6 runs gave 2 numbers",))
    assert claim(trained((1.0,) * 6, again=False, exact=True)).decision == "evidence"


def test_a_loss_that_is_not_reproduced_rejects_the_run():
    case = trained()
    case.record["commands"][-1]["answer"] = '{"final_loss": 1.0}'
    assert verdict(case).decision == "rejected"
    assert all(claim.decision == "nothing" for claim in verdict(case).claims)


EARLIER = "01k9x3m4n5p6q7r8s9t0v1w2x3"


def again(case, losses=(1.80, 1.81, 1.82, 1.83, 1.84, 1.85), *, answers=None, spoil=None, basis=EARLIER):
    """Let a run be the second of its question, after one with these losses; return its verdict."""
    case.record["attempt"] |= {"number": 2, "earlier": [EARLIER]}
    first = trained(losses, again=bool(case.spec["workload"]["confirms"]), basis=basis)
    for command, answer in zip(first.record["commands"][6:], answers or (), strict=False):
        command["answer"] = answer
    files = left_by(first, spoil)
    return judge(case.run_id, case.files(), case.record_value(), case.spec_value(), earlier={EARLIER: files})


def left_by(first, spoil=None):
    """Return what the runner stored of an attempt, once something was done to its reports or its record."""
    if spoil is not None:
        spoil(first)
    stored = {"/run.json": strictjson.encode(first.record), "/spec.json": strictjson.encode(first.spec)}
    return {**{path: json.dumps(value).encode() for path, value in first.reports.items()}, **stored}


@pytest.mark.parametrize("confirmed", [False, True])
def test_a_rerun_is_pooled_and_says_so(confirmed):
    pooled = again(trained(again=confirmed)).claims[0]
    assert pooled.decision == "evidence", pooled.why
    assert pooled.n == 12
    assert pooled.value == pytest.approx((1.85 + 1.90) / 2)
    assert pooled.wording.endswith("over 12 seeds of 2 runs")


def test_a_cell_of_a_sweep_that_is_tried_again_has_the_same_seeds_and_no_more():
    case = trained(LOSSES[:3], again=False)
    retried = again(case, losses=LOSSES[:3], basis=case.run_id).claims[0]
    assert (retried.n, retried.decision, retried.interval) == (3, "evidence", None)
    other = again(trained(again=False), losses=LOSSES[:3], basis=case.run_id).claims[0]
    assert (other.n, other.interval) == (6, (1.90, 1.97))
    assert other.wording.endswith("over 6 seeds of 2 runs")


@pytest.mark.parametrize("exact", [True, False])
def test_numbers_of_one_seed_that_differ_are_not_called_the_same_by_their_mean(exact):
    case = trained((12340.0,) * 6, again=False, bounds=None, exact=exact)
    size = again(case, losses=(12350.0,) * 6, basis=case.run_id).claims[0]
    assert "the same" not in size.wording
    assert size.decision == ("valid" if exact else "evidence")
    if exact:
        assert size.why == ("inputs: declared exact, and 12 runs gave 2 numbers",)
    once = again(trained((1.0,), again=False), losses=(3.0,), basis=case.run_id).claims[0]
    assert "final_loss 2 nats, the median of 1 seed in 2 runs: 2, lower is better" in once.wording


def test_a_rerun_whose_earlier_attempt_is_not_there_is_not_citable():
    case = trained(again=False)
    case.record["attempt"] |= {"number": 2, "earlier": [EARLIER]}
    median = claim(case)
    assert (median.decision, median.missing) == ("nothing", ("attempts",))


def test_an_earlier_attempt_that_was_not_reproduced_takes_the_confirmation_from_the_pool():
    pooled = again(trained(), answers=('{"final_loss": 1.0}',)).claims[0]
    assert (pooled.decision, pooled.missing) == ("valid", ("outputs",))
    assert f"G2-CONFIRMED: earlier attempt {EARLIER}" in pooled.why[0]


def break_report(first):
    first.reports["repeat-3/report.json"] = {"metrics": "none"}


def leave_out_two(first):
    for number in (2, 4):
        del first.reports[f"repeat-{number}/report.json"]


def cut_after_two(first):
    """Let the run have been cancelled while its third repeat ran."""
    for number in range(2, 6):
        del first.reports[f"repeat-{number}/report.json"]
    first.record["commands"] = first.record["commands"][:3]
    first.record["commands"][2].update(exit_code=None, signal=15)


@pytest.mark.parametrize(("spoil", "count"), [(break_report, 1), (leave_out_two, 2)])
@pytest.mark.parametrize("confirmed", [False, True])
def test_a_repeat_that_ended_without_a_readable_report_was_thrown_away(spoil, count, confirmed):
    pooled = again(trained(again=confirmed), spoil=spoil).claims[0]
    assert (pooled.decision, pooled.missing) == ("nothing", ("attempts",))
    assert f"{count} of 6 repeats ended and left no report that can be read" in pooled.why[0]


def test_a_cancelled_attempt_is_pooled_with_what_it_left_and_three_bar_the_number():
    pooled = again(trained(again=False), spoil=cut_after_two).claims[0]
    assert (pooled.decision, pooled.n) == ("evidence", 8), pooled.why
    case, gone = trained(again=False), [f"01k9x3m4n5p6q7r8s9t0v1w2x{number}" for number in range(3)]
    case.record["attempt"] |= {"number": 4, "earlier": gone}
    before = {name: left_by(trained(again=False, basis=name), cut_after_two) for name in gone}
    pooled = judge(case.run_id, case.files(), case.record_value(), case.spec_value(), earlier=before).claims[0]
    assert pooled.missing == ("attempts",)
    assert "3 earlier attempts within 30 days were cut" in pooled.why[0]


def test_an_earlier_attempt_without_a_number_cannot_be_pooled():
    pooled = again(trained(again=False), losses=(1.8, None, 1.8, 1.8, 1.8, 1.8)).claims[0]
    assert (pooled.decision, pooled.missing) == ("nothing", ("attempts",))
    assert "cannot be pooled" in pooled.why[0]


@pytest.mark.parametrize("line", [None, "done", "[1]", '{"loss": 1.9}', '{"final_loss": true}', '{"final_loss": NaN}'])
def test_a_recompute_command_that_says_nothing_confirms_nothing(line):
    case = trained()
    case.record["commands"][-1]["answer"] = line
    median = claim(case)
    assert median.decision == "valid"
    assert median.missing == ("outputs",)
    assert "reported by" in median.wording


@pytest.mark.parametrize(
    ("count", "words"), [(1, "nats, in one run, "), (3, "nats, the median of 3 runs: 1.900, 1.910, 1.920, ")]
)
def test_a_few_runs_are_said_one_by_one_and_have_no_interval(count, words):
    median = claim(trained((1.9, 1.91, 1.92)[:count], again=False))
    assert (median.decision, median.interval) == ("evidence", None)
    assert words in median.wording
    assert "seeds" not in median.wording


def test_a_few_runs_of_one_cell_of_several_are_not_quoted():
    case = trained(LOSSES[:1], again=False)
    case.record["attempt"]["looks"] = 8
    median = claim(case.seal())
    assert median.decision == "valid"
    assert "one of 8 that could be chosen from, and one run says" in median.why[0]


def test_the_best_row_of_a_sweep_over_noise_is_not_quoted_as_it_stands():
    case = trained(again=False)
    case.record["attempt"]["looks"] = 8
    median = claim(case.seal())
    assert (median.decision, median.interval) == ("valid", None)
    assert "one of 8 that could be chosen from, and 6 runs say too little of chance" in median.why[0]
    more = trained(tuple(1.9 + 0.01 * place for place in range(9)), again=False)
    more.record["attempt"]["looks"] = 8
    nine = claim(more.seal())
    assert (nine.decision, nine.confidence > 1 - 0.05 / 8) == ("evidence", True)
    assert ", best of 8" in nine.wording


def solved(*right, of=100, aggregate="share", again=False):
    """Return repeats that each solved so many of their items."""
    declared = {"aggregate": aggregate, "unit": "items", "better": "higher", "pointer": None, "bounds": None}
    case = trained((1.0,) * len(right), again=again, **declared, items="/metrics/items", correct="ok")
    for path, count in zip(sorted(case.reports), right, strict=True):
        items = [{"id": number, "ok": number < count} for number in range(of)]
        case.reports[path] = {"metrics": {"items": items}}
    return case.seal()


def test_an_item_with_half_of_a_character_counts_as_any_other_and_once():
    """Programs write one where a text is cut in the middle of an emoji; such a report was refused: `utf-8`."""
    case = solved(90)
    ((path, report),) = case.reports.items()
    items = report["metrics"]["items"]
    items[0]["text"] = "\ud83d"
    case.reports = {}
    case.raw[path] = json.dumps(report).encode()
    assert claim(case.seal()).wording.startswith("final_loss 0.900 [0.823, 0.951] 95 %, 90 of 100 items")
    items[1] = items[0]
    case.raw[path] = json.dumps(report).encode()
    assert [finding.message for finding in verdict(case.seal()).findings] == ["final_loss: 1 items occur twice"]


def test_a_share_of_one_cell_of_several_has_the_interval_of_one_that_could_be_chosen():
    alone, case = claim(solved(90)), solved(90)
    assert alone.wording.startswith("final_loss 0.900 [0.823, 0.951] 95 %, 90 of 100 items, higher is better"), alone
    case.record["attempt"]["looks"] = 8
    chosen = claim(case.seal())
    assert chosen.interval[0] < alone.interval[0] < alone.interval[1] < chosen.interval[1]
    assert "95 %, 90 of 100 items, best of 8, higher is better" in chosen.wording
    assert (alone.decision, chosen.decision) == ("evidence", "evidence")


def test_a_count_of_one_cell_of_several_says_so():
    case = solved(90, aggregate="count")
    case.record["attempt"]["looks"] = 8
    assert claim(case.seal()).wording.startswith("final_loss 90 of 100 items, best of 8, higher is better")


@pytest.mark.parametrize("aggregate", ["share", "count"])
def test_a_share_or_count_of_one_repeat_says_what_the_others_gave_where_they_differ(aggregate):
    alike, unlike = (claim(solved(*right, of=42, aggregate=aggregate)).wording for right in ([42, 42], [42, 40, 41]))
    assert "repeats" not in alike
    assert "42 of 42 items in the first of 3 repeats, which gave 40 of 42 to 42 of 42, higher is better" in unlike


@pytest.mark.parametrize(
    ("aggregate", "answer", "decision"),
    [("share", 0.9, "evidence"), ("share", 90, "nothing"), ("count", 90, "evidence"), ("count", 0.9, "nothing")],
)
def test_a_share_is_computed_again_as_a_share_and_a_count_as_a_count(aggregate, answer, decision):
    case = solved(90, aggregate=aggregate, again=True)
    case.record["commands"][-1]["answer"] = json.dumps({"final_loss": answer})
    again = claim(case.seal())
    assert again.decision == decision, again.why
    if decision == "evidence":
        assert "recomputed from what train.py@" in again.wording
    assert (verdict(case).decision == "rejected") == (decision == "nothing")


@pytest.mark.parametrize("loss", [float("1e9"), -1.0, "1.9", None, True])
def test_a_number_that_was_not_declared_so_refuses_the_report(loss):
    case = trained()
    case.reports["repeat-0/report.json"]["metrics"]["final_loss"] = loss
    judged = verdict(case.seal())
    assert judged.decision == "rejected"
    assert "G4-METRICS" in {finding.code for finding in judged.findings}


def test_a_fault_of_every_repeat_is_one_line_with_one_remedy():
    case = trained(again=False)
    for path in sorted(case.reports):
        case.reports[path]["metrics"] = {}
    lines = render.table(verdict(case.seal()), None).splitlines()
    answer, line = (line for line in lines if "G4-METRICS" in line)
    assert answer == "quote       refused, because final_loss: nothing is at /metrics/final_loss (G4-METRICS)"
    assert line.endswith("final_loss: nothing is at /metrics/final_loss  (repeats repeat-0/report.json and 5 more)")
    assert [line.split()[0] for line in lines].count("remedy") == 1


def test_a_nan_refuses_the_report_by_name():
    case = trained()
    path = "repeat-1/report.json"
    del case.reports[path]
    case.raw[path] = b'{"metrics": {"final_loss": NaN}}'
    judged = verdict(case.seal())
    assert judged.decision == "rejected"
    assert any(finding.code == "G0-JSON" and finding.report == path for finding in judged.findings)


@pytest.mark.parametrize(("log", "word"), [(-0.1, "slower"), (0.1, "faster"), (0.0, "equivalent within 5 %")])
def test_the_ratio_of_two_programs_is_worded_by_its_interval(log, word):
    ratio = claim(paired((log,) * 8))
    assert ratio.decision == "evidence", ratio.why
    assert word in ratio.wording
    assert "both as identified" in ratio.wording


def test_a_baseline_that_sleeps_is_seen():
    ratio = claim(paired((1.2,) * 8, busy=(0.02, 0.98)))
    assert ratio.decision == "valid"
    assert ratio.missing == ("times",)
    assert "baseline was on a processor 0.02 of its time" in ratio.why[0]


@pytest.mark.parametrize(("baseline", "worked"), [(0.98, True), (0.6, True), (0.4, False)])
@pytest.mark.parametrize("make", [lambda busy: paired(busy=busy), taking_turns])
def test_a_program_of_many_threads_does_not_make_one_of_a_single_thread_a_sleeper(make, baseline, worked):
    ratio = claim(make((baseline, 7.8)))
    assert ratio.missing == (() if worked else ("times",)), ratio.why
    if not worked:
        assert "baseline was on a processor 0.40 of its time, the other 1.00" in ratio.why[0]


def test_a_program_that_takes_turns_itself_is_seen_while_each_side_works_alone():
    ratio = claim(taking_turns())
    assert ratio.decision == "evidence", ratio.why
    assert "faster" in ratio.wording
    ratio = claim(taking_turns(shares=(0.02, 0.98)))
    assert ratio.missing == ("times",)
    assert "baseline was on a processor 0.02 of its time" in ratio.why[0]
    silent = taking_turns()
    silent.record["launches"][2]["solos"][1]["tokens"] = 0
    assert "in 1 of 8 launches a side put out nothing alone" in claim(silent).why[0]


def test_launches_that_a_program_cut_itself_are_no_sample_of_its_launches():
    case = taking_turns(shares=(0.02, 0.98))
    for launch in case.record["launches"][1:]:
        launch.update(cut="ready was expected, not b''", solos=[])
    ratio = claim(case.seal())
    assert ratio.missing == ("times",)
    assert any("8 of 8 launches that count were cut before their end" in why for why in ratio.why)


def test_what_a_program_says_of_its_own_processor_time_is_no_timer():
    case = taking_turns()
    case.spec["commands"][0]["launches"]["solo_s"] = 0.0
    for launch in case.record["launches"]:
        launch["solos"] = []
    assert "code" in claim(case.seal()).missing


def test_the_interval_of_a_median_is_the_exact_one_of_order_statistics():
    assert median_interval([1.0, 2.0, 3.0, 4.0, 5.0]) is None
    assert median_interval([1.0, 2.0, 3.0, 4.0, 5.0, 6.0]) == (1.0, 6.0, 0.96875)
    low, high, confidence = median_interval([float(n) for n in range(1, 13)])
    assert (low, high) == (3.0, 10.0)
    assert confidence == pytest.approx(0.9614, abs=1e-4)


def by_nobody(case, *labels):
    """Let the code of a run be a stranger's, on a host with these labels."""
    case.spec.update(trust_class="untrusted", labels=list(labels))
    case.record["code"].update(trust_class="untrusted")
    case.record["labels"] = list(labels)
    case.seal()
    return {finding.code for finding in verdict(case).findings}


def test_code_that_nobody_vouches_for_counts_on_ones_own_machine_where_only_the_runner_timed_it():
    assert "G2-TRUST" not in by_nobody(paired(), "embedded")
    assert "G2-TRUST" in by_nobody(paired())
    assert "G2-TRUST" in by_nobody(trained(), "embedded")
    assert "G2-TRUST" in by_nobody(trained())
