"""compare and report read what two results hold."""

from __future__ import annotations

import json
from pathlib import Path

from bridge.client.clone.store import id_in
from bridge.gate.derivation import derive
from bridge.gate.identity import identity
from bridge.gate.judging import BARE_ID
from bridge.ids import short
from tests.corpus.gate.breaks import honest
from tests.fakes.scripted_host import PROBE
from tests.support.committed import SMOKE, SMOKE_AGAIN
from tests.unit.bridge.cli.looking import claim, published, take


def test_a_fact_that_both_share_is_said_once_and_columns_are_as_wide_as_what_differs(requester):
    table = [line for line in requester.run("compare", *EVIDENCE).out.splitlines() if line[:2] in {"= ", "* ", "  "}]
    starts = table[0].index(short(id_in(SMOKE_AGAIN)))
    differing = [line for line in table if line.startswith("*")]
    assert len(differing) > 3
    assert all(line[starts - 2 : starts] == "  " and line[starts] != " " for line in differing)
    assert next(line for line in table if line.startswith("= host")).count("AMD EPYC") == 1


def test_compare_says_what_differs_and_warns(requester, host, sent):
    take(host, sent, claims=(claim(),))
    second = requester.run("run", "mlx-env-probe").out.strip()
    take(host, second, claims=(claim(value=1.2, decision="valid"),))
    ran = requester.run("compare", sent, second)
    assert "= quote       refused" in ran.out
    assert "impossible" in ran.out
    assert "not an interleaved comparison" in ran.err


EVIDENCE = [str(SMOKE), str(SMOKE_AGAIN)]


def test_two_result_folders_are_compared_by_the_gates_statistics(requester):
    # The golden text is what `kakeya-mac compare` of these two folders prints on stdout, but for which gate judged.
    ran = requester.run("compare", *EVIDENCE)
    golden = (Path(__file__).parent / "golden" / "compare.txt").read_text("utf-8")
    gate = {"{version}": identity().version, "{digest}": identity().digest[:12]}
    for name, value in gate.items():
        golden = golden.replace(name, value)
    assert (ran.code, ran.out) == (0, golden)


def test_the_document_of_a_comparison_says_that_nothing_is_citable(requester):
    data = requester.run("compare", *EVIDENCE, "--json").document["data"]
    published("data-compare").validate(data)
    assert len(data["differences"]) == 9
    assert {difference["citable"] for difference in data["differences"]} == {False}
    assert all("not interleaved" in difference["why"][0] for difference in data["differences"])
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


def test_report_shows_what_follows_from_tokens_whatever_the_report_says_of_them(requester, tmp_path):
    case = honest("needle_recall")
    for arm in case.report["arms"]:
        for sample in arm["samples"]:
            sample["output_tokens"], sample["correct"] = 4096, True
    path = tmp_path / "report.json"
    path.write_bytes(case.files()["report.json"])
    out = requester.run("report", str(path)).out
    arm = derive(BARE_ID, {"report.json": path.read_bytes()}, None, None).reports[0].arms[0]
    assert f"{arm.samples} samples + {arm.warm_ups} warm-up, {arm.tokens} tokens" in out
    assert f"{arm.right_answers} of {arm.asked_answers} known answers" in out


def test_a_parameter_of_a_bare_report_moves_no_cursor_and_ends_no_command(requester, tmp_path):
    case = honest("needle_recall")
    case.report["run"]["params"] = {"note": "two\n\x1b[2Jlines\u202e"}
    path = tmp_path / "report.json"
    path.write_bytes(case.files()["report.json"])
    ran = requester.run("report", str(path), "--json")
    assert ran.code == 0, ran.err
    (derived,) = ran.document["derived"].values()
    assert derived["params"]["note"].isprintable()


def test_report_survives_nonsense(requester, host, sent, tmp_path):
    sample = {"is_warmup": False, "output_tokens": 11, "stages": {"decode_s": 2.0}, "stop_reason": "eos"}
    odd = {"arms": [{"name": "a\x1b[31m", "samples": [sample, 3, {"stages": None}]}, None], "claims": [7], "rows": []}
    take(host, sent, reports={"speed.json": odd, "probe.json": PROBE})
    out = requester.run("report", "@last").out
    assert "not everything: no report" in out
    assert "\x1b" not in out
    path = tmp_path / "bare.json"
    path.write_text(json.dumps(PROBE))
    assert "check       ok" in requester.run("report", str(path)).out
    path.write_text('{"a": 1, "a": 2}')
    assert requester.run("report", str(path)).code == 2
    path.write_text(json.dumps({"arms": [{"samples": [sample | {"output_tokens": 10**400}]}]}))
    assert requester.run("report", str(path)).code == 2
