"""Completion scripts are valid shell, and bash really completes with them."""

from __future__ import annotations

import os
import shutil
import subprocess

import pytest

from bridge.cli.table.commands import MAC
from bridge.cli.table.completion import script

ASK = """
source "$1"; shift
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))
_shtab_kakeya_mac
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.fixture(scope="module")
def complete(tmp_path_factory):
    """Return a function that asks bash to complete the last word of a command line."""
    path = tmp_path_factory.mktemp("completion") / "kakeya.bash"
    path.write_text(script("bash"), encoding="utf-8")

    def ask(*words: str, cwd=None) -> list[str]:
        ran = subprocess.run(
            ["bash", "--norc", "-c", ASK, "bash", str(path), "kakeya-mac", *words],
            capture_output=True, text=True, timeout=240, check=True, cwd=cwd or path.parent,
        )  # fmt: skip
        assert ran.stderr == ""
        return ran.stdout.split()

    return ask


def test_first_words_second_words_and_options(complete):
    assert complete("st") == ["status"]
    assert complete("gate", "") == ["check", "rules", "explain"]
    assert "--wait-timeout" in complete("run", "mlx-env-probe", "--wait")
    assert complete("run", "x", "--profile", "") == ["smoke", "claim", "standing"]
    assert complete("gate", "check", "--form") == ["--format"]
    assert complete("completion", "f") == ["fish"]


def test_presets_and_run_ids_come_from_files_without_starting_python(complete, tmp_path):
    assert complete("run", "mlx-env") == ["mlx-env-probe"]
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True, timeout=240)
    folder = tmp_path / ".git" / "kakeya" / "requests"
    folder.mkdir(parents=True)
    (folder / "01k9x3abcdefghjkmnpqrstvwx.json").write_text("{}")
    (folder.parent / "offered").write_text("my-train\nmy-train@big\n")
    assert complete("run", "my-", cwd=tmp_path) == ["my-train", "my-train@big"]
    assert complete("attach", "", cwd=tmp_path) == ["@last", "01k9x3abcdefghjkmnpqrstvwx"]


@pytest.mark.skipif(shutil.which("fish") is None, reason="no fish here")
def test_fish_completes_presets_runs_and_refs(tmp_path):
    (tmp_path / "kakeya.fish").write_text(script("fish"), encoding="utf-8")
    (tmp_path / "offered").write_text("my-train\n")
    ask = "source kakeya.fish; complete -C 'kakeya-mac run my'; complete -C 'kakeya-mac attach @'"
    ran = subprocess.run(
        ["fish", "--no-config", "-c", ask], capture_output=True, text=True, timeout=240, check=True, cwd=tmp_path,
        env={"PATH": os.environ["PATH"], "HOME": str(tmp_path), "KAKEYA_DATA_DIR": str(tmp_path)},
    )  # fmt: skip
    assert [line.partition("\t")[0] for line in ran.stdout.splitlines()] == ["my-train", "@last"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_every_command_and_option_is_in_every_script(shell):
    text = script(shell)
    for command in MAC.verbs:
        assert command.name.split()[0] in text
        for argument in command.arguments:
            for name in argument.names:
                if name.startswith("--"):
                    assert name.lstrip("-") in text


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_parses_where_its_shell_is_installed(shell, tmp_path):
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    path = tmp_path / "script"
    path.write_text(script(shell), encoding="utf-8")
    subprocess.run([shell, "-n", str(path)], check=True, timeout=240)


def test_fish_completes_commands_presets_and_runs(tmp_path):
    if shutil.which("fish") is None:
        pytest.skip("fish is not installed")
    path = tmp_path / "script"
    path.write_text(script("fish"), encoding="utf-8")
    home = {"HOME": str(tmp_path), "PATH": os.environ["PATH"]}

    def ask(line: str) -> list[str]:
        argv = ["fish", "--no-config", "-c", f"source {path}; complete -C {line!r}"]
        ran = subprocess.run(argv, capture_output=True, text=True, timeout=240, check=True, cwd=tmp_path, env=home)
        return [word.split("\t")[0] for word in ran.stdout.splitlines()]

    assert "status" in ask("kakeya-mac sta")
    assert "rules" in ask("kakeya-mac gate ru")
    assert "mlx-env-probe" in ask("kakeya-mac run mlx-env")
    assert "@last" in ask("kakeya-mac attach @")
