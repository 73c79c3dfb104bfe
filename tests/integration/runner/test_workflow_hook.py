"""`kakeya-runner job-hook` reads the workflow file at the job's own commit and compares its digest with the policy."""

from __future__ import annotations

import hashlib
import subprocess

import pytest

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


def test_the_digest_to_list_is_printed(job):
    s, make = job
    expected = make(WORKFLOW)
    file = s.folder / "server" / "owner" / "repo" / PATH
    assert s.run("job-hook", "digest", str(file)).stdout.strip() == expected
