"""Whatever the streams of `kakeya-mac` are, it ends in one of its own exit codes and without a traceback."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from bridge.cli.streams import READER_LEFT
from tests.drift import ROOT
from tests.support.committed import SMOKE

UNSIGNED = SMOKE
FRONT, ALL, OTHER, DOCUMENT = ["--help"], ["help", "all"], ["presets"], ["presets", "--json"]
ASCII = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}


def program(*words):
    return [sys.executable, "-c", "import sys; from bridge.cli.mac.main import run_process; sys.exit(run_process())",
            *words]  # fmt: skip


def ran(words, redirected, folder, **environment):
    """Run the program in a shell that redirects its streams."""
    return subprocess.run(
        ["/bin/sh", "-c", f'exec "$@" {redirected}', "sh", *program(*words)], cwd=folder, capture_output=True,
        env={"PATH": os.environ["PATH"], "HOME": str(folder), "PYTHONPATH": str(ROOT), **environment}, timeout=240,
        check=False,
    )  # fmt: skip


@pytest.mark.parametrize("words", [FRONT, ALL, ["verify", str(UNSIGNED)]])
def test_a_reader_that_leaves_is_never_told_that_all_is_well(words, tmp_path):
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        program(*words), cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as running:
        running.stdout.close()
        stderr = running.stderr.read()
    assert (running.returncode, stderr) == (READER_LEFT, b"")


@pytest.mark.parametrize("words", [["nosuch", "--json"], ["gate", "check", str(UNSIGNED), "--json"]], ids=" ".join)
def test_a_reader_of_the_talk_that_leaves_does_not_take_the_answer_along(words, tmp_path):
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        program(*words), cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as running:
        running.stderr.close()
        document = json.loads(running.stdout.read())
    assert running.returncode == document["outcome"]["exit_code"]


def test_where_both_streams_are_one_pipe_its_reader_ends_the_command(tmp_path):
    environment, words = {**os.environ, "PYTHONPATH": str(ROOT)}, ["gate", "check", str(UNSIGNED), "--json"]
    with subprocess.Popen(
        program(*words), cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as running:
        running.stdout.close()
    assert running.returncode == READER_LEFT


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
@pytest.mark.parametrize("words", [FRONT, ALL, DOCUMENT])
def test_a_full_disk_below_stdout_is_said_to_be_one(words, tmp_path):
    done = ran(words, "> /dev/full", tmp_path)
    assert done.returncode == 3
    assert b"No space left on device" in done.stderr
    assert b"Traceback" not in done.stderr


@pytest.mark.parametrize(("words", "code"), [(FRONT, 0), (["verify", str(UNSIGNED)], 9), (["nosuch"], 2)])
def test_closed_streams_are_written_to_nowhere(words, code, tmp_path):
    done = ran(words, ">&- 2>&-", tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (code, b"", b"")


@pytest.mark.parametrize("words", [FRONT, ALL])
def test_a_screen_that_lacks_a_character_gets_its_number(words, tmp_path):
    done = ran(words, "", tmp_path, **ASCII)
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"kakeya-mac COMMAND \\u2026" in done.stdout


def test_a_folder_that_is_gone_is_no_bug(tmp_path):
    script = 'mkdir gone && cd gone && rmdir ../gone && exec "$@"'
    done = subprocess.run(
        ["/bin/sh", "-c", script, "sh", *program("presets")], cwd=tmp_path, capture_output=True, timeout=240,
        env={"PATH": os.environ["PATH"], "HOME": str(tmp_path), "PYTHONPATH": str(ROOT)}, check=False,
    )  # fmt: skip
    assert (done.returncode, b"Traceback" in done.stderr) == (0, False)
