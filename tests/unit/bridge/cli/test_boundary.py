"""Every error of a command becomes an exit code in one place, in both programs."""

from __future__ import annotations

import re

import pytest

from bridge.cli.boundary import guarded
from bridge.cli.host import control
from bridge.cli.host import main as runner
from bridge.errors import InfrastructureError, UsageError
from tests.drift import ROOT


def raising(error):
    def act(*_):
        raise error

    return act


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (UsageError("no such thing"), 2, "no such thing"),
        (InfrastructureError("down"), 3, "down"),
        (PermissionError(13, "Permission denied", "/state"), 3, "/state: Permission denied"),
        (KeyError("limits"), 70, "a bug: KeyError: 'limits'"),
    ],
)
def test_an_error_is_reported_once_and_decides_the_code(error, code, message):
    reported, talk = [], []
    assert guarded(raising(error), reported.append, "kakeya-mac", talk.append) == code
    assert [error_report.message for error_report in reported] == [message]
    assert [text.splitlines()[0] for text in talk] == (["Traceback (most recent call last):"] if code == 70 else [])


def test_what_the_machine_refuses_names_the_doctor_of_the_program():
    reported = []
    guarded(raising(OSError(5, "Input/output error")), reported.append, "kakeya-runner", print)
    assert reported[0].remedy == "kakeya-runner doctor"


def test_a_bug_of_the_runner_ends_in_70_with_its_traceback(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(control, "pause", raising(KeyError("limits")))
    assert runner.main(["pause", "--state", str(tmp_path)]) == 70
    stderr = capsys.readouterr().err
    assert "Traceback" in stderr
    assert "error  a bug: KeyError: 'limits'" in stderr
    assert "please report it" in stderr


def test_a_command_of_the_runner_that_fails_gives_no_document(tmp_path, capsys):
    (tmp_path / "policy.toml").write_text("schema = 2")
    assert runner.main(["trust", "list", "--json", "--policy", str(tmp_path / "policy.toml")]) == 2
    assert capsys.readouterr().out == ""


def test_no_handler_prints_by_itself():
    """But for the first page, which nothing is loaded for, the log of what serves, and a question at a terminal."""
    printing = {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "bridge" / "cli").rglob("*.py")
        if re.search(r"(?<![.\w])print\(", path.read_text("utf-8"))
    }
    assert printing == {"bridge/cli/front_page.py", "bridge/cli/talk.py", "bridge/cli/host/workload.py"}
