"""The same question asked again is counted, and its earlier reports go to the gate beside the new one."""

from __future__ import annotations

import datetime as dt
import json
from dataclasses import replace

import pytest

from bridge.limits import ATTEMPTS_LISTED_COUNT
from bridge.runner.state.attempts import (
    Attempts,
    CountedRun,
    Look,
    attempt_key,
    load_reports,
    look_of,
    save_reports,
    unreported,
)
from bridge.runner.state.database import StateDatabase
from bridge.system.clock import rfc3339
from tests.corpus.gate.breaks import honest
from tests.corpus.gate.turned import in_turns
from tests.corpus.gate.workloads import trained

NOW = dt.datetime(2026, 11, 22, 12, 0, tzinfo=dt.UTC)
A, B, C = "a" * 64, "b" * 64, "c" * 64
IDS = [f"01jd7zk3v8q4w2m6x9c5b7n{number:02d}t" for number in range(12)]


def test_a_second_attempt_of_the_same_thing_is_counted_with_its_earlier_reports(world):
    w = world()
    first, second = w.ask(), w.ask()
    runner = w.runner()
    for _ in range(2):
        w.serve_once(runner)
    records = {ref.id: w.record(ref.id) for ref in (first, second)}
    numbers = {run_id: record.attempt.number for run_id, record in records.items()}
    assert sorted(numbers.values()) == [1, 2]
    later = max(numbers, key=lambda run_id: numbers[run_id])
    earlier = min(numbers, key=lambda run_id: numbers[run_id])
    assert records[later].attempt.earlier == (earlier,)
    reports = load_reports(w.process.folder.reports, [earlier])
    left = w.result(earlier).files
    assert reports[earlier] == {"probe.json": left["reports/probe.json"], "/verdict.json": left["verdict.json"]}


def test_another_profile_or_parameter_is_another_thing(world):
    w = world()
    smoke, claim = w.ask(), w.ask(profile="claim")
    runner = w.runner()
    for _ in range(2):
        w.serve_once(runner)
    assert [w.record(ref.id).attempt.number for ref in (smoke, claim)] == [1, 1]


def test_another_model_in_the_owners_policy_is_another_question():
    case = honest("claim")
    spec, models = case.spec_value(), case.record_value().models
    other = tuple(model.evolve(sha256="ab" * 32) for model in models)
    assert models
    assert attempt_key(spec, "code", "host", models) == attempt_key(spec, "code", "host", models)
    assert attempt_key(spec, "code", "host", models) != attempt_key(spec, "code", "host", other)


def test_a_preset_that_its_owner_changed_is_another_question():
    """Launches of another plan are not pooled with those of this one, so that nothing would correct for them."""
    case = honest("claim")
    spec, models = case.spec_value(), case.record_value().models
    changed = spec.evolve(preset_digest="cd" * 32)
    assert attempt_key(spec, "code", "host", models) != attempt_key(changed, "code", "host", models)


def test_a_load_that_the_host_draws_is_another_question_and_one_more_look():
    """Half of its launches ran beside processors that the host held: in a pool with others they move the ratio."""
    case = in_turns()
    spec, models = case.spec_value(), case.record_value().models
    measured, *others = spec.commands
    drawn = measured.evolve(launches=measured.launches.evolve(load="drawn"))
    loaded = spec.evolve(commands=(drawn, *others))
    assert (spec.draws_load, loaded.draws_load) == (False, True)
    assert attempt_key(spec, "code", "host", models) != attempt_key(loaded, "code", "host", models)
    own, other = (look_of(each, "code", "host", models) for each in (spec, loaded))
    assert (own.family, own.version) == (other.family, other.version)
    assert own.cell != other.cell


def test_a_run_that_left_no_report_is_absent(tmp_path):
    save_reports(tmp_path, "a", {"log.txt": b"x"})
    assert load_reports(tmp_path, ["a", "b"]) == {}
    save_reports(tmp_path, "c", {"reports/r.json": b"{}"})
    assert unreported(tmp_path, ["a", "c", "b"]) == ("a", "b")


def test_an_owners_own_attempt_keeps_what_it_was_asked_and_what_ended_beside_its_reports(tmp_path):
    case = trained(again=False)
    files = {"run.json": case.record_value().canonical(), "spec.json": case.spec_value().canonical()}
    save_reports(tmp_path, "a", {**files, "reports/repeat-0/report.json": b"{}"})
    assert set(load_reports(tmp_path, ["a"])["a"]) == {"/run.json", "/spec.json", "repeat-0/report.json"}
    save_reports(tmp_path, "b", files)
    assert unreported(tmp_path, ["b"]) == ("b",)


