"""Looking: status, ls, logs, runners, fetch, verify, quote, compare, report, from this and other terminals."""

from __future__ import annotations

import datetime as dt
import json
import signal
from pathlib import Path

import pytest

from bridge.cli.screen.output import DATA_LABEL_CHARS
from bridge.cli.signals import DetachedError
from bridge.cli.table.commands import MAC
from bridge.client.document.data import DATA
from bridge.records.verdict import Finding
from bridge.run.outcomes import JUDGED_DIFFERENTLY
from bridge.system.clock import rfc3339
from bridge.trust.keyring import pin
from bridge.trust.runner_key import generate
from tests.fakes.requester import Requester
from tests.fakes.scripted_host import ScriptedHost
from tests.unit.bridge.cli.looking import claim, published, take


def test_every_state_is_seen_from_another_clone(requester, host, sent, tmp_path):
    (tmp_path / "second").mkdir()
    second = requester.second_clone(tmp_path / "second")
    second.pin(host.sign())
    steps = [
        ("queued", lambda: None),
        ("claimed", lambda: host.claim(sent)),
        ("started", lambda: host.start(sent)),
        ("judging", lambda: host.judge(sent)),
        ("published", lambda: host.finish(sent)),
    ]
    for state, step in steps:
        step()
        for who in (requester, second):
            assert who.run("status", sent[-6:], "--json").document["state"] == state
            assert [row["state"] for row in who.run("ls", "--json").document["data"]] == [state]
            assert who.run("ls", "--state", state, "-q").out.strip() == sent
    assert second.run("status", "@last").out.startswith("passed")


def test_the_log_grows_and_is_fenced_clean_and_prefixed(requester, host, sent):
    host.claim(sent)
    host.start(sent)
    host.log(sent, b"one\n\x1b[2Jtwo\n")
    out = requester.run("logs", "@last").out.splitlines()
    assert out[1:3] == ["| one", "| two"]
    assert out[0].startswith("--- untrusted log ")
    assert out[-1] == out[0].replace("--- untrusted", "--- end of untrusted")
    assert requester.run("logs", "@last").out.splitlines()[0] != out[0]
    requester.clock.plan(1, lambda: host.log(sent, b"three\n::error::no\nhal"))
    requester.clock.plan(2, lambda: host.log(sent, b"f\n", final=True))
    requester.clock.plan(3, lambda: host.finish(sent))
    followed = requester.run("logs", "-f", "@last").out.splitlines()
    assert followed[1:-1] == ["| one", "| two", "| three", "| ::error::no", "| half"]
    assert requester.run("logs", "-n", "1", "@last").out.splitlines()[1:-1] == ["| half"]
    assert requester.run("logs", "-n", "0", "@last").out.splitlines()[1:-1] == []
    assert requester.run("logs", "@last", "--json", "-n", "2").document["log_tail"]["lines"] == ["::error::no", "half"]


def test_the_log_of_a_result_keeps_its_bytes_and_is_printed_without_what_a_terminal_obeys(requester, host, sent):
    raw = b"one\n\x1b[2J\x1b]0;title\x07two\n\x1b]52;c;bm90IGVuZGVk\n\xc2\x9b1mthree\x08\x07\nlast \x1b"
    take(host, sent, log=raw)
    for _ in range(2):  # from the bus, then from the store
        ran = requester.run("logs", "@last")
        assert ran.out.splitlines()[1:-1] == ["| one", "| two", "| ", "| three", "| last "]
    assert requester.run("fetch", "@last").code == 0
    (path,) = requester.folder.rglob("log.txt")
    assert path.read_bytes() == raw


def test_cancel_asks_and_is_shown(requester, host, sent):
    ran = requester.run("cancel", "@last")
    assert (ran.code, ran.out.strip()) == (0, sent)
    assert requester.run("cancel", "@last").code == 0
    assert requester.bus.snapshot().cancels == {sent}
    assert "cancel asked" in requester.run("fetch", "@last").err
    take(host, sent, reason="cancelled", decision="rejected")
    assert requester.run("wait", "@last").code == 6
    assert "has already ended" in requester.run("cancel", "@last").err


def test_retry_repeats_the_request_and_names_the_first(requester, host, sent):
    assert requester.run("retry", "@last").code == 2  # it is still queued
    take(host, sent, reason="interrupted", decision="rejected")
    again = requester.run("retry", sent, "--json").document
    assert again["request"]["retry_of"] == sent
    assert again["id"] != sent


