"""A real clone with a home of its own, in which `kakeya-mac` runs as a real process."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from tests.support import forked
from tests.support.waiting import PATIENCE_S

MAC = "bridge.cli.mac.main"


@dataclass
class Clone:
    """One requester's clone; everything it writes lies below `root`."""

    root: Path
    environment: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.top = self.root / "clone"
        if not self.top.exists():
            self.top.mkdir(parents=True)
            self.git("init", "-q", "-b", "main")
            self.commit({"README.md": "a clone\n"})

    @property
    def env(self) -> dict[str, str]:
        inherited = {name: os.environ[name] for name in ("PATH", "LANG", "GIT_TEMPLATE_DIR") if name in os.environ}
        return {
            **inherited,
            "HOME": str(self.root / "home"),
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_AUTHOR_NAME": "t",
            "GIT_AUTHOR_EMAIL": "t@example.org",
            "GIT_COMMITTER_NAME": "t",
            "GIT_COMMITTER_EMAIL": "t@example.org",
            "OMP_NUM_THREADS": "1",
            "OPENBLAS_NUM_THREADS": "1",
            **self.environment,
        }

    def git(self, *words: str) -> str:
        return subprocess.run(
            ["git", *words], cwd=self.top, env=self.env, check=True, capture_output=True, text=True, timeout=240
        ).stdout

    def commit(self, files: dict[str, str]) -> str:
        for name, text in files.items():
            path = self.top / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        self.git("add", "-A")
        self.git("commit", "-q", "-m", "work")
        return self.git("rev-parse", "HEAD").strip()

    def mac(self, *words: str, timeout_s: float = PATIENCE_S) -> subprocess.CompletedProcess[str]:
        """Run a command to its end, in a process of its own."""
        return forked.run(forked.command, (MAC, words), cwd=self.top, env=self.env, timeout=timeout_s)

    def document(self, *words: str) -> dict[str, Any]:
        return json.loads(self.mac(*words, "--json").stdout)

    def start(self, *words: str) -> subprocess.Popen[str]:
        """Start a command as a shell does and return at once; its streams are pipes."""
        return subprocess.Popen(
            [sys.executable, "-m", MAC, *words],
            cwd=self.top, env=self.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    def state_of_repository(self) -> dict[str, object]:
        """Return everything a command must not change."""
        index = self.top / ".git" / "index"
        return {
            "head": (self.top / ".git" / "HEAD").read_text(),
            "refs": self.git("for-each-ref"),
            "index": index.read_bytes() if index.exists() else b"",
            "stash": self.git("stash", "list"),
            "status": self.git("status", "--porcelain=v1", "--ignored"),
            "config": (self.top / ".git" / "config").read_bytes(),
            "fetch_head": (self.top / ".git" / "FETCH_HEAD").exists(),
            "shallow": (self.top / ".git" / "shallow").exists(),
        }

    def runner_pids(self) -> list[int]:
        """Return the processes that serve this home's embedded bus."""
        pids = []
        for process in psutil.process_iter(["cmdline"]):
            words = process.info["cmdline"] or []
            if "--embedded" in words and any(str(self.root) in word for word in words):
                pids.append(process.pid)
        return pids

    def stop_runners(self, number: int = signal.SIGKILL) -> None:
        for pid in self.runner_pids():
            with contextlib.suppress(ProcessLookupError):  # one runner's end may take another with it
                os.kill(pid, number)
