"""What this host does with git-lfs pointers in a request's tree: its policy, and a folder no run can see."""

from __future__ import annotations

import contextlib
import shlex
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bridge.bus.content.large_files import Handling
from bridge.errors import UsageError
from bridge.runner.policy.model import LfsPolicy
from bridge.runner.policy.rights import file_problems
from bridge.system.clock import Clock
from bridge.system.gitlfs import LfsObject, LfsServer

PASSWORD_MAX_BYTES = 4096


@dataclass(frozen=True)
class PinnedServer:
    """Implements `bridge.bus.content.large_files.LargeFiles` with the server of the policy."""

    server: LfsServer
    scratch: Path
    clock: Clock
    max_bytes: int

    @contextlib.contextmanager
    def fetch(self, objects: Sequence[LfsObject]) -> Iterator[Mapping[str, Path]]:
        """Download into a folder of the runner's own; it is gone afterwards."""
        self.scratch.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(dir=self.scratch))
        try:
            yield self.server.fetch(objects, folder, self.clock)
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def large_files(policy: LfsPolicy, scratch: Path, clock: Clock) -> Handling:
    """Return what becomes of pointers here.

    Args:
        policy: what the owner says of them.
        scratch: a folder that no run can see.
        clock: bounds the downloads.

    Raises:
        UsageError: the password file is not the owner's alone.
    """
    if policy.url is None:
        return "leave" if policy.leave_pointers else "refuse"
    server = LfsServer(policy.url, policy.also_from, policy.user, _password(policy.password_file))
    return PinnedServer(server, scratch, clock, policy.max_bytes)


def _password(name: str | None) -> str:
    if name is None:
        return ""
    path = Path(name)
    problems = file_problems(path)
    if problems:
        raise UsageError(f"LFS password file {path}: {problems[0]}", remedy=f"chmod 600 {shlex.quote(str(path))}")
    return path.read_bytes()[:PASSWORD_MAX_BYTES].decode("utf-8").strip()
