"""`kakeya-engine eval kv-quant` and `bounded-kv` from the command line to reports the gate does not refuse."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bridge.gate.judging import BARE_ID, judge
from engine.cli import eval as eval_cli

# A process each, as the preset has it: what other tests of this one leave behind is no part of an arm. The library is
# imported once, before they part: that takes longer than what they measure.
LAUNCHES = """
import importlib, os, sys
from engine.cli import eval as eval_cli
importlib.import_module(sys.argv[1])
for launch in range(4):
    child = os.fork()
    if child == 0:
        os._exit(eval_cli.main([*sys.argv[2:], "--launch", str(launch)]))
    _, status = os.waitpid(child, 0)
    if status:
        sys.exit(f"launch {launch} ended with {os.waitstatus_to_exitcode(status)}")
"""


LIBRARY = {"mlx": "engine.backends.mlx.backend", "torch": "transformers.models.gemma4.modeling_gemma4"}


def refusals(report: Path) -> list[str]:
    """What the gate refuses the report for, times apart: a busy machine may well make those implausible."""
    verdict = judge(BARE_ID, {report.name: report.read_bytes()}, None, None)
    messages = [f"{finding.code} {finding.message}" for finding in verdict.findings if finding.severity == "reject"]
    return [message for message in messages if not message.startswith(("G5-", "G4-WINDOW"))]


def quantised(root: Path, out: Path, *arguments: str) -> dict[str, Any]:
    argv = ["kv-quant", "--set", str(root / "needles.json"), "--max-new", "5", *arguments]
    assert eval_cli.main(argv) == 0
    assert [path.name for path in out.iterdir()] == ["kv-quant.json"]
    value: dict[str, Any] = json.loads((out / "kv-quant.json").read_bytes())
    return value


def computed_again(out: Path, report: str, *arguments: str) -> dict[str, Any]:
    assert eval_cli.main(["recompute", *arguments]) == 0
    value: dict[str, Any] = json.loads((out / "recompute.json").read_bytes())
    return value["reports"][report]  # type: ignore[no-any-return]


@pytest.mark.ci
@pytest.mark.parametrize("backend", ["mlx", "torch"])
def test_quantised_caches_are_measured_beside_the_librarys_own(root: Path, run_environment: Path, backend: str) -> None:
    device = ["--device", "cpu"] if backend == "torch" else []
    report = quantised(root, run_environment, "--backend", backend, *device)
    assert refusals(run_environment / "kv-quant.json") == []
    assert [(arm["name"], arm["role"], len(arm["samples"])) for arm in report["arms"]] == [
        ("native", "baseline", 7),
        ("affine8", "candidate", 7),
        ("affine4", "candidate", 7),
    ]
    library = {"mlx": "mlx_lm.", "torch": "transformers."}[backend]
    assert report["arms"][0]["code_path"].startswith(library)
    bytes_by_arm = [
        [row["memory"]["kv_bytes"] for row in arm["samples"] if not row["is_warmup"]] for arm in report["arms"]
    ]
    assert max(bytes_by_arm[2]) < max(bytes_by_arm[1])
    errors = report["rows"]["errors"]
    assert [(row["arm"], row["layer"]) for row in errors[::2]] == [
        (arm, layer) for arm in ("affine8", "affine4") for layer in range(6)
    ]
    eight, four = (sum(row["error_sq"] for row in errors if row["arm"] == arm) for arm in ("affine8", "affine4"))
    assert 0 < 100 * eight < four
    assert report["config"]["drafter"] is None
    rows = computed_again(run_environment, "kv-quant.json", "--backend", backend, *device)["rows"]
    assert {row["layout"] for row in rows} == {None, "affine8", "affine4"}
    assert all(row["free_running"] and row["worst_gap"] == 0.0 for row in rows if row["layout"] is not None)


def test_what_is_claimed_of_quantised_caches_is_recomputed(root: Path, run_environment: Path) -> None:
    report = quantised(root, run_environment, "--layouts", "affine4/4")
    verdict = judge(BARE_ID, {"kv-quant.json": (run_environment / "kv-quant.json").read_bytes()}, None, None)
    claims = {claim.id: claim for claim in verdict.claims}
    right = sum(row["correct"] for row in report["arms"][1]["samples"] if not row["is_warmup"])
    assert claims["recall_affine4/4"].value == right / 6
    assert claims["kv_bytes_affine4/4"].role == "secondary"
    assert claims["error_affine4/4"].detail["bits_per_value"] == 4 + 64 / 4


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--layouts", "native"), "layout native is not quantised"),
        (("--layouts", "affine8,affine8"), "expected distinct"),
        (("--layouts", "affine5"), "cache layout 'affine5'"),
        (("--layouts", "affine8/32"), "on heads of 8 values"),
        (("--prompts", "5"), "5 prompts cannot balance 6 orders"),
    ],
)
def test_a_study_that_cannot_be_made_is_one_line(
    root: Path, run_environment: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, str], message: str
) -> None:
    assert eval_cli.main(["kv-quant", "--set", str(root / "needles.json"), *arguments]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("error: ")
    assert message in lines[0]
    assert list(run_environment.iterdir()) == []


def test_prompts_without_answers_and_lossy_comparisons_are_refused(
    root: Path, run_environment: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert eval_cli.main(["kv-quant", "--set", str(root / "set.json")]) == 2
    assert "recall needs all of them known" in capsys.readouterr().err
    assert eval_cli.main(["code", "--set", str(root / "set.json"), "--cache", "affine8"]) == 2
    assert "--cache affine8 changes what the target decodes" in capsys.readouterr().err


@pytest.mark.ci
@pytest.mark.parametrize("backend", ["mlx", pytest.param("torch", marks=pytest.mark.slow)])
def test_the_memory_curve_has_a_process_an_arm_and_every_byte_accounted_for(
    root: Path, run_environment: Path, backend: str
) -> None:
    common = ["--set", str(root / "needles.json"), "--contexts", "16,64,180", "--max-new", "5"]
    common += ["--backend", backend, "--cache", "sink2+window8", "--launches", "4"]
    common += ["--device", "cpu"] if backend == "torch" else []
    subprocess.run([sys.executable, "-c", LAUNCHES, LIBRARY[backend], "bounded-kv", *common], check=True, timeout=300)
    assert eval_cli.main(["bounded-kv", "--assemble"]) == 0
    assert [path.name for path in run_environment.iterdir()] == ["bounded-kv.json"]
    assert refusals(run_environment / "bounded-kv.json") == []
    points = json.loads((run_environment / "bounded-kv.json").read_bytes())["rows"]["points"]
    assert [(p["arm"], p["repeat"]) for p in points] == [("native", 0), ("native", 1)] * 3 + [
        ("sink2+window8", 0),
        ("sink2+window8", 1),
    ] * 3
    assert {p["decode_steps"] for p in points} == {5}
    bounded = [p["kv_bytes"] for p in points if p["role"] == "candidate" and p["context_tokens"] > 16]
    assert len({p["process"] for p in points}) == 4
    again = computed_again(run_environment, "bounded-kv.json", *common[:2], *common[6:8], *common[12:])
    assert all(
        any(all(point[k] == v for k, v in row.items()) for row in again["exactly"]["points"]) for point in points
    )
    if backend == "mlx":
        assert len(set(bounded)) == 1
        assert all(p["allocator_active_bytes"] - p["allocator_idle_bytes"] == p["kv_bytes"] for p in points)
    else:
        assert max(bounded) <= 1.3 * min(bounded)


def test_launches_of_one_arm_alone_are_not_joined_and_stay(
    root: Path, run_environment: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = ["bounded-kv", "--set", str(root / "needles.json"), "--contexts", "16", "--max-new", "2"]
    assert eval_cli.main([*argv, "--cache", "sink2+window8", "--launches", "2", "--launch", "0"]) == 0
    parts = sorted(path.relative_to(run_environment) for path in run_environment.rglob("*.json"))
    assert eval_cli.main(["bounded-kv", "--assemble"]) == 2
    assert "hold 1 points of the library's cache and 0 of the layout" in capsys.readouterr().err
    assert sorted(path.relative_to(run_environment) for path in run_environment.rglob("*.json")) == parts


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--launches", "3"), "as many launches of either arm"),
        (("--contexts", "9000"), "a context of 9000 tokens"),
        (("--contexts", "x"), "expected numbers"),
        (("--contexts", "16", "--drafter-context", "64"), "expected a DFlash drafter, which alone"),
        (("--cache", "sink2"), "cache layout 'sink2'"),
        (("--contexts", "16", "--cache", "affine4/16"), "on heads of 8 values"),
    ],
)
def test_a_memory_study_that_cannot_be_made_is_one_line(
    root: Path, run_environment: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], message: str
) -> None:
    assert eval_cli.main(["bounded-kv", "--set", str(root / "needles.json"), *arguments]) in {2, 4}
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert message in lines[0]
    assert list(run_environment.iterdir()) == []


BOUNDED_ARMS = "sink2+window8,sink2+window8+stream,sink2+window8+pages4x5,sink2+window8+identity"


@pytest.fixture
def long_needles(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A set of prompts that are longer than a window and a pool."""
    path = tmp_path_factory.mktemp("sets") / "long.json"
    rows = [
        {
            "id": f"n-{row}",
            "kind": "needle",
            "text": " ".join(f"w{5 + (row * 11 + place * 7) % 50}" for place in range(150)),
            "expected": f"w{20 + row}",
        }
        for row in range(4)
    ]
    path.write_text(json.dumps({"schema": 1, "set": "long", "rule": "made", "prompts": rows}))
    return path


