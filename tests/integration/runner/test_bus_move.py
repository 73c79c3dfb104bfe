"""The owner moves a bus to another remote: everything goes along, and everybody is told where it is."""

from __future__ import annotations

import io
import subprocess

import pytest

from bridge.bus.store.route import resolve
from bridge.cli.mac.program import Surroundings, main
from bridge.errors import BusMovedError
from bridge.system.clock import SystemClock
from tests.fakes.git_servers import bare, git
from tests.fakes.ssh_keys import WHO, make_key
from tests.integration.trust.test_verify import told
from tests.support.runner_site import Site

ROOT = "refs/kakeya/root"


@pytest.fixture
def owned(site, monkeypatch, tmp_path) -> Site:
    """Return a site whose bus this account owns, with an empty repository beside it."""
    monkeypatch.setenv("KAKEYA_OWNER_DIR", str(tmp_path / "owner"))
    s = site()
    assert s.run("keygen").code == 0
    assert s.run("once", "--bus", s.route, "--create-bus").code == 0
    bare(s.folder / "new.git")
    return s


def move(s: Site, *words: str, to: str = "new.git"):
    """Move the bus while no runner serves it."""
    delete_beacons(s)
    return move_served(s, *words, to=to)


def delete_beacons(s: Site) -> None:
    """Let no runner look alive: one that served a moment ago would be waited for."""
    for beacon in git("for-each-ref", "--format=%(refname)", "refs/kakeya/runner", cwd=s.folder / "bus.git").split():
        git("update-ref", "-d", beacon, cwd=s.folder / "bus.git")


def move_served(s: Site, *words: str, to: str = "new.git"):
    return s.run("bus", "move", *([str(s.folder / to)] if to else []), *words, "--bus", s.route)


def refs(folder) -> dict[str, str]:
    lines = git("for-each-ref", "--format=%(refname) %(objectname)", cwd=folder).splitlines()
    return dict(line.split() for line in lines)


def carried(folder) -> dict[str, str]:
    return {ref: oid for ref, oid in refs(folder).items() if ref not in {ROOT, "refs/kakeya/bus"}}


def test_a_bus_that_moved_has_all_of_its_refs_and_tells_everybody_in_one_line(owned: Site) -> None:
    s, new = owned, str(owned.folder / "new.git")
    queued = s.ask()
    git("branch", "main", queued.oid, cwd=s.folder / "bus.git")
    waiting = s.requester()
    bus_id = waiting.identity().bus_id
    assert waiting.view(queued.id).claim is None
    moved = move(s)
    assert (moved.code, f"the bus is at {new} now" in moved.stdout) == (0, True), moved
    assert carried(s.folder / "new.git") == carried(s.folder / "bus.git")
    assert {"refs/heads/main", queued.ref} == set(carried(s.folder / "new.git"))
    with pytest.raises(BusMovedError, match="a record that nobody signed says"):  # it goes by no root
        waiting.view(queued.id)
    reader = s.folder / "reader"
    reader.mkdir()
    code, document = told(reader, "status", queued.id, "--bus", s.route)
    assert (code, document["outcome"]["message"]) == (3, f"the bus of {s.route} moved to {new}")
    assert document["outcome"]["remedy"].startswith(f"kakeya-mac init --bus '{new}#{bus_id}'")
    served = s.run("once", "--bus", s.route)
    named = f'bus = "{new}" in policy.toml, and behind --bus in a service that names one, then kakeya-runner serve'
    assert f"on each host: {named}" in moved.stdout + moved.stderr
    assert (served.code, f"on this host: {named}" in served.stderr) == (3, True), served
    assert s.starts() == []
    status = s.run("status").stdout
    assert (f"moved to {new}" in status, f'bus = "{new}" in policy.toml' in status) == (True, True), status
    assert "is moving" not in status
    s.run("once", "--bus", new)
    assert (s.starts(), "moved" in s.run("status").stdout) == ([queued.id], False)


