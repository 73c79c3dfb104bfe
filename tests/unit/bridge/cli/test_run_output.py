"""stdout, stderr, --json and exit codes of `run`, as a whole."""

from __future__ import annotations

import io
import json
import os
from pathlib import Path

import pytest

from bridge.cli.screen.output import make_output
from bridge.executor.sandbox.landlock import NOT_HELD
from bridge.records.network import NetworkUse, ReachedHost, RefusedContact
from bridge.records.run import SandboxApplied
from bridge.records.verdict import ClaimResult
from tests.fakes.requester import Requester, normal
from tests.fakes.scripted_host import KILLED, SANDBOX, ScriptedHost
from tests.unit.bridge.cli.looking import claim, plan, requester_short, run_id

SIGNED = "signed by mini, key EMMK4C8oYk3JrguI ({}/config/config.toml), its number 1"


class Screen(io.StringIO):
    """What a command prints to a terminal."""

    def isatty(self):
        return True


def test_a_passing_run_looks_as_designed(requester, host, tmp_path):
    plan(requester, host)
    ran = requester.run("run", "mlx-env-probe", "--wait")
    assert normal(ran.err, tmp_path) == (
        "bus   memory: (01234567, from KAKEYA_BUS); not pinned: kakeya-mac init --bus memory\n"
        "run   SHORT0 mlx-env-probe   resume: kakeya-mac attach SHORT0\n"
        "00:01 claimed · 00:02 running (limit 5m) · 00:12 judging · 00:13 done\n"
    ).replace("SHORT0", requester_short(requester))
    assert normal(ran.out, tmp_path) == normal(
        f"passed      measured (smoke)   {requester_short(requester)}   13s   mlx-cpu Linux x86_64\n"
        "asked       mlx-env-probe\n"
        f"signature   {SIGNED.format('FOLDER')}\n"
        f"files       data/runs/{requester_short(requester)}/\n"
        f"next        kakeya-mac verify {run_id(requester)}\n"
    )
    assert ran.code == 0
    assert requester.bus.store.tended == [len(requester.bus.remote.refs)]  # once, after the work


def test_a_run_that_no_sandbox_confined_says_so_on_its_line_in_status_and_in_json(requester, host):
    plan(requester, host, ending={"commands": (KILLED.evolve(exit_code=0, signal=None),)})
    ran = requester.run("run", "mlx-env-probe", "--wait")
    short = requester_short(requester)
    assert ran.out.splitlines()[:3] == [
        f"passed      measured (smoke)   {short}   13s   mlx-cpu Linux x86_64   NO SANDBOX",
        "asked       mlx-env-probe",
        "sandbox     none: a test; it ran as user 0",
    ]
    assert ran.out.splitlines()[:2] == requester.run("status", short).out.splitlines()[:2]
    where = json.loads(requester.run("status", short, "--json").out)["where"]
    assert (where["sandbox"], where["no_sandbox_because"], where["uid"]) == ("none", "a test", 0)
    folder = requester.folder / "data" / "runs" / short
    assert "| sandbox | none, as user 0: a test |" in (folder / "summary.md").read_text()


def test_a_weaker_sandbox_says_what_it_never_holds_wherever_it_is_named(requester, host):
    sandbox = SandboxApplied(
        kind="landlock", reason=None, network=False, namespaces=(), filters=("no new privileges", NOT_HELD), uid=5
    )
    plan(requester, host, ending={"commands": (KILLED.evolve(exit_code=0, signal=None),), "sandbox": sandbox})
    ran = requester.run("run", "mlx-env-probe", "--wait")
    assert f"sandbox     landlock, as user 5; {NOT_HELD}" in ran.out.splitlines()
    short = requester_short(requester)
    summary = (requester.folder / "data" / "runs" / short / "summary.md").read_text()
    assert f"| sandbox | landlock, as user 5; {NOT_HELD} |" in summary
    assert f"<td>landlock; {NOT_HELD}</td>" in Path(requester.run("open", "--html", short).out.strip()).read_text()


