"""Options that are wrong are refused with one line and an exit code, before anything is loaded."""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from engine import options
from engine.cli import boundary, generate, main
from engine.cli import eval as eval_cli
from engine.errors import EngineError, ModelNotFoundError, ModelWeightsError, PromptError, SessionError, UsageError


@pytest.mark.parametrize("text", ["-1", "1.5", "abc", "", "²", "9" * 30])
def test_what_is_no_count_is_refused(text: str) -> None:
    for kind in (options.whole, options.positive):
        with pytest.raises(argparse.ArgumentTypeError, match="expected"):
            kind(text)


def test_nothing_is_a_whole_number_and_no_positive_one() -> None:
    assert options.whole("0") == 0
    assert options.positive("17") == 17
    with pytest.raises(argparse.ArgumentTypeError, match="at least 1"):
        options.positive("0")


@pytest.mark.parametrize("text", ["0", "7", "auto"])
def test_a_depth_that_exists_is_taken(text: str) -> None:
    options.check_depth(text)


@pytest.mark.parametrize("text", ["-1", "abc", "", "²", "1e3"])
def test_a_depth_that_is_none_names_what_there_is(text: str) -> None:
    with pytest.raises(UsageError, match="expected a number of tokens, or auto"):
        options.check_depth(text)


def test_an_argument_of_a_template_that_nests_without_an_end_is_refused(tmp_path: Path) -> None:
    deep = "[" * 100_000
    (tmp_path / "deep.json").write_text(deep)
    for value in (deep, f"@{tmp_path / 'deep.json'}"):
        with pytest.raises(argparse.ArgumentTypeError, match="expected"):
            options.template_argument(f"tools={value}")
    assert options.template_argument("reasoning_effort=high") == ("reasoning_effort", "high")


def test_a_report_folder_may_have_to_be_made_but_is_no_file(tmp_path: Path) -> None:
    assert options.out_folder(str(tmp_path / "a" / "b")) == tmp_path / "a" / "b"
    (tmp_path / "file").touch()
    for place in ("file", "file/below"):
        with pytest.raises(argparse.ArgumentTypeError, match="is a file"):
            options.out_folder(str(tmp_path / place))


def test_a_path_that_says_it_is_relative_is_looked_up_from_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text("{}")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("KAKEYA_MODEL_ROOTS", raising=False)
    arguments = argparse.Namespace(
        target="./model", drafter="./nowhere", backend="none", device=None, dtype=None, cuda_graphs="auto", depth="1"
    )
    with pytest.raises(UsageError, match="unknown backend 'none'"):
        options.open_selected(arguments)
    arguments.target = "model"
    with pytest.raises(ModelNotFoundError, match="no model 'model'"):
        options.open_selected(arguments)


def test_each_of_several_paths_is_looked_up_from_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert options.from_here("ngram,./one,../two,three/four") == (f"ngram,{tmp_path}/one,{tmp_path}/../two,three/four")
    assert options.from_here(None) is None


def _raising(error: BaseException) -> Callable[[], int]:
    def run() -> int:
        raise error

    return run


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (UsageError("wrong"), 2),
        (ModelWeightsError("missing:\n  a\n  b"), 3),
        (PromptError("too long"), 4),
        (EngineError("x" * 5000), 1),
        (PermissionError(13, "Permission denied", "/report"), 1),
    ],
)
def test_an_error_is_one_line_and_its_exit_code(
    error: Exception, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert boundary.guarded(_raising(error)) == code
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("error: ")
    assert captured.err.count("\n") == 1
    assert len(captured.err) < 600


def test_what_a_server_says_in_an_error_does_not_act_on_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    assert boundary.guarded(_raising(SessionError("INTERNAL", "no: \x1b]0;owned\x07\x9b2J"))) == 7
    assert capsys.readouterr().err == "error: no: ?]0;owned??2J\n"


def test_a_closed_pipe_is_met_before_python_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as nobody_reads:
        monkeypatch.setattr(sys, "stdout", nobody_reads)
        assert boundary.guarded(lambda: print("what stays in the buffer") or 0) == 141


def test_what_was_closed_before_the_start_is_not_written_to(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    assert boundary.guarded(lambda: generate._write("an answer") or 0) == 0


def test_a_character_that_the_terminal_lacks_does_not_end_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(shown, "ascii"))
    assert main.main(["--version"]) == 0
    generate._write("caf\u00e9\n")
    assert shown.getvalue().endswith(b"caf?\n")


@pytest.mark.parametrize("launch", ["1", "3"])
def test_a_launch_that_is_none_of_those_there_are_is_refused(launch: str, capsys: pytest.CaptureFixture[str]) -> None:
    for command in ("commits", "code", "peer"):
        commits = ["--base", "a", "--head", "b"] if command == "commits" else []
        assert eval_cli.main([command, *commits, "--launch", launch, "--launches", "1"]) == 2
        assert f"--launch {launch} of --launches 1; expected" in capsys.readouterr().err


def test_an_interruption_says_so_and_exits_as_a_shell_expects(capsys: pytest.CaptureFixture[str]) -> None:
    assert boundary.guarded(_raising(KeyboardInterrupt())) == 130
    assert capsys.readouterr().err.strip() == "interrupted"


def test_a_mistake_of_the_engine_itself_is_not_hidden() -> None:
    with pytest.raises(ZeroDivisionError):
        boundary.guarded(_raising(ZeroDivisionError()))


def test_the_controller_chooses_at_every_temperature_unless_a_seed_is_to_draw_again() -> None:
    from engine.cli.generate import default_depth
    from engine.verification.rejection import Sampling

    assert [default_depth(None, seed) for seed in (None, 4)] == ["auto", "auto"]
    assert [default_depth(Sampling(temperature=1.5), seed) for seed in (None, 0, 4)] == ["auto", "3", "3"]
