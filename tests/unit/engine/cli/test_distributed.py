"""Arguments of `distributed` that nothing could be measured with are refused before anything is loaded."""

from __future__ import annotations

import pytest

pytest.importorskip("google.protobuf", reason="messages of kakeya.v1")

from engine.cli import eval as eval_cli
from engine.cli.distributed import commands
from engine.distributed.compatibility import named_format
from engine.errors import UsageError


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["bench", "--rtt", "x"], "'x'; expected a number from 0"),
        (["bench", "--rtt", ""], "''; expected a number from 0"),
        (["bench", "--rtt", "5,,20"], "expected a number from 0"),
        (["bench", "--rtt=-5"], "'-5'; expected a number from 0"),
        (["bench", "--rtt", "nan"], "'nan'; expected a number from 0"),
        (["bench", "--rtt", "inf"], "'inf'; expected a number from 0"),
        (["bench", "--rtt", "5,5.0"], "expected each round-trip time once"),
        (["plan", "--link-ms", "nan"], "expected a number from 0"),
        (["plan", "--link-mib-s=-1"], "expected a number from 0"),
        (["plan", "--target-ms", "1e300"], "expected a number from 0"),
    ],
)
def test_a_number_that_no_link_has_is_refused(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        commands.main(words)
    assert ended.value.code == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["bench", "--max-new", "1"], "--max-new 1: the first token is the prompt's; expected at least 2"),
        (["plan", "--max-new", "1"], "--max-new 1"),
        (["bench", "--prompts", "1"], "--prompts 1: one prompt says nothing about others; expected at least 2"),
        (["plan", "--link-mib-s", "0"], "--link-mib-s 0: nothing would ever come"),
    ],
)
def test_too_little_to_compare_is_refused_before_it_is_measured(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert commands.main([*words, "--target", "no such target"]) == 2
    assert message in capsys.readouterr().err


def test_a_study_of_links_with_nothing_to_time_is_refused_before_it_is_measured(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert eval_cli.main(["distributed-bench", "--max-new", "1", "--target", "no such target"]) == 2
    assert "--max-new 1: the first token is the prompt's; expected at least 2" in capsys.readouterr().err


@pytest.mark.parametrize("verb", ["verify", "plan", "bench"])
def test_a_cache_that_a_verb_does_not_decode_on_is_refused(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = [verb, "--cache", "sink4+window64+stream", "--target", "no such target"]
    assert commands.main(words) == 2
    assert f"--cache sink4+window64+stream: {verb} decodes on the native cache" in capsys.readouterr().err


@pytest.mark.parametrize("address", ["192.0.2.7:50551", "foo"])
def test_a_drafter_behind_a_link_is_asked_on_this_machine_only(address: str) -> None:
    options = commands.parser().parse_args(["bench", "--address", address])
    with pytest.raises(UsageError, match=f"a drafter at '{address}'"), commands._served(options):
        pass


def test_a_format_of_rows_is_one_that_there_is() -> None:
    assert named_format("exact", "float32") == "float32"
    assert named_format("float8_e4m3", "float32") == "float8_e4m3"
    with pytest.raises(UsageError, match="rows 'nonsense'; expected exact, float32"):
        named_format("nonsense", "float32")
