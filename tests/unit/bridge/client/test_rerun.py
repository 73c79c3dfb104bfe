"""The next command after a first look asks the very same question again."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from bridge.cli.table import parser
from bridge.cli.table.commands import MAC
from bridge.client.run.rerun import words_again
from bridge.client.send.draft import parse_selector
from bridge.client.send.parameters import listed, typed, untyped
from bridge.client.send.sweep import combinations
from bridge.presets.installed import find
from bridge.records.request import LimitRequest, Request, RunnerSelector, Workload

COMMIT = "c" * 40
CODE = Workload(commit=COMMIT, tree="d" * 40, origin="", dirty=False)


def request(preset, **changes):
    fields = {
        "id": "01jd7zk3v8q4w2m6x9c5b7n1t0", "bus_id": "b", "ref": "refs/heads/x", "principal": "unsigned",
        "preset": preset, "params": {}, "profile": "smoke", "limits": LimitRequest(), "runner": RunnerSelector(),
        "created": "2026-11-20T10:00:00.000Z", "expires": "2026-11-20T11:00:00.000Z", "idempotency_key": "0" * 64,
    }  # fmt: skip
    return Request.model_validate({**fields, **changes})


def read(words):
    """Return what `run` makes of a command line."""
    assert words[0] == "run"
    return parser.parse(MAC.by_name["run"], words[1:])


@pytest.mark.parametrize(
    "text", ["12", "1,2", "true", "1e5", "plain", '"quoted"', "a,b", "0.5,x", "-3", "two words", ""]
)
def test_a_text_stays_the_text_it_was_where_only_the_host_knows_its_type(text):
    args = read(words_again(request("owners-own", params={"note": text, "n": 12, "share": 0.5, "fast": True}), None))
    (point,) = combinations(None, listed(args.param), 1)
    assert untyped(point) == {"note": text, "n": 12, "share": 0.5, "fast": True}


def test_a_typed_text_is_not_quoted():
    spec = SimpleNamespace(workload=object())
    args = read(words_again(request("my-train", params={"note": "12"}), spec))
    assert args.param == ["note=12"]


@pytest.mark.parametrize("selector", [RunnerSelector(name="mini"), RunnerSelector(labels=("gpu",)),
                                      RunnerSelector(labels=("gpu", "quiet")), RunnerSelector()])  # fmt: skip
def test_who_may_take_it_and_which_commit_stay(selector):
    args = read(words_again(request("pytest-path", runner=selector, workload=CODE), None))
    assert (args.preset, args.ref, parse_selector(args.runner)) == ("pytest-path", COMMIT, selector)


def test_a_preset_of_one_host_names_that_host_as_it_was_asked_for():
    assert read(words_again(request("my-train", runner=RunnerSelector(name="big")), None)).preset == "my-train@big"


def test_parameters_of_an_installed_preset_are_read_back_by_their_types():
    preset = find("k3-fused-allmlx-code")
    given = {name: param.default for name, param in preset.params.items() if param.default is not None}
    args = read(words_again(request(preset.name, params=given, unsandboxed=True), None))
    (point,) = combinations(preset, listed(args.param or ()), 1)
    assert (typed(preset, point), args.unsandboxed) == (given, True)


def test_uncommitted_changes_have_no_name():
    assert words_again(request("pytest-path", workload=CODE.evolve(dirty=True)), None) is None
