"""Several slots, several runners, labels, conditions and the owner's word, each with the real command on a real bus."""

from __future__ import annotations

import datetime as dt
import json

import pytest

from bridge.records.request import RunnerSelector
from bridge.records.run import RunRecord

WAIT_FOR_BOTH = 'while [ "$(wc -l < {folder}/counted/starts)" -lt 2 ]; do sleep 0.05; done'


def record(s, ref) -> RunRecord:
    claim = s.ended(ref)
    files = s.requester().read_result(claim.result_oid).files
    return RunRecord.parse(files["run.json"], max_bytes=1 << 25, max_depth=32)


def extend(s, lines: str, name: str = "mini") -> None:
    """Put lines at the top of a runner's policy, which is made when there is none."""
    path = s.folder / f"{name}.toml"
    if not path.exists():
        s.policy(name)
    path.write_text(lines + path.read_text())
    path.chmod(0o600)


def said(s, words: str, name: str = "mini"):
    log = s.folder / f"{name}.log"
    return lambda: log.exists() and words in log.read_text()


@pytest.mark.ci
def test_two_slots_run_two_requests_at_the_same_time_and_count_them_as_two_attempts(site):
    s = site()
    s.set_work(WAIT_FOR_BOTH.format(folder=s.folder))
    s.create_bus()
    extend(s, "slots = 2\n")
    refs = [s.ask(), s.ask()]
    s.start("serve", "--bus", s.route)
    records = [record(s, ref) for ref in refs]

    assert sorted(s.starts()) == sorted(ref.id for ref in refs)
    assert sorted(run_record.attempt.number for run_record in records) == [1, 2]
    assert {run_record.reason for run_record in records} == {"passed"}
    assert all(command.survivors == 0 for run_record in records for command in run_record.commands)


@pytest.mark.ci
def test_each_request_goes_to_the_runner_it_asks_for_and_runs_once(site):
    s = site()
    s.create_bus()
    extend(s, 'labels = ["cpu"]\n', "one")
    extend(s, 'labels = ["cpu", "gpu"]\n', "two")
    refs = {
        "two": [s.ask(runner=RunnerSelector(labels=("gpu",))), s.ask(runner=RunnerSelector(name="two"))],
        "one": [s.ask(runner=RunnerSelector(name="one"))],
        "either": [s.ask(runner=RunnerSelector(labels=("cpu",))), s.ask()],
        "nobody": [s.ask(runner=RunnerSelector(labels=("tpu",)))],
    }
    for name in ("one", "two"):
        s.start("serve", "--bus", s.route, name=name)
    took = {who: {record(s, ref).runner for ref in requests} for who, requests in refs.items() if who != "nobody"}

    assert took["two"] == {"two"}
    assert took["one"] == {"one"}
    assert took["either"] <= {"one", "two"}
    s.until(said(s, "needs labels this runner has not: tpu", "one"), "never said why")
    assert s.claim(refs["nobody"][0]) is None
    assert sorted(s.starts()) == sorted(ref.id for who, requests in refs.items() for ref in requests if who != "nobody")


def test_a_condition_that_does_not_hold_keeps_the_request_in_the_queue_and_says_so(site):
    s = site()
    s.create_bus()
    hour = dt.datetime.now().hour  # noqa: DTZ005 (the owner's hours are local)
    extend(s, f'only_when = ["hours-{(hour + 2) % 24:02}-{(hour + 3) % 24:02}"]\n', "later")
    extend(s, f'only_when = ["hours-{hour:02}-{(hour + 2) % 24:02}"]\n', "now")
    ref = s.ask()
    s.start("serve", "--bus", s.route, name="later")
    s.until(said(s, "the owner's condition hours-", "later"), "never said why")
    assert s.claim(ref) is None
    s.start("serve", "--bus", s.route, name="now")

    assert record(s, ref).runner == "now"
    assert s.starts() == [ref.id]


@pytest.fixture
def approving_site(site):
    """A site whose owner has a program that allows the profile `smoke` only, and keeps what it was asked."""
    s = site()
    s.create_bus()
    program = s.folder / "may-it-run"
    program.write_text(
        f"#!/bin/sh\ncat > {s.folder}/asked.json\n"
        f'grep -q \'"profile":"smoke"\' {s.folder}/asked.json && exit 0\n'
        'echo "only smoke tests in the afternoon"\nexit 1\n'
    )
    program.chmod(0o700)
    extend(s, f'approval = ["{program}"]\n')
    return s


@pytest.mark.ci
def test_the_owners_program_gets_the_request_and_lets_it_run(approving_site):
    ref = approving_site.ask()
    # It ran; the empty report is refused by the gate.
    assert approving_site.run("once", "--bus", approving_site.route).code == 1

    assert approving_site.starts() == [ref.id]
    assert json.loads((approving_site.folder / "asked.json").read_text())["id"] == ref.id


def test_the_owners_program_refuses_with_its_own_words_and_nothing_starts(approving_site):
    ref = approving_site.ask(profile="claim")
    assert approving_site.run("once", "--bus", approving_site.route).code == 7

    assert approving_site.starts() == []
    claim = approving_site.ended(ref)
    assert claim.reason == "policy_refused"
    assert "only smoke tests in the afternoon" in claim.message


@pytest.mark.ci
@pytest.mark.parametrize("word", ["gone", "hangs"])
def test_an_owners_program_that_cannot_answer_allows_nothing(approving_site, word):
    program = approving_site.folder / "may-it-run"
    if word == "gone":
        program.unlink()
    else:
        program.write_text("#!/bin/sh\nkill -9 $$\n")
    ref = approving_site.ask()
    approving_site.run("once", "--bus", approving_site.route)

    assert approving_site.starts() == []
    assert approving_site.ended(ref).reason in {"policy_refused", "infrastructure"}