@pytest.mark.ci
def test_runs_before_and_after_a_move_are_there_for_who_follows_and_the_old_place_says_so_for_good(owned: Site) -> None:
    s, new = owned, str(owned.folder / "new.git")
    reader = s.folder / "reader"
    reader.mkdir()
    assert told(reader, "init", "--bus", s.route)[0] == 0
    ended = s.ask()
    s.run("once", "--bus", s.route)
    queued = s.ask()
    bus_id = s.requester().identity().bus_id
    moved = move(s)
    assert f"kakeya-mac init --bus '{new}#{bus_id}' --root-key " in moved.stdout + moved.stderr, moved
    late = move(s, "--stay", to="")
    assert (late.code, f"has moved to {new}; it is too late to stay" in late.stderr) == (2, True), late
    assert told(reader, "status", ended.id)[0] == 3
    assert told(reader, "init", "--bus", f"{new}#{bus_id}")[0] == 0
    assert told(reader, "status", ended.id)[1]["outcome"]["reason"] == "gate_rejected"
    s.run("once", "--bus", new)
    assert s.starts() == [ended.id, queued.id]
    assert told(reader, "runners", "--bus", s.route)[0] == 3  # who knows newer roots of the bus is told there too
    assert s.run("trust", "show", "--bus", new).code == 0
    back = s.run("bus", "move", s.route, "--bus", new)
    assert (back.code, "is a former place of this bus" in back.stderr) == (2, True), back
    again, before = move(s), refs(s.folder / "new.git")
    assert (again.code, refs(s.folder / "new.git")) == (0, before), again


def test_a_result_that_is_here_is_checked_after_its_bus_moved_and_where_its_folder_is_gone(owned: Site) -> None:
    s = owned
    reader = s.folder / "reader"
    reader.mkdir()
    assert told(reader, "init", "--bus", s.route)[0] == 0
    ended = s.ask()
    s.run("once", "--bus", s.route)
    told(reader, "fetch", ended.id)
    code, before = told(reader, "verify", ended.id)
    assert before["data"]["answer"] == "first use", before
    assert move(s).code == 0
    for where in ("moved", "gone"):
        if where == "gone":
            (s.folder / "bus.git").rename(s.folder / "gone.git")
        checked = told(reader, "verify", ended.id)
        assert (checked[0], checked[1]["data"]["answer"]) == (code, "first use"), (where, checked)


def test_nobody_but_the_owner_moves_a_bus(owned: Site, monkeypatch, tmp_path) -> None:
    before = refs(owned.folder / "bus.git")
    monkeypatch.setenv("KAKEYA_OWNER_DIR", str(tmp_path / "somebody-else"))
    refused = move_served(owned)
    assert (refused.code, "whose key this account does not hold" in refused.stderr) == (2, True), refused
    assert (refs(owned.folder / "bus.git"), refs(owned.folder / "new.git")) == (before, {})


def test_a_place_that_is_not_for_this_bus_is_refused_in_one_line_before_anything_is_changed(owned: Site) -> None:
    s = owned
    other, strange = bare(s.folder / "other.git"), bare(s.folder / "strange.git")
    assert s.run("once", "--bus", str(other), "--create-bus", name="other").code == 0
    tree = git("mktree", cwd=strange).strip()
    git("update-ref", "refs/heads/main", git("commit-tree", "-m", "x", tree, cwd=strange).strip(), cwd=strange)
    (s.folder / "link.git").symlink_to(s.folder / "bus.git")
    hook = bare(s.folder / "closed.git") / "hooks" / "pre-receive"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\necho rule 7 >&2; exit 1\n")
    hook.chmod(0o755)
    before = {name: refs(s.folder / name) for name in ("bus.git", "other.git", "strange.git", "closed.git")}
    for to, code, words in (
        ("other.git", 2, "carries a bus already, and this is bus"),
        ("strange.git", 2, "is not empty: its refs/heads/main is not that of"),
        ("bus.git", 2, "is the place that the bus is at"),
        ("link.git", 2, "is the place that the bus is at"),
        ("nowhere.git", 2, "there is no such folder"),
        ("presets", 3, "does not appear to be a git repository"),
        ("closed.git", 3, "rule 7"),
    ):
        refused = move_served(s, to=to)
        assert (refused.code, refused.stdout, words in refused.stderr) == (code, "", True), (to, refused)
        assert {name: refs(s.folder / name) for name in before} == before, to
    assert "git init --bare FOLDER makes it" in move_served(s, to="nowhere.git").stderr
    assert move_served(s, to="").code == 2


@pytest.mark.parametrize(
    ("typed", "shown"),
    [
        ("ssh://git@localhost:1/bus.git", "ssh://git@localhost:1/bus.git"),
        ("ssh://git:secret@localhost:1/bus.git", "ssh://git@localhost:1/bus.git"),
        ("https://token@localhost:1/bus.git", "https://localhost:1/bus.git"),
    ],
)
def test_others_are_told_the_user_of_an_ssh_url_and_no_secret(tmp_path, typed: str, shown: str) -> None:
    assert resolve(typed, None, tmp_path).told == shown


