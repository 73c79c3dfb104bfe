"""Two checkouts against each other: drawn order, own code in own processes, a second pass before anything is slower."""

from __future__ import annotations

import ast
import json
import math
import os
import threading
from itertools import permutations
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bridge.gate.rules.arms import shuffled as drawn_by_the_gate
from bridge.gate.stats.ratio import paired_ratio
from engine.errors import ChildError, ModelMismatchError, UsageError
from engine.isolation.checkouts import Opening
from engine.isolation.compared_commits import Commits, ComparedWork
from engine.measurement.schedule import Profile
from engine.measurement.selection import Prompt, PromptSet
from engine.reports import RunContext, token_digest
from engine.studies import commits as comparison
from engine.studies.commits import CommitLaunch
from engine.turns import Turns
from tests.fakes.checkout_engine import write_checkout

BASE, HEAD = "a" * 40, "b" * 40
DIGEST, NONCE = "0f" * 32, "3c" * 16
ENGINE = Path(comparison.__file__).resolve().parents[1]


class Words:
    """A tokenizer that only detokenises."""

    def decode(self, tokens):
        return " ".join(map(str, tokens))


def prompts(count):
    made = []
    for index in range(count):
        ids = tuple(range(10 + index, 20 + 2 * index))
        made.append(Prompt(f"p{index}", "structured", ids, token_digest(ids)))
    return PromptSet("toys", "all of them", tuple(made))


def profile(arms=("base", "head"), per_launch=6, warmups=1):
    return Profile("smoke", arms, per_launch, warmups, 6)


def launch(folder, *, arms=("base", "head"), number=0, pipe=None, margin=0.05, per_launch=6):
    context = RunContext("0" * 26, DIGEST, "manual", {}, "smoke", folder / "out", pipe, nonce=NONCE)
    work = ComparedWork(
        Opening("mlx", "toy", None, 3, 512), prompts(per_launch + 1), profile(arms, per_launch), Words()
    )
    return comparison.run_launch(Commits(BASE, HEAD, folder, margin), work, context, CommitLaunch(number, 0, 1))


@pytest.fixture
def folder(tmp_path):
    write_checkout(tmp_path / "base")
    write_checkout(tmp_path / "head")
    return tmp_path


def order(report):
    rows = sorted((s.order_index, arm.name, s.prompt_id) for arm in report.arms for s in arm.samples if not s.is_warmup)
    return [(name, prompt) for _, name, prompt in rows]