@pytest.mark.ci
@pytest.mark.parametrize(("backend", "depth"), [("mlx", "2"), ("torch", "0")])
def test_bounded_caches_answer_beside_the_native_one_with_every_part_counted(
    long_needles: Path, run_environment: Path, backend: str, depth: str
) -> None:
    common = ["--set", str(long_needles), "--backend", backend]
    common += ["--device", "cpu"] if backend == "torch" else []
    options = ["--arms", BOUNDED_ARMS, "--prompts", "2", "--max-new", "6", "--depth", depth]
    options += ["--drafter-context", "16"] if depth != "0" else []
    assert eval_cli.main(["bounded-recall", *common, *options]) == 0
    assert refusals(run_environment / "bounded-recall.json") == []
    rows = json.loads((run_environment / "bounded-recall.json").read_bytes())["rows"]
    by_arm = {
        arm: [row for row in rows["answers"] if row["arm"] == arm] for arm in ("native", *BOUNDED_ARMS.split(","))
    }
    assert [len(arm_rows) for arm_rows in by_arm.values()] == [2] * 5
    tokens = {arm: [row["tokens"] for row in arm_rows] for arm, arm_rows in by_arm.items()}
    assert tokens["native"] == tokens["sink2+window8+stream"] == tokens["sink2+window8+identity"]
    parts = {
        "bytes_read": "+stream",
        "index_bytes": "+pages4x5",
        "pool_bytes": "+pages4x5",
        "rows_injected": "+identity",
    }
    for part, ending in parts.items():
        for arm, arm_rows in by_arm.items():
            counted = arm.endswith(ending) or (part == "bytes_read" and "+pages" in arm)
            assert all((row[part] > 0) == counted for row in arm_rows), (arm, part)
    for row in rows["answers"]:
        assert (row["drafter_bytes"] > 0) == (depth != "0" and row["arm"] != "native")
        ahead = row["positions_forwarded"] - (row["prompt_tokens"] + row["steps"] + row["drafted"])
        assert 0 <= ahead <= 1
    again = computed_again(run_environment, "bounded-recall.json", *common)
    assert again["strange"] == 0
    exactly = json.loads(json.dumps(again["exactly"]))
    assert exactly["answers"] == rows["answers"]
    (canary,) = rows["layer_canaries"]
    assert again["values"] == {
        "canary_identity": pytest.approx(canary["identity_logit_change"], abs=5e-5),
        "canary_noise": pytest.approx(canary["noise_logit_change"], abs=0.01),
    }
    another = json.loads((run_environment / "bounded-recall.json").read_bytes())
    another["config"]["prompt_set"] = "recall-turns"
    (run_environment / "bounded-recall.json").write_text(json.dumps(another))
    (run_environment / "recompute.json").unlink()
    assert computed_again(run_environment, "bounded-recall.json", *common)["strange"] is None


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--arms", "native"), "arm native is the baseline of every report"),
        (("--arms", "sink2+window8,sink2+window8"), "expected distinct arms"),
        (
            ("--arms", "sink2+window150"),
            "keeps 152 rows and the shortest prompt has 150 tokens, so nothing is left out",
        ),
        (("--arms", "sink2+window8+pages4x40"), "keeps 170 rows and the shortest prompt has 150 tokens"),
        (("--arms", "sink2+window8+pages4x4"), "a pool of 16 rows is smaller than a block"),
        (("--arms", "sink2+window5+identity", "--depth", "5"), "a block of 6 rows with cache layout sink2+window5"),
        (("--arms", "sink2+window8+exact99"), "layer 99 is none of the full-attention layers"),
        (("--arms", "sink2+window8+ftheta8,sink2+window8+ftheta16"), "expected one rank, for one f_theta is loaded"),
        (("--arms", "sink2+window8+ftheta8"), "no f_theta of rank 8 is known for 'tiny'"),
        (("--least-tokens", "151"), "has 0 prompts of at least 151 tokens with a known answer"),
        (("--prompts", "3"), "3 are drawn, and nobody may know which: expected at least 6"),
        (("--arms", "sink2+window8", "--depth", "99"), "proposes at most"),
    ],
)
def test_a_study_of_bounded_caches_that_cannot_be_made_is_one_line(
    long_needles: Path,
    run_environment: Path,
    capsys: pytest.CaptureFixture[str],
    arguments: tuple[str, ...],
    message: str,
) -> None:
    argv = ["bounded-recall", "--set", str(long_needles), "--prompts", "2", "--arms", "sink2+window8"]
    assert eval_cli.main([*argv, *arguments]) in {2, 4}
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert message in lines[0]
    assert list(run_environment.iterdir()) == []