@pytest.mark.ci
def test_where_the_old_place_takes_no_push_or_is_gone_the_error_names_what_goes_on(owned: Site) -> None:
    s, new = owned, owned.folder / "new.git"
    queued = s.ask()
    hook = s.folder / "bus.git" / "hooks" / "pre-receive"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\necho this repository is archived >&2; exit 1\n")
    hook.chmod(0o755)
    closed = move(s)
    way = f"takes no push at all: kakeya-runner bus move {new} --now"
    assert (closed.code, way in closed.stderr) == (3, True), closed
    assert refs(new) == {}
    bare(s.folder / "read-only.git")
    left = move(s, "--now", to="read-only.git")
    assert (left.code, "takes no push, so nothing there says where the bus is" in left.stderr) == (0, True), left
    assert carried(s.folder / "read-only.git") == carried(s.folder / "bus.git")
    assert s.run("trust", "show", "--bus", str(s.folder / "read-only.git")).code == 0
    mirror = f"is gone: git push --mirror {new} from a mirror"
    git("clone", "--quiet", "--mirror", s.folder / "bus.git", s.folder / "mirror.git")
    (s.folder / "bus.git").rename(s.folder / "gone.git")
    for route in (s.route, str(s.folder / "bus.git")):
        gone = s.run("bus", "move", str(new), "--bus", route)
        assert (gone.code in {2, 3}, mirror in gone.stderr) == (True, True), gone
    empty = s.run("bus", "repair", "--bus", str(new))
    assert (empty.code, "git push --mirror" in empty.stderr, "--create-bus" in empty.stderr) == (3, True, False), empty
    git("push", "--quiet", "--mirror", new, cwd=s.folder / "mirror.git")
    assert s.run("once", "--bus", str(new)).code == 1
    assert s.starts() == [queued.id]


@pytest.mark.ci
def test_a_move_that_has_not_ended_can_be_taken_back_and_begun_again(owned: Site) -> None:
    s = owned
    hook = s.folder / "new.git" / "hooks" / "update"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text('#!/bin/sh\ncase "$1" in *log/*) echo "no logs here" >&2; exit 1;; esac\n')
    hook.chmod(0o755)
    ref = s.ask()
    s.run("once", "--bus", s.route)
    cut = move(s)
    assert (cut.code, "no logs here" in cut.stderr, "kakeya-runner bus move --stay" in cut.stderr) == (3, True, True)
    waiting = s.ask()
    s.run("once", "--bus", s.route)
    assert s.claim(waiting) is None  # the bus is moving: nothing is begun
    elsewhere = move(s, to="counted")
    assert (elsewhere.code, f"is moving to {s.folder}/new.git" in elsewhere.stderr) == (2, True), elsewhere
    assert move(s, "--stay", to="").code == 0
    s.run("once", "--bus", s.route)
    assert s.starts() == [ref.id, waiting.id]
    hook.unlink()
    assert move(s).code == 0
    assert carried(s.folder / "new.git") == carried(s.folder / "bus.git")


@pytest.mark.ci
@pytest.mark.parametrize("refusing", ["bus.git", "new.git"])
def test_where_the_old_place_is_gone_the_owner_opens_the_new_one_as_it_is(owned: Site, refusing: str) -> None:
    s, new = owned, owned.folder / "new.git"
    queued = s.ask()
    hook = s.folder / refusing / "hooks" / "update"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text('#!/bin/sh\n[ "$1" = refs/kakeya/root ] || exit 0; [ ! -e "$0.2" ] || exit 1; touch "$0.2"\n')
    hook.chmod(0o755)
    cut = move(s)
    assert cut.code == 3, cut  # it was announced, and the farewell, or the opening, is refused
    assert s.run("once", "--bus", s.route).code == (0 if refusing == "bus.git" else 3), cut  # its runner has seen that
    hook.unlink()
    (s.folder / "bus.git").rename(s.folder / "gone.git")
    waits = s.run("once", "--bus", str(new))
    assert (waits.code, s.starts(), "the bus is moving to" in s.run("status").stdout) == (0, [], True)
    opened = s.run("bus", "move", str(new), "--bus", str(new))
    assert (opened.code, f"the bus is at {new} now" in opened.stdout) == (0, True), opened
    s.run("once", "--bus", str(new))
    assert s.starts() == [queued.id]
    assert s.run("trust", "show", "--bus", str(new)).code == 0


