"""Pages for two people as they are printed: the owner of a machine and a colleague, each with a home of their own."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakes.clone import Clone
from tests.support.printed_page import carry_out, failures, follow, sections
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
    (line,) = re.findall(r"kakeya-runner welcome ('ada@example\.org ssh-ed25519 \S+')", opened[0][1].stderr)
    people.serve()
    let_in = follow(parts["The owner"], people.owner, {"LINE": line})
    assert failures(let_in) == {}
    assert "SHA256:" in let_in[-1][1].stdout
    ran = follow(parts["The colleague again"], people.colleague)
    assert failures(ran) == {}
    assert re.search(r"^trust +ada@example\.org \(signed\)", ran[0][1].stdout, re.MULTILINE), ran
