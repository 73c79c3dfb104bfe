"""Prompt sets are pinned, tokenise as recorded, and hold nothing a training row could hold."""

from __future__ import annotations

import json
import re
from argparse import Namespace
from functools import cache

import pytest

from engine.cards.prompts import SETS, read_set
from engine.cards.recall_sets import TASKS, recall_prompts
from engine.errors import UsageError
from engine.measurement.selection import read_packaged, write_packaged
from engine.reports.tokens import token_digest
from engine.training.corpus import HELD_OUT_WORDS_IN_256, corpus_record, hash_byte, read_corpus, word_pool
from engine.training.structured import is_held_out_template
from tests.integration.training.conftest import ASSETS, TARGETS


@pytest.fixture(scope="session")
def encode(target):
    """Encode a text for a target, each text once: all of them take seconds, and several tests look at the same."""
    return cache(target.encode)


@pytest.fixture(scope="module")
def words():
    """The training words that codes are asked for by: to count those of a whole library takes long."""
    return word_pool(read_corpus()).training


def test_every_token_digest_is_that_of_the_text(target, prompt_sets, encode):
    for prompts in prompt_sets.values():
        for prompt in prompts:
            assert prompt["token_digest"][target.name] == token_digest(encode(prompt["text"]))


def test_there_are_enough_distinct_prompts_of_each_kind(prompt_sets):
    structured, raw = prompt_sets["code-structured"], prompt_sets["code-raw"]
    assert len({prompt["text"] for prompt in structured}) == len(structured) >= 150
    assert len({prompt["text"] for prompt in raw}) == len(raw) >= 60
    assert len({prompt["id"] for name in SETS for prompt in prompt_sets[name]}) == sum(map(len, prompt_sets.values()))


@pytest.mark.parametrize("name", TARGETS)
def test_sixty_prompts_exceed_a_budget_of_256_tokens(prompt_sets, name):
    lengths = [prompt["greedy_tokens"][name] for prompt in prompt_sets["code-structured"]]
    assert sum(length is not None and length > 256 for length in lengths) >= 60


def test_structured_prompts_use_held_out_words_and_templates_only(prompt_sets):
    families = {"fields": ("class", "test"), "COMMANDS": ("module",)}
    for prompt in prompt_sets["code-structured"]:
        listed, members = re.search(r"(fields|COMMANDS) = \((.*)\)$", prompt["text"]).groups()
        words = [word.strip('"') for word in members.split(", ")]
        assert all(hash_byte("word:" + word) < HELD_OUT_WORDS_IN_256 for word in words)
        parts = re.search(r"Parts: (.*)\.", prompt["text"]).group(1).replace(" ", "")
        assert any(is_held_out_template(f"{family}:{parts}") for family in families[listed])


def test_a_changed_set_is_refused(tmp_path):
    for path in (ASSETS / "prompts").iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    changed = json.loads(read_packaged("code-raw"))
    changed["prompts"][0]["text"] += "x"
    write_packaged("code-raw", json.dumps(changed).encode(), tmp_path)
    with pytest.raises(ValueError, match="pinned"):
        read_set(tmp_path, "code-raw")


@pytest.mark.parametrize("name", TASKS)
def test_a_recall_set_asks_one_thing_150_times_at_one_length(prompt_sets, encode, name):
    prompts = prompt_sets[name]
    assert len(prompts) == len({prompt["text"] for prompt in prompts}) == 150
    for prompt in prompts:
        hidden, *questions = prompt["text"].split("\n# Q: what is the secret code for ")
        notes = dict(re.findall(r"\n# NOTE: the secret code for ([a-z ]+?) is (?:that of )?([a-z0-9 ]+)\.", hidden))
        keys = [question.partition("?")[0] for question in questions]
        code = notes[keys[-1]]
        hops = 1
        while not code.isdigit():
            code, hops = notes[code], hops + 1
        assert code == prompt["expected"]
        expected = {"recall-one": (1, 1, 1), "recall-four": (4, 1, 1), "recall-chain": (4, 1, 2)}
        assert (len(notes), len(keys), hops) == expected.get(name, (4, 4, 1))
        assert all(f"{key}?\n# A: the secret code for {key} is {notes[key]}." in prompt["text"] for key in keys[:-1])
        assert 1850 <= len(encode(prompt["text"])) <= 1950


@pytest.mark.parametrize("name", TASKS)
def test_a_recall_set_is_drawn_from_its_seed_again(prompt_sets, target, words, name):
    files = read_corpus()
    pinned = json.loads((ASSETS / "corpus.json").read_text())["listing_sha256"]
    if corpus_record(files)["listing_sha256"] != pinned:
        pytest.skip("another Python's library is another text to hide codes in")
    texts = [file.text for file in files if file.held_out]
    drawn = recall_prompts(name, target, texts, words, 5, count=3)
    assert [(each.id, each.text, each.expected) for each in drawn] == [
        (stored["id"], stored["text"], stored["expected"]) for stored in prompt_sets[name][:3]
    ]
    (longer,) = recall_prompts(name, target, texts, words, 5, count=1, length=3950)
    assert longer.expected == drawn[0].expected
    assert abs(len(target.encode(longer.text)) - 3950) < 50


@pytest.mark.parametrize("name", [*TARGETS, *(f"{target}-dflash" for target in TARGETS)])
def test_a_card_describes_the_files_beside_it(name):
    from engine.cards.card_text import card_markdown
    from engine.cards.model_card import file_digests

    folder = ASSETS / name
    card = json.loads((folder / "card.json").read_text())
    assert card["sha256"] == file_digests(folder)
    assert (folder / "MODEL_CARD.md").read_text() == card_markdown(card)
    assert card["training"]["command"].startswith("kakeya-engine train ")
    corpus = json.loads((ASSETS / "corpus.json").read_text())
    assert corpus["listing_sha256"] == card["training"]["corpus"]["listing_sha256"]


def test_the_packaged_sets_are_what_a_card_is_measured_on_and_a_folder_without_them_is_refused(tmp_path):
    from engine.studies.model_cards import load_sets

    assert load_sets(Namespace(prompts=None)).keys() == set(SETS)
    with pytest.raises(UsageError, match=f"no prompt set {SETS[0]} in {tmp_path}"):
        load_sets(Namespace(prompts=tmp_path))


def test_a_target_reads_as_many_tokens_as_it_recalls_nearly_all_codes_of():
    from engine.cards.model_card import LONGEST_DRAFTED, read_tokens
    from engine.training.package_prompts import MOST_PROMPT_TOKENS, RESPONSE_TOKENS

    rows = [(480, 100, 100), (2000, 37, 41), (4000, 36, 41), (8000, 0, 21)]
    recall = [{"length": length, "proportion": {"successes": right, "trials": of}} for length, right, of in rows]
    library = {"corpus": {"files": 2}}
    assert read_tokens({"recall": recall}, library) == 2000
    assert read_tokens({"recall": recall[3:]}, library) == 0
    assert read_tokens({"acceptance": {}}, library) == LONGEST_DRAFTED
    assert read_tokens({"acceptance": {}}, {"corpus": {}}) == MOST_PROMPT_TOKENS + RESPONSE_TOKENS