def test_where_a_run_was_by_names_stands_in_status_in_the_summary_and_on_the_page(requester, host):
    use = NetworkUse(
        reached=(ReachedHost(host="data.example.org", port=443, connections=2, sent_bytes=10, received_bytes=3000),),
        refused=(RefusedContact(target="[::1]:80", reason="an address", count=1),),
        unlisted=7,
    )
    sandbox = SandboxApplied(
        kind="bwrap", reason=None, network=("*.example.org",), namespaces=("net",), filters=(), uid=5, use=use
    )
    plan(requester, host, ending={"commands": (KILLED.evolve(exit_code=0, signal=None),), "sandbox": sandbox})
    ran = requester.run("run", "mlx-env-probe", "--wait")
    words = (
        "*.example.org: data.example.org:443 (2 connections, 10 bytes sent, 3000 received); "
        "refused [::1]:80: an address (1); 7 more"
    )
    assert f"network     {words}" in ran.out.splitlines()
    short = requester_short(requester)
    summary = (requester.folder / "data" / "runs" / short / "summary.md").read_text()
    assert "| network | \\*.example.org: data.example.org:443 (2 connections" in summary
    page = Path(requester.run("open", "--html", short).out.strip())
    assert f"<td>{words}</td>" in page.read_text()


def test_a_run_without_a_sandbox_for_want_of_bubblewrap_names_the_package(requester, host):
    missing = SANDBOX.evolve(reason="bubblewrap (bwrap) is not installed")
    plan(requester, host, ending={"commands": (KILLED.evolve(exit_code=0, signal=None),), "sandbox": missing})
    out = requester.run("run", "mlx-env-probe", "--wait").out
    assert "\nremedy      sudo apt-get install bubblewrap (Debian, Ubuntu)" in out


def test_a_growing_line_is_ended_by_heartbeats_every_30_seconds(requester, host):
    plan(requester, host, claim_after_s=65.0)
    ran = requester.run("run", "mlx-env-probe", "--wait")
    lines = ran.err.splitlines()[2:]
    assert lines == [
        "00:30 queued: mini is idle",
        "01:00 queued: mini is idle",
        "01:05 claimed · 01:06 running (limit 5m) · 01:16 judging · 01:17 done",
    ]


def test_json_is_one_document_and_stderr_still_talks(requester, host):
    plan(requester, host)
    ran = requester.run("run", "mlx-env-probe", "--wait", "--json")
    document = json.loads(ran.out)
    assert document["schema"] == "kakeya-mac/1"
    assert (document["state"], document["terminal"]) == ("published", True)
    assert document["outcome"]["exit_code"] == ran.code == 0
    assert document["outcome"]["executor_ok"] is True
    assert document["outcome"]["program_exit"] == 0
    assert document["outcome"]["gate_passed"] is True
    assert document["log_tail"]["lines"] == ["line one", "red # #[error]x"]
    assert document["log_tail"]["untrusted"] is True
    assert document["next"][0][0] == "kakeya-mac"
    assert "00:01 claimed" in ran.err


def test_the_whole_document_is_as_published(requester, host, tmp_path):
    """`UPDATE_GOLDEN=1 pytest` writes it anew; a changed document is a changed interface."""
    plan(requester, host, ending={"reason": "program_failed", "decision": "rejected", "message": "exit code 3"})
    ran = requester.run("run", "mlx-env-probe", "--wait", "--json")
    path = Path(__file__).parent / "golden" / "program_failed.json"
    output = normal(ran.out, tmp_path)
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(output, encoding="utf-8")
    assert output == path.read_text(encoding="utf-8")


def test_a_failed_program_shows_the_end_of_its_log_inside_fields(requester, host, tmp_path):
    log = b"".join(b"line %d\n" % number for number in range(20)) + b"::error::boom\n"
    plan(
        requester, host, log=log, ending={"reason": "program_failed", "decision": "rejected", "message": "exit code 3"}
    )
    ran = requester.run("run", "mlx-env-probe", "--wait")
    short = requester_short(requester)
    assert ran.code == 4
    assert ran.out.splitlines() == [
        f"program_failed refused (smoke)   {short}   13s   mlx-cpu Linux x86_64",
        "asked          mlx-env-probe",
        "cause          | ::error::boom",
        "message        exit code 3",
        *(f"log            | line {number}" for number in range(9, 20)),
        "log            | ::error::boom",
        f"signature      {SIGNED.format(tmp_path)}",
        f"files          data/runs/{short}/",
        f"next           kakeya-mac logs {run_id(requester)}",
    ]


