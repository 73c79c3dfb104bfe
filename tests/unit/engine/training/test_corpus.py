"""The corpus is split by hashes of names, so nothing held out can reach a training row."""

from __future__ import annotations

import numpy as np
import pytest

from engine.training.corpus import corpus_record, read_corpus, word_pool
from engine.training.structured import is_held_out_template, make_document, tokenizer_texts


@pytest.fixture
def library(tmp_path):
    for index in range(64):
        folder = tmp_path / ("test" if index % 8 == 7 else "package")
        folder.mkdir(exist_ok=True)
        words = " ".join(f"word{chr(97 + index % 26)}{chr(97 + (index + k) % 26)}" for k in range(6))
        text = "".join(f"value = '{words} alpha beta gamma delta'\n" for _ in range(6))
        (folder / f"module{index}.py").write_text(text)
    (tmp_path / "package" / "short.py").write_text("x = 1\n")
    (tmp_path / "package" / "latin.py").write_bytes(b"# " + b"\xe9" * 400)
    return tmp_path


def test_tests_short_and_undecodable_files_are_left_out(library):
    paths = [file.path for file in read_corpus(library)]
    assert paths == sorted(paths)
    assert len(paths) == 56
    assert not any(path.startswith("test/") or "short" in path or "latin" in path for path in paths)


def test_the_split_depends_on_the_path_alone(library):
    before = {file.path: file.held_out for file in read_corpus(library)}
    (library / "package" / "module0.py").write_text("changed = 'quite different text'\n" * 30)
    assert {file.path: file.held_out for file in read_corpus(library)} == before


def test_the_record_changes_with_one_byte_of_one_file(library):
    before = corpus_record(read_corpus(library))
    (library / "package" / "module1.py").write_text("changed = 'quite different text'\n" * 30)
    after = corpus_record(read_corpus(library))
    assert before["files"] == after["files"]
    assert before["listing_sha256"] != after["listing_sha256"]


def test_held_out_words_are_words_of_training_files_and_never_training_words():
    words = word_pool(read_corpus())
    assert len(words.held_out) > 100
    assert not set(words.held_out) & set(words.training)


def test_held_out_templates_never_make_a_training_document():
    words = word_pool(read_corpus())
    rng = np.random.default_rng(0)
    training = {make_document(rng, words.training, held_out=False).template for _ in range(400)}
    held_out = {make_document(rng, words.held_out, held_out=True).template for _ in range(400)}
    assert not training & held_out
    assert all(is_held_out_template(template) for template in held_out)


def test_equal_seeds_give_equal_tokenizer_texts():
    words = word_pool(read_corpus())
    assert tokenizer_texts(words.training, 3, 20) == tokenizer_texts(words.training, 3, 20)
    assert tokenizer_texts(words.training, 3, 20) != tokenizer_texts(words.training, 4, 20)
