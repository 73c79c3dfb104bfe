"""A page of the guides, done as it is printed: its files are written, its commands run, nothing else."""

from __future__ import annotations

import io
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Mapping
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest

from bridge.cli.host.main import main as host
from bridge.cli.mac.program import main as mac
from tests.fakes.clone import Clone

GUIDES = Path(__file__).parents[2] / "docs" / "guides"
_STEP = re.compile(r"(?:<!-- (file|append): (\S+) -->\n)?```(\w*)\n(.*?)```", re.DOTALL)
Ran = tuple[str, subprocess.CompletedProcess[str]]


def carry_out(clone: Clone, line: str) -> subprocess.CompletedProcess[str]:
    """Do a command as it is printed: what runs something as a process of its own, what only reads and writes here."""
    program, *words = shlex.split(line, comments=True)
    mains = {"kakeya-mac": "bridge.cli.mac.main", "kakeya-runner": "bridge.cli.host.main"}
    if program not in mains:
        return subprocess.run(
            ["sh", "-c", line], cwd=clone.top, env=clone.env, capture_output=True, text=True, timeout=240, check=False
        )
    if words[0] in {"run", "serve", "setup", "doctor", "welcome"}:
        argv = [sys.executable, "-m", mains[program], *words]
        return subprocess.run(
            argv, cwd=clone.top, env=clone.env, capture_output=True, text=True, timeout=600, check=False
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


def follow_page(page: str, clone: Clone) -> list[Ran]:
    """Do every step of a page in order in one folder; return each command with what it printed and its exit code."""
    return follow((GUIDES / page).read_text("utf-8"), clone)


def sections(page: str) -> dict[str, str]:
    """Return the text of each section of a guide by its heading."""
    first, *parts = (GUIDES / page).read_text("utf-8").split("\n## ")
    return {"": first} | {part.partition("\n")[0]: part.partition("\n")[2] for part in parts}


def steps(text: str) -> list[tuple[str, str, str]]:
    """Return what a page asks for, in order: ``file`` or ``append`` with a name and its text, or commands."""
    return [(what, name, block) for what, name, _, block in _STEP.findall(text)]


def follow(text: str, clone: Clone, replaced: Mapping[str, str] | None = None) -> list[Ran]:
    """Do every step of a part of a page in order in one folder.

    Args:
        text: of the part.
        clone: where.
        replaced: words that stand for what a reader puts in, and what is put in here.
    """
    for word, value in (replaced or {}).items():
        text = text.replace(word, value)
    ran: list[Ran] = []
    for what, name, block in steps(text):
        if what:
            path = clone.top / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text((path.read_text() if what == "append" else "") + block)
            path.chmod(0o644)
            continue
        ran += [(line, carry_out(clone, line)) for line in block.splitlines() if line.strip()]
    return ran


def failures(ran: list[Ran]) -> dict[str, str]:
    """Return what the commands said that did not end in 0, by command."""
    return {line: f"{done.returncode}: {done.stderr}{done.stdout}" for line, done in ran if done.returncode}
