"""The page of the gate says what the checks say, and every word that is printed is explained."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from benchmarks.studies.statistics import page as simulated
from benchmarks.studies.statistics import standing
from bridge.errors import UsageError
from bridge.gate.catalogue import explain, page, printed_words, rules_catalogue
from bridge.gate.declared.premises import PREMISES
from bridge.gate.words import ALIASES, KNOWN_FAILURES, WORDS

FOLDER = Path(__file__).parents[4] / "docs" / "gate"


def test_the_seeds_table_names_only_rules_that_exist():
    named = set(re.findall(r"\[(G[0-9]-[A-Z0-9-]+)\]", (FOLDER / "from-the-seed.md").read_text("utf-8")))
    assert named
    assert named <= {entry.code for entry in rules_catalogue()}


def test_every_check_has_a_heading_and_every_link_of_the_page_leads_to_one():
    text = page()
    headings = {
        re.sub(r"[^a-z0-9 -]", "", line.lower()).strip().replace(" ", "-")
        for line in re.findall(r"^#+ (.*)$", text, re.M)
    }
    assert {entry.code.lower() for entry in rules_catalogue()} <= headings
    assert set(re.findall(r"\]\(#([a-z0-9-]+)\)", text)) <= headings


def test_every_word_that_is_listed_is_explained_whatever_its_case():
    for word in (*printed_words(), *ALIASES, "Measured", "g5-solo"):
        assert len(explain(word)) > 30, word
    assert set(ALIASES.values()) <= WORDS.keys()
    assert "digest by digest" in explain("bound")
    assert set(PREMISES) <= set(printed_words())


def test_a_word_that_nothing_prints_names_those_near_it():
    with pytest.raises(UsageError, match="sittings"):
        explain("sitings")
    with pytest.raises(UsageError, match="G5-SOLO"):
        explain("SOLO")


def test_what_sittings_do_not_see_stands_by_name_as_it_was_simulated():
    assert tuple(standing.known_failures(simulated.rows(standing.STUDY.name))) == KNOWN_FAILURES
    assert all(name in explain("sittings") for name in KNOWN_FAILURES)