def test_the_same_retry_again_attaches_to_the_run_that_it_sent_until_that_has_ended(requester, host, sent):
    ending = {"reason": "interrupted", "decision": "rejected"}
    take(host, sent, **ending)
    asked_anew = requester.run("run", "mlx-env-probe").out.strip()
    again = requester.run("retry", sent).out.strip()
    assert again not in {sent, asked_anew, ""}
    attached = requester.run("retry", sent, "--json").document
    assert (attached["id"], attached["request"]["reattached"]) == (again, True)
    take(host, again, **ending)
    assert requester.run("retry", sent).out.strip() not in {sent, asked_anew, again, ""}


def test_waiting_for_several_ends_in_the_strongest_code(requester, host, sent):
    second = requester.run("run", "mlx-env-probe", "--new").out.strip()
    third = requester.run("run", "mlx-env-probe", "--new").out.strip()
    take(host, sent)
    take(host, second, reason="program_failed", decision="rejected")
    assert requester.run("wait", sent).code == 0
    assert requester.run("wait", sent, second).code == 4
    ran = requester.run("wait", sent, third, "--wait-timeout", "3", "--json")
    assert ran.code == 8
    assert [row["reason"] for row in ran.document["data"]] == ["passed", "pending"]


def test_nothing_is_fetched_before_there_is_something(requester, host, sent):
    ran = requester.run("open", "@last", "--json")
    assert (ran.code, ran.document["outcome"]["reason"]) == (8, "pending")
    take(host, sent)
    folder = requester.run("open", "@last").out.strip()
    assert json.loads((requester.folder / folder / "manifest.json").read_text())["id"] == sent
    assert requester.run("fetch", "@last").code == 0


def test_a_stored_result_that_was_edited_is_fetched_anew(requester, host, sent):
    take(host, sent)
    folder = requester.run("open", "@last").out.strip()
    log = requester.folder / folder / "log.txt"
    log.write_text("all 500 tests passed\n")
    assert "tests passed" not in requester.run("logs", "@last").out
    assert log.read_bytes().startswith(b"one\n")


def test_a_run_that_wrote_nothing_says_where_it_is_instead(requester, host, sent):
    ran = requester.run("logs", "@last")
    assert "wrote nothing yet: it is queued" in ran.err
    take(host, sent)
    assert "wrote nothing" not in requester.run("logs", "@last").err


def test_the_choices_of_a_parameter_read_as_words(requester):
    out = requester.run("presets", "show", "k3-kv-quant-eval").out
    assert "choices affine8,affine4 | affine8/32,affine4/32 | affine8,d4x4 | affine8,e8x4" in out
    assert out.startswith("preset      k3-kv-quant-eval\n")


def test_nothing_to_list_and_the_versions_are_said(requester, host):
    assert "note  no runs yet" in requester.run("ls").err
    out = requester.run("version").out
    assert [line.split()[0] for line in out.splitlines()] == ["kakeya", "gate", "schemas"]


def test_gc_removes_only_what_is_old_and_over(requester, host, sent):
    take(host, sent)
    requester.run("fetch", sent)
    live = requester.run("run", "mlx-env-probe", "--expires", "86400").out.strip()
    assert requester.run("gc").out == ""
    requester.clock.sleep(40 * 86400)
    assert requester.run("gc", "--dry-run").out.count(sent[-8:]) == 2
    host_is_needed_no_more = requester.run("gc", "--json").document["data"]
    assert {row["kind"] for row in host_is_needed_no_more} == {"result", "request"}
    assert set(requester.run("ls", "-q").out.split()) == {live, sent}  # the bus still knows both


def test_gc_on_one_bus_forgets_no_run_that_another_may_still_end(requester, host, tmp_path):
    other = Requester(tmp_path, clock=requester.clock, record={"bus_id": "b" * 32})
    there = ScriptedHost(other.bus, requester.clock)
    there.beat()
    run_id = other.run("run", "mlx-env-probe").out.strip()
    there.claim(run_id)
    requester.clock.sleep(40 * 86400)
    for who in (requester, other):
        assert who.run("gc", "--json").document["data"] == []
    assert (tmp_path / "data" / "requests" / f"{run_id}.json").exists()


