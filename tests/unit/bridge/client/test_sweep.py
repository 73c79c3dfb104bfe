"""One line with several values: a request each, one sweep id, resumed by the same line, a table at the end."""

from __future__ import annotations

import datetime as dt
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from types import SimpleNamespace

import pytest

from bridge.cli.signals import DetachedError
from bridge.client.clone.store import Store
from bridge.client.evidence import sweep
from bridge.client.send.sweep import combinations
from bridge.errors import ParameterError, UsageError
from bridge.gate.comparison import Comparison, Difference
from bridge.presets.commands import seed_basis
from bridge.presets.installed import find
from bridge.presets.workloads import read_folder
from bridge.records.request import Request
from bridge.records.run import HostRecord
from bridge.system.clock import SystemClock
from tests.fakes.requester import Requester, StepClock
from tests.fakes.scripted_host import HOST, ScriptedHost
from tests.support.workload_folder import INTERPRETER, write_workload
from tests.unit.bridge.cli.looking import published

LINE = ("run", "my-train", "-p", "lr=0.1,0.01", "--repeat", "2")


@pytest.fixture(scope="module")
def own(tmp_path_factory):
    return read_folder(write_workload(tmp_path_factory.mktemp("w")), INTERPRETER).presets["my-train"]


class TickingClock(StepClock):
    """A clock on which no two ids are of one millisecond."""

    def now(self):
        self.at += dt.timedelta(milliseconds=2)
        return self.at


@pytest.fixture
def requester(tmp_path):
    return Requester(tmp_path, TickingClock())


@pytest.fixture
def host(requester, own):
    host = ScriptedHost(requester.bus, requester.clock)
    host.offer(own)
    requester.pin(host.sign())
    return host


def requests(requester) -> list[Request]:
    refs = sorted(requester.bus.snapshot().requests, key=lambda ref: ref.id)
    return [Request.parse(requester.bus.read_request(ref).data) for ref in refs]


def end(host, run_id, loss=1.0, **changes):
    host.claim(run_id)
    host.start(run_id)
    reports = {f"repeat-{n}/report.json": {"metrics": {"final_loss": loss + n / 100}} for n in range(6)}
    host.finish(run_id, reports=reports, **changes)


def test_a_line_is_a_request_a_combination_and_repeat_under_one_id(requester, host):
    ran = requester.run(*LINE, "--json")
    assert ran.code == 0, ran.err
    sent = requests(requester)
    assert [(request.params["lr"], request.sweep.repeat) for request in sent] == [
        (0.1, 0),
        (0.01, 0),
        (0.1, 1),
        (0.01, 1),
    ]
    assert {(request.sweep.id, request.sweep.count) for request in sent} == {(ran.document["data"]["sweep"], 4)}
    assert len({request.idempotency_key for request in sent}) == 4
    assert [row["id"] for row in ran.document["data"]["runs"]] == [request.id for request in sent]
    assert len({seed_basis(request) for request in sent}) == 2  # paired by repeat
    assert seed_basis(sent[0]) == seed_basis(sent[1])
    published("data-run").validate(ran.document["data"])


def test_the_same_line_goes_on_sends_nothing_twice_and_begins_anew_once_all_is_there(requester, host):
    first = requester.run(*LINE).out.split()
    assert requester.run(*LINE).out.split() == first
    assert len(requests(requester)) == 4
    for run_id in first:
        end(host, run_id)
    done = requester.run(*LINE, "--wait")
    assert "4 of them sent before" in done.err
    assert requester.run(*LINE).out.split() != first
    assert requester.run(*LINE, "--new").out.split() != first
    assert len(requests(requester)) == 8  # those that ended are listed no more


