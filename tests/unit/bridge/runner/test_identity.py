"""The host's code has a name: the digest of an unchanged wheel, the commit of a checkout, or honestly neither."""

from __future__ import annotations

import hashlib
import json
import subprocess
from base64 import urlsafe_b64encode

import pytest

from bridge.runner.machine.identity import CodeWatch, ask_interpreter

FILES = {"bridge/__init__.py": b"", "engine/__init__.py": b"", "engine/decode.py": b"x = 1\n"}


@pytest.fixture
def site(tmp_path):
    """Return a site folder with both packages, and a function that asks an interpreter that has it."""
    folder = tmp_path / "site"
    for path, data in FILES.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(data)

    def lines():
        for path, data in FILES.items():
            digest = urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            yield f"{path},sha256={digest},{len(data)}"
        yield "kakeya-0.1.dist-info/RECORD,,"

    def interpreter(**changes):
        answer = {
            "python": "3.11.9",
            "packages": {"kakeya": "0.1"},
            "found": {"bridge": str(folder / "bridge"), "engine": str(folder / "engine")},
            "site": str(folder),
            "record": "\n".join(lines()),
            "editable": False,
            "sites": [str(folder)],
            "strange": [],
        }
        (tmp_path / "answer.json").write_text(json.dumps({**answer, **changes}))
        script = tmp_path / "python"
        script.write_text(f"#!/bin/sh\ncat {tmp_path}/answer.json\n")
        script.chmod(0o755)
        return str(script)

    return folder, interpreter


def test_an_unchanged_wheel_is_named_by_its_files(site):
    _, interpreter = site
    facts = ask_interpreter(interpreter())
    assert facts.identity.startswith("wheel files sha256:")
    assert (facts.dirty, facts.version, facts.problem) == (False, "3.11.9", None)


@pytest.mark.parametrize("damage", ["change", "remove", "add"])
def test_a_wheel_that_was_changed_afterwards_says_so(site, damage):
    folder, interpreter = site
    file = folder / "engine" / ("sneaky.py" if damage == "add" else "decode.py")
    file.unlink() if damage == "remove" else file.write_bytes(b"x = 2\n")
    assert ask_interpreter(interpreter()).dirty is True


def test_an_editable_install_is_named_by_its_commit_and_knows_of_changes(site):
    folder, interpreter = site
    git = ["git", "-C", str(folder)]
    for command in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "x"]):
        subprocess.run([*git, *command], check=True)
    head = subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout.strip()
    python = interpreter(editable=True, record="__editable__.py,,")
    assert (ask_interpreter(python).identity, ask_interpreter(python).dirty) == (head, False)
    (folder / "engine" / "new.py").write_bytes(b"")
    assert ask_interpreter(python).dirty is True


def test_sources_of_unknown_origin_have_a_digest_and_no_claim_to_be_unchanged(site):
    folder, interpreter = site
    python = interpreter(record=None)
    first = ask_interpreter(python)
    assert first.identity.startswith("sources sha256:")
    assert first.dirty is None
    (folder / "engine" / "decode.py").write_bytes(b"x = 3\n")
    assert ask_interpreter(python).identity != first.identity


def test_an_interpreter_without_the_engine_is_a_problem_and_not_a_guess(site, tmp_path):
    _, interpreter = site
    facts = ask_interpreter(interpreter(found={"bridge": None, "engine": None}))
    assert facts.identity == "unknown"
    assert "no package 'engine'" in facts.problem
    assert ask_interpreter(str(tmp_path / "nothing")).identity == "unknown"


def test_a_runner_that_lives_long_notices_that_its_code_was_changed(site):
    folder, interpreter = site
    watch = CodeWatch(interpreter())
    before = watch.now()
    assert watch.now() is before
    (folder / "engine" / "decode.py").write_bytes(b"x = 1000\n")
    assert watch.now(60.0) is before
    assert watch.now().dirty is True
