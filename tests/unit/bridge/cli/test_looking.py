"""Looking: status, ls, logs, runners, fetch, verify, quote, compare, report, from this and other terminals."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import jsonschema
import pytest

from bridge import strictjson
from bridge.cli.commands import BY_NAME
from bridge.client.data import DATA
from bridge.gate import identity
from bridge.records import ClaimResult, Finding
from tests.drift import ROOT
from tests.fakes.requester import Requester
from tests.fakes.scripted_host import PROBE, ScriptedHost

SCHEMAS = ROOT / "bridge" / "client" / "schemas"


@pytest.fixture
def requester(tmp_path):
    return Requester(tmp_path)


@pytest.fixture
def host(requester):
    host = ScriptedHost(requester.bus, requester.clock)
    host.beat()
    return host


@pytest.fixture
def sent(requester, host):
    return requester.run("run", "mlx-env-probe").out.strip()


def claim(**changes):
    fields = {
        "id": "speed", "metric": "decode_ratio", "role": "primary", "value": 1.09, "interval": (1.03, 1.15),
        "confidence": 0.95, "unit": "x", "n": 60, "baseline": "mlx_lm", "wording": "faster than mlx_lm by 9 %",
        "citable": True, "why": (), "detail": {},
    }  # fmt: skip
    return ClaimResult.model_validate({**fields, **changes})


def take(host, run_id, **ending):
    host.claim(run_id)
    host.start(run_id)
    host.log(run_id, b"one\ntwo\x1b]0;title\x07\n::error::x\n", final=True)
    host.judge(run_id)
    host.finish(run_id, **ending)


def test_every_state_is_seen_from_another_clone(requester, host, sent, tmp_path):
    (tmp_path / "second").mkdir()
    second = requester.second_clone(tmp_path / "second")
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
    assert requester.run("logs", "@last", "--json", "-n", "2").document["log_tail"]["lines"] == ["::error::no", "half"]


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
    assert "500" not in requester.run("logs", "@last").out
    assert log.read_bytes().startswith(b"one\n")


def test_quote_prints_only_what_may_be_quoted(requester, host, sent):
    good, bad = claim(), claim(id="memory", citable=False, why=("G7: too few contexts",), wording="less memory")
    take(host, sent, decision="evidence", claims=(good, bad))
    ran = requester.run("quote", "@last")
    assert ran.code == 0
    assert "faster than mlx_lm by 9 % (1.09 x, 95% interval 1.03 to 1.15, n = 60)" in ran.out
    assert "attempt 1 of 1 on this host" in ran.out
    assert f"check: kakeya-mac verify {sent}" in ran.out
    assert "less memory" not in ran.out
    assert "memory may NOT be quoted: G7: too few contexts" in ran.err
    block = requester.run("quote", "@last", "--markdown").out
    assert block.startswith("> faster than mlx\\_lm by 9 %")


@pytest.mark.parametrize("decision", ["valid_not_citable", "rejected"])
def test_quote_refuses_loudly_whatever_a_claim_says_of_itself(requester, host, sent, decision):
    take(host, sent, decision=decision, claims=(claim(),))
    ran = requester.run("quote", "@last", "--json")
    assert ran.code == 1
    assert ran.document["data"]["lines"] == []
    assert "nothing of" in ran.err
    assert "faster" not in json.dumps(ran.document["data"]["lines"])


def test_verify_checks_id_folder_and_our_own_bytes(requester, host, sent):
    take(host, sent)
    ran = requester.run("verify", "@last")
    assert ran.code == 0
    assert "integrity only, unsigned" in ran.out
    folder = requester.folder / requester.run("open", "@last").out.strip()
    assert requester.run("verify", str(folder)).code == 0
    (folder / "reports" / "probe.json").write_bytes(b"{}")
    ran = requester.run("verify", str(folder), "--json")
    assert ran.code == 1
    assert ran.document["data"]["ok"] is False
    assert any(row["name"] == "reports/probe.json" for row in ran.document["data"]["checks"] if not row["ok"])
    (folder / "extra.txt").symlink_to("/etc/passwd")
    assert "symbolic link" in requester.run("verify", str(folder)).err


def test_verify_judges_again_where_the_gate_is_the_same(requester, host, sent):
    take(host, sent, decision="evidence", claims=(claim(),), gate=identity())
    ran = requester.run("verify", "@last")
    assert ran.code == 1
    assert "says evidence; the same gate says rejected here" in ran.out


def test_verify_sees_that_the_bus_carries_another_history(requester, host, sent, tmp_path):
    take(host, sent)
    requester.run("fetch", "@last")
    request = next((requester.folder / "data" / "requests").glob("*.json"))
    document = json.loads(request.read_text())
    document["request"] = document["request"].replace('"smoke"', '"claim"')
    request.write_text(json.dumps(document))
    ran = requester.run("verify", sent)
    assert ran.code == 1
    assert "not the bytes this clone sent" in ran.out


def test_a_fact_that_both_share_is_said_once_and_columns_are_as_wide_as_what_differs(requester):
    table = [line for line in requester.run("compare", *EVIDENCE).out.splitlines() if line[:2] in {"= ", "* ", "  "}]
    starts = table[0].index("y6rgxwg2")
    differing = [line for line in table if line.startswith("*")]
    assert len(differing) > 3
    assert all(line[starts - 2 : starts] == "  " and line[starts] != " " for line in differing)
    assert next(line for line in table if line.startswith("= host")).count("AMD EPYC") == 1


def test_the_choices_of_a_parameter_read_as_words(requester):
    out = requester.run("presets", "show", "k3-kv-quant-eval").out
    assert "choices affine8,affine4 | affine8/32,affine4/32" in out
    assert out.startswith("preset      k3-kv-quant-eval\n")


def test_nothing_to_list_and_the_versions_are_said(requester, host):
    assert "note  no runs yet" in requester.run("ls").err
    out = requester.run("version").out
    assert [line.split()[0] for line in out.splitlines()] == ["kakeya", "gate", "schemas"]


def test_compare_says_what_differs_and_warns(requester, host, sent):
    take(host, sent, claims=(claim(),))
    second = requester.run("run", "mlx-env-probe").out.strip()
    take(host, second, claims=(claim(value=1.2, citable=False),))
    ran = requester.run("compare", sent, second)
    assert "* claim speed" in ran.out
    assert "NOT CITABLE" in ran.out
    assert "not an interleaved comparison" in ran.err


EVIDENCE = [str(ROOT / "docs" / "evidence" / f"k3-fused-allmlx-code-{name}") for name in ("rpa4gwnn", "y6rgxwg2")]


def test_two_result_folders_are_compared_by_the_gates_statistics(requester):
    # The golden text is what `kakeya-mac compare` of these two folders prints on stdout.
    ran = requester.run("compare", *EVIDENCE)
    golden = Path(__file__).parent / "golden" / "compare.txt"
    assert (ran.code, ran.out) == (0, golden.read_text("utf-8"))


def test_the_document_of_a_comparison_says_that_nothing_is_citable(requester):
    data = requester.run("compare", *EVIDENCE, "--json").document["data"]
    jsonschema.validate(data, json.loads((SCHEMAS / "data-compare.schema.json").read_text()))
    assert len(data["differences"]) == 11
    assert {(one["citable"], one["n"]) for one in data["differences"]} == {(False, 60)}
    assert all("not interleaved" in one["why"][0] for one in data["differences"])
    assert [floor["stage"] for floor in data["noise"]] == ["decode", "prefill"]


def test_runs_without_samples_compare_their_facts_and_say_why_no_more(requester, host, sent):
    take(host, sent)
    ran = requester.run("compare", sent, sent)
    assert ran.code == 0
    assert "impossible" in ran.out
    assert "B vs A" not in ran.out


def test_a_folder_that_is_no_result_is_refused(requester, tmp_path):
    (tmp_path / "empty").mkdir()
    ran = requester.run("compare", EVIDENCE[0], str(tmp_path / "empty"))
    assert ran.code == 1
    assert "manifest.json" in ran.err


def test_report_recomputes_rates_and_survives_nonsense(requester, host, sent, tmp_path):
    sample = {"is_warmup": False, "output_tokens": 11, "stages": {"decode_s": 2.0}, "stop_reason": "eos"}
    odd = {"arms": [{"name": "a\x1b[31m", "samples": [sample, 3, {"stages": None}]}, None], "claims": [7], "rows": []}
    take(host, sent, reports={"speed.json": odd, "probe.json": PROBE})
    out = requester.run("report", "@last").out
    assert "5.0 tokens/s decode (median)" in out
    assert "\x1b" not in out
    path = tmp_path / "bare.json"
    path.write_text(json.dumps(PROBE))
    assert "check       ok" in requester.run("report", str(path)).out
    path.write_text('{"a": 1, "a": 2}')
    assert requester.run("report", str(path)).code == 2


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
    assert "last seen 2 h ago" in next(row["text"] for row in ran.document["data"] if row["level"] == "fail")


def test_doctor_warns_of_a_host_whose_disk_is_full_or_that_is_paused(requester, host):
    host.beat(disk_free_bytes=10**6)
    ran = requester.run("doctor", "--json")
    row = next(row for row in ran.document["data"] if row["check"] == "runner")
    assert (ran.code, row["level"], row["remedy"]) == (0, "warn", "on the host: kakeya-runner doctor")
    host.beat(state="paused")
    assert "mini is paused" in requester.run("doctor").out


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
    requester.bus.store.faults.decide = lambda operation: "lost"
    assert requester.run("fetch", sent).out == online
    for words in (["status"], ["logs"], ["open"], ["report"], ["quote"], ["explain"]):
        assert requester.run(*words, "@last").code == 0
    assert requester.run("compare", sent, sent[:20]).code == 0
    ran = requester.run("verify", sent[-8:])
    assert (ran.code, "the bus was not asked" in ran.err) == (0, True)
    assert requester.run("ls").code == 3


def test_runners_shows_live_and_gone(requester, host):
    assert "idle" in requester.run("runners").out
    requester.clock.sleep(7200)
    assert "gone" in requester.run("runners").out


LINES = [
    ["ls"], ["runners"], ["presets"], ["presets", "--all"], ["doctor"], ["gc", "--dry-run"], ["verify", "@last"],
    ["quote", "@last"], ["compare", "@last", "@last"], ["config"], ["version"], ["gate", "rules"],
    ["gate", "explain", "G0-JSON"], ["explain", "mlx-env-probe"], ["explain", "@last"],
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
    jsonschema.validate(document, json.loads((SCHEMAS / "envelope.schema.json").read_text()))
    assert document["outcome"]["exit_code"] == ran.code, ran.err
    command = document["command"]
    if document["data"] is not None and command in DATA and ran.code in {0, 1}:
        name = f"data-{command.replace(' ', '-')}.schema.json"
        jsonschema.validate(document["data"], json.loads((SCHEMAS / name).read_text()))
    assert command in BY_NAME


def reseal(folder, **changed):
    """Write files of a result folder anew and make its manifest agree."""
    manifest = json.loads((folder / "manifest.json").read_bytes())
    for name, data in changed.items():
        (folder / name.replace("_", ".")).write_bytes(data)
    for entry in manifest["files"]:
        data = (folder / entry["path"]).read_bytes()
        entry.update(bytes=len(data), sha256=hashlib.sha256(data).hexdigest())
    (folder / "manifest.json").write_bytes(strictjson.encode(manifest))


def test_a_result_of_an_older_version_still_verifies_but_a_reformatted_one_does_not(requester, host, sent):
    take(host, sent)
    folder = requester.folder / requester.run("open", "@last").out.strip()
    spec = json.loads((folder / "spec.json").read_bytes())
    older = {name: value for name, value in spec.items() if name != "labels"}
    assert older != spec
    reseal(folder, spec_json=strictjson.encode(older))
    ran = requester.run("verify", str(folder))
    assert ran.code == 0, ran.out
    reseal(folder, spec_json=json.dumps(spec, indent=1).encode())
    ran = requester.run("verify", str(folder))
    assert ran.code == 1
    assert "spec.json: is not in canonical form" in ran.out


def test_gate_check_judges_folders_and_bare_reports_and_never_grants_evidence(requester, host, sent, tmp_path):
    take(host, sent, decision="evidence", claims=(claim(),))
    requester.run("fetch", sent)
    ran = requester.run("gate", "check", "data/runs", "--json")
    assert [row["verdict"]["id"] for row in ran.document["data"]] == [sent]
    assert ran.document["data"][0]["problems"] == []
    assert ran.document["data"][0]["verdict"]["decision"] != "evidence"
    bare = tmp_path / "bare.json"
    bare.write_text(json.dumps(PROBE))
    for form in ("table", "markdown", "junit", "annotations"):
        assert requester.run("gate", "check", str(bare), "--format", form).out
    assert requester.run("gate", "check", str(bare), "--require", "evidence").code == 1
    assert requester.run("gate", "check", str(tmp_path / "nothing")).code == 2


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


def test_a_run_that_never_ran_is_not_reproached_with_what_it_lacks(requester, host, sent):
    lacking = Finding(
        code="G1-DECLARED", severity="reject", report=None, where="", message="no report at all", remedy="none"
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


def test_ls_keeps_its_columns_when_a_run_is_not_on_the_bus(requester, host, sent):
    requester.bus.remote.refs.clear()
    requester.bus.create(requester.bus.identity())
    lines = requester.run("ls").out.splitlines()
    assert all("not on the bus  mlx-env-probe" in line for line in lines), lines