def test_doctor_pushes_a_probe_and_takes_it_away(requester, host):
    refs = dict(requester.bus.remote.refs)
    ran = requester.run("doctor", "--json")
    assert ran.code == 0
    assert requester.bus.remote.refs == refs
    checks = {row["check"]: row for row in ran.document["data"]}
    assert checks["push"]["level"] == "ok"
    assert all(row["remedy"] for row in ran.document["data"] if row["level"] != "ok")
    requester.clock.sleep(7200)
    ran = requester.run("doctor", "--json")
    assert ran.code == 1
    assert "last seen 2h ago" in next(row["text"] for row in ran.document["data"] if row["level"] == "fail")


def test_doctor_ends_in_the_line_that_tries_a_whole_run(requester, host):
    ran = requester.run("doctor")
    assert ran.err.splitlines()[-1] == "next    kakeya-mac run mlx-env-probe --wait"
    assert requester.run("doctor", "--json").document["next"] == [["kakeya-mac", "run", "mlx-env-probe", "--wait"]]
    host.beat("stopped")
    assert "next" not in requester.run("doctor").err


def test_doctor_prints_at_most_a_hundred_characters_a_line_but_keeps_a_path_whole(requester, host):
    lines = requester.run("doctor").out.splitlines()
    assert lines
    assert not [line for line in lines if len(line) > 100 and " " in line[DATA_LABEL_CHARS:]]


def test_doctor_says_that_git_is_too_old(requester, host, tmp_path, monkeypatch):
    old = tmp_path / "git"
    old.write_text("#!/bin/sh\necho git version 1.8.3.1\n")
    old.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    ran = requester.run("doctor", "--no-push")
    assert ran.code == 1
    assert "git: 1.8.3.1; expected git 2.36 or newer" in ran.out


def test_doctor_warns_of_a_host_whose_disk_is_full_or_that_is_paused(requester, host):
    host.beat(disk_free_bytes=10**6)
    ran = requester.run("doctor", "--json")
    row = next(row for row in ran.document["data"] if row["check"] == "runner")
    assert (ran.code, row["level"], row["remedy"]) == (0, "warn", "on the host: kakeya-runner doctor")
    host.beat(state="paused")
    assert "mini is paused" in requester.run("doctor").out
    host.beat(state="paused", not_taking="its policy.toml cannot be used")
    assert "mini is paused (its policy.toml cannot be used)" in requester.run("doctor").out


def test_doctor_says_that_this_clock_is_behind_those_of_runners_and_whose_to_set(requester, host):
    assert not any(row["level"] != "ok" for row in _clocks(requester))
    ahead = rfc3339(requester.clock.now() + dt.timedelta(hours=3))
    host.beat(time=ahead)
    [single] = _clocks(requester)
    assert (single["level"], single["remedy"].split(":")[0]) == ("warn", "compare the time of both")
    ScriptedHost(requester.bus, requester.clock, "other").beat(time=ahead)
    [both] = _clocks(requester)
    assert "is 3:00:00 behind the clocks of mini, other" in both["text"]
    assert both["remedy"].startswith("set the time of this machine")
    ScriptedHost(requester.bus, requester.clock, "third").beat()
    ScriptedHost(requester.bus, requester.clock, "fourth").beat()
    assert _clocks(requester)[0]["remedy"].startswith("compare the time of both")


def _clocks(requester):
    return [row for row in requester.run("doctor", "--json").document["data"] if row["check"] == "clock"]


@pytest.mark.parametrize(("move", "delivery"), [(True, "branch_moved"), (False, "branch_deleted")])
def test_a_result_is_there_although_its_branch_is_not(requester, host, sent, move, delivery):
    host.claim(sent)
    host.start(sent)
    ref, refs = host.ref(sent).ref, requester.bus.remote.refs
    if move:
        other = requester.run("run", "mlx-env-probe", "--new").out.strip()
        refs[ref] = refs[host.ref(other).ref]
    else:
        del refs[ref]
    host.finish(sent)
    ran = requester.run("status", sent)
    assert ran.out.startswith("passed")
    assert f"delivery    {delivery}" in ran.out


def test_what_is_stored_is_answered_although_the_bus_is_away(requester, host, sent):
    take(host, sent, decision="evidence", claims=(claim(),))
    online = requester.run("fetch", sent).out
    quoted = requester.run("quote", "@last")
    requester.bus.store.faults.decide = lambda operation: "lost"
    assert requester.run("fetch", sent).out == online
    for words in (["status"], ["logs"], ["open"], ["report"], ["explain"]):
        assert requester.run(*words, "@last").code == 0
    # The scripted verdict says evidence; judged again the files claim nothing, with and without the bus.
    assert requester.run("quote", "@last") == quoted
    assert (quoted.code, "claims nothing" in quoted.err) == (2, True)
    assert requester.run("compare", sent, sent[:20]).code == 0
    ran = requester.run("verify", sent[-8:])
    assert (ran.code, "the bus was not asked" in ran.err) == (JUDGED_DIFFERENTLY, True)  # by another gate
    assert requester.run("ls").code == 3


