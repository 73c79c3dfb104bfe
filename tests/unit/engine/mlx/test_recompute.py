"""What was put out is computed again: honest outputs are the target's own, invented ones are not."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest

from engine.errors import UsageError
from engine.loading import load_backend, open_engine
from engine.measurement.schedule import drawn
from engine.measurement.selection import load_prompts
from engine.reports.tokens import packed_tokens, token_digest
from engine.studies.recompute import (
    NOT_FINITE,
    decoded,
    measure,
    options,
    outputs_of,
    recompute,
    rounding,
    stated,
    strange,
    unchosen,
)
from engine.tokenizer import Tokenizer

PROMPT = (2, 17, 99, 31, 5, 44)
COUNT = 12


@pytest.fixture(scope="module")
def engine():
    return open_engine(load_backend("mlx"), "kakeya-tiny-gemma4", None)


@pytest.fixture(scope="module")
def tokens(engine):
    return decoded(engine, PROMPT, COUNT)


def report(*outputs, prompt=PROMPT):
    rows = [
        {"prompt_id": "p", "prompt_digest": token_digest(prompt), "token_digest": token_digest(out), "tokens": [*out]}
        for out in outputs
    ]
    for row in rows:
        row |= {"launch": 0, "is_warmup": False}
    return {
        "run": {"profile": "smoke"},
        "kind": "code_throughput",
        "arms": [{"name": "speculative", "role": "candidate", "samples": rows}],
        "prompts": {token_digest(prompt): packed_tokens(prompt)},
    }


def test_honest_tokens_are_the_targets_best_in_one_forward(engine, tokens):
    answer = recompute(engine, Tokenizer(engine.folder), report(tokens, tokens), "nonce")
    (row,) = answer["rows"]
    assert row["worst_gap"] <= answer["delta"] < 1e-2
    assert row["free_running"] is True
    assert answer["target"] == engine.target.info.digest


@pytest.mark.parametrize("place", [0, 5, COUNT - 1])
def test_an_invented_token_is_found_where_it_is(engine, tokens, place):
    worse = [*tokens]
    worse[place] = 7 if tokens[place] != 7 else 8
    answer = recompute(engine, Tokenizer(engine.folder), report(tuple(worse)), "nonce")
    (row,) = answer["rows"]
    assert row["worst_gap"] > answer["delta"]
    assert row["worst_at"] >= place
    assert row["free_running"] is False


def test_one_token_is_an_output_too(engine, tokens):
    (row,) = recompute(engine, Tokenizer(engine.folder), report(tokens[:1]), "nonce")["rows"]
    assert row["worst_gap"] == 0.0


def test_rounding_is_small_and_not_nothing_to_compare_with(engine, tokens):
    assert 0.0 <= rounding(engine, PROMPT, tokens) < 1e-3


def test_gaps_are_nothing_for_the_best_token_alone(engine):
    *_, last = engine.target.open((), layout_full()).prefill(PROMPT, 512)
    best = decoded(engine, PROMPT, 1)
    other = tuple(token + 1 for token in best)
    assert engine.backend.gaps(last, best) == (0.0,)
    assert engine.backend.gaps(last, other)[0] > 0.0
    assert engine.backend.apart(last, last) == 0.0


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_number_that_is_not_finite_is_said_as_one_beyond_every_tolerance(value):
    """JSON has no word for it, and a command that cannot write its answer takes more than the outputs from a run."""
    assert stated(value) == NOT_FINITE
    assert stated(0.25) == 0.25


class Broken:
    """A backend whose logits of one row are no numbers."""

    def __init__(self, backend, broken):
        self.backend, self.broken, self.calls = backend, broken, 0

    def apart(self, first, other):
        self.calls += 1
        return math.nan if self.calls == self.broken else self.backend.apart(first, other)


@pytest.mark.parametrize("broken", [1, 4])
def test_rounding_over_a_row_that_is_no_number_is_none(engine, tokens, broken):
    assert math.isnan(rounding(replace(engine, backend=Broken(engine.backend, broken)), PROMPT, tokens))


def layout_full():
    from engine.structure.layout import CacheLayout

    return CacheLayout.FULL


def test_a_prompt_is_looked_for_in_the_hosts_own_set(engine, tokens):
    tokenizer = Tokenizer(engine.folder)
    own_ids = load_prompts("code-structured", tokenizer, engine.target.info.name).prompts[0].ids
    counts = [strange(engine, tokenizer, report(tokens, prompt=ids), "code-structured") for ids in (own_ids, PROMPT)]
    assert counts == [0, 1]


def test_a_question_made_from_its_answer_is_none_of_the_sets(engine, tokens):
    tokenizer = Tokenizer(engine.folder)
    item = load_prompts("needle", tokenizer, engine.target.info.name).prompts[0]
    counts = []
    for expected in (item.expected, "0000", None):
        value = report(tokens, prompt=item.ids)
        value["arms"][0]["samples"][0]["expected"] = expected
        counts.append(strange(engine, tokenizer, value, "needle"))
    assert counts == [0, 1, 1]


@pytest.mark.parametrize(
    ("kind", "set_", "measured", "warm"),
    [
        ("code_throughput", "code-structured", lambda prompt_set: prompt_set.lasting(64).prompts[:6], -2),
        ("acceptance", "code-structured", lambda prompt_set: prompt_set.prompts[:6], -2),
        ("needle_recall", "needle", lambda prompt_set: prompt_set.spread(8).prompts[:6], None),
    ],
)
def test_prompts_of_the_set_that_its_study_does_not_choose_are_counted(engine, tokens, kind, set_, measured, warm):
    tokenizer = Tokenizer(engine.folder)
    prompt_set = load_prompts(set_, tokenizer, engine.target.info.name)
    last = prompt_set.spread(8).prompts[6:] if warm is None else prompt_set.prompts[warm:]

    def said(prompts, warmups):
        value = report(*[tokens] * (len(prompts) + len(warmups))) | {"kind": kind, "config": {"max_new_tokens": 64}}
        for place, (row, prompt) in enumerate(zip(value["arms"][0]["samples"], (*prompts, *warmups), strict=True)):
            row |= {"prompt_digest": prompt.digest, "is_warmup": place >= len(prompts)}
        return unchosen(engine, tokenizer, value, set_)

    chosen = measured(prompt_set)
    assert said(chosen, last) == 0
    assert said(chosen[::-1], last) == 0  # in which order the nonce says
    assert said((*chosen[:4], *prompt_set.prompts[30:32]), last) == 2
    assert said(chosen, prompt_set.prompts[30:32]) == 2


def test_prompts_of_blocks_that_time_left_out_are_missed_by_nobody(engine, tokens):
    prompt_set = load_prompts("code-structured", Tokenizer(engine.folder), engine.target.info.name).lasting(64)
    met = drawn({prompt.id: prompt for prompt in prompt_set.prompts[:30]}, "nonce", "blocks")[:12]

    def said(prompts):
        value = report(*[tokens] * 12) | {"config": {"max_new_tokens": 64}, "run": {"profile": "claim"}}
        for place, (row, prompt) in enumerate(zip(value["arms"][0]["samples"], prompts, strict=True)):
            row |= {"prompt_digest": prompt.digest, "launch": place // 6}
        return unchosen(engine, Tokenizer(engine.folder), value, "code-structured")

    assert {prompt.digest for prompt in met} - {prompt.digest for prompt in prompt_set.prompts[:12]}
    assert said(met) == 0
    assert said([*met[:11], prompt_set.prompts[30]]) == 1


def test_a_set_that_a_program_brought_is_none_of_the_hosts(engine, tokens, tmp_path):
    mine, tokenizer = tmp_path / "mine.json", Tokenizer(engine.folder)
    mine.write_text(
        json.dumps({"set": "mine", "rule": "none", "prompts": [{"id": "p", "kind": "k", "text": "def f():"}]})
    )
    (prompt,) = load_prompts(str(mine), tokenizer, engine.target.info.name).prompts
    for named in (str(mine), "../prompts/code-structured"):
        value = report(tokens, prompt=prompt.ids) | {"config": {"prompt_set": named}}
        assert strange(engine, tokenizer, value, None) is None
    assert strange(engine, tokenizer, value, str(mine)) == 0  # the host itself named it


def test_a_report_without_its_prompts_is_an_error():
    with pytest.raises(UsageError, match="not in the report"):
        outputs_of({**report(PROMPT), "prompts": {}})


def test_the_answer_is_written_once_and_never_over_another(engine, tokens, tmp_path, monkeypatch):
    import argparse

    monkeypatch.setenv("KAKEYA_OUT", str(tmp_path))
    (tmp_path / "report.json").write_text(json.dumps(report(tokens)))
    parser = argparse.ArgumentParser()
    options(parser)
    assert measure(parser.parse_args([])).keys() == {"report.json"}
    answer = json.loads((tmp_path / "recompute.json").read_bytes())["reports"]["report.json"]
    assert answer["rows"]
    assert answer["strange"] is None  # the report names no set
    with pytest.raises(FileExistsError):
        measure(parser.parse_args([]))