@pytest.mark.ci
def test_what_runs_while_its_bus_moves_ends_and_is_carried_and_each_runner_says_where_to_go_on(owned: Site) -> None:
    s, new = owned, str(owned.folder / "new.git")
    s.set_work(f"while [ ! -e {s.folder}/counted/go ]; do sleep 0.1; done")
    runner = s.start("serve", "--bus", s.route)
    running = s.ask()
    s.until(lambda: s.starts() == [running.id], "never began")
    queued = s.ask()
    mover = s.start("bus", "move", new, "--bus", s.route, name="mover")
    s.until(lambda: f"waiting for run {running.id} on mini" in (s.folder / "mover.log").read_text(), "never waited")
    mover.kill()  # cut off in the middle, and begun again
    mover.wait(timeout=240)
    mover = s.start("bus", "move", new, "--bus", s.route, name="mover")
    (s.folder / "counted" / "go").touch()
    assert mover.wait(timeout=240) == 0, (s.folder / "mover.log").read_text()
    assert runner.wait(timeout=240) == 3
    log = (s.folder / "mini.log").read_text()
    assert (f"moved to {new}" in log, f'bus = "{new}" in policy.toml' in log) == (True, True), log
    assert git("cat-file", "-t", f"{running.ref}:.mac-bridge/result/run.json", cwd=new).strip() == "blob"
    assert carried(s.folder / "new.git") == carried(s.folder / "bus.git")
    s.run("once", "--bus", new)
    assert s.starts() == [running.id, queued.id]


@pytest.mark.ci
def test_a_colleague_whom_the_root_lists_has_nothing_to_send_at_the_new_place(owned: Site) -> None:
    s, key = owned, make_key(owned.folder, "agent")
    reader = s.folder / "reader"
    reader.mkdir()

    def init(route: str) -> str:
        out, words = io.StringIO(), ["init", "--bus", route, "--signing-key", str(key.path), "--principal", WHO]
        environment = {"KAKEYA_DATA_DIR": str(reader / ".data"), "KAKEYA_CONFIG_DIR": str(reader / ".config")}
        assert main(words, Surroundings(out, out, environment, reader, SystemClock(), None)) == 0, out.getvalue()
        return out.getvalue()

    assert "this line to the host's owner" in init(s.route)
    bus_id = s.requester().identity().bus_id
    assert s.run("trust", "add", key.public, "--principal", WHO, "--bus", s.route).code == 0
    assert move(s).code == 0
    there = init(f"{s.folder}/new.git#{bus_id}")
    assert ("nothing to send" in there, "this line to" in there) == (True, False), there


@pytest.mark.ci
def test_a_move_that_waits_for_a_run_of_a_runner_that_ended_names_both_ways_on(owned: Site) -> None:
    s = owned
    s.set_work(f"while [ ! -e {s.folder}/counted/go ]; do sleep 0.1; done")
    runner = s.start("serve", "--bus", s.route)
    running = s.ask()
    s.until(lambda: s.starts() == [running.id], "never began")
    runner.terminate()  # a restart: what runs goes on
    runner.wait(timeout=240)
    s.start("bus", "move", str(s.folder / "new.git"), "--bus", s.route, name="mover")
    words = f"waiting for run {running.id} on mini (not running: kakeya-runner serve there ends it, or: --now)"
    s.until(lambda: words in (s.folder / "mover.log").read_text(), "never said it")
    (s.folder / "counted" / "go").touch()


@pytest.mark.ci
def test_a_run_that_is_not_waited_for_is_delivered_at_the_new_place_by_its_runners_next_start(owned: Site) -> None:
    s, new = owned, str(owned.folder / "new.git")
    s.set_work(f"while [ ! -e {s.folder}/counted/go ]; do sleep 0.1; done")
    runner = s.start("serve", "--bus", s.route)
    running = s.ask()
    s.until(lambda: s.starts() == [running.id], "never began")
    moved = move_served(s, "--now")
    assert (moved.code, runner.wait(timeout=240)) == (0, 3), moved
    s.start("serve", "--bus", new)
    (s.folder / "counted" / "go").touch()
    branch = ["rev-parse", "--verify", "--quiet", f"{running.ref}:.mac-bridge/result/run.json"]
    at_new = ["git", "-C", new, *branch]
    s.until(lambda: subprocess.run(at_new, capture_output=True, check=False).returncode == 0, "never delivered")
    assert s.starts() == [running.id]
