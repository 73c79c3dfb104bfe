"""The job hook as a table with real files: the real command, a real repository, a stand-in for the Actions worker."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from tests.support.runner_site import ROOT, Site
from tests.support.waiting import until

PATH = ".github/workflows/mac-bridge.yml"
ORIGINAL = b"name: mac-bridge\non: push\n"
# Like the real one: a `pre:` step is on its way until somebody ends it, the hook is asked, and steps with
# `if: always()` run whatever it said.
WORKER = """
    import os, pathlib, subprocess, sys, time
    here, hook = pathlib.Path(sys.argv[1]), sys.argv[2:]
    pre = f"import time, pathlib; time.sleep(600); pathlib.Path({str(here / 'pre')!r}).write_text('ran')"
    subprocess.Popen([sys.executable, "-c", pre])
    code = subprocess.run(hook).returncode
    (here / "hook_code").write_text(str(code))
    if code == 0:
        (here / "job").write_text("ran")
    (here / "always").write_text("ran")
"""


@dataclass
class Job:
    """What GitHub would say of a job."""

    path: str
    commit: str
    repository: str = "owner/repo"
    ref: str = "refs/heads/mac-bridge/x"

    @property
    def environment(self) -> dict[str, str]:
        return {
            "GITHUB_WORKFLOW_REF": f"{self.repository}/{self.path}@{self.ref}",
            "GITHUB_WORKFLOW_SHA": self.commit,
        }


class Server:
    """Repositories on a server, and a host whose policy lists one file of one of them."""

    def __init__(self, folder: Path) -> None:
        folder.chmod(0o700)
        self.folder, self.site = folder, Site(folder)
        self.commit("owner/repo", PATH, ORIGINAL)
        self.listed([hashlib.sha256(ORIGINAL).hexdigest()])

    def listed(self, digests: list[str]) -> None:
        policy = self.site.policy()
        entries = "".join(
            f'[[actions.workflows]]\nrepository = "owner/repo"\npath = "{PATH}"\nsha256 = "{digest}"\n'
            'refs = ["refs/heads/mac-bridge/*"]\n'
            for digest in digests
        )
        stop = self.folder / "stop"
        stop.write_text(f"#!/bin/sh\necho stopped > {self.folder}/service\n")
        stop.chmod(0o755)
        actions = f'[actions]\nstop = ["{stop}"]\nserver = "file://{self.folder}/server"\n'
        policy.write_text(policy.read_text() + actions + entries)

    def commit(self, repository: str, path: str, content: bytes) -> str:
        """Commit a file; return the commit."""
        folder = self.folder / "server" / repository
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
        for words in (("init", "-q", "-b", "main"), ("add", "-A"), ("commit", "-q", "-m", "x")):
            subprocess.run(["git", *words], cwd=folder, check=True, timeout=240)
        done = subprocess.run(["git", "rev-parse", "HEAD"], cwd=folder, check=True, capture_output=True, timeout=240)
        return done.stdout.decode().strip()

    def work(self, job: Job) -> int:
        """Let the stand-in work on a job; return how it ended."""
        worker = self.folder / "Runner.Worker"
        worker.write_text(textwrap.dedent(WORKER))
        hook = self.site.command("job-hook", "started")
        words = [sys.executable, str(worker), str(self.folder), *hook]
        process = subprocess.Popen(words, env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", **job.environment})
        try:
            code = process.wait(timeout=240)
            # The hook goes on after it has killed the worker.
            until(lambda: not (self.running("mini.toml") or self.running("stop")), why="the hook never ended")
            left = self.running("pre")
            self.left = len(left)
            for child in left:
                child.kill()
        finally:
            process.kill()
        return code

    def running(self, name: str) -> list[psutil.Process]:
        """Return the processes whose command lines name a file of this folder."""
        path = str(self.folder / name)
        processes = psutil.process_iter(["cmdline", "status"])
        return [
            process for process in processes
            if path in " ".join(process.info["cmdline"] or ()) and process.info["status"] != psutil.STATUS_ZOMBIE
        ]  # fmt: skip

    def ran(self, name: str) -> bool:
        return (self.folder / name).exists()


@pytest.fixture
def server(tmp_path):
    return Server(tmp_path)


def edited(server: Server) -> Job:
    return Job(PATH, server.commit("owner/repo", PATH, ORIGINAL + b"# edited\n"))


def foreign_file(server: Server) -> Job:
    return Job(".github/workflows/evil.yml", server.commit("owner/repo", ".github/workflows/evil.yml", ORIGINAL))


def foreign_repository(server: Server) -> Job:
    return Job(PATH, server.commit("fork/repo", PATH, ORIGINAL), repository="fork/repo")


def replayed(server: Server) -> Job:
    """A commit of before, when another version was listed: what is listed now decides."""
    old = server.commit("owner/repo", PATH, b"name: old, once listed\n")
    server.commit("owner/repo", PATH, ORIGINAL)
    return Job(PATH, old)


def other_ref(server: Server) -> Job:
    return Job(PATH, server.commit("owner/repo", "x", b"x"), ref="refs/pull/3/merge")


def gone(server: Server) -> Job:
    return Job(PATH, "0" * 40)


@pytest.mark.parametrize("make", [edited, foreign_file, foreign_repository, replayed, other_ref, gone])
def test_after_a_refusal_no_step_of_the_job_starts(server, make) -> None:
    assert server.work(make(server)) == -9
    assert server.left == 0  # the `pre:` step that was on its way
    assert not any(server.ran(name) for name in ("pre", "job", "always", "hook_code"))
    assert (server.folder / "service").read_text() == "stopped\n"


def test_the_listed_file_on_a_listed_ref_runs(server) -> None:
    assert server.work(Job(PATH, server.commit("owner/repo", "x", b"x"))) == 0
    assert server.left == 1
    assert all(server.ran(name) for name in ("job", "always"))
    assert not server.ran("service")


def test_without_the_hook_killing_it_the_worker_would_go_on(server) -> None:
    """What the refusals above rest on: a hook that only fails stops neither `if: always()` nor `pre:` steps."""
    worker = server.folder / "Runner.Worker"
    worker.write_text(textwrap.dedent(WORKER))
    words = [sys.executable, str(worker), str(server.folder), sys.executable, "-c", "raise SystemExit(7)"]
    assert subprocess.run(words, timeout=240, check=False).returncode == 0
    assert server.ran("always")
    assert not server.ran("job")
    for child in psutil.process_iter(["cmdline"]):
        if str(server.folder / "pre") in " ".join(child.info["cmdline"] or ()):
            child.kill()
