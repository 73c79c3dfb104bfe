"""The page of a result: self-contained, the verdict in it, nothing of a stranger's taken for markup."""

from __future__ import annotations

import io
import json
from html.parser import HTMLParser
from pathlib import Path

import pytest

from bridge.client.clone.config import discover
from bridge.client.clone.store import id_in
from bridge.client.connection.pins import Pins
from bridge.client.evidence.judged import JudgedResult
from bridge.client.page import plots
from bridge.client.page.writing import earlier
from bridge.client.run.result import read_folder_result
from bridge.durations import duration_text
from bridge.ids import short
from bridge.presets.workloads import read_folder
from bridge.system.clock import parse_rfc3339
from tests.fakes.requester import Requester
from tests.fakes.scripted_host import ScriptedHost
from tests.support.committed import SMOKE, unpacked
from tests.support.workload_folder import INTERPRETER, write_workload
from tests.unit.bridge.cli.looking import claim, take

PAGE_MAX_BYTES = 1_000_000
VOID = {"meta", "link", "br"}
HOSTILE = '<script>alert(1)</script><img src=x onerror=y>" onclick="z'


class Reader(HTMLParser):
    """Reads a page as a browser would: tags, what they load, text."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.loaded, self.open, self.texts = set(), [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.add(tag)
        self.loaded += [value for name, value in attributes if name in {"src", "href", "xlink:href", "action"}]
        assert not [name for name, _ in attributes if name.startswith("on")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes)
        self.open.remove(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)


def read(path):
    data = Path(path).read_bytes()
    assert len(data) <= PAGE_MAX_BYTES
    page = Reader(data.decode())
    assert page.open == []
    assert page.tags.isdisjoint({"script", "img", "iframe", "object", "form"})
    assert [url for url in page.loaded if not url.startswith(("#", "data:"))] == []
    return page, " ".join(page.texts)


@pytest.fixture
def requester(tmp_path):
    return Requester(tmp_path)


def page_of(requester, what):
    ran = requester.run("open", "--html", str(what), "--json")
    assert ran.code == 0, ran.err
    return read(ran.document["data"]["path"])


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    """The page of a claim run, made once: who wrote it, what a browser reads, and its text."""
    requester, folder = Requester(tmp_path_factory.mktemp("shown")), unpacked(SMOKE, tmp_path_factory.mktemp("smoke"))
    return requester, folder, *page_of(requester, folder)


def test_the_page_of_a_run_shows_verdict_premises_arms_plots_and_log_and_is_the_same_again(shown):
    requester, folder, page, text = shown
    verdict = json.loads((folder / "verdict.json").read_text())
    assert "measured (smoke)" in text
    assert all(claim_result["id"] in text for claim_result in verdict["claims"])
    report = json.loads((folder / "reports" / "report.json").read_text())
    assert all(arm["name"] in text for arm in report["arms"])
    assert "missing" in text
    assert "svg" in page.tags
    assert (folder / "log.txt").read_text().splitlines()[-1].strip() in text
    path = requester.folder / "data" / "runs" / f"{short(id_in(folder))}.html"
    before = path.read_bytes()
    page_of(requester, SMOKE)
    assert path.read_bytes() == before


def test_a_page_subtracts_no_time_of_one_machine_from_one_of_another(shown):
    _, folder, _, text = shown
    record = json.loads((folder / "run.json").read_text())
    lasted = duration_text((parse_rfc3339(record["ended"]) - parse_rfc3339(record["started"])).total_seconds())
    text = " ".join(text.split())
    assert f"asked for {record['created']} requester claimed {record['claimed']} host" in text
    assert f"ended {record['ended']} host {lasted}" in text


def test_a_forged_result_shows_what_does_not_hold_and_nothing_that_it_says(requester, tmp_path):
    forged = unpacked(SMOKE, tmp_path / "forged")
    report = (forged / "reports" / "report.json").read_text()
    (forged / "reports" / "report.json").write_text(report.replace('"output_tokens"', '"output_tokens" ', 1))
    _, text = page_of(requester, forged)
    assert "does not verify" in text
    assert "Claims" not in text


def test_a_folder_without_a_result_has_no_page(requester, tmp_path):
    (tmp_path / "notes").mkdir()
    ran = requester.run("open", "--html", str(tmp_path / "notes"))
    assert (ran.code, ran.out) == (1, "")
    assert "notes holds no manifest.json; expected the folder of a result" in " ".join(ran.err.split())
    assert not list((requester.folder / "data" / "runs").glob("*.html"))


def test_nothing_of_a_run_becomes_markup(requester):
    host = ScriptedHost(requester.bus, requester.clock)
    host.beat()
    run_id = requester.run("run", "mlx-env-probe").out.strip()
    host.claim(run_id)
    host.start(run_id)
    host.log(run_id, HOSTILE.encode() + b"\n", final=True)
    host.judge(run_id)
    host.finish(run_id, message=HOSTILE, claims=(claim(wording=HOSTILE),), reports={"probe.json": {"kind": HOSTILE}})
    _, text = page_of(requester, run_id)
    assert HOSTILE in text


def ended_run(requester, log=b"one\n", **ending):
    host = ScriptedHost(requester.bus, requester.clock)
    host.beat()
    run_id = requester.run("run", "mlx-env-probe").out.strip()
    take(host, run_id, log=log, **ending)
    return run_id


@pytest.mark.parametrize(
    ("log", "report", "expected"),
    [
        ((b'"' * 1300 + b"\n") * 200, {}, "earlier lines are in log.txt"),
        (b"line\n" * 50_000, {}, "49800 earlier lines"),
        (b"", {"config": {f"k{n}": "<" * 900 for n in range(400)}}, "A part of 1.5 MB"),
        (b"", {"arms": [{"name": "a", "samples": [
            {"prompt_id": f"p{n}", "tokens": [7] * 100, "stages": {"decode_s": 1 + n / 1000}} for n in range(1500)
        ]}]}, "not everything: no report"),
    ],
)  # fmt: skip
def test_no_page_is_larger_than_promised(requester, log, report, expected):
    _, shown = page_of(requester, ended_run(requester, log, reports={"probe.json": {"kind": "x", **report}}))
    assert expected in shown


def test_names_in_plots_are_no_formulas_are_cleaned_and_cut(requester, capfd):
    names = ["$\\frac{x$", "x\u202eevil", "\u6f22\u5b57", "n" * 1000, "\ud800", HOSTILE]
    samples = [{"prompt_id": "p", "tokens": [7] * 100, "stages": {"decode_s": 1.0}}]
    arms = [{"name": name, "samples": samples} for name in names]
    page, text = page_of(requester, ended_run(requester, reports={"probe.json": {"kind": "x", "arms": arms}}))
    assert "svg" in page.tags
    assert "\\frac" in text
    assert "\u202e" not in text
    assert plots.intervals([("a", 1e308, (-1e308, 1e308))], "x", 1.0) == ""
    assert capfd.readouterr().err == ""


def test_history_lists_the_runs_of_the_same_question_that_are_here_oldest_first(requester, tmp_path_factory):
    host = ScriptedHost(requester.bus, requester.clock)
    host.offer(read_folder(write_workload(tmp_path_factory.mktemp("w")), INTERPRETER).presets["my-train"])
    ids = []
    for lr, value in ((0.1, 1.25), (0.2, 9.0), (0.1, 1.5)):
        ids.append(requester.run("run", "my-train", "-p", f"lr={lr}", "--new").out.strip())
        reports = {f"repeat-{n}/report.json": {"metrics": {"final_loss": value}} for n in range(6)}
        take(host, ids[-1], reports=reports)
        assert requester.run("fetch", ids[-1]).code == 0
        requester.clock.sleep(5)
    folder = requester.folder / "data" / "runs"
    judged = JudgedResult.of(read_folder_result(folder / ids[-1][-8:]), Pins())
    shown = [(row.id, row.value) for row in earlier(requester_settings(requester), judged)]
    assert shown == [(ids[0], 1.25), (ids[2], 1.5)]
    path = folder / ids[0][-8:] / "verdict.json"
    path.write_bytes(path.read_bytes().replace(b"a scripted", b"another"))
    assert [row.id for row in earlier(requester_settings(requester), judged)] == [ids[2]]


def requester_settings(requester):
    around = requester.surroundings(io.StringIO(), io.StringIO())
    return discover(around.directory, around.environment, None)


def test_a_sweep_and_its_preset_have_pages_of_their_own(requester, tmp_path_factory):
    host = ScriptedHost(requester.bus, requester.clock)
    host.offer(read_folder(write_workload(tmp_path_factory.mktemp("w")), INTERPRETER).presets["my-train"])
    sent = requester.run("run", "my-train", "-p", "lr=0.1,0.01", "--repeat", "2", "--json").document["data"]
    for number, row in enumerate(sent["runs"][:3]):
        host.claim(row["id"])
        host.start(row["id"])
        values = {f"repeat-{n}/report.json": {"metrics": {"final_loss": 1 + number + n / 100}} for n in range(6)}
        host.finish(row["id"], reports=values)
    page, text = page_of(requester, sent["sweep"])
    assert "exploratory: 3 of 4 runs ended" in text
    assert "my-train steps=20" in text
    assert "svg" in page.tags
    by_value = sorted(sent["runs"], key=lambda row: (row["params"]["lr"], row["repeat"]))
    at = [text.rindex(row["id"][-8:]) for row in by_value]
    assert at == sorted(at)
    assert "final_loss, lower is better" in text
    assert "gate_rejected 3.025 nats [3.000, 3.050]" in " ".join(text.split())
    _, of_preset = page_of(requester, "my-train")
    assert "3 runs are stored here" in of_preset
    assert "1.025 nats" in of_preset
    _, of_run = page_of(requester, sent["runs"][0]["id"][-8:])
    assert "exploratory" not in of_run
    assert requester.run("open", "--html", "my-other").code == 2


@pytest.mark.parametrize(
    ("log", "warned"), [(b"\x1b[31mred\x1b[0m\n", True), (b"\xc2\x9b2Jgone\n", True), (b"plain\n", False)]
)
def test_a_page_says_that_the_log_file_holds_what_a_terminal_obeys(requester, log, warned):
    _, text = page_of(requester, ended_run(requester, log))
    assert ("holds control characters for terminals; kakeya-mac logs" in text) == warned


def test_the_repeats_of_an_own_program_are_one_table_and_a_dot_each(requester, tmp_path_factory):
    host = ScriptedHost(requester.bus, requester.clock)
    host.offer(read_folder(write_workload(tmp_path_factory.mktemp("w")), INTERPRETER).presets["my-train"])
    run_id = requester.run("run", "my-train").out.strip()
    take(host, run_id, reports={f"repeat-{n}/report.json": {"metrics": {"final_loss": 1 + n}} for n in range(6)})
    page, text = page_of(requester, run_id)
    assert "Reports of the program" in text
    assert "Report repeat-" not in text
    assert "svg" in page.tags
    assert "metric      final_loss 1, 2, 3, 4, 5, 6\n" in requester.run("report", run_id).out


def test_axes_count_in_whole_numbers_name_units_that_are_some_and_hold_their_labels():
    drawn = plots.dots({"value": [(1.0, 5.0), (2.0, 6.0)]}, "run, oldest first", plots.labelled("loss", "1"))
    assert ">1<" in drawn
    assert ">1.5<" not in drawn
    assert ">loss<" in drawn
    assert plots.labelled("loss", "nats") == "loss (nats)"
    assert plots.over_time({"this run": [(1.0, 0.5)]}, "share") == ""
    name = "lr=0.1 optimiser=momentum #1"
    label = plots.intervals([(name, 1.0, (0.5, 1.5))], "x", None)
    assert float(label.partition('text-anchor="end"')[0].rpartition('x="')[2].partition('"')[0]) > 7.2 * len(name)
