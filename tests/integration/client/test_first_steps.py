"""A fresh home at each end of a remote over ssh or http: whoever pastes what is printed gets a verified result.

Nothing is typed but the first line of each side, which the README has; every other line was printed by the one before.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.fakes.git_servers import HELPER, HttpServer, SshServer, bare, missing_programs
from tests.support import guarded
from tests.support.waiting import PATIENCE_S, until

pytestmark = [pytest.mark.slow, pytest.mark.servers]
TRIES = 8


@dataclass
class Home:
    """A fresh home folder in which somebody pastes lines into a shell."""

    folder: Path
    environment: dict[str, str]

    def __post_init__(self) -> None:
        self.folder.mkdir()
        (self.folder / ".gitconfig").write_text(f'[credential]\n\thelper = "{HELPER}"\n')

    @property
    def env(self) -> dict[str, str]:
        programs = str(Path(sys.executable).parent)
        path = f"{programs}:{os.environ['PATH']}"
        return {"HOME": str(self.folder), "PATH": path, "LANG": "C.UTF-8", "GIT_CONFIG_NOSYSTEM": "1",
                "GIT_TERMINAL_PROMPT": "0", "OMP_NUM_THREADS": "1", **self.environment}  # fmt: skip

    def paste(self, line: str) -> str:
        """Run a line as a shell does and return what it printed, on both streams."""
        done = subprocess.run(
            ["/bin/sh", "-c", line], cwd=self.folder, env=self.env, capture_output=True, text=True,
            timeout=2 * PATIENCE_S, check=False,
        )  # fmt: skip
        assert done.returncode == 0, f"{line}\n{done.stdout}\n{done.stderr}"
        return f"{done.stdout}\n{done.stderr}"


def printed(text: str, label: str) -> str:
    """Return the command behind a label."""
    values = re.findall(rf"^{label}:? +(\S+ .*)$", text, re.MULTILINE)
    assert values, f"no line {label!r} in:\n{text}"
    return values[-1]


def passed(home: Home, line: str) -> str:
    """Return what a run that passed printed; one that a limit ended on a machine without time for it is tried again."""
    output = ""
    for _ in range(TRIES):
        output = home.paste(f"{line} || true")
        if re.search(r"^passed ", output, re.MULTILINE):
            return output
        assert re.search(r"^timed_out ", output, re.MULTILINE), output
    raise AssertionError(output)


@pytest.fixture(params=["ssh", "http"])
def remote(request, tmp_path, missing):
    """Yield the route of an empty repository, and what git needs in the environment to reach it."""
    if missing_programs():
        missing("servers", f"not installed: {', '.join(missing_programs())}")
    repository = bare(tmp_path / "bus.git")
    (tmp_path / "server").mkdir()
    if request.param == "ssh":
        ssh = SshServer(tmp_path / "server")
        yield ssh.url(repository), {"GIT_SSH_COMMAND": ssh.command}
        ssh.close()
        return
    subprocess.run(["git", "-C", repository, "config", "http.receivepack", "true"], check=True)
    http = HttpServer(tmp_path / "server", tmp_path)
    yield http.url(repository), {}
    http.close()


def test_printed_lines_lead_from_set_up_to_a_verified_result(remote, tmp_path):
    route, environment = remote
    host, requester = Home(tmp_path / "host", environment), Home(tmp_path / "requester", environment)
    printout = host.paste(f"kakeya-runner setup --bus {route} --create-bus")
    with (tmp_path / "runner.log").open("wb") as log:
        runner = guarded.start(["/bin/sh", "-c", f"exec {printed(printout, 'here')}"], stderr=log, env=host.env,
                               cwd=host.folder)  # fmt: skip
        try:
            began = requester.paste(printed(printout, "there"))
            doctor = printed(began, "next")
            until(lambda: "next " in requester.paste(f"{doctor} || true"))  # the runner has shown itself
            line = printed(requester.paste(doctor), "next")
            verified = requester.paste(printed(passed(requester, line), "next"))
        finally:
            guarded.stop(runner)
    assert "verified" in verified
