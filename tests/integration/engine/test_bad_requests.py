"""What a user may type wrongly: one line, an exit code that says whose fault it is, and nothing decoded."""

from __future__ import annotations

import io
import json
import shutil
import sys
from pathlib import Path

import pytest

from engine.checkpoint import ASSETS, WHOLE_FILE
from engine.cli import chat as chat_cli
from engine.cli import eval as eval_cli
from engine.cli import generate as generate_cli
from engine.errors import ModelMismatchError
from tests.integration.engine.conftest import WORDS

PROMPT = " ".join(WORDS[5:12])


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    """Run ``generate``; return its exit code and what it says, having written no answer."""
    try:
        code = generate_cli.main(list(arguments))
    except SystemExit as ended:
        code = int(str(ended.code))
    output = capsys.readouterr()
    assert output.out == ""
    assert "Traceback" not in output.err
    return code, output.err


OPTIONS: dict[str, tuple[tuple[str, ...], int, str]] = {
    "no tokens": (("--max-new", "0"), 2, "at least 1"),
    "less than none": (("--max-new", "-1"), 2, "whole number"),
    "an endless number": (("--max-new", "9" * 30), 2, "whole number"),
    "past the context": (("--max-new", "506"), 4, "leaves 505 for new tokens"),
    "a depth that is none": (("--depth", "abc"), 2, "a number of tokens, or auto"),
    "a depth below 0": (("--depth", "-1"), 2, "a number of tokens, or auto"),
    "a cache that is none": (("--cache", "nonsense"), 2, "expected native, full"),
    "no rows at once": (("--prefill-chunk", "0"), 2, "at least 1"),
    "colder than greedy": (("--temperature", "-1"), 2, "temperature is -1.0"),
    "no temperature": (("--temperature", "nan"), 2, "temperature is nan"),
    "a temperature fp32 cannot divide by": (("--temperature", "1e-300"), 2, "0 for greedy"),
    "no mass": (("--temperature", "1", "--top-p", "0"), 2, "0 < top_p <= 1"),
    "more than all mass": (("--temperature", "1", "--top-p", "2"), 2, "0 < top_p <= 1"),
    "fewer than no ids": (("--temperature", "1", "--top-k", "-1"), 2, "whole number"),
    "shaping draws that greedy does not make": (("--top-p", "0.5"), 2, "add --temperature"),
    "an end before the beginning": (("--stop", ""), 2, "--stop is empty"),
    "an end that is no text": (("--stop", "a\udcff"), 2, "no UTF-8 text at character 1"),
    "a date outside of a chat": (("--date", "2026-01-31"), 2, "are for a chat turn"),
    "a date that is none": (("--chat", "--date", "yesterday"), 2, "expected a date such as 2026-01-31"),
    "an argument without a name": (("--chat", "--template-argument", "high"), 2, "expected NAME=VALUE"),
    "log probabilities of a text": (("--logprobs",), 2, "add --json"),
    "a device that is none": (("--device", "tpu"), 2, "'tpu'"),
    "another library's device": (("--device", "cpu"), 2, "--device chooses for --backend torch"),
    "a model that is nowhere": (("--target", "/nowhere"), 3, "no model '/nowhere'"),
    "a drafter that is nowhere": (("--drafter", "nowhere"), 3, "no model 'nowhere'"),
    "a drafter twice": (("--drafter", "ngram,ngram"), 2, "drafters ngram, ngram; expected each once"),
}