def test_runners_shows_live_and_gone(requester, host):
    assert "idle" in requester.run("runners").out
    requester.clock.sleep(7200)
    assert "gone" in requester.run("runners").out


@pytest.mark.parametrize("columns", [60, 80, 200])
def test_runners_fits_the_screen(requester, host, columns):
    names = tuple(f"a-preset-of-this-host-{number}" for number in range(12))
    host.beat(presets=names, labels=tuple(f"label-{number}" for number in range(9)), capabilities=("mlx",) * 9)
    requester.environment["COLUMNS"] = str(columns)
    lines = requester.run("runners").out.splitlines()
    assert max(len(line) for line in lines) <= columns
    assert all(name in " ".join(lines) for name in names)
    assert len(lines) == 6 or columns < 200


LINES = [
    ["ls"], ["runners"], ["presets"], ["presets", "--all"], ["doctor"], ["gc", "--dry-run"], ["verify", "@last"],
    ["quote", "@last"], ["compare", "@last", "@last"], ["config"], ["version"], ["gate", "rules"],
    ["gate", "explain", "G0-JSON"], ["gate", "explain"], ["explain", "mlx-env-probe"], ["explain", "@last"],
    ["run", "mlx-env-probe", "--dry-run"],
    ["run", "mlx-env-probe"], ["attach", "@last"], ["wait", "@last"], ["status", "@last"], ["logs", "@last"],
    ["fetch", "@last"], ["open", "@last"], ["cancel", "@last"], ["report", "@last"],
    ["presets", "show", "mlx-env-probe"],
    ["retry", "@last"], ["status", "nonsense"], ["init"], ["gate", "check", "data/runs"], ["init", "--bus", "memory"],
]  # fmt: skip


@pytest.mark.parametrize("words", LINES, ids=" ".join)
def test_every_document_fits_its_published_schema(requester, host, sent, words):
    take(host, sent, decision="evidence", claims=(claim(),))
    requester.run("fetch", sent)
    if words[0] == "run" and "--dry-run" not in words:
        host.beat()
    ran = requester.run(*words, "--json")
    document = ran.document
    published("envelope").validate(document)
    assert document["outcome"]["exit_code"] == ran.code, ran.err
    command = document["command"]
    if document["data"] is not None and command in DATA and ran.code in {0, 1}:
        published(f"data-{command.replace(' ', '-')}").validate(document["data"])
    assert command in MAC.by_name


def test_status_of_a_queued_run_says_why_it_waits(requester, host, sent):
    host.beat("paused")
    out = requester.run("status", sent).out
    assert "waiting     no live runner would take mlx-env-probe: mini is paused" in out


def test_runners_says_what_is_offered_what_is_late_and_who_stopped(requester, host, sent):
    host.beat(presets=("mlx-env-probe", "owners-own"), spooled=(sent,))
    out = requester.run("runners").out
    assert "presets   1 of the " in out
    assert "also      owners-own" in out
    assert f"late      {sent[-8:]}" in out
    host.beat("stopped")
    assert " stopped " in requester.run("runners").out
    again = requester.run("run", "mlx-env-probe", "--new")
    assert again.code == 3
    assert "mini was stopped" in again.err


def test_a_cancelled_run_says_so_once_instead_of_what_it_lacks(requester, host, sent):
    lacking = tuple(
        Finding(
            code=f"G1-X{n}",
            severity="reject",
            premise="bound",
            report=None,
            where="",
            message=f"no part {n}",
            remedy="none",
        )
        for n in range(6)
    )
    take(host, sent, reason="cancelled", decision="rejected", findings=lacking)
    ran = requester.run("status", sent)
    lines = ran.out.splitlines()
    assert lines[0].startswith("cancelled ")
    assert not [line for line in lines if line.startswith("reject")]
    (folded,) = [line for line in lines if "6 finding(s) of the gate" in line]
    assert "G1-X0, G1-X1, G1-X2, G1-X3, G1-X4, G1-X5" in folded
    assert len(requester.run("status", sent, "--json").document["findings"]) == 6
    summary = Path(requester.run("open", sent).out.strip(), "summary.md").read_text()
    assert "cancelled before its end, so 6 finding(s) of the gate" in summary
    assert "no part" not in summary


