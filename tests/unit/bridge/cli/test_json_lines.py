"""`--json-lines`: every event one line, the document of `--json` last."""

from __future__ import annotations

import json

from tests.unit.bridge.cli.looking import plan, published


def lines_of(ran):
    return [json.loads(line) for line in ran.out.splitlines()]


def test_a_watched_run_is_one_event_a_line_and_its_document_last(requester, host):
    plan(requester, host)
    ran = requester.run("run", "mlx-env-probe", "--wait", "--follow", "--json-lines")
    *events, last = lines_of(ran)
    assert [event["state"] for event in events if event["event"] == "state"] == [
        "claimed",
        "started",
        "judging",
        "published",
    ]
    logged = [event for event in events if event["event"] == "log"]
    assert [line for event in logged for line in event["lines"]] == ["line one", "red # #[error]x"]
    assert all(event["untrusted"] for event in logged)
    assert (events[-1]["event"], events[-1]["end"]) == ("end", "terminal")
    for event in events:
        published("event").validate(event)
    assert last["event"] == "result"
    assert (last["document"]["outcome"]["reason"], last["document"]["terminal"]) == ("passed", True)
    assert "00:01 claimed" not in ran.err


def test_an_error_is_the_last_line_too(requester, host):
    ran = requester.run("run", "no-such-preset", "--wait", "--json-lines")
    (last,) = lines_of(ran)
    assert (last["event"], last["document"]["outcome"]["exit_code"]) == ("result", ran.code)
    assert ran.code != 0
