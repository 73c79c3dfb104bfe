"""What is mistyped is answered with what was got, what is expected and the word that is nearest."""

from __future__ import annotations

import pytest

from bridge.errors import meant
from tests.fakes.requester import Requester
from tests.fakes.scripted_host import ScriptedHost

CODE = "k3-fused-allmlx-code"
MISTAKES = [
    ("hlep", "unknown command 'hlep'; did you mean help?", "--help"),
    ("sttaus x", "did you mean status?", "--help"),
    ("help lss", "unknown command 'lss'; did you mean ls?", "--help"),
    ("help al", "unknown command 'al'; did you mean all?", "--help"),
    ("help gate chek", "unknown command 'gate chek'; did you mean gate check", "--help"),
    ("run k3-fused", f"unknown preset 'k3-fused'; did you mean {CODE} or", "kakeya-mac presets"),
    (f"run {CODE} -p dpth=3", "has no parameter 'dpth'; did you mean depth?", f"presets show {CODE}"),
    (f"run {CODE} -p depth", "got -p 'depth'; expected -p NAME=VALUE", f"presets show {CODE}"),
    (f"run {CODE} -p depth=lots", "got 'lots', expected a whole number from 0 to 15", f"presets show {CODE}"),
    (f"run {CODE} -p depth=1,2,x", "got 'x', expected a whole number from 0 to 15", f"presets show {CODE}"),
    (f"run {CODE} -p depth=99", "got '99', expected 0 to 15", f"presets show {CODE}"),
    (f"run {CODE} --proflie=claim", "no option '--proflie'; did you mean --profile?", "run --help"),
    (f"run {CODE} more", "got 'more' beside all that it takes", "run --help"),
    (f"run {CODE} --profile clam", "--profile: got 'clam'; expected smoke or claim", "run --help"),
    (f"run {CODE} --require citabel", "--require 'citabel'; expected evidence, CLAIM:evidence, or a premise", "--help"),
    ("ls --state runing", "--state: got 'runing'; expected queued or claimed or started or", "ls --help"),
    ("gate explain G5-LAUNCHE", "did you mean G5-LAUNCHES", "gate explain"),
    ("gate explain decod", "nothing prints 'decod'; did you mean decode_speedup", "gate explain"),
    ("compare nosuch", "no run matches 'nosuch', and no sweep that was sent from here", "kakeya-mac ls"),
    ("open --html nosuch", "and no result of a preset of that name is stored here", "kakeya-mac ls"),
    ("quote nosuch", "no run matches 'nosuch', and there is no such folder", "kakeya-mac ls"),
    (
        f"run {CODE} --runner Mini",
        "got --runner 'Mini'; expected a runner's name, or labels such as gpu,quiet",
        "kakeya-mac runners",
    ),
    ("report ./nosuch", "there is no folder './nosuch'; expected one of a result, or a run id", "kakeya-mac ls"),
]


@pytest.mark.parametrize(("words", "message", "remedy"), MISTAKES, ids=[words for words, _, _ in MISTAKES])
def test_a_mistake_is_answered_with_the_nearest_word_and_nothing_is_sent(tmp_path, words, message, remedy):
    requester = Requester(tmp_path)
    ScriptedHost(requester.bus, requester.clock).beat()
    ran = requester.run(*words.split())
    stderr = " ".join(ran.err.split())
    assert ran.code == 2
    assert message in stderr
    assert remedy in stderr.rpartition("next ")[2]
    assert requester.bus.snapshot().requests == ()


@pytest.mark.parametrize(
    ("command", "chars", "message"),
    [
        ("status", 300, f"no run matches '{'z' * 60}'"),
        ("verify", 300, "got a name of 300 characters; expected one that a file may have"),
        ("open --html", 70_000, "got a word of 70000 characters; expected at most 65536"),
    ],
)
def test_what_is_much_too_long_is_not_said_again_in_full(tmp_path, command, chars, message):
    ran = Requester(tmp_path).run(*command.split(), "z" * chars)
    assert (ran.code, message in ran.err, len(ran.err) < 400) == (2, True, True)


@pytest.mark.parametrize("command", ["verify", "open --html", "report", "gate check", "quote", "compare x"])
def test_an_empty_word_is_not_taken_for_this_folder(tmp_path, command):
    ran = Requester(tmp_path).run(*command.split(), "")
    assert (ran.code, "expected a text that is not empty" in ran.err) == (2, True)


def test_a_listing_of_nothing_does_not_say_that_there_are_no_runs(tmp_path):
    assert "no such runs" in Requester(tmp_path).run("ls", "--limit", "0").err


def test_what_begins_with_the_word_comes_before_what_looks_like_it():
    assert meant("k3-fused", ["k3-step2-fused", "k3-fused-b"]) == "did you mean k3-fused-b or k3-step2-fused?"
    assert meant("x", ["left", "right"]) == "known: left, right"
    assert meant("", ["left"]) == "known: left"
    assert meant("x", []) == "known: none"
    assert meant("MLX-Env", ["mlx-env-probe", "k3"]) == "did you mean mlx-env-probe?"
    assert meant("mini", ["Mini", "studio"]) == "did you mean Mini?"