@pytest.mark.parametrize(
    "left",
    [
        {"reports/parts/calibration.json": b'{"depth": 7, "prompts_per_sample": 1}'},
        {"reports/report.json": b'{"kind": "code_thro'},
    ],
)
def test_what_a_run_left_that_was_cancelled_in_the_middle_is_no_report(tmp_path, left):
    """Nothing of it can be pooled, so it would bar its question for thirty days."""
    case = honest("smoke")
    spec, record = case.spec_value().canonical(), case.record_value().canonical()
    save_reports(tmp_path, IDS[0], {"run.json": record, "spec.json": spec, **left})
    assert unreported(tmp_path, [IDS[0]]) == (IDS[0],)
    whole = {f"reports/{path}": data for path, data in case.files().items()}
    save_reports(tmp_path, IDS[1], {"run.json": record, "spec.json": spec, **whole, **left, "reports/x": b""} | whole)
    assert set(load_reports(tmp_path, [IDS[1]])[IDS[1]]) == {"report.json"}


def test_a_run_whose_pairs_were_stamped_is_pooled_whatever_became_of_its_report(tmp_path):
    case = in_turns()
    files = {"run.json": case.record_value().canonical(), "spec.json": case.spec_value().canonical()}
    save_reports(tmp_path, IDS[0], {**files, "reports/report.json": b"{"})
    assert set(load_reports(tmp_path, [IDS[0]])[IDS[0]]) == {"/run.json"}


@pytest.fixture
def attempts(tmp_path):
    return Attempts(StateDatabase(tmp_path / "state.sqlite"))


def test_what_ran_longer_ago_than_thirty_days_counts_no_more(attempts):
    attempts.count(A, IDS[0], NOW, look=look())
    attempts.count(A, IDS[1], NOW + dt.timedelta(days=29), look=look())
    late = attempts.count(A, IDS[2], NOW + dt.timedelta(days=31), look=look())
    assert (late.number, late.earlier) == (2, (IDS[1],))
    assert attempts.count(A, IDS[1], NOW + dt.timedelta(days=400)).earlier == (IDS[0],)  # asked again after a crash


def test_of_very_many_attempts_the_latest_are_listed_and_all_are_counted(attempts):
    ids = [f"01jd7zk3v8q4w2m6x9c5b7{number:04d}" for number in range(300)]
    attempts.read_back(CountedRun(A, run_id, rfc3339(NOW), None, None) for run_id in ids[:-1])
    last = attempts.count(A, ids[-1], NOW + dt.timedelta(days=1))
    assert last.number == 300
    assert last.earlier == tuple(ids[-1 - ATTEMPTS_LISTED_COUNT : -1])


def look(family=A, cell=A, version=A):
    return Look(family=family, cell=cell, version=version)


def test_the_cells_of_one_preset_are_looks_and_a_repeat_is_none(attempts, tmp_path):
    cells = [(A, look()), (A, look()), (B, None), (B, look(cell=B)), (C, look(cell=C))]
    counted = [
        attempts.count(key, run_id, NOW + dt.timedelta(days=number), look=cell).looks
        for number, (key, run_id, cell) in enumerate((key, IDS[n], cell) for n, (key, cell) in enumerate(cells))
    ]
    assert counted == [1, 1, 1, 2, 3]
    again = Attempts(StateDatabase(tmp_path / "state.sqlite"))
    assert again.count(C, IDS[5], NOW + dt.timedelta(days=29), look=look(cell=C)).looks == 3
    assert again.count(C, IDS[6], NOW + dt.timedelta(days=45), look=look(cell=C)).looks == 1


def test_the_first_cell_of_a_sweep_is_one_of_all_that_were_asked_for(attempts):
    """Looks counted as they come would leave the first rows of a sweep over noise without a correction."""
    cells = [
        attempts.count(key, run_id, NOW, look=replace(look(cell=key), cells=8)).looks
        for key, run_id in zip((A, B, C), IDS, strict=False)
    ]
    assert cells == [8, 8, 8]
    best = attempts.count(A, IDS[3], NOW, look=replace(look(cell=A), cells=1), confirms=IDS[0])
    assert best.looks == 1
    assert attempts.count(A, IDS[4], NOW, look=look(cell=A)).looks == 3, "asked alone, it is one of those measured"


def test_each_sitting_beyond_those_that_its_set_was_to_have_is_one_more_look(attempts):
    """`retry` sends a sitting of the same set again, and whoever quotes the set goes by the newest run of each."""
    looks = []
    for number, run_id in enumerate(IDS[:10]):
        own = attempts.of_sitting(look(), run_id, 8)
        looks.append(attempts.count(A, run_id, NOW + dt.timedelta(minutes=10 * number), look=own).looks)
    assert looks == [1] * 8 + [2, 3]
    assert attempts.of_sitting(look(), IDS[7], 8) == look(), "asked again after a crash"
    assert attempts.of_sitting(look(cell=B), IDS[10], 8) == look(cell=B), "another set"


