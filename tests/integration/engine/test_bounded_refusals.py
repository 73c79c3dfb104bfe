"""What no study of bounded caches can measure is one line before anything is measured."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.cli import eval as eval_cli

QWEN = ("--target", "kakeya-tiny-qwen3", "--drafter", "kakeya-tiny-qwen3-dflash")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ("bounded-kv", *QWEN, "--cache", "sink4+window64+pages16x130", "--contexts", "256,2048"),
            "keeps 2148 rows and the longest context has 2048 tokens, so nothing leaves",
        ),
        (("bounded-kv", "--cache", "native", "--contexts", "64"), "--cache native is the baseline of every report"),
        (
            ("bounded-recall", "--arms", "sink2+window8", "--restoration", "nope", "--prompts", "2"),
            "--restoration nope: arms sink2+window8 restore nothing by it; expected one with +fthetaRANK",
        ),
    ],
)
def test_it_is_refused_in_one_line(
    root: Path, run_environment: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], message: str
) -> None:
    needles = () if QWEN[0] in arguments else ("--set", str(root / "needles.json"))
    assert eval_cli.main([*arguments, *needles]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert message in lines[0]
    assert list(run_environment.iterdir()) == []