def test_explain_of_a_preset_says_where_each_value_is_from(requester):
    lines = requester.run("explain", "pytest-path", "-p", "path=tests/x").out.splitlines()
    assert "parameter path = tests/x (command line)" in lines
    lines = requester.run("explain", "k3-fused-allmlx-code").out.splitlines()
    origins = [line.rpartition(" (")[2] for line in lines if line.startswith("parameter ")]
    assert origins
    assert set(origins) == {"preset default)"}


def test_a_run_that_never_ran_is_not_reproached_with_what_it_lacks(requester, host, sent):
    lacking = Finding(
        code="G1-DECLARED",
        severity="reject",
        premise="bound",
        report=None,
        where="",
        message="no report at all",
        remedy="none",
    )
    end = {"decision": "rejected", "message": "cancelled before it started", "program_exit": None}
    host.claim(sent)
    host.finish(sent, "cancelled", findings=(lacking,), **end)
    lines = requester.run("status", sent).out.splitlines()
    assert "message     cancelled before it started" in lines
    assert not [line for line in lines if "G1-DECLARED" in line]
    judged = requester.run("run", "mlx-env-probe", "--new").out.strip()
    host.claim(judged)
    host.finish(judged, "gate_rejected", findings=(lacking,), **end)
    assert "G1-DECLARED  no report at all" in requester.run("status", judged).out


def test_ls_goes_on_where_a_stored_number_is_none_that_a_double_holds(requester, host, sent):
    take(host, sent, claims=(claim(),))
    path = requester.folder / requester.run("open", "@last").out.strip() / "verdict.json"
    verdict = json.loads(path.read_bytes())
    verdict["claims"][0]["value"] = 10**400
    path.write_text(json.dumps(verdict))
    ran = requester.run("ls", "--json")
    assert (ran.code, ran.document["data"][0]["metric"]) == (0, None)


def test_ls_shows_a_number_that_every_run_gave_with_the_digits_of_its_sentence(requester, host, sent):
    same = {"value": 12.34561, "interval": None, "confidence": None, "unit": "nats"}
    take(host, sent, claims=(claim(**same, detail={"digits": 6}),))
    requester.run("open", "@last")
    assert requester.run("ls", "--json").document["data"][0]["metric"] == "12.3456 nats"


def test_ls_says_who_asked_and_with_what_also_of_a_result_that_another_clone_sent(requester, host, tmp_path):
    host.beat(presets=("k3-fused-allmlx-code",))
    run_id = requester.run("run", "k3-fused-allmlx-code", "-p", "depth=3").out.strip()
    second = requester.second_clone(tmp_path / "second")
    host.claim(run_id)
    host.finish(run_id)
    assert "BY" not in requester.run("ls").out  # nobody signs here
    folder = second.folder / second.run("open", run_id).out.strip()
    record = json.loads((folder / "run.json").read_bytes())
    (folder / "run.json").write_text(json.dumps({**record, "principal": "ada@example.org\x1b[2J"}))
    head, row = second.run("ls").out.splitlines()
    assert row[head.index("OPTIONS") :].startswith("depth=3 ")
    assert row[head.index("BY") :].startswith("ada@example.org ")
    shown = second.run("ls", "--json").document["data"][0]
    assert (shown["asked_by"], shown["options"].split()[0]) == ("ada@example.org", "depth=3")
    (folder / "request.json").write_text('{"id": 1}')
    assert second.run("ls", "--json").document["data"][0]["options"] is None


def test_ls_says_of_a_run_that_passed_and_was_not_fetched_that_its_verdict_is_not_known(
    requester, host, tmp_path, sent
):
    take(host, sent, decision="evidence", claims=(claim(),))
    second = requester.second_clone(tmp_path / "second")
    assert "passed, not fetched" in second.run("ls").out
    second.run("fetch", sent)
    head, row = second.run("ls").out.splitlines()
    assert row[head.index("RESULT") :].split()[0] == "evidence"