@pytest.mark.parametrize(
    ("ending", "words", "code"),
    [
        ({"reason": "passed"}, [], 0),
        ({"reason": "passed"}, ["--require", "evidence"], 1),
        ({"reason": "passed", "decision": "evidence", "claims": (claim(),)}, ["--require", "evidence"], 0),
        ({"reason": "passed", "decision": "evidence", "claims": (claim(),)}, ["--require", "speed:evidence"], 0),
        ({"reason": "passed", "decision": "evidence", "claims": (claim(),)}, ["--require", "memory:evidence"], 1),
        ({"reason": "passed", "decision": "valid"}, ["--profile", "claim"], 0),
        ({"reason": "passed", "decision": "recorded"}, ["--profile", "claim"], 0),
        ({"reason": "gate_rejected", "decision": "rejected"}, [], 1),
        ({"reason": "request_rejected", "decision": "rejected", "message": "no"}, [], 2),
        ({"reason": "interrupted", "decision": "rejected"}, [], 3),
        ({"reason": "runner_lost", "decision": "rejected"}, [], 3),
        ({"reason": "infrastructure", "decision": "rejected"}, [], 3),
        ({"reason": "program_failed", "decision": "rejected"}, [], 4),
        ({"reason": "timed_out", "decision": "rejected"}, [], 5),
        ({"reason": "cancelled", "decision": "rejected"}, [], 6),
        ({"reason": "policy_refused", "decision": "rejected"}, [], 7),
    ],
)
def test_every_ending_has_its_exit_code(requester, host, ending, words, code):
    plan(requester, host, ending=ending)
    ran = requester.run("run", "mlx-env-probe", "--wait", "--json", *words)
    assert ran.code == code
    assert ran.document["outcome"]["exit_code"] == code
    reason = "below_required" if "--require" in words and code else ending["reason"]
    assert ran.document["outcome"]["reason"] == reason


@pytest.mark.parametrize("words", [[], ["--require", "evidence"], ["--require", "speed:evidence"]])
def test_a_verdict_that_nobody_known_signed_counts_only_as_far_as_the_gate_here_says_the_same(tmp_path, words):
    requester = Requester(tmp_path)
    host = ScriptedHost(requester.bus, requester.clock)
    host.beat()
    plan(requester, host, ending={"decision": "evidence", "claims": (claim(),)})
    ran = requester.run("run", "mlx-env-probe", "--wait", "--json", *words)
    outcome = ran.document["outcome"]
    assert (ran.code, outcome["reason"], outcome["verdict"]) == (1, "gate_rejected", "rejected")
    assert (ran.document["claims"], ran.document["answer"]["word"]) == ([], "unsigned")
    assert ran.document["headline"].startswith("Refused, because")
    again = requester.run("status", "@last", "--json").document
    assert (again["outcome"]["verdict"], again["claims"]) == ("rejected", [])


def test_what_is_required_and_not_met_is_said_with_what_explains_it(requester, host):
    plan(requester, host, ending={"claims": (claim(decision="valid"),)})
    ran = requester.run("run", "mlx-env-probe", "--wait", "--require", "memory")
    required = next(line for line in ran.out.splitlines() if line.startswith("required"))
    explain = f"kakeya-mac gate explain speed {run_id(requester)}"
    assert (ran.code, required) == (
        1,
        f"required       memory: not met. {explain} says what it rests on, and what is missing",
    )
    assert ran.out.startswith("below_required measured (smoke)")


@pytest.mark.parametrize(("effect", "code", "reason"), [("slower", 1, "unwanted"), ("not slower", 0, "passed")])
def test_a_claim_that_is_not_wanted_is_a_reason_of_its_own(requester, host, effect, code, reason):
    plan(requester, host, ending={"claims": (claim(detail={"effect": effect}),)})
    ran = requester.run("run", "mlx-env-probe", "--wait", "--fail-if", "slower", "--json")
    outcome = ran.document["outcome"]
    assert (ran.code, outcome["exit_code"], outcome["reason"]) == (code, code, reason)
    assert outcome["message"] == ("decode_ratio is slower (--fail-if slower)" if code else None)


