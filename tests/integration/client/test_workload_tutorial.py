"""The tutorial "your train.py" as it is printed, on real processes: its files, its commands, nothing else."""

from __future__ import annotations

import io
import os
import re
import shlex
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest

from bridge.cli.host.main import main as host
from bridge.cli.mac.program import main as mac
from tests.fakes.clone import Clone
from tests.support.workload_folder import INTERPRETER

pytestmark = pytest.mark.ci

PAGE = Path(__file__).parents[3] / "docs" / "guides" / "ten-minutes-workload.md"
STEP = re.compile(r"(?:<!-- (file|append): (\S+) -->\n)?```(\w*)\n(.*?)```", re.DOTALL)


def carry_out(clone: Clone, line: str) -> subprocess.CompletedProcess[str]:
    """Do a command as it is printed: what runs something as a process of its own, what only reads and writes here."""
    program, *words = shlex.split(line)
    if program == "kakeya-mac" and words[0] == "run":
        argv = [sys.executable, "-m", "bridge.cli.mac.main", *words]
        return subprocess.run(
            argv, cwd=clone.top, env=clone.env, capture_output=True, text=True, timeout=240, check=False
        )
    out, err = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        patch.chdir(clone.top)
        for name in {*os.environ} - {*clone.env}:
            patch.delenv(name)
        for name, value in clone.env.items():
            patch.setenv(name, value)
        code = (mac if program == "kakeya-mac" else host)(words)
    return subprocess.CompletedProcess(words, code, out.getvalue(), err.getvalue())


@pytest.fixture(scope="module")
def commands_run(tmp_path_factory):
    """Every step of the page, done in order in one folder: each command with what it printed and its exit code."""
    root = tmp_path_factory.mktemp("tutorial")
    root.chmod(0o755)
    # The first Python of the search path is what `workload new` names: one without packages, to be quick.
    clone = Clone(root, {"PATH": f"{Path(INTERPRETER).parent}:/usr/bin:/bin"})
    done = []
    for what, name, _, text in STEP.findall(PAGE.read_text("utf-8")):
        if what:
            path = clone.top / name
            path.write_text((path.read_text() if what == "append" else "") + text)
            path.chmod(0o644)
            continue
        for line in text.splitlines():
            ran = carry_out(clone, line)
            done.append((line, ran))
    clone.stop_runners()
    return done


def test_it_takes_eight_commands_at_most_and_all_end_in_0(commands_run):
    assert 3 <= len(commands_run) <= 8
    assert {line: ran.returncode for line, ran in commands_run if ran.returncode} == {}, [
        ran.stderr for _, ran in commands_run
    ]


def test_the_first_screen_has_the_number_with_unit_interval_and_whose_word_it_is(commands_run):
    first = next(ran.stdout for line, ran in commands_run if line.startswith("kakeya-mac run"))
    assert first.startswith("passed      quotable (smoke)")
    number = r"^final loss  0\.\d+ squared error \[0\.\d+, 0\.\d+\] 96\.9 %, lower is better, "
    assert re.search(
        rf"{number}reported by train\.py@[0-9a-f]{{12}} over 6 seeds   may be quoted$", first, re.MULTILINE
    )


def test_with_a_recompute_command_it_is_recomputed_and_may_be_quoted(commands_run):
    second = [ran.stdout for line, ran in commands_run if line.startswith("kakeya-mac run")][-1]
    assert "recomputed from what train.py@" in second
    assert "recomputed from what train.py@" in commands_run[-1][1].stdout
