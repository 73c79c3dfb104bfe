"""`kakeya-engine eval` from the command line to a report that the gate can read, on a random model."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from bridge.gate.judging import BARE_ID, judge
from engine.checkpoint import ASSETS
from engine.cli import eval as eval_cli
from engine.cli import generate as generate_cli
from engine.measurement.proposal import ROUNDS
from engine.reader import read_checkpoint
from engine.reports import loop_onset
from engine.studies.comparison import PROPOSAL_PROMPTS
from tests.fakes import tiny_mlx

DIGEST = hashlib.sha256(b"request").hexdigest()
WORDS = [f"w{index}" for index in range(tiny_mlx.VOCAB)]


def measure(
    root: Path, out: Path, *arguments: str, workload: str = "code", prompts: str = "set.json"
) -> dict[str, Any]:
    common = ["--set", str(root / prompts), "--max-new", "8", *arguments]
    assert eval_cli.main([workload, *common]) == 0
    assert eval_cli.main(["assemble", "--report", "report.json"]) == 0
    assert sorted(path.name for path in out.iterdir()) == ["report.json"]
    value: dict[str, Any] = json.loads((out / "report.json").read_bytes())
    return value


def refusals(out: Path) -> list[str]:
    """What the gate refuses the report for, times apart: a busy machine may well make those implausible."""
    verdict = judge(BARE_ID, {"report.json": (out / "report.json").read_bytes()}, None, None)
    messages = [f"{finding.code} {finding.message}" for finding in verdict.findings if finding.severity == "reject"]
    return [message for message in messages if not message.startswith("G5-")]


def test_a_smoke_run_is_a_report_the_gate_does_not_refuse_and_its_marks_name_every_sample_in_order(
    root: Path, run_environment: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reading, writing = os.pipe()
    monkeypatch.setenv("KAKEYA_SAMPLE_PIPE", str(writing))
    lines: list[bytes] = []
    with os.fdopen(reading, "rb") as stream:
        reader = threading.Thread(target=lambda: lines.extend(stream))
        reader.start()
        try:
            report = measure(root, run_environment)
        finally:
            # The reader ends at the end of the stream only: without this a failing run would be waited for for ever.
            os.close(writing)
            reader.join()
    assert refusals(run_environment) == []
    holds_two_equal_arms(report)
    plan, *marks = [json.loads(line) for line in lines]
    samples = sorted((row["order_index"], row) for arm in report["arms"] for row in arm["samples"])
    assert (plan["event"], plan["samples"]) == ("plan", len(samples))
    assert [mark["event"] for mark in marks] == ["start", "first_token", "end"] * len(samples)
    assert [mark["sample"] for mark in marks[::3]] == [row["id"] for _, row in samples]
    assert [mark["token_digest"] for mark in marks[2::3]] == [row["token_digest"] for _, row in samples]
    assert max(map(len, lines)) <= 512


def holds_two_equal_arms(report: dict[str, Any]) -> None:
    by_name = {arm["name"]: arm for arm in report["arms"]}
    assert [(arm["role"], len(arm["samples"])) for arm in report["arms"]] == [("baseline", 7), ("candidate", 7)]
    assert by_name["autoregressive"]["code_path"] == "mlx_lm.generate:generate_step"
    reference = {row["prompt_id"]: row["tokens"] for row in by_name["autoregressive"]["samples"]}
    for row in by_name["speculative"]["samples"]:
        assert row["tokens"] == reference[row["prompt_id"]]
        assert row["counters"]["drafter_forwards"] > 0
        assert row["loop_onset"] == loop_onset(row["tokens"])
        assert row["memory"]["drafter_bytes"] > 0
    warm = {row["prompt_digest"] for arm in report["arms"] for row in arm["samples"] if row["is_warmup"]}
    measured = {row["prompt_digest"] for arm in report["arms"] for row in arm["samples"] if not row["is_warmup"]}
    assert len(measured) == 6
    assert not warm & measured
    assert report["config"]["block_size"] == 4
    assert [claim["id"] for claim in report["claims"]] == ["decode_speedup"]


@pytest.mark.ci
def test_launches_are_parts_of_one_report_at_the_depth_that_the_first_one_proposes(
    root: Path, run_environment: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("KAKEYA_PROFILE", "claim")
    common = ["code", "--set", str(root / "set.json"), "--max-new", "4", "--launches", "2", "--depth", "0"]
    assert eval_cli.main([*common, "--launch", "1"]) == 2
    assert "launch-0.json" in capsys.readouterr().err
    for launch in range(2):
        assert eval_cli.main([*common, "--launch", str(launch)]) == 0
    log = capsys.readouterr().out.splitlines()
    proposals = [line for line in log if line.startswith("proposed: depth ")]
    # Minutes of a large model are no silence, which ends a run.
    assert sum(line.startswith("trying depths: prompt ") for line in log) == PROPOSAL_PROMPTS * ROUNDS
    assert eval_cli.main(["assemble", "--report", "report.json"]) == 0
    report = json.loads((run_environment / "report.json").read_bytes())
    assert refusals(run_environment) == []
    assert [arm["name"] for arm in report["arms"]] == ["autoregressive", "autoregressive_again", "speculative"]
    measured = [row for arm in report["arms"] for row in arm["samples"] if not row["is_warmup"]]
    assert set(Counter(row["prompt_id"] for row in measured).values()) == {3}
    assert len(measured) == 2 * 12 * 3
    depth = report["config"]["depth"]
    assert depth["policy"] == "fixed"
    assert [line.split()[2] for line in proposals] == [str(depth["tokens"])]


@pytest.mark.ci
@pytest.mark.parametrize(
    "arguments", [("--drafter", "ngram"), ("--depth", "auto"), ("--cache", "full"), ("--stop", "budget")]
)
def test_every_way_of_decoding_gives_a_readable_report(
    root: Path, run_environment: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, str]
) -> None:
    monkeypatch.delenv("KAKEYA_DRAFTER")
    given = arguments if "--drafter" in arguments else (*arguments, "--drafter", "tiny-dflash")
    report = measure(root, run_environment, *given)
    unexpected = [message for message in refusals(run_environment) if not message.startswith("G3-SELF")]
    assert unexpected == []
    assert report["config"]["cache_layout"] == ("full" if "full" in arguments else "native")
    assert (report["config"]["stopping_ids"] == []) == ("budget" in arguments)


@pytest.mark.ci
def test_the_baseline_alone_and_needles_are_measured_too(root: Path, run_environment: Path) -> None:
    report = measure(root, run_environment, workload="native")
    assert refusals(run_environment) == []
    assert [arm["name"] for arm in report["arms"]] == ["autoregressive"]
    assert report["config"]["drafter"] is None
    assert report["config"]["target"]["reading"] == read_checkpoint(root / "tiny").reading
    report = measure(root, run_environment, workload="needle", prompts="needles.json")
    assert report["kind"] == "needle_recall"
    for arm in report["arms"]:
        for row in arm["samples"]:
            assert row["correct"] == (row["expected"] in row["text"].split("\n", 1)[0].split())


def test_one_graph_against_two_is_timed_within_its_bounds(root: Path, run_environment: Path) -> None:
    arguments = ["--set", str(root / "set.json"), "--blocks", "8", "--report", "probe.json"]
    assert eval_cli.main(["single-graph", *arguments]) == 0
    rows = json.loads((run_environment / "probe.json").read_bytes())["rows"]
    assert [row["mode"] for row in rows["blocks"]] == ["two_evaluations", "one_graph"] * 4
    assert all(row["eval_s"] > 0 for row in rows["blocks"])


def test_errors_are_one_line_and_an_exit_code(
    root: Path, run_environment: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert eval_cli.main(["code", "--set", "nothing"]) == 2
    assert eval_cli.main(["code", "--set", str(root / "set.json"), "--launch", "3", "--launches", "2"]) == 2
    assert eval_cli.main(["code", "--target", "nowhere"]) == 3
    assert eval_cli.main(["assemble"]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 4
    assert all(line.startswith("error: ") for line in lines)


@pytest.mark.ci
def test_generate_prints_the_answer_or_one_json_object(
    root: Path, run_environment: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = ["w7 w8 w9", "--max-new", "9"]
    assert generate_cli.main([*argv, "--json", "--depth", "0"]) == 0
    plain = json.loads(capsys.readouterr().out)
    assert generate_cli.main([*argv, "--json", "--drafter", f"{os.environ['KAKEYA_DRAFTER']},ngram"]) == 0
    chosen = json.loads(capsys.readouterr().out)
    assert chosen["tokens"] == plain["tokens"]
    assert chosen["drafter"].endswith(" or ngram")
    assert generate_cli.main([*argv, "--json", "--depth", "3"]) == 0
    drafted = json.loads(capsys.readouterr().out)
    assert drafted["tokens"] == plain["tokens"]
    assert sum(drafted["drafted_steps"].values()) > 0
    assert drafted["drafted_tokens"] > 0
    assert generate_cli.main(argv) == 0
    captured = capsys.readouterr()
    assert captured.out.strip() == plain["text"].strip()
    assert "tokens per target forward" in captured.err
    sampled = []
    for _ in range(2):
        assert generate_cli.main([*argv, "--json", "--temperature", "1.5", "--seed", "4"]) == 0
        sampled.append(json.loads(capsys.readouterr().out)["tokens"])
    assert sampled[0] == sampled[1]
    stop = plain["text"].split()[2]
    assert generate_cli.main([*argv, "--json", "--stop", stop]) == 0
    stopped = json.loads(capsys.readouterr().out)
    assert stopped["stop_reason"] == "stop_string"
    assert stop not in stopped["text"]


def test_a_seed_draws_again_with_prompt_lookup_where_no_other_drafter_is_known(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KAKEYA_DRAFTER", raising=False)
    folder = shutil.copytree(ASSETS / "kakeya-tiny-qwen3", tmp_path / "alone")
    words = ["class Point:\n    x", "--target", str(folder), "--max-new", "24", "--json"]
    answers = []
    for _ in range(2):
        assert generate_cli.main([*words, "--temperature", "0.8", "--seed", "4"]) == 0
        answers.append(json.loads(capsys.readouterr().out))
    assert answers[0]["drafter"] == "ngram"
    assert answers[0]["tokens"] == answers[1]["tokens"]
