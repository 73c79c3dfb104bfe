"""The same question asked again is counted, and its earlier reports go to the gate beside the new one."""

from __future__ import annotations

from bridge.runner.state.attempts import load_reports, save_reports


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
    kept = load_reports(w.process.folder.reports, [earlier])
    assert kept[earlier] == {"probe.json": w.result(earlier).files["reports/probe.json"]}


def test_another_profile_or_parameter_is_another_thing(world):
    w = world()
    smoke, claim = w.ask(), w.ask(profile="claim")
    runner = w.runner()
    for _ in range(2):
        w.serve_once(runner)
    assert [w.record(ref.id).attempt.number for ref in (smoke, claim)] == [1, 1]


def test_a_run_that_left_no_report_is_absent(tmp_path):
    save_reports(tmp_path, "a", {"log.txt": b"x"})
    assert load_reports(tmp_path, ["a", "b"]) == {}