def test_forty_unrelated_runs_widen_nobodys_interval(attempts):
    for number in range(40):
        digest = f"{number:064x}"
        attempts.count(digest, f"01jd7zk3v8q4w2m6x9c5b7{number:04d}", NOW, look=look(family=digest))
    attempt = attempts.count(A, IDS[0], NOW, look=look())
    assert (attempt.looks, attempt.versions, attempt.others) == (1, 1, 40)


def test_an_attempt_without_another_version_or_question_has_the_bytes_that_it_always_had(attempts):
    alone = json.loads(attempts.count(A, IDS[0], NOW, look=look()).canonical())
    assert alone.keys() == {"key", "number", "earlier", "unseen", "looks", "confirms"}
    edited = json.loads(attempts.count(B, IDS[1], NOW, look=look(version=B)).canonical())
    assert edited.keys() - alone.keys() == {"versions"}


def test_edits_follow_each_other_and_are_no_looks(attempts):
    versions = [
        attempts.count(key, run_id, NOW, look=look(version=key)) for key, run_id in zip((A, B, C), IDS, strict=False)
    ]
    assert [attempt.looks for attempt in versions] == [1, 1, 1]
    assert [attempt.versions for attempt in versions] == [1, 2, 3]


def test_a_sweep_is_one_family_and_a_changed_plan_another_version():
    case = honest("claim")
    spec, models = case.spec_value(), case.record_value().models
    own = look_of(spec, "code", "host", models)
    other = look_of(spec.evolve(params={**spec.params, "x": 7}), "code", "host", models)
    assert (own.family, own.version, own.cell == other.cell) == (other.family, other.version, False)
    assert look_of(spec.evolve(preset_digest="cd" * 32), "code", "host", models).version != own.version
    for changed in (spec.evolve(preset="another"), spec.evolve(profile="smoke")):
        assert look_of(changed, "code", "host", models).family != own.family
    assert look_of(spec, "code", "another host", models).family != own.family


def test_a_run_that_confirms_is_one_look_and_pools_with_confirmations_only(attempts):
    for key, run_id in ((A, IDS[0]), (B, IDS[1]), (A, IDS[2])):
        attempts.count(key, run_id, NOW, look=look(cell=key))
    first = attempts.count(A, IDS[3], NOW, look=look(), confirms=IDS[2])
    second = attempts.count(A, IDS[4], NOW, look=look(), confirms=IDS[0])
    assert (first.number, first.earlier, first.looks, first.confirms) == (1, (), 1, IDS[2])
    assert (second.number, second.earlier, second.looks) == (2, (IDS[3],), 1)
    assert attempts.count(A, IDS[5], NOW, look=look()).earlier == (IDS[0], IDS[2])
    assert attempts.counted(A, IDS[2])
    assert not attempts.counted(B, IDS[2])


def test_whoever_confirms_every_cell_of_a_sweep_has_chosen_from_the_confirmations(attempts):
    for key, run_id in zip((A, B, C), IDS, strict=False):
        attempts.count(key, run_id, NOW, look=replace(look(cell=key), cells=3))
    confirmed = [
        attempts.count(key, run_id, NOW, look=look(cell=key), confirms=first).looks
        for key, run_id, first in zip((A, B, C, A), IDS[3:], (*IDS[:3], IDS[0]), strict=False)
    ]
    assert confirmed == [1, 2, 3, 3]


def test_the_runner_notes_what_a_run_confirms_and_refuses_another_question(world):
    w = world()
    first = w.ask(profile="claim")
    runner = w.runner()
    w.serve_once(runner)
    second = w.ask(profile="claim", confirms=first.id)
    other = w.ask(profile="claim", confirms="01jd7zk3v8q4w2m6x9c5b7n1t0")
    for _ in range(2):
        w.serve_once(runner)
    attempt = w.record(second.id).attempt
    assert (attempt.number, attempt.looks, attempt.confirms) == (1, 1, first.id)
    refused = w.record(other.id)
    assert refused.reason == "request_rejected"
    assert "did not run with the same preset" in refused.message
    assert refused.commands == ()


def test_a_run_that_left_no_report_cannot_be_confirmed(world):
    """Else each of many questions is asked once in vain, and then again as a confirmation, which is no look."""

    def nothing(_spec, _directory):
        yield b"cancelled\n"
        return 0

    w = world(program=nothing)
    first = w.ask(profile="claim")
    runner = w.runner()
    w.serve_once(runner)
    assert w.record(first.id).attempt.number == 1
    second = w.ask(profile="claim", confirms=first.id)
    w.serve_once(runner)
    refused = w.record(second.id)
    assert (refused.reason, refused.commands) == ("request_rejected", ())
    assert "left no report" in refused.message