ANSWERED = "decode_ratio is slower (--fail-if slower), as a look at 13 launches answers"


@pytest.mark.parametrize(("answer", "code", "message"), [("yes", 1, ANSWERED), ("no", 0, None), ("open", 0, None)])
def test_what_three_looks_answered_decides_whatever_the_interval_allows(requester, host, answer, code, message):
    effect = "no difference shown" if answer == "yes" else "slower"
    detail = {"effect": effect, "answer": {"word": "slower", "answer": answer, "launches": 13}}
    plan(requester, host, ending={"claims": (claim(detail=detail),)})
    ran = requester.run("run", "mlx-env-probe", "--wait", "--fail-if", "slower", "--json")
    assert (ran.code, ran.document["outcome"]["message"]) == (code, message)


@pytest.mark.parametrize(("words", "asks"), [([], "faster"), (["--require", "evidence"], None)])
def test_a_word_is_asked_for_alone_unless_its_number_is_wanted_too(requester, words, asks):
    line = ("run", "mlx-env-probe", "--wait", "--fail-if", "faster", "--dry-run", "--json", *words)
    assert requester.run(*line).document["data"]["request"].get("asks") == asks


def test_a_claim_that_is_not_wanted_takes_a_wait(requester, host):
    ran = requester.run("run", "mlx-env-probe", "--fail-if", "slower")
    assert (ran.code, requester.bus.snapshot().requests) == (2, ())
    assert "next    add --wait" in ran.err
    assert requester.run("run", "mlx-env-probe", "--fail-if", "slower", "--dry-run").code == 0


@pytest.mark.parametrize("words", [["--expires", "5x"], ["--wait-timeout", ""], ["--expires", "-1"]])
def test_a_number_that_is_none_is_named_with_what_was_expected(requester, words):
    ran = requester.run("run", "mlx-env-probe", *words)
    assert ran.code == 2
    assert f"got {words[1]!r}, expected a duration such as" in ran.err


def test_a_bus_that_only_an_option_named_is_in_every_next_command(requester, host):
    bus = ["--bus", "origin"]
    ran = requester.run("run", "mlx-env-probe", *bus)
    assert "resume: kakeya-mac attach " in ran.err
    assert ran.err.rstrip().endswith("--bus origin")
    status = requester.run("status", "@last", *bus, "--json").document
    assert [argv[-2:] for argv in status["next"]] == [bus] * len(status["next"]) != []
    assert status["outcome"]["remedy"].endswith("--bus origin")
    assert "--bus" not in requester.run("status", "@last").out


def test_follow_shows_clean_prefixed_lines_on_stderr_only(requester, host):
    plan(requester, host)
    ran = requester.run("run", "mlx-env-probe", "--follow")
    assert "log | line one\nlog | red # #[error]x\n" in ran.err
    assert "line one" not in ran.out


def test_a_terminal_gets_a_live_view_and_no_colour_is_obeyed(tmp_path):
    requester = Requester(tmp_path, terminal=True, environment={"NO_COLOR": "1"})
    host = ScriptedHost(requester.bus, requester.clock)
    host.beat()
    requester.pin(host.sign())
    plan(requester, host)
    ran = requester.run("run", "mlx-env-probe", "--wait")
    assert "00:02 running (limit 5m)" in ran.err
    assert "\x1b[3" not in ran.err
    assert ran.out.startswith("passed      measured")


def test_what_goes_to_a_file_holds_no_colour_while_the_talk_goes_to_a_terminal(tmp_path):
    requester = Requester(tmp_path, terminal=True)
    host = ScriptedHost(requester.bus, requester.clock)
    host.beat()
    requester.pin(host.sign())
    plan(requester, host)
    ran = requester.run("run", "mlx-env-probe", "--wait")
    assert "\x1b" not in ran.out
    assert ran.out.startswith("passed      measured")


