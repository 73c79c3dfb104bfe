"""The studies as a runner starts them: real models, a report on disk, an exit code, or one line of refusal."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from engine.cli import eval as eval_cli
from tests.fakes import tiny_torch


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model root with a target, its drafter, a tokenizer and a small prompt set."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    root = tmp_path_factory.mktemp("studies")
    tiny_torch.write_target(root / "target", "gemma4")
    tiny_torch.write_dflash(root / "drafter", vocab_size=tiny_torch.VOCAB)
    words = ["<pad>", "<eos>", "<bos>", "<mask>", *(f"w{index}" for index in range(4, tiny_torch.VOCAB))]
    tokenizer = Tokenizer(models.WordLevel({word: index for index, word in enumerate(words)}, unk_token="<pad>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.save(str(root / "target" / "tokenizer.json"))
    prompts = [
        {"id": f"p{row}", "kind": "raw", "text": " ".join(f"w{5 + row * 7 + index}" for index in range(20))}
        for row in range(6)
    ]
    (root / "set.json").write_text(json.dumps({"schema": 1, "set": "six", "rule": "made", "prompts": prompts}))
    return root


@pytest.fixture
def run(place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("KAKEYA_MODEL_ROOTS", str(place))
    for name in ("KAKEYA_TARGET", "KAKEYA_DRAFTER", "KAKEYA_OUT", "KAKEYA_PROFILE"):
        monkeypatch.delenv(name, raising=False)

    def start(*argv: str) -> tuple[int, dict[str, Any]]:
        models = ["--target", "target", "--drafter", "drafter", "--out", str(tmp_path), "--profile", "smoke"]
        code = eval_cli.main([*argv, *models])
        reports = sorted(tmp_path.glob("*.json"))
        return code, json.loads(reports[0].read_text()) if reports else {}

    return start


@pytest.mark.ci
def test_parity_of_one_checkpoint_on_both_backends_is_complete_in_fp32(
    run: Any, place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("mlx_lm", reason="mlx-lm is not installed")
    code, report = run("drafter-parity", "--set", str(place / "set.json"), "--prompts", "2", "--dtype", "float32")
    assert code == 0
    assert report["kind"] == "drafter_parity"
    assert {"mlx", "torch"} <= set(report["environment"]["versions"])
    assert len(report["rows"]["blocks"]) > 60
    for block in report["rows"]["blocks"]:
        assert block["mlx_tokens"] == block["torch_tokens"]
        assert block["top2_margin_at_divergence"] is None
    for row in report["rows"]["generations"]:
        steps = [block for block in report["rows"]["blocks"] if block["prompt_id"] == row["prompt_id"]]
        assert len(steps) == len(row["mlx_accepted_per_step"])
        assert row["mlx_tokens"] == row["torch_tokens"]
        assert row["mlx_accepted_per_step"] == row["torch_accepted_per_step"]
    again = ["recompute", "--target", "target", "--drafter", "drafter", "--out", str(tmp_path), "--dtype", "float32"]
    for nonce, strange in ((None, 0), ("another", 2)):
        if nonce is not None:
            monkeypatch.setenv("KAKEYA_NONCE", nonce)
        assert eval_cli.main([*again, "--set", str(place / "set.json")]) == 0
        path = tmp_path / "recompute.json"
        (entry,) = json.loads(path.read_text())["reports"].values()
        path.unlink()
        assert entry["values"]["identical_generations"] == 2
        assert entry["strange"] == strange


def test_verify_cost_keeps_every_forward_of_every_shape_and_its_tokens_come_out_again(run: Any, tmp_path: Path) -> None:
    options = ("--backend", "torch", "--device", "cpu", "--contexts", "8,40", "--rows", "1,4,8", "--repeats", "3")
    code, report = run("verify-cost", *options)
    assert code == 0
    shapes = [(row["context_tokens"], row["rows"]) for row in report["rows"]["verify"]]
    assert shapes == [(context, rows) for context in (8, 40) for rows in (1, 4, 8)]
    assert [(row["context_tokens"], row["drafted_tokens"]) for row in report["rows"]["draft"]] == [
        (context, count) for context in (8, 40) for count in (3, 7)
    ]
    for row in [*report["rows"]["verify"], *report["rows"]["draft"]]:
        assert len(row["seconds"]) == 3
        assert min(row["seconds"]) > 0
    again = ["recompute", *options[:4], "--target", "target", "--drafter", "drafter", "--out", str(tmp_path)]
    assert eval_cli.main(again) == 0
    (entry,) = json.loads((tmp_path / "recompute.json").read_text())["reports"].values()
    for name, rows in report["rows"].items():
        assert entry["exactly"][name] == [{key: row[key] for key in row.keys() - {"seconds"}} for row in rows]
    assert entry["exactly"]["verify"][0]["token_digest"] != entry["exactly"]["verify"][1]["token_digest"]


def test_verify_cost_of_random_shapes_is_labelled_so(run: Any) -> None:
    code, report = run(
        "verify-cost", "--backend", "torch", "--device", "cpu", "--random-shapes", "gemma4-moe-small",
        "--contexts", "16", "--rows", "1,8", "--repeats", "2",
    )  # fmt: skip
    assert code == 0
    assert report["config"]["target"]["name"] == "random-gemma4-moe-small"
    assert report["config"]["target"]["format"] == "random weights, published shapes"
    assert report["rows"]["draft"] == []


@pytest.mark.ci
def test_acceptance_holds_both_arms_and_counts_by_position(run: Any, place: Path) -> None:
    code, report = run("acceptance", "--backend", "torch", "--device", "cpu", "--set", str(place / "set.json"),
                       "--prompts", "4", "--max-new", "20")  # fmt: skip
    assert code == 0
    baseline, candidate = report["arms"]
    assert (baseline["role"], candidate["role"]) == ("baseline", "candidate")
    assert [sample["tokens"] for sample in baseline["samples"]] == [s["tokens"] for s in candidate["samples"]]
    measured = [sample for sample in candidate["samples"] if not sample["is_warmup"]]
    assert len(measured) == 4
    rows = report["rows"]["by_position"]
    assert rows[0]["reached"] == sum(sum(count > 0 for count in sample["drafted_per_step"]) for sample in measured)
    assert sum(row["accepted"] for row in rows) == sum(s["counters"]["accepted_tokens"] for s in measured)


REFUSALS = {
    "no CUDA device": (("acceptance", "--backend", "torch", "--device", "cuda"), 5, "no NVIDIA device"),
    "graphs without a CUDA device": (
        ("acceptance", "--backend", "torch", "--device", "cpu", "--cuda-graphs", "on"),
        5,
        "--cuda-graphs on with device cpu; expected an NVIDIA device",
    ),
    "graphs on mlx": (("verify-cost", "--backend", "mlx", "--cuda-graphs", "on"), 2, "--backend torch"),
    "a device for mlx": (("verify-cost", "--backend", "mlx", "--device", "cpu"), 2, "--backend torch"),
    "random shapes on mlx": (("verify-cost", "--backend", "mlx", "--random-shapes", "x"), 2, "--backend torch"),
    "unknown shapes": (
        ("verify-cost", "--backend", "torch", "--device", "cpu", "--random-shapes", "x"),
        2,
        "known: gemma4-26b-a4b",
    ),
    "lengths that are no numbers": (("verify-cost", "--backend", "torch", "--rows", "1,b"), 2, "--rows '1,b'"),
    "a context past the model": (
        ("verify-cost", "--backend", "torch", "--device", "cpu", "--contexts", "510"),
        4,
        "512 positions",
    ),
    "no drafter": (("acceptance", "--backend", "torch", "--device", "cpu", "--drafter", "none"), 2, "needs a drafter"),
    "costs that go nowhere": (
        ("verify-cost", "--backend", "torch", "--device", "cpu", "--costs", "nowhere/costs.json"),
        2,
        "--costs nowhere/costs.json: expected a file in a folder that is there",
    ),
    "no such model": (("verify-cost", "--backend", "torch", "--target", "nowhere"), 3, "no model 'nowhere'"),
}


@pytest.mark.parametrize("refusal", REFUSALS)
def test_what_cannot_be_measured_is_refused_in_one_line_without_a_report(
    run: Any, refusal: str, capsys: pytest.CaptureFixture[str], place: Path, tmp_path: Path
) -> None:
    argv, expected, message = REFUSALS[refusal]
    if refusal == "no CUDA device" and torch.cuda.is_available():
        pytest.skip("this machine has the device")
    models = ["--target", "target", "--drafter", "drafter", "--out", str(tmp_path)]
    given = [part for name, value in zip(models[::2], models[1::2], strict=True) if name not in argv
             for part in (name, value)]  # fmt: skip
    code = eval_cli.main([*argv, *given])
    errors = capsys.readouterr().err.strip().splitlines()
    assert code == expected
    assert len(errors) == 1
    assert message in errors[0]
    assert list(tmp_path.glob("*.json")) == []


@pytest.mark.ci
def test_what_a_drafter_proposed_comes_out_again_and_nothing_else_does(run: Any, place: Path, tmp_path: Path) -> None:
    options = ("--backend", "torch", "--device", "cpu", "--dtype", "float32", "--set", str(place / "set.json"))
    code, report = run("distributed-e2e", *options, "--prompts", "2", "--max-new", "12")
    assert code == 0
    written = {row["sample"]: row["digest"] for row in report["rows"]["drafts"]}
    assert len(set(written.values())) == len(written) == 3  # a warm-up's too
    again = ["recompute", *options, "--target", "target", "--drafter", "drafter", "--out", str(tmp_path)]
    assert eval_cli.main(again) == 0
    (entry,) = json.loads((tmp_path / "recompute.json").read_text())["reports"].values()
    assert {row["sample"]: row["digest"] for row in entry["exactly"]["drafts"]} == written
    assert {row["arm"] for row in entry["exactly"]["drafts"]} == {"in-process"}
    assert len(entry["rows"]) == 3
