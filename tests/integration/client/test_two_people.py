"""Pages for two people as they are printed: the owner of a machine and a colleague, each with a home of their own."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakes.clone import Clone
from tests.support.printed_page import GUIDES, carry_out, failures, follow, sections
from tests.support.waiting import PATIENCE_S
from tests.support.workload_folder import INTERPRETER

pytestmark = pytest.mark.ci


class TwoPeople:
    """An owner who serves a bus, and a colleague with a clone; nobody has a key but the owner."""

    def __init__(self, top: Path) -> None:
        top.chmod(0o755)
        path = {"PATH": f"{Path(INTERPRETER).parent}:{Path(sys.executable).parent}:/usr/bin:/bin"}
        for name in ("owner", "colleague"):
            (top / name).mkdir(mode=0o755)
        self.owner, self.colleague = Clone(top / "owner", path), Clone(top / "colleague", path)
        self.route = str(top / "bus.git")
        self._serving: subprocess.Popen[str] | None = None
        subprocess.run(["git", "init", "-q", "--bare", self.route], check=True, timeout=60)
        ran = carry_out(self.owner, f"kakeya-runner setup --bus {self.route} --create-bus --name desk")
        assert ran.returncode == 0, ran.stderr
        (line,) = re.findall(r"^there: kakeya-mac init (.*)$", ran.stdout, re.MULTILINE)
        self.opening = line

    def serve(self) -> None:
        argv = [sys.executable, "-m", "bridge.cli.host.main", "serve"]
        self._serving = subprocess.Popen(
            argv, cwd=self.owner.top, env=self.owner.env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )

    def wait_until_offered(self, preset: str) -> None:
        """Wait until the runner that serves has told its presets."""
        deadline_s = time.monotonic() + PATIENCE_S
        while preset not in carry_out(self.colleague, "kakeya-mac presets").stdout:
            assert time.monotonic() < deadline_s, "the runner never offered it"
            time.sleep(0.5)

    def stop(self) -> None:
        if self._serving is not None:
            self._serving.terminate()
            self._serving.communicate(timeout=PATIENCE_S)


@pytest.fixture
def people(tmp_path_factory) -> Iterator[TwoPeople]:
    two = TwoPeople(tmp_path_factory.mktemp("two"))
    yield two
    two.stop()


def test_a_colleague_is_let_in_by_one_line(people):
    parts = sections("ten-minutes-colleague.md")
    opened = follow(parts["The colleague"], people.colleague, {"--bus ROUTE": people.opening})
    assert failures(opened) == {}
    assert "line `send`" in parts["The colleague"]
    pattern = r"^send .*kakeya-runner welcome ('ada@example\.org ssh-ed25519 \S+')"
    (line,) = re.findall(pattern, opened[0][1].stderr, re.MULTILINE)
    people.serve()
    let_in = follow(parts["The owner"], people.owner, {"LINE": line})
    assert failures(let_in) == {}
    assert "SHA256:" in let_in[-1][1].stdout
    ran = follow(parts["The colleague again"], people.colleague)
    assert failures(ran) == {}
    assert re.search(r"^trust +ada@example\.org \(signed\)", ran[0][1].stdout, re.MULTILINE), ran


@pytest.mark.parametrize("page", ["ten-minutes-mac.md", "ten-minutes-gpu.md"])
def test_the_page_of_a_machine_whose_daemon_made_the_bus_opens_it_by_what_doctor_printed(page, tmp_path):
    daemon = Clone(
        tmp_path / "daemon", {"INVOCATION_ID": "0" * 32, "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin"}
    )
    requester = Clone(tmp_path / "requester", {"PATH": daemon.env["PATH"]})
    route = tmp_path / "bus.git"
    subprocess.run(["git", "init", "-q", "--bare", route], check=True, timeout=60)
    assert carry_out(daemon, f"kakeya-runner setup --bus {route}").returncode == 0  # stands for the script's own steps
    assert carry_out(daemon, f"kakeya-runner once --bus {route} --create-bus").returncode == 0
    looked = carry_out(daemon, f"kakeya-runner doctor --bus {route}")
    there = looked.stdout.splitlines()[-1].removeprefix("there: ")
    assert " --runner-key " in there, looked
    (printed,) = re.findall(r"^kakeya-mac init [^#]*#ID [^#]*", (GUIDES / page).read_text("utf-8"), re.MULTILINE)
    assert [word for word in shlex.split(there) if word.startswith("--")] == [
        word for word in printed.split() if word.startswith("--")
    ]
    opened = carry_out(requester, there)
    assert opened.returncode == 0, opened
    assert "must be signed by" in opened.stdout


def test_two_commits_of_a_c_repository_are_compared_after_one_round_trip(people):
    parts = sections("ten-minutes-commits.md")
    text = parts["The colleague opens the bus"]
    first, *more = (line for line in text.splitlines() if line.startswith(("kakeya-mac", "git ")))
    opened = follow(f"```\n{first}\n```", people.colleague, {"--bus ROUTE": people.opening})
    assert failures(opened) == {}
    (line,) = re.findall(r"kakeya-runner welcome ('ada@example\.org ssh-ed25519 \S+')", opened[0][1].stderr)
    (key,) = re.findall(r"^signing .*, key (\S+)$", opened[0][1].stdout, re.MULTILINE)
    assert failures(follow("```\n" + "\n".join(more) + "\n```", people.colleague, {"KEYFILE": key})) == {}
    owner = follow(parts["The owner says what may be built and timed"], people.owner, {"LINE": line})
    assert failures(owner) == {}
    assert len(owner) <= 4
    people.serve()
    people.wait_until_offered("sorter")
    compared = follow(parts["The colleague compares two commits"], people.colleague)
    assert failures(compared) == {}
    screen = compared[-1][1].stdout
    assert re.search(r"^speedup +.*bench of two commits@", screen, re.MULTILINE), screen
    assert "NOTHING" not in screen
