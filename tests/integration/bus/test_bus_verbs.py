"""`kakeya-runner bus`: a bus takes requests in one more space, and what its remote allows is tried."""

from __future__ import annotations

import contextlib
import io
import json
import subprocess

import pytest

from bridge.bus import open_bus
from bridge.bus.open.create import new_record
from bridge.bus.open.served import writable_folders
from bridge.cli.host.main import main
from bridge.system.clock import SystemClock
from bridge.system.gitrepository import BareRepository
from tests.fakes.asking import make_request, push
from tests.fakes.git_servers import bare

CLOCK = SystemClock()


class Owner:
    """A bus in a folder, and the account that made it."""

    def __init__(self, folder) -> None:
        self.folder, self.remote = folder, bare(folder / "bus.git")
        self.bus().create(new_record(CLOCK, wake="poll", local=True))

    def bus(self):
        return open_bus(str(self.remote), repository=None, state=self.folder / "reader", clock=CLOCK)

    def runner(self, *words: str) -> tuple[int, str]:
        streams = io.StringIO()
        place = ("--bus", str(self.remote), "--state", str(self.folder / "state"))
        with contextlib.redirect_stdout(streams), contextlib.redirect_stderr(streams):
            code = main([*words, *place, "--policy", str(self.folder / "policy.toml")])
        return code, streams.getvalue()


@pytest.fixture
def owner(tmp_path):
    return Owner(tmp_path)


@pytest.mark.parametrize("is_owned", [False, True])
def test_a_bus_takes_requests_in_a_space_that_its_owner_added(owner, is_owned):
    if is_owned:
        code, output = owner.runner("trust", "init")
        assert code == 0, output
    code, output = owner.runner("bus", "allow-branches", "devin")
    assert (code, "devin/mac-bridge-*" in output) == (0, True), output
    assert owner.runner("bus", "allow-branches", "devin/")[0] == 0  # a second time changes nothing
    bus = owner.bus()
    assert bus.identity().request_branches[-1] == "devin/mac-bridge-*"
    request = make_request(bus.identity().bus_id, "quick")
    moved = request.evolve(ref=f"refs/heads/devin/mac-bridge-quick-{request.id}")
    push(bus, moved)
    assert [ref.ref for ref in owner.bus().snapshot().requests] == [moved.ref]
    assert "refs/heads/devin" in writable_folders(BareRepository(owner.remote))


@pytest.mark.parametrize(
    ("space", "words"),
    [
        ("*", "expected the first part of an agent's branch names"),
        ("main", "the name of a branch"),
        ("kakeya", "inside a prefix that every bus has"),
        ("release", "has a branch 'release'"),
    ],
)
def test_a_space_that_holds_other_peoples_branches_is_refused_before_anything_is_written(owner, space, words):
    record, commit = owner.bus().identity(), subprocess.run(
        ["git", "-C", owner.remote, "commit-tree", "-m", "x", "4b825dc642cb6eb9a060e54bf8d69288fbee4904"],
        check=True, capture_output=True, text=True, timeout=60,
    ).stdout.strip()  # fmt: skip
    subprocess.run(["git", "-C", owner.remote, "update-ref", "refs/heads/release", commit], check=True, timeout=60)
    code, output = owner.runner("bus", "allow-branches", space)
    assert (code, words in output) == (2, True), output
    assert owner.bus().identity() == record


def test_a_check_tries_refs_and_each_space_and_says_which_one_a_rule_closes(owner):
    hook = owner.remote / "hooks" / "update"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text('#!/bin/sh\ncase "$1" in refs/heads/codex/*) echo "rule 7" >&2; exit 1 ;; esac\n')
    hook.chmod(0o755)
    code, output = owner.runner("bus", "check", "--json")
    levels = {row["name"]: row["level"] for row in json.loads(output)}
    assert code == 0
    assert [name for name, level in levels.items() if level != "ok"] == ["codex/mac-bridge-*"]
    assert {"remote", "refs", "mac-bridge/*", "claude/mac-bridge-*"} <= levels.keys()
    assert "rule 7" in output
    assert owner.bus().snapshot().requests == ()
