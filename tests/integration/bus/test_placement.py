"""A remote that takes no refs outside refs/heads/: the bus keeps its own below it, and says so in a few lines."""

from __future__ import annotations

import contextlib
import io
from pathlib import Path

import pytest

from bridge.bus import open_bus
from bridge.bus.refs import names
from bridge.bus.store.gather import WorkBudget
from bridge.cli.host.main import main
from bridge.errors import RemoteError
from bridge.limits import REQUEST_DEAD_S
from tests.fakes.bus_actors import Actor, FakeClock
from tests.fakes.git_servers import bare, git
from tests.fakes.memory_bus import bus_record

HOOK = "#!/bin/sh\n"
PRE_RECEIVE = f"""{HOOK}while read -r old new ref; do
case "$ref" in refs/heads/*|refs/tags/*) ;; *) echo "only branches and tags may be pushed" >&2; exit 1 ;; esac
done
"""
UPDATE = f"""{HOOK}case "$1" in refs/heads/*) exit 0 ;; esac
echo "DENIED by fallthru" >&2; exit 1
"""
SIGNED_ONLY = f"""{HOOK}case "$1" in refs/heads/*) ;; *) exit 0 ;; esac
echo "GH013: Commits must have verified signatures." >&2; exit 1
"""
OWN_ADDRESS = f"""{HOOK}echo "GitLab: You cannot push commits for 'kakeya@localhost'." >&2; exit 1
"""


def refusing(path: Path, how: str) -> Path:
    """Make a repository that takes branches only, in one of the ways that hosts have."""
    bare(path)
    if how.endswith(".hideRefs"):
        for pattern in ("refs", "!refs/heads", "!refs/tags"):
            git("config", "--add", how, pattern, cwd=path)
    else:
        install(path, *{"pre-receive": ("pre-receive", PRE_RECEIVE), "update": ("update", UPDATE)}[how])
    return path


def install(path: Path, name: str, text: str) -> None:
    hook = path / "hooks" / name
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(text)
    hook.chmod(0o755)


def actor(path: Path, folder: Path, clock: FakeClock, name: str) -> Actor:
    return Actor(open_bus(str(path), repository=None, state=folder / name, clock=clock), clock, name)


WAYS = [
    "pre-receive",
    *(pytest.param(how, marks=pytest.mark.ci) for how in ("update", "receive.hideRefs", "transfer.hideRefs")),
]


@pytest.mark.parametrize("how", WAYS)
def test_a_bus_takes_the_other_prefix_by_itself_and_lives_there(tmp_path, how):
    clock, path = FakeClock(), refusing(tmp_path / "bus.git", how)
    host = actor(path, tmp_path, clock, "mini")
    placement = host.bus.create(bus_record(clock))
    assert (placement.trial.prefix, bool(placement.refused)) == (names.BRANCH_PREFIX, True)
    assert "every plain clone fetches them" in next(placement.lines())
    client = actor(path, tmp_path, clock, "client")
    sent = client.submit()
    ended = host.run(sent.ref)
    host.bus.copy_result(sent.ref, ended.claim.result_oid)
    view = client.bus.view(sent.ref.id)
    assert (view.claim.claim.state, view.delivery) == ("terminal", "copied")
    clock.advance(2 * REQUEST_DEAD_S)
    assert list(host.bus.archive("mini", budget=WorkBudget(100), drop_after_s=0.0, dry_run=False))
    assert client.bus.view(sent.ref.id).claim.claim.state == "terminal"
    refs = git("for-each-ref", "--format=%(refname)", cwd=path).split()
    assert refs
    assert all(ref.startswith("refs/heads/") for ref in refs)


def set_up(path: Path, folder: Path) -> tuple[int, str]:
    streams = io.StringIO()
    with contextlib.redirect_stdout(streams), contextlib.redirect_stderr(streams):
        code = main(["setup", "--create-bus", "--bus", str(path), "--name", "mini",
                     "--policy", str(folder / "policy.toml"), "--state", str(folder / "state")])  # fmt: skip
    return code, " ".join(streams.getvalue().split())


def test_setup_says_in_one_line_where_the_refs_are_and_why(tmp_path):
    code, output = set_up(refusing(tmp_path / "bus.git", "pre-receive"), tmp_path)
    assert code == 0, output
    assert "keeps its own below refs/heads/kakeya/" in output
    assert "only branches and tags may be pushed" in output


def test_setup_says_that_a_rule_for_branches_stops_every_requester(tmp_path):
    install(bare(tmp_path / "bus.git"), "update", SIGNED_ONLY)
    code, output = set_up(tmp_path / "bus.git", tmp_path)
    assert code == 0, output
    assert "nobody with these rights can ask" in output
    assert "verified signatures" in output


def test_a_rule_about_who_commits_is_no_reason_to_try_another_prefix(tmp_path):
    install(bare(tmp_path / "bus.git"), "update", OWN_ADDRESS)
    clock = FakeClock()
    with pytest.raises(RemoteError, match="You cannot push commits for") as caught:
        actor(tmp_path / "bus.git", tmp_path, clock, "mini").bus.create(bus_record(clock))
    assert "refs/heads/kakeya" not in caught.value.message
    assert "--commit-as" in caught.value.remedy