def test_a_line_that_was_stopped_after_two_requests_sends_the_other_two(requester, host):
    pushed = requester.bus.submit
    count = iter((None, None))

    def stops(*given, **named):
        try:
            next(count)
        except StopIteration:
            raise DetachedError(2) from None
        pushed(*given, **named)

    requester.bus.submit = stops
    stopped = requester.run(*LINE, "--json")
    assert (stopped.code, stopped.document["data"]["preset"]) == (130, "my-train")
    assert [row["id"] for row in stopped.document["data"]["runs"][:2]] == [
        request.id for request in requests(requester)
    ]
    requester.bus.submit = pushed
    ran = requester.run(*LINE)
    assert (ran.code, len(ran.out.split())) == (0, 4)
    assert len({request.sweep.id for request in requests(requester)}) == 1
    assert len(requests(requester)) == 4


def test_the_same_line_asked_twice_at_once_is_one_sweep(requester, host):
    """Each looks on the bus while the other decides, unless one waits for the other."""
    met = threading.Barrier(2)
    remember = Store.remember

    def meet(store, sent):
        with suppress(threading.BrokenBarrierError):
            met.wait(0.5)
        remember(store, sent)

    here = [replace(requester, clock=SystemClock(), remote=requester.bus.remote) for _ in range(2)]
    with pytest.MonkeyPatch.context() as patched, ThreadPoolExecutor(2) as pool:
        patched.setattr(Store, "remember", meet)
        ran = list(pool.map(lambda clone: clone.run(*LINE, "--queue"), here))
    assert [outcome.code for outcome in ran] == [0, 0], [outcome.err for outcome in ran]
    assert ran[0].out == ran[1].out
    assert len(requests(requester)) == 4


def test_a_wait_that_is_left_names_every_run_that_was_sent(requester, host):
    sent = requester.run(*LINE, "--json").document["data"]["runs"]
    end(host, sent[0]["id"])

    def leaves():
        raise DetachedError(15)

    requester.clock.plan(1, leaves)
    left = requester.run(*LINE, "--wait", "--json").document
    published("data-run").validate(left["data"])
    rows = left["data"]["runs"]
    assert [(row["id"], row["params"]) for row in rows] == [(row["id"], row["params"]) for row in sent]
    assert [row["reason"] for row in rows] == ["passed", "pending", "pending", "pending"]


def test_what_expired_before_a_runner_took_it_is_sent_anew_by_the_same_line(requester, host, own):
    first = requester.run(*LINE, "--expires", "1h").out.split()
    end(host, first[0])
    host.claim(first[1])
    requester.clock.sleep(2 * 3600)
    host.start(first[1])
    host.offer(own)
    again = requester.run(*LINE, "--expires", "1h")
    assert "2 of them sent before" in again.err
    assert again.out.split()[:2] == first[:2]
    assert not set(again.out.split()[2:]) & set(first)
    assert len({request.sweep.id for request in requests(requester)}) == 1
    assert requester.run(*LINE, "--expires", "1h").out.split() == again.out.split()


def test_a_sweep_that_is_sent_needs_no_runner_that_is_awake(requester, host):
    first = requester.run(*LINE).out.split()
    for run_id in first:
        end(host, run_id)
    requester.clock.sleep(24 * 3600)  # whoever took them is away
    ran = requester.run(*LINE, "--wait")
    assert ran.code == 0, ran.err
    assert len(ran.out.splitlines()) == 2 + len(first)
    anew = requester.run(*LINE, "--new")
    assert anew.code == 3
    assert "no live runner would take my-train: mini last seen 24h ago" in anew.err


def test_the_table_names_what_was_set_how_it_ended_and_the_metric_with_unit_and_interval(requester, host):
    for number, run_id in enumerate(requester.run(*LINE).out.split()):
        end(host, run_id, loss=1.0 + number % 2, reason="program_failed" if number == 3 else "passed")
    ran = requester.run(*LINE, "--wait")
    question, head, *rows = ran.out.splitlines()
    assert " ".join(question.split()) == "asked my-train steps=20"
    assert " ".join(head.split()) == "lr repeat run ended final_loss, lower is better"
    assert [row.split()[:2] for row in rows] == [["0.1", "1"], ["0.01", "1"], ["0.1", "2"], ["0.01", "2"]]
    assert rows[0].endswith("  passed (refused)  1.025 nats [1.000, 1.050]")
    assert rows[3].split()[3:5] == ["program_failed", "2.025"]
    assert ran.code == 4  # the strongest
    assert "exploratory" in ran.err
    assert requester.run("compare", "@last").out == ran.out
    document = requester.run("compare", "@last", "--json").document["data"]
    published("data-compare").validate(document)
    assert document["differences"] == []  # nobody saw these runs: nothing they say may be used