def test_ls_says_that_it_shows_what_was_written_where_no_key_tells_who_wrote_it(requester, host, tmp_path, sent):
    note = "no key of this bus is known"
    take(host, sent, decision="evidence", claims=(claim(),))
    without_key = requester.second_clone(tmp_path / "second")
    assert note not in without_key.run("ls").err, "no verdict is shown yet"
    for clone, is_noted in ((without_key, True), (requester, False)):
        clone.run("fetch", sent)
        listed = clone.run("ls")
        assert "evidence" in listed.out
        assert (note in listed.err) is is_noted
    assert note not in without_key.run("ls", "-q").err
    assert "evidence" not in without_key.run("status", sent).out, "the gate here judges the reports, and there are none"


def test_doctor_counts_requests_that_nobody_took(requester, host, sent):
    assert "requests: 1 on the bus, 1 of them not taken yet" in requester.run("doctor").out
    take(host, sent)
    assert "on the bus, 0 of them not taken yet" in requester.run("doctor").out


@pytest.mark.parametrize("ended", ["soon", "2026-99-99T10:00:00Z", 5])
def test_ls_lists_a_stored_run_whose_end_is_no_time(requester, host, sent, ended):
    take(host, sent)
    folder = requester.folder / requester.run("open", sent).out.strip()
    record = json.loads((folder / "run.json").read_bytes())
    (folder / "run.json").write_text(json.dumps({**record, "ended": ended}))
    requester.bus.remote.refs.clear()
    requester.bus.create(requester.bus.identity())
    ran = requester.run("ls", "--json")
    assert ran.code == 0, ran.err
    assert [row["took_s"] for row in ran.document["data"]] == [None]


def test_ls_keeps_its_columns_when_a_run_is_not_on_the_bus(requester, host, sent):
    requester.bus.remote.refs.clear()
    requester.bus.create(requester.bus.identity())
    lines = requester.run("ls").out.splitlines()
    assert lines[0].index("PRESET") == lines[1].index("mlx-env-probe"), lines
    assert "not on the bus  mlx-env-probe" in lines[1]


def test_a_watched_listing_is_shown_anew_as_it_changes_until_it_is_stopped(requester, host, sent):
    def stop():
        raise DetachedError(signal.SIGINT)

    requester.clock.plan(3, lambda: host.claim(sent))
    requester.clock.plan(9, stop)
    ran = requester.run("ls", "-w")
    assert ran.code == 130
    assert [part.splitlines()[1].split()[1] for part in ran.out.split("\n\n")] == ["queued", "claimed"]
    assert requester.run("ls", "-w", "--json").code == 2


def test_a_watched_listing_goes_on_in_a_pipe_whose_width_a_variable_names(tmp_path):
    requester = Requester(tmp_path, terminal=True, environment={"COLUMNS": "100"})
    host = ScriptedHost(requester.bus, requester.clock)
    host.beat()
    sent = requester.run("run", "mlx-env-probe").out.strip()

    def stop():
        raise DetachedError(signal.SIGINT)

    requester.clock.plan(3, lambda: host.claim(sent))
    requester.clock.plan(9, stop)
    ran = requester.run("ls", "-w")
    assert [part.splitlines()[1].split()[1] for part in ran.out.split("\n\n")] == ["queued", "claimed"]


def test_init_compares_a_key_that_it_was_told_with_the_one_that_the_bus_names(tmp_path):
    (tmp_path / "keys").mkdir(mode=0o700)
    (tmp_path / "other").mkdir(mode=0o700)
    named, other = generate(tmp_path / "keys", "mini"), generate(tmp_path / "other", "mini")
    requester = Requester(tmp_path, record={"keys": (named,), "attestation": "dsse"})
    same = requester.run("init", "--bus", "memory", "--runner-key", pin(named)).out
    assert "key         mini: the key that the bus names too" in same
    differs = requester.run("init", "--bus", "memory", "--runner-key", pin(other)).out
    assert f"warn        mini: got {other.public}, but the bus names {named.public}" in differs
    unknown = requester.run("init", "--bus", "memory", "--runner-key", pin(other.evolve(name="maxi"))).out
    assert "warn        maxi: the bus names no key of this name" in unknown


@pytest.mark.parametrize("columns", [60, 80])
@pytest.mark.parametrize("words", [["presets", "--all"], ["gate", "rules"]])
def test_listings_of_texts_fit_the_screen(requester, words, columns):
    whole = requester.run(*words).out
    requester.environment["COLUMNS"] = str(columns)
    shown = requester.run(*words).out
    assert max(map(len, shown.splitlines())) <= columns
    assert shown.split() == whole.split()
