"""`kakeya-runner job-hook` reads the workflow file at the job's own commit and compares its digest with the policy."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fakes.token_git import HTTP_BACKEND, TokenGitServer

ROOT = Path(__file__).parents[3]

WORKFLOW = b"name: mac-bridge\n"
PATH = ".github/workflows/mac-bridge.yml"


@pytest.fixture
def job(site, monkeypatch):
    """Return a site whose policy lists a workflow, and a function that pushes one and makes it the job's."""
    s = site()
    repository = s.folder / "server" / "owner" / "repo"
    repository.mkdir(parents=True)
    git = ["git", "-C", str(repository)]
    subprocess.run([*git, "init", "-q", "-b", "main"], check=True)
    policy = s.policy()
    digest = hashlib.sha256(WORKFLOW).hexdigest()
    listed = f'repository = "owner/repo"\npath = "{PATH}"\nsha256 = "{digest}"\nrefs = ["refs/heads/*"]\n'
    policy.write_text(f"{policy.read_text()}[[actions.workflows]]\n{listed}")
    monkeypatch.setenv("GITHUB_SERVER_URL", f"file://{s.folder}/server")

    def make(content: bytes, ref: str = "refs/heads/main") -> str:
        file = repository / PATH
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
        subprocess.run([*git, "add", "-A"], check=True)
        subprocess.run([*git, "commit", "-q", "-m", "x"], check=True)
        commit = subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout.strip()
        monkeypatch.setenv("GITHUB_WORKFLOW_REF", f"owner/repo/{PATH}@{ref}")
        monkeypatch.setenv("GITHUB_WORKFLOW_SHA", commit)
        return digest

    return s, make


def test_a_listed_workflow_is_accepted_and_a_changed_one_is_not(job):
    s, make = job
    make(WORKFLOW)
    accepted = s.run("job-hook", "started")
    assert (accepted.code, "accepted" in accepted.stderr) == (0, True)
    make(WORKFLOW + b"# changed\n")
    refused = s.run("job-hook", "started")
    assert refused.code == 7
    assert "does not list" in refused.stderr


def test_a_commit_that_cannot_be_read_and_a_missing_policy_are_refused(job, monkeypatch):
    s, make = job
    make(WORKFLOW)
    monkeypatch.setenv("GITHUB_WORKFLOW_SHA", "0" * 40)
    assert s.run("job-hook", "started").code == 7
    make(WORKFLOW + b" ")
    (s.folder / "mini.toml").chmod(0o644)
    assert s.run("job-hook", "started").code == 7


class TestAnotherUserDecides:
    """The Actions user may read neither policy nor token: a program of the owner's asks for it."""

    def ask(self, s, code: str) -> str:
        program = s.folder / "ask"
        program.write_text(f"#!/bin/sh\n{code}\n")
        program.chmod(0o755)
        return str(program)

    def test_its_word_decides_and_gets_the_jobs_own_facts(self, job):
        s, make = job
        make(WORKFLOW)
        policy, state = s.folder / "mini.toml", s.folder / "state-mini"
        policy.write_text(f'{policy.read_text()}[actions]\nserver = "file://{s.folder}/server"\n')
        words = f"-m bridge.cli.host.main job-hook decide --policy {policy} --state {state}"
        program = self.ask(s, f'cd {ROOT} && exec {sys.executable} {words} -- "$1" "$2"')
        # The policy the hook itself is given does not matter: it is not read.
        accepted = s.run("job-hook", "started", "--ask", program, name="nobody")
        assert accepted.code == 0, accepted.stderr
        make(WORKFLOW + b"# changed\n")
        refused = s.run("job-hook", "started", "--ask", program, name="nobody")
        assert refused.code == 7
        assert "does not list" in refused.stderr

    @pytest.mark.parametrize("code", ["exit 1", "kill -9 $$", "exit 7"])
    def test_no_answer_is_a_refusal_and_stops_the_service(self, job, code: str):
        s, make = job
        make(WORKFLOW)
        stop = s.folder / "stop"
        stop.write_text(f"#!/bin/sh\necho stopped > {s.folder}/service\n")
        stop.chmod(0o755)
        assert s.run("job-hook", "started", "--ask", self.ask(s, code), "--stop", str(stop)).code == 7
        assert (s.folder / "service").read_text() == "stopped\n"
        assert s.run("job-hook", "started", "--ask", str(s.folder / "absent")).code == 7

    def test_hostile_facts_are_words_and_no_options(self, job):
        s, make = job
        make(WORKFLOW)
        for ref in ("--policy=/tmp/x", "$(id)", "a b", "owner/repo/.github/workflows/x.yml@refs/heads/x\n--help"):
            assert s.run("job-hook", "decide", "--", ref, "0" * 40).code == 7
        assert s.run("job-hook", "decide", "--stop-all", "x").code == 2


SECRET = "ghp_" + "s" * 36


@pytest.fixture
def private_server(tmp_path, missing):
    if not Path(HTTP_BACKEND).exists():
        missing("servers", f"{HTTP_BACKEND} is not installed")
    server = TokenGitServer(tmp_path / "private", SECRET)
    yield server
    server.close()


def test_a_private_repository_is_read_with_the_owners_token_and_with_nothing_less(job, private_server, monkeypatch):
    s, make = job
    make(WORKFLOW)
    private_server.add("owner/repo", s.folder / "server" / "owner" / "repo")
    monkeypatch.setenv("GITHUB_SERVER_URL", private_server.url)
    assert s.run("job-hook", "started").code == 7
    assert private_server.refused > 0
    monkeypatch.setenv("GITHUB_SERVER_URL", "http://127.0.0.1:1")  # the policy names a server: this is not asked
    token = s.folder / "hook-token"
    token.write_text(SECRET)
    token.chmod(0o600)
    policy = s.folder / "mini.toml"
    text = policy.read_text()
    policy.write_text(f'{text}[actions]\nserver = "{private_server.url}"\ntoken_file = "{token}"\n')
    accepted = s.run("job-hook", "started")
    assert accepted.code == 0, accepted.stderr
    assert SECRET not in accepted.stdout + accepted.stderr
    assert SECRET not in "".join(p.read_text(errors="replace") for p in s.folder.rglob("workflows.git/config"))
    token.chmod(0o644)
    assert "readable by others" in s.run("job-hook", "started").stderr
    token.chmod(0o600)
    token.write_text("ghp_another")
    wrong = s.run("job-hook", "started")
    assert wrong.code == 7
    assert "ghp_another" not in wrong.stderr


def test_a_token_without_a_server_is_no_policy(job):
    s, _ = job
    policy = s.folder / "mini.toml"
    policy.write_text(f'{policy.read_text()}[actions]\ntoken_file = "/x"\n')
    checked = s.run("policy", "check")
    assert checked.code != 0
    assert "the only place it is sent to" in checked.stdout + checked.stderr