@pytest.mark.parametrize("fault", OPTIONS)
def test_a_wrong_option_is_refused(fault: str, run_environment: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options, code, message = OPTIONS[fault]
    exit_code, error = refused(capsys, PROMPT, *options)
    assert exit_code == code
    assert message in error


def test_a_prompt_is_refused_when_it_is_empty_unreadable_or_no_text(
    run_environment: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (run_environment / "bytes").write_bytes(b"\xff\xfe")
    (run_environment / "empty").touch()
    for prompt, message in (
        ("", "prompt is empty"),
        (f"@{run_environment / 'empty'}", "prompt is empty"),
        ("@/nowhere", "cannot read the prompt"),
        (f"@{run_environment}", "cannot read the prompt"),
        (f"@{run_environment / 'bytes'}", "no UTF-8 text"),
        ("a\udcff", "no UTF-8 text"),
    ):
        code, error = refused(capsys, prompt)
        assert code == 2
        assert message in error


@pytest.mark.parametrize("errors", ["strict", "surrogateescape"])
def test_a_turn_that_is_no_text_ends_a_conversation_in_one_line(
    errors: str, run_environment: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # A terminal's encoding in a UTF-8 locale, and what Python makes of the C locale.
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"w5 \xff\n"), "utf-8", errors))
    assert chat_cli.main(["--max-new", "2", "--target", "kakeya-tiny-qwen3", "--drafter", "none"]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: a turn on stdin is no UTF-8 text: ")
    assert error.count("\n") == 1
    with pytest.raises(SystemExit):
        chat_cli.main(["--system", "a\udcff"])


@pytest.mark.parametrize("options", [(), ("--thinking", "on"), ("--chat-template", "rag"), ("--date", "2026-01-31")])
@pytest.mark.parametrize("verb", ["chat", "generate"])
def test_what_a_template_does_not_take_is_said_before_weights_are_read(
    verb: str, options: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = Path(shutil.copytree(ASSETS / "kakeya-tiny-qwen3", tmp_path / "target"))
    if not options:
        (folder / "chat_template.jinja").unlink()
    weights = (folder / WHOLE_FILE).read_bytes()
    header = 8 + int.from_bytes(weights[:8], "little")
    # No number among them: who reads them says so.
    (folder / WHOLE_FILE).write_bytes(weights[:header] + b"\xff" * (len(weights) - header))
    main = chat_cli.main if verb == "chat" else generate_cli.main
    words = () if verb == "chat" else (PROMPT, "--chat")
    assert main([*words, "--target", str(folder), "--drafter", "none", *options]) == (2 if options else 3)
    assert "template" in capsys.readouterr().err


def test_a_prompt_past_the_context_is_refused(run_environment: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, error = refused(capsys, " ".join([PROMPT] * 100))
    assert code == 4
    assert "holds 512 positions" in error


def test_the_default_budget_is_cut_to_what_the_context_leaves_and_that_is_said(
    run_environment: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    long = " ".join(WORDS[5 + index % 90] for index in range(502))
    assert generate_cli.main([long, "--json", "--ignore-stop-tokens"]) == 0
    output = capsys.readouterr()
    assert len(json.loads(output.out)["tokens"]) == 10
    assert "leaves 10 of 512 positions" in output.err
    code, error = refused(capsys, long, "--max-new", "11")
    assert code == 4
    assert "leaves 10 for new tokens" in error


def test_a_depth_past_the_drafters_block_is_cut_and_that_is_said(
    run_environment: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert generate_cli.main([PROMPT, "--max-new", "4", "--depth", "99"]) == 0
    assert "note: --depth 99" in capsys.readouterr().err


def test_what_is_piped_in_is_the_prompt(
    run_environment: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert generate_cli.main([PROMPT, "--max-new", "8", "--json"]) == 0
    given = json.loads(capsys.readouterr().out)
    for arguments in ([], ["-"]):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(PROMPT.encode())))
        assert generate_cli.main([*arguments, "--max-new", "8", "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["tokens"] == given["tokens"]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("code", "--max-new", "506"), 4, "positions, which leaves"),
        (("acceptance", "--max-new", "506"), 4, "positions, which leaves"),
        (("kv-quant", "--max-new", "506", "--prompts", "6"), 4, "positions, which leaves"),
        (("single-graph", "--blocks", "506"), 4, "positions, which leaves"),
        (("code", "--max-new", "0"), 2, "at least 1"),
        (("acceptance", "--depth", "99"), 2, "proposes at most"),
        (("verify-cost", "--contexts", "600"), 4, "holds 512 positions"),
    ],
)
def test_a_measurement_that_cannot_end_does_not_begin(
    arguments: tuple[str, ...], code: int, message: str, root: Path, run_environment: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    prompts = () if arguments[0] == "verify-cost" else ("--set", str(root / "needles.json"))
    try:
        exit_code = eval_cli.main([*arguments, *prompts])
    except SystemExit as ended:
        exit_code = int(str(ended.code))
    output = capsys.readouterr()
    assert (exit_code, message in output.err) == (code, True)
    assert " tokens, decode " not in output.out
    assert list(run_environment.iterdir()) == []


HEAD = '{"set": "a", "rule": "b", "prompts": '


@pytest.mark.parametrize("text", ["{", "[]", HEAD + "[]}", HEAD + '[{"id": 1}]}'])
def test_a_prompt_set_that_is_none_is_refused(
    text: str, run_environment: Path, tmp_path_factory: pytest.TempPathFactory, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path_factory.mktemp("set") / "set.json"
    file.write_text(text)
    assert eval_cli.main(["code", "--set", str(file)]) == 2
    assert str(file) in capsys.readouterr().err


def test_a_report_cannot_go_where_a_file_is(run_environment: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = run_environment / "file"
    file.touch()
    with pytest.raises(SystemExit):
        eval_cli.main(["code", "--out", str(file)])
    assert "is a file" in capsys.readouterr().err


def test_an_f_theta_reads_the_drafter_that_is_named_where_no_arm_drafts(capsys: pytest.CaptureFixture[str]) -> None:
    pair = ["--target", "kakeya-tiny-qwen3", "--drafter", "kakeya-tiny-gemma4-dflash", "--backend", "torch"]
    arguments = ["bounded-recall", *pair, "--arms", "sink4+window64+ftheta64", "--prompts", "1"]
    assert eval_cli.main(arguments) == ModelMismatchError.exit_code
    assert "this is 'kakeya-tiny-gemma4-dflash'" in capsys.readouterr().err