def test_below_a_table_stands_why_runs_failed_once_a_reason(requester, host):
    for number, run_id in enumerate(requester.run(*LINE).out.split()):
        host.logs[run_id] = b"loading\nValueError: lr is too large\n"
        end(host, run_id, **({"reason": "program_failed"} if number else {}))
    ran = requester.run(*LINE, "--wait")
    assert ran.out.splitlines()[6].split(maxsplit=1)[1] == "program_failed: | ValueError: lr is too large (and 2 more)"


def test_a_table_fits_its_screen_and_leaves_out_what_is_least_needed(requester, host):
    other = HOST.evolve(name="n2", cpu="another cpu of a very long name, 3.2 GHz", devices=("a card",))
    for number, run_id in enumerate(requester.run(*LINE).out.split()):
        host.machine = other if number else HOST
        end(host, run_id)
    requester.run(*LINE, "--wait")
    wide = requester.run("compare", "@last").out.splitlines()
    requester.environment["COLUMNS"] = "80"
    narrow = requester.run("compare", "@last").out.splitlines()
    assert max(map(len, wide)) > 100
    assert max(map(len, narrow)) <= 80
    assert "final_loss" in narrow[1]


def test_rows_say_on_which_node_and_class_of_host_they_were_measured(requester, host):
    other = HOST.evolve(name="n2"), HOST.evolve(name="n3", cpu="another cpu", devices=("a card",))
    for run_id, machine in zip(requester.run(*LINE).out.split(), (HOST, *other, HOST), strict=True):
        host.machine = machine
        end(host, run_id)
    ran = requester.run(*LINE, "--wait")
    _, head, *rows = ran.out.splitlines()
    assert head.split()[:7] == ["lr", "repeat", "run", "node", "host", "ended", "final_loss,"]
    assert "n3 2 x another cpu, Linux x86_64, a card" in " ".join(rows[2].split())
    document = requester.run("compare", "@last", "--json").document["data"]
    published("data-compare").validate(document)
    assert [row["node"] for row in document["runs"]] == ["mini", "n2", "n3", "mini"]
    assert [row["host_class"] for row in document["runs"]].count("2 x a cpu, Linux x86_64") == 3


def test_rows_of_other_classes_of_hosts_are_never_held_against_each_other(monkeypatch):
    difference = Difference("", "m", "", "", 1.0, None, None, "x", 1, "a wording")
    monkeypatch.setattr(sweep, "measured", lambda a, b: Comparison((difference,), (), ()))

    def row(run_id: str, machine: HostRecord, repeat: int = 0) -> sweep.SweepRow:
        judged = SimpleNamespace(result=SimpleNamespace(record=SimpleNamespace(host=machine)), verdict=None)
        return sweep.SweepRow(run_id, {}, repeat, "passed", 0, judged)

    fast = HOST.evolve(name="n3", cpu="another cpu")
    rows = [row("a", HOST), row("b", fast), row("c", HOST.evolve(name="n2")), row("d", fast), row("e", fast, 1)]
    assert [(difference.a, difference.b) for difference in sweep.differences(rows)] == [("a", "c"), ("b", "d")]