@pytest.mark.parametrize("arms", [("base", "head"), ("base", "base_again", "head")])
def test_every_prompt_meets_every_arm_in_turn_in_the_order_the_nonce_draws(folder, arms):
    report = launch(folder, arms=arms)
    rows = order(report)
    blocks = [rows[at : at + len(arms)] for at in range(0, len(rows), len(arms))]
    assert all(len({prompt for _, prompt in block}) == 1 for block in blocks)
    got = [tuple(name for name, _ in block) for block in blocks]
    orders = list(permutations(arms))
    assert got == drawn_by_the_gate(orders * (6 // len(orders)), NONCE, 0, "orders")
    assert {name: got.count(name) for name in orders} == dict.fromkeys(orders, 6 // len(orders))


def test_the_second_pass_meets_the_same_prompts_in_another_order(folder):
    first, second = launch(folder), launch(folder, number=1)
    assert {prompt for _, prompt in order(first)} == {prompt for _, prompt in order(second)}
    assert order(first) != order(second)
    assert {s.launch for arm in second.arms for s in arm.samples} == {1}


def test_each_side_runs_its_own_checkout_and_equal_code_is_seen_to_be_equal(folder):
    trees = launch(folder).rows["trees"]
    assert {side: tree["imported"] for side, tree in trees.items()} == {
        "base": "base/engine/__init__.py",
        "head": "head/engine/__init__.py",
    }
    assert (trees["base"]["commit"], trees["head"]["commit"]) == (BASE, HEAD)
    assert trees["base"]["sources_sha256"] == trees["head"]["sources_sha256"]
    write_checkout(folder / "head", step_s=0.001)
    trees = launch(folder).rows["trees"]
    assert trees["base"]["sources_sha256"] != trees["head"]["sources_sha256"]


def test_a_slow_head_is_seen_by_the_parents_clock_and_its_tokens_stay_the_same(folder):
    write_checkout(folder / "base", step_s=0.002)
    write_checkout(folder / "head", step_s=0.02)
    report = launch(folder)
    part = json.loads(json.dumps(report.as_json(RunContext("0" * 26, DIGEST, "m", {}, "smoke", folder, None))))
    assert comparison.is_first_pass_slow([part], 0.05)
    assert {s.token_digest for arm in report.arms for s in arm.samples} == {token_digest([7] * 6)}
    assert all(s.top2_margin_at_divergence is None for arm in report.arms for s in arm.samples)


def test_where_turns_are_handed_out_both_sides_hold_their_prompts_between_them(folder):
    orders, answers, replies = os.pipe(), os.pipe(), []

    def supervise():
        with os.fdopen(answers[0], "rb") as heard, os.fdopen(orders[1], "wb", 0) as says:
            assert json.loads(heard.readline())["samples"] == 1  # the fastest warm-up takes < 60 ms: all prompts
            says.write(b'{"event":"launch","protocol":1,"number":1,"block":0,"nonce":"n","calibration":{}}\n')
            turns = [{"tokens": tokens, "arm": arm} for tokens in (1, None) for arm in ("head", "base")]
            for number, order in enumerate([*turns, {"tokens": None, "arm": "head", "seconds": 0.01}]):
                says.write(
                    json.dumps({"event": "go", "turn": number, "sample": 0, "seconds": None} | order).encode() + b"\n"
                )
                replies.append(json.loads(heard.readline()))
            says.write(b'{"event":"end"}\n')

    supervisor = threading.Thread(target=supervise)
    supervisor.start()
    context = RunContext("0" * 26, DIGEST, "manual", {}, "smoke", folder / "out", None, nonce=NONCE)
    work = ComparedWork(Opening("mlx", "toy", None, 3, 512), prompts(12), profile(warmups=6), Words())
    turns = Turns(orders[0], answers[1])
    part, number = comparison.part_in_turns(turns, Commits(BASE, HEAD, folder, 0.05), work, context)
    supervisor.join()
    os.close(answers[1])
    assert number == 1
    assert [(reply["tokens"], reply["over"]) for reply in replies[:4]] == [(6, False)] * 2 + [(30, True)] * 2
    assert replies[4]["tokens"] % 6 == 0  # alone, too, a prompt that was begun is decoded to its end
    assert {arm.name: sum(not s.is_warmup for s in arm.samples) for arm in part.arms} == {"base": 6, "head": 6}
    assert part.rows["trees"]["head"]["commit"] == HEAD


def test_other_tokens_carry_the_margin_of_the_base(folder):
    write_checkout(folder / "head", token=9)
    head = next(arm for arm in launch(folder).arms if arm.name == "head")
    assert {sample.top2_margin_at_divergence for sample in head.samples} == {0.25}


def test_forwards_that_fell_back_in_a_side_are_in_the_report(folder):
    write_checkout(folder / "head", more="def fallbacks(self): return {'graph slots in use': 3}")
    rows = launch(folder).fallbacks
    assert {(row.arm, row.component, row.reason, row.count) for row in rows} == {
        ("head", "graphs", "graph slots in use", 3)
    }
    assert len(rows) == 7


def test_an_engine_from_elsewhere_is_refused(folder):
    stray = folder / "elsewhere" / "engine_stray.py"
    stray.parent.mkdir()
    stray.write_text("")
    trouble = (
        "import importlib.util as u, sys; s = u.spec_from_file_location('engine.stray', "
        f"{str(stray)!r}); sys.modules['engine.stray'] = u.module_from_spec(s)"
    )
    write_checkout(folder / "head", trouble=trouble)
    with pytest.raises(UsageError, match=r"head: imported .*engine_stray.py, expected modules of"):
        launch(folder)


@pytest.mark.parametrize(
    ("trouble", "message"),
    [
        ("raise RuntimeError('no such kernel')", r"head \(head\): RuntimeError: no such kernel"),
        ("import os; os._exit(9)", r"head \(head\): the process ended with code 9 instead of answering"),
    ],
)
def test_a_side_that_fails_names_itself(folder, trouble, message):
    write_checkout(folder / "head", trouble=trouble)
    with pytest.raises(ChildError, match=message):
        launch(folder)


def test_a_checkout_without_what_the_worker_asks_for_says_so(folder):
    (folder / "base" / "engine" / "loading.py").write_text("")
    with pytest.raises(ChildError, match=r"base \(base\): ImportError"):
        launch(folder)
    with pytest.raises(UsageError, match="holds no package 'engine'"):
        launch(folder / "nowhere")


def test_sides_that_load_other_models_are_not_compared(folder):
    types = folder / "head" / "engine" / "types.py"
    types.write_text(types.read_text().replace('"ab" * 32', '"ef" * 32'))
    with pytest.raises(ModelMismatchError, match="see another target"):
        launch(folder)


@pytest.mark.parametrize("commits", [Commits(BASE, BASE, Path(), 0.05), Commits(BASE, HEAD, Path(), 0.0)])
def test_one_commit_twice_and_no_margin_are_refused(commits):
    with pytest.raises(UsageError):
        comparison.check(commits)


def test_passes_are_whole_or_refused():
    assert comparison.passes(2, 2) == [[0, 1]]
    assert comparison.passes(2, 4) == [[0, 1], [2, 3]]
    with pytest.raises(UsageError, match="3 launches"):
        comparison.passes(2, 3)


@given(st.lists(st.tuples(st.floats(0.1, 5.0), st.floats(0.1, 5.0)), min_size=2, max_size=70))
@settings(max_examples=60, deadline=None)
def test_the_engine_asks_for_a_second_pass_exactly_when_the_gate_calls_the_first_one_slow(pairs):
    base, head = [list(side) for side in zip(*pairs, strict=True)]
    gate = paired_ratio(base, head)
    for margin in (0.01, 0.05, 0.3):
        if not math.isclose(gate.interval(0.95)[1], 1.0 - margin, rel_tol=1e-7):
            is_slow = comparison.is_first_pass_slow([part_of(base, head)], margin)
            assert is_slow == (gate.interval(0.95)[1] < 1.0 - margin)


def part_of(base, head):
    arms = [(role, times) for role, times in (("baseline", base), ("candidate", head))]
    return {
        "arms": [
            {
                "role": role,
                "samples": [
                    {"is_warmup": False, "prompt_id": f"p{index}", "stages": {"decode_s": value}}
                    for index, value in enumerate(times)
                ],
            }
            for role, times in arms
        ]
    }


def test_child_processes_are_started_in_one_module():
    users = set()
    for file in ENGINE.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [str(node.module)] if isinstance(node, ast.ImportFrom) else []
            if {name.partition(".")[0] for name in names} & {"subprocess", "multiprocessing"}:
                users.add(file.relative_to(ENGINE).as_posix())
    assert users == {"isolation/children.py"}