@pytest.mark.parametrize(
    ("environment", "painted"),
    [({"TERM": "xterm"}, True), ({"TERM": "xterm", "NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)],
)
def test_data_on_a_terminal_has_colour_wherever_the_talk_goes(environment, painted):
    screen = Screen()
    make_output(screen, io.StringIO(), environment, as_json=False).row("passed", "all of it")
    assert ("\x1b[32mpassed" in screen.getvalue()) is painted


def test_a_result_of_another_run_is_never_shown(requester, host):
    first = requester.run("run", "mlx-env-probe").out.strip()
    host.claim(first)
    host.start(first)
    host.finish(first)
    other = requester.bus.read_result(host.claims[first].claim.result_oid).files
    plan(requester, host, ending={"forge": other})
    ran = requester.run("run", "mlx-env-probe", "--wait", "--json")
    assert ran.code == 1
    assert ran.document["outcome"]["reason"] == "integrity"
    assert "expected" in ran.document["outcome"]["message"]
    assert not list((requester.folder / "data" / "runs").glob("*"))


def test_a_result_with_one_changed_byte_is_refused(requester, host):
    plan(requester, host, ending={"forge": {"log.txt": b"all tests passed\n"}})
    ran = requester.run("run", "mlx-env-probe", "--wait", "--json")
    assert ran.code == 1
    assert "log.txt" in ran.document["outcome"]["message"]
    assert "all tests passed" not in ran.out


def test_dry_run_sends_nothing(requester, host):
    ran = requester.run("run", "pytest-path", "--dry-run")
    assert ran.code == 2  # code is needed, and there is no clone here
    ran = requester.run("run", "mlx-env-probe", "--dry-run", "--json")
    assert ran.code == 0
    assert ran.document["data"]["request"]["preset"] == "mlx-env-probe"
    assert not requester.bus.snapshot().requests


@pytest.mark.parametrize(
    ("words", "needle"),
    [
        (["run", "no-such-preset"], "unknown preset 'no-such-preset'; known: "),
        (["run", "mlx-env-probe", "-p", "x=1"], "has no parameter 'x'"),
        (["run", "mlx-env-probe", "-p", "x"], "expected -p NAME=VALUE"),
        (["run", "mlx-env-probe", "--dirty"], "--dirty and --ref have no meaning"),
        (["run", "mlx-env-probe", "--expires", "48h"], "got --expires 2d; expected 1s to 1d"),
        (["run"], "the following arguments are required: PRESET"),
        (["run", "mlx-env-probe", "--wat"], "no option '--wat'; did you mean --wait or"),
        (["status", "zzzz"], "no run matches 'zzzz'"),
        (["status", "@last"], "no run has been sent from here"),
        (["status", "../x"], "expected a run id"),
        (["frobnicate"], "unknown command 'frobnicate'"),
        (["gate", "chekc"], "did you mean gate check"),
    ],
)
def test_usage_errors_name_what_to_do_in_text_and_in_json(requester, host, words, needle):
    ran = requester.run(*words)
    assert (ran.code, ran.out) == (2, "")
    assert needle in ran.err
    assert "next " in ran.err
    as_json = requester.run(*words, "--json")
    assert as_json.code == as_json.document["outcome"]["exit_code"] == 2
    assert needle in as_json.document["outcome"]["message"]
    assert as_json.document["schema"] == "kakeya-mac/1"


def test_a_label_longer_than_the_usual_stays_whole_and_the_texts_stay_aligned(requester, host):
    claims = (
        ClaimResult(
            id="agreed_tokens", metric="agreed_tokens", role="secondary", value=1.0, interval=None, confidence=None,
            unit="", n=1, baseline=None, wording="288 of 288 tokens", kind="identity", decision="valid", premises=(),
            detail={},
        ),
    )  # fmt: skip
    plan(requester, host, ending={"claims": claims})
    lines = requester.run("run", "mlx-env-probe", "--wait").out.splitlines()
    (agreed,) = [line for line in lines if line.startswith("agreed tokens ")]
    column = agreed.index("288 of 288")
    assert all(line[column - 1] == " " and line[column] != " " for line in lines), lines


def test_a_name_that_is_nearly_a_preset_is_answered_with_the_preset(requester, host):
    assert "did you mean mlx-env-probe" in requester.run("run", "mlx-env-prob").err