def test_what_follows_names_the_bus_that_the_line_named(requester, host):
    (following,) = requester.run(*LINE, "--new", "--wait-timeout", "1s", "--bus", "memory", "--json").document["next"]
    assert following[1:2] + following[3:] == ["compare", "--bus", "memory"]
    assert requester.run(*following[1:]).code == 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("-p", "lr=0.1,7"), "0.01 to 1.0"),
        (("-p", "lr=0.1,,0.2"), "an empty value"),
        (("-p", "lr=0.1,0.1"), "a value twice"),
        (("-p", "lr=0.1,0.10"), "written in two ways"),
        (("-p", "lr=0.1,x"), "expected a number"),
        (("-p", "beta=1,2"), "no parameter 'beta'"),
        (("--repeat", "0"), "expected 1 to 64"),
        (("--repeat", "65"), "a sweep has at most 64"),
        (("-p", "lr=0.1,0.2", "--repeat", "33"), "are 66 runs"),
        (("--repeat", "2", "--follow"), "--follow is for one run"),
    ],
)
def test_what_does_not_fit_is_refused_before_anything_is_sent(requester, host, words, message):
    ran = requester.run("run", "my-train", *words)
    assert ran.code == 2
    assert message in ran.err
    assert requests(requester) == []


def test_a_dry_run_shows_every_request_and_sends_none(requester, host):
    ran = requester.run(*LINE, "--dry-run")
    assert ran.out.count("request ") == 4
    assert requests(requester) == []
    data = requester.run(*LINE, "--dry-run", "--json").document["data"]
    published("data-run").validate(data)


def test_a_comma_is_a_comma_where_a_value_may_hold_one():
    preset = find("pytest-path")
    assert combinations(preset, {"path": ["tests/a,b"]}, 1) == [{"path": "tests/a,b"}]
    several = combinations(None, {"name": ["a,b"], "n": ["1,2"]}, 1)
    assert several == [{"name": "a,b", "n": "1"}, {"name": "a,b", "n": "2"}]
    with pytest.raises(UsageError, match="has at most 64"):
        combinations(None, {name: [",".join(map(str, range(50)))] for name in "abcdefgh"}, 1)
    with pytest.raises(ParameterError):
        combinations(None, {"n": ["1,1"]}, 1)


@pytest.mark.parametrize("text", ["a, b\tc", "1,1e999"])
def test_a_part_that_no_request_may_hold_is_refused_by_the_name_of_its_parameter(requester, host, text):
    host.beat(presets=("my-notes",))
    ran = requester.run("run", "my-notes", "-p", f"note={text}")
    assert (ran.code, "parameter 'note': " in ran.err) == (2, True), ran.err


def test_texts_are_listed_by_giving_their_parameter_several_times(requester, host):
    host.beat(presets=("my-notes",))
    ran = requester.run("run", "my-notes", "-p", "note=a,b", "-p", "note=c", "--dry-run", "--json")
    assert [run["params"] for run in ran.document["data"]["runs"]] == [{"note": "a,b"}, {"note": "c"}]
    assert combinations(None, {"n": ["1,2", "3"]}, 1) == [{"n": "1,2"}, {"n": "3"}]
    with pytest.raises(ParameterError, match="a value twice"):
        combinations(None, {"name": ["a", "a"]}, 1)


def test_last_is_the_last_run_and_a_folder_is_that_of_a_run(requester, host):
    sweep = requester.run(*LINE, "--json").document["data"]
    end(host, sweep["runs"][0]["id"])
    folder = requester.run("open", sweep["runs"][0]["id"]).out.strip()
    assert requester.run("compare", folder, "--json").document["data"]["sweep"] == sweep["sweep"]
    plain = requester.run("run", "mlx-env-probe").out.strip()
    ran = requester.run("compare", "@last")
    assert ran.code == 2
    assert f"{plain[-8:]} is no run of a sweep" in ran.err


def test_a_run_of_no_sweep_is_compared_with_another_one(requester, host):
    run_id = requester.run("run", "my-train").out.strip()
    ran = requester.run("compare", run_id)
    assert ran.code == 2
    assert "no run of a sweep" in ran.err
