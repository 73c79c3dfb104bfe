"""`kakeya-runner workload check` runs the program for a second, and says in one line what that shows."""

from __future__ import annotations

import pytest

from bridge.cli.host.main import main
from tests.support.workload_folder import write, write_workload


@pytest.mark.parametrize(
    ("program", "code", "words"),
    [
        ("import time\ntime.sleep(60)  # KAKEYA_SEED\n", 0, "still ran after 1s"),
        ("import nosuchmodule  # KAKEYA_SEED\n", 1, "No module named 'nosuchmodule' next: name the Python that has it"),
        ("print('KAKEYA_SEED')\n", 1, "wrote no report to the file that KAKEYA_REPORT names next: write it there, or"),
    ],
)
def test_what_a_second_shows_is_one_line(tmp_path, monkeypatch, capsys, program, code, words):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    folder = write_workload(tmp_path)
    write(folder / "train.py", program)
    assert main(["workload", "check", str(folder)]) == code
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.split()[1] == "my-train"]
    assert words in line
