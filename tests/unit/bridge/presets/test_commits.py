"""A preset that compares two commits: the base is a full id, another commit, and only for request code."""

from __future__ import annotations

import datetime as dt

import pytest

from bridge.errors import ParameterError, RequestRejectedError, UsageError
from bridge.presets.facts import PolicyFacts, Trust
from bridge.presets.installed import load, registry
from bridge.presets.parameters import bind
from bridge.presets.resolution import resolve
from bridge.records.request import Workload
from tests.fakes.asking import make_request

NOW = dt.datetime(2026, 11, 20, 10, 0, tzinfo=dt.UTC)
HEAD, BASE = "a" * 40, "c" * 40
CODE = Workload(commit=HEAD, tree="b" * 40, origin="", dirty=False)
FACTS = PolicyFacts(digest="0" * 64, interpreter="/opt/python", embedded=True)
PRESET = registry()["commit-comparison"]
HOST = ("/opt/python", "-I", "-m", "engine.cli")


def ask(**params):
    return make_request("bus", "commit-comparison", now=NOW, workload=CODE, params={"base": BASE, **params})


@pytest.mark.parametrize("profile", ["smoke", "claim"])
def test_the_hosts_own_engine_measures_by_turns_before_the_launches_are_joined(profile):
    request = make_request("bus", "commit-comparison", now=NOW, workload=CODE, params={"base": BASE}, profile=profile)
    spec = resolve(request, PRESET, FACTS, Trust())
    assert (spec.code, spec.trust_class, spec.tree, spec.base) == ("request", "untrusted", CODE.tree, BASE)
    assert all(command.argv[:4] == HOST for command in spec.commands)
    (launch,) = spec.commands[:-2]
    assert launch.argv[launch.argv.index("--base") + 1] == BASE
    assert launch.argv[launch.argv.index("--head") + 1] == HEAD
    assert (launch.launches.arms, launch.launches.unit) == (("base", "head"), "samples")
    assert launch.launches.rule.least == (3 if profile == "smoke" else 10)
    assert spec.commands[-2].argv[4:6] == ("eval", "commits-assemble")
    assert spec.commands[-1].argv[4:] == ("eval", "recompute", "--set", "code-structured")
    assert spec.commands[-1].confirms


@pytest.mark.parametrize(("word", "margin"), [("slower", 1.0 / 0.9), ("faster", 1.02)])
def test_a_word_is_asked_with_the_margin_of_the_comparison(word, margin):
    question = {"base": BASE, "margin": 0.1}
    for profile in ("claim", "smoke"):
        request = make_request(
            "bus", "commit-comparison", now=NOW, workload=CODE, params=question, profile=profile, asks=word
        )
        series = resolve(request, PRESET, FACTS, Trust()).commands[0].launches
        if profile == "smoke":  # three launches are looked at once
            assert series.asks is None
        else:
            assert (series.asks.word, series.asks.margin) == (word, pytest.approx(margin))


def test_a_drawn_load_has_twenty_launches_and_needs_two_programs_in_them():
    question = {"now": NOW, "workload": CODE, "profile": "claim", "load": "drawn"}
    spec = resolve(make_request("bus", "commit-comparison", params={"base": BASE}, **question), PRESET, FACTS, Trust())
    series = spec.commands[0].launches
    assert (series.load, series.rule.least, series.rule.most, series.rule.blocks) == ("drawn", 10, 20, 5)
    for name in ("pytest-path", "k3-native-baseline"):
        request = make_request("bus", name, params={}, **question)
        with pytest.raises(RequestRejectedError, match="has no launches of two programs, in half of which a load"):
            resolve(request, registry()[name], FACTS, Trust())


def test_the_very_commit_that_is_sent_is_no_base():
    with pytest.raises(RequestRejectedError, match="the very commit that is sent"):
        resolve(ask(base=HEAD), PRESET, FACTS, Trust())


@pytest.mark.parametrize("value", ["main", "HEAD~1", BASE[:12], BASE.upper(), BASE + "\n", "-" * 40, 7, True])
def test_only_a_full_commit_id_names_a_base(value):
    with pytest.raises(ParameterError, match="expected a full commit id"):
        bind(PRESET.params, {"base": value})
    with pytest.raises(ParameterError, match="'base' is missing"):
        bind(PRESET.params, {})


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('code = "request"', 'code = "host"'),
        ("[params.depth]", '[params.more]\ntype = "commit"\nhelp = "h"\n[params.depth]'),
    ],
)
def test_a_preset_of_host_code_or_with_two_bases_is_no_preset(old, new):
    text = TEXT.replace(old, new)
    load("x", TEXT.encode())
    with pytest.raises(UsageError, match="the one tree that is put beside"):
        load("x", text.encode())


TEXT = """
schema = 1
name = "x"
status = "planned"
description = "d"
code = "request"
[params.base]
type = "commit"
help = "h"
[params.depth]
type = "int"
min = 1
max = 2
help = "h"
"""
