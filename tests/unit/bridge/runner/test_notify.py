"""The owner's program at a run's end: real programs, and one that never ends."""

from __future__ import annotations

import io
import json
import sys
from dataclasses import replace

import pytest

from bridge.bus.views import RequestRef
from bridge.run.outcomes import Ending
from bridge.runner.actions.announce import RunAnnouncement, announce_nothing
from bridge.runner.actions.notify import OwnerNotifier, each
from bridge.runner.state.log import new_log
from tests.fakes.asking import make_request

RUN = "01kakeya00000000000000abcd"
SECRET = {"GH_TOKEN": "secret", "HOME": "/home/ann"}


def ended(reason="passed", message=None):
    request = make_request("b" * 26, "mlx-env-probe")
    return RunAnnouncement(RequestRef(RUN, "refs/heads/x", "0" * 40), "/bus", request, Ending(reason, message), {})


def told(argv, announcement, wall_s=30.0):
    stream = io.StringIO()
    notifier = OwnerNotifier(tuple(argv), "mini", SECRET, new_log(stream), wall_s=wall_s)
    notifier(announcement)
    notifier.finish(60.0)
    return stream.getvalue()


def test_the_program_gets_the_facts_on_stdin_and_as_variables_and_no_secret_of_ours(tmp_path):
    out = tmp_path / "out.json"
    code = f"import json, os, sys; json.dump([json.load(sys.stdin), dict(os.environ)], open({str(out)!r}, 'w'))"
    logged = told([sys.executable, "-c", code], ended("program_failed", "exit 3; $(touch /tmp/x)\n\x1b[31mred"))
    facts, variables = json.loads(out.read_text())
    assert logged == ""
    assert (facts["run_id"], facts["reason"], facts["exit_code"]) == (RUN, "program_failed", 4)
    assert (facts["preset"], facts["requester"], facts["runner"]) == ("mlx-env-probe", "unsigned", "mini")
    assert facts["message"] == "exit 3; $(touch /tmp/x) [31mred"  # no shell sees it, and no terminal obeys it
    assert variables["KAKEYA_REASON"] == "program_failed"
    assert variables["HOME"] == "/home/ann"
    assert "GH_TOKEN" not in variables


@pytest.mark.parametrize(
    ("code", "wall_s", "message"),
    [("import time; time.sleep(300)", 0.3, "the owner's notify program"), ("raise SystemExit(7)", 30.0, "7")],
)
def test_a_program_that_hangs_or_fails_is_said_and_changes_nothing(code, wall_s, message):
    assert message in told([sys.executable, "-c", code], ended(), wall_s)


def test_a_program_that_is_not_there_is_said():
    assert "nobody was notified" in told(["/nonexistent/tell-me"], ended())


def test_nobody_waits_for_the_program_and_results_are_told_one_after_the_other(tmp_path):
    go_on, told_of, stream = tmp_path / "go-on", tmp_path / "told", io.StringIO()
    code = f"while [ ! -e {go_on} ]; do sleep 0.02; done; echo $KAKEYA_REASON >> {told_of}"
    notifier = OwnerNotifier(("/bin/sh", "-c", code), "mini", SECRET, new_log(stream))
    notifier(ended("passed"))
    notifier(ended("cancelled"))
    notifier.finish(0.0)
    assert "still runs, for the last results" in stream.getvalue()
    assert not told_of.exists()
    go_on.touch()
    notifier.finish(60.0)
    assert told_of.read_text().split() == ["passed", "cancelled"]


def test_a_result_whose_verdict_cannot_be_read_keeps_nobody_from_being_told_of_the_next(tmp_path):
    out, stream = tmp_path / "told", io.StringIO()
    notifier = OwnerNotifier(("/bin/sh", "-c", f"echo $KAKEYA_REASON >> {out}"), "mini", SECRET, new_log(stream))
    notifier(replace(ended("program_failed"), files={"verdict.json": b"{"}))
    notifier(ended("passed"))
    notifier.finish(60.0)
    assert "nobody was notified" in stream.getvalue()
    assert out.read_text() == "passed\n"


def test_everybody_who_wants_to_know_is_told_in_turn():
    heard = []
    tell = each(
        announce_nothing,
        lambda announcement: heard.append(announcement.ref.id),
        lambda announcement: heard.append(announcement.ending.reason),
    )
    tell(ended())
    assert heard == [RUN, "passed"]
    assert each(announce_nothing, announce_nothing) is announce_nothing
