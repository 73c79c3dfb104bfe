"""Is this commit slower? Real clone, embedded bus, real runner, sandbox and engine, two commits of this project."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.fakes.clone import Clone

ENGINE = Path(__file__).resolve().parents[3] / "engine"
LOOP = "engine/decoding/speculative.py"
STEP = "\n        yield Step("  # in the loop itself: further in, another one is in a branch
SLOW_S = 0.05  # a step takes a few milliseconds: the effect is far beyond what a busy machine does by itself


@pytest.fixture(scope="module")
def clone(tmp_path_factory):
    pytest.importorskip("mlx.core")
    clone = Clone(tmp_path_factory.mktemp("requester"))
    files = {f"engine/{path.relative_to(ENGINE).as_posix()}": path.read_text("utf-8") for path in ENGINE.rglob("*.py")}
    clone.commit(files)
    yield clone
    clone.stop_runners()


def ask(clone, *words):
    ran = clone.mac("run", "commit-comparison", *words, "--wait", "--new", "--json", timeout_s=280)
    return json.loads(ran.stdout)


def claim_of(document):
    return next(claim for claim in document["claims"] if claim["id"] == "decode_speedup")


@pytest.mark.slow
def test_a_planted_slow_down_is_called_slower_after_a_second_pass_and_code_that_did_not_change_is_not(clone):
    loop = (clone.top / LOOP).read_text("utf-8")
    clone.commit({"notes.txt": "nothing that runs\n"})
    same = ask(clone, "-p", "base=HEAD~1")
    assert same["outcome"]["reason"] == "passed", same["log_tail"]
    assert "is slower than base" not in claim_of(same)["wording"]
    assert claim_of(same)["decision"] != "evidence"
    assert claim_of(same)["detail"]["slower"] is False
    assert any("untrusted_code" in why for premise in claim_of(same)["premises"] for why in premise["why"])
    clone.commit({LOOP: loop.replace(STEP, f"\n        __import__('time').sleep({SLOW_S}){STEP}")})
    slow = ask(clone, "-p", "base=HEAD~1", "-p", "margin=0.2")
    assert slow["outcome"]["reason"] == "passed", slow["log_tail"]
    assert claim_of(slow)["detail"]["slower"] is True
    assert "head is slower than base by more than 20 %, confirmed by a second pass" in claim_of(slow)["wording"]


def test_what_cannot_be_compared_is_refused_before_anything_is_sent(clone):
    head = clone.git("rev-parse", "HEAD").strip()
    side = clone.git("commit-tree", "-m", "side", f"{head}^{{tree}}").strip()
    for base, message in (
        ("HEAD", "the very commit that is sent"),
        ("no-such-branch", "is no commit of"),
        (side, "is not in the history of"),
    ):
        ran = clone.mac("run", "commit-comparison", "-p", f"base={base}", "--dry-run")
        assert ran.returncode == 2
        assert message in ran.stderr
    assert "parameter 'base' is missing" in clone.mac("run", "commit-comparison", "--dry-run").stderr


def test_explain_names_the_commit_that_a_revision_is(clone):
    ran = clone.mac("explain", "commit-comparison", "-p", "base=HEAD~1")
    assert ran.returncode == 0, ran.stderr
    base = clone.git("rev-parse", "HEAD~1").strip()
    assert f"parameter base = {base} (command line)" in ran.stdout
