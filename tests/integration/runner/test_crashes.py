"""KILL at every journal point, on a real git bus with real processes: nothing is lost, nothing runs twice."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import pytest

from bridge.bus import open_bus
from bridge.bus.open.create import new_record
from bridge.records.run import RunRecord
from bridge.runner.state.journal import verify_journal
from bridge.system.clock import SystemClock
from bridge.trust.verifier import verify_tree
from tests.fakes.asking import make_request, push
from tests.fakes.github_server import serving
from tests.support.crash import crash, run, start
from tests.support.interpreter import write_interpreter
from tests.support.waiting import until

CLOCK = SystemClock()
# (event, when) -> what the next runner of the same name makes of it
RUNS = [
    "fetched before", "fetched after", "claimed before", "claimed after", "prepared before", "prepared after",
    "started before", "started after",
]  # fmt: skip
SAVED = [
    "exited before", "exited after", "judged before", "judged after", "result_built before", "result_built after",
    "terminal before", "terminal after", "copied before", "copied after", "announced before", "announced after",
]  # fmt: skip
# What each stage of the journal comes to is a table, tried whole in memory (tests/unit/bridge/runner/test_recovery.py).
# With real git and processes a quick run tries the steps that others see: taken and not noted, or noted at both ends.
QUICK = {
    "claimed before", "started before", "started after", "exited before", "result_built before", "terminal before",
    "terminal after", "announced before",
}  # fmt: skip
TOLD = SAVED[SAVED.index("terminal after") :]


def points(names, quick):
    return [pytest.param(name, marks=() if name in quick else pytest.mark.slow) for name in names]


WORK = """\
echo "$KAKEYA_RUN_ID" >> {counter}
{wait}
echo "was here"
printf '{{"left": "behind"}}' > "$KAKEYA_OUT/probe.json"
"""


@pytest.fixture
def scenario(tmp_path):
    """Return the paths of a bus with one request, and of a policy whose interpreter counts its starts."""
    counter, interpreter, policy = tmp_path / "told" / "counter", tmp_path / "python", tmp_path / "policy.toml"

    def make(event="", when="", wait=":"):
        subprocess.run(["git", "init", "-q", "--bare", tmp_path / "bus.git"], check=True)
        write_interpreter(interpreter, WORK.format(counter=counter, wait=wait))
        counter.parent.mkdir()
        counter.parent.chmod(0o777)  # a root runner's runs are another user
        policy.write_text(
            f'schema = 1\nname = "mini"\ninterpreter = "{interpreter}"\nrate_per_hour = 0\n[sandbox]\nmode = "off"\n'
            f'read_only = ["{counter.parent}"]\n'
        )
        policy.chmod(0o600)
        bus = open_bus(str(tmp_path / "bus.git"), repository=None, state=tmp_path / "requester", clock=CLOCK)
        bus.create(new_record(CLOCK, wake="actions", local=True).evolve(request_form="manifest"))
        ref = push(bus, make_request(bus.identity().bus_id, "count"))
        return {
            "bus": str(tmp_path / "bus.git"), "state": str(tmp_path / "state"), "policy": str(policy),
            "counter": str(counter), "event": event, "when": when, "id": ref.id, "ref": ref.ref,
        }  # fmt: skip

    tmp_path.chmod(0o700)
    return make


def starts(host):
    counter = Path(host["counter"])
    return counter.read_text().split() if counter.exists() else []


def requester(host, tmp_path):
    return open_bus(host["bus"], repository=None, state=tmp_path / "requester", clock=CLOCK)


def what_the_program_left_is_in_the_result(files):
    """The first runner's program, log, report and facts, whoever built the result."""
    record = RunRecord.parse(files["run.json"], max_bytes=1 << 25, max_depth=32)
    assert (record.executor_ok, record.program_exit, record.reason) == (True, 0, "passed")
    assert [command.exit_code for command in record.commands] == [0]
    assert record.started is not None
    assert record.code is not None
    assert record.attempt is not None
    assert record.attempt.number == 1
    assert record.imported is not None
    assert record.imported.path == f"{record.imported.installation}/__init__.py"
    assert files["log.txt"] == b"was here\n"
    assert files["reports/probe.json"] == b'{"left": "behind"}'
    assert [(output.path, output.after_start) for output in record.outputs] == [("probe.json", True)]


@pytest.mark.parametrize("point", points(RUNS + SAVED, QUICK))
def test_after_a_kill_the_next_runner_settles_the_run(scenario, tmp_path, monkeypatch, point):
    event, when = point.split()
    summary = tmp_path / "summary.md"
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    host = scenario(event, when)
    assert crash(host) == -9
    assert len(starts(host)) == (0 if point in RUNS else 1)
    run(host)
    run(host)  # a second look changes nothing

    view = requester(host, tmp_path).view(host["id"])
    claim = view.claim.claim
    assert claim.state == "terminal"
    assert claim.reason == "gate_rejected"  # an empty report: the program ran to its end, the gate said no
    assert starts(host) == [host["id"]]
    what_the_program_left_is_in_the_result(requester(host, tmp_path).read_result(claim.result_oid).files)
    assert view.delivery == "copied"
    assert [list((Path(host["state"]) / name).iterdir()) for name in ("late", "runs")] == [[], []]
    tree = requester(host, tmp_path).read_result(claim.result_oid)
    assert verify_tree(tree.files, run_id=host["id"]) == []
    assert verify_journal(Path(host["state"]) / "state.sqlite") > 0
    assert summary.read_text().count(f"Request `{host['id']}`") == 1


@pytest.mark.ci
@pytest.mark.parametrize("point", points(TOLD, {"terminal after", "announced before"}))
def test_the_site_is_told_once_of_a_result_whose_runner_died_after_publishing_it(
    scenario, tmp_path, monkeypatch, point
):
    with serving() as site:
        for name, value in site.environ.items():
            monkeypatch.setenv(name, value)
        host = scenario(*point.split())
        with Path(host["policy"]).open("a") as policy:
            policy.write("[hosting]\nstatus = true\ncomment = true\n")
        site.add_pull(7, host["ref"].removeprefix("refs/heads/"), "0" * 39 + "1")
        assert crash(host) == -9
        run(host)
        run(host)
        (status,) = site.state.statuses
        assert (status["context"], status["state"]) == ("kakeya/count", "failure")
        (comment,) = site.state.comments[7]
        assert f"Request `{host['id']}`" in comment["body"]


@pytest.mark.ci
def test_what_a_killed_runner_left_running_is_followed_again(scenario, tmp_path):
    go_on = tmp_path / "told" / "go-on"
    host = scenario("", "", wait=f"echo before; until [ -e {go_on} ]; do sleep 0.05; done")
    runner = start(host)
    try:
        until(lambda: starts(host))
    finally:
        runner.kill()
        runner.wait()
    again = start(host)
    time.sleep(1.0)  # the run goes on while it is looked at; who comes first changes nothing
    go_on.touch()
    again.wait(240)

    claim = requester(host, tmp_path).view(host["id"]).claim.claim
    files = requester(host, tmp_path).read_result(claim.result_oid).files
    assert claim.reason == "gate_rejected"
    assert files["log.txt"] == b"before\nwas here\n"
    assert starts(host) == [host["id"]]
