"""The requester over a real git remote: pins, purity of the clone, what is sent, what a plain clone can check."""

from __future__ import annotations

import io
import json
import shutil
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from bridge.bus import open_bus
from bridge.bus.open.create import new_record
from bridge.cli.mac.program import Surroundings, main
from bridge.client.clone import git_door
from bridge.errors import IntegrityError, UsageError
from bridge.run.outcomes import JUDGED_DIFFERENTLY
from bridge.system.clock import SystemClock
from tests.fakes.clone import Clone
from tests.fakes.requester import Ran
from tests.fakes.scripted_host import ScriptedHost

CLOCK = SystemClock()


@dataclass
class Place:
    """A bare remote that is a bus, a host on it, and a clone of it."""

    root: Path
    remote: Path
    host: ScriptedHost
    clone: Clone

    def run(self, *words: str, top: Path | None = None, **environment: str) -> Ran:
        out, err = io.StringIO(), io.StringIO()
        own = {
            "KAKEYA_DATA_DIR": str(self.root / "data"),
            "KAKEYA_CONFIG_DIR": str(self.root / "config"),
            **environment,
        }
        around = Surroundings(out, err, own, top or self.clone.top, CLOCK)
        code = main(list(words), around)
        return Ran(code, out.getvalue(), err.getvalue())


def make_bus(folder: Path) -> Path:
    subprocess.run(["git", "init", "-q", "--bare", "-b", "main", str(folder)], check=True, timeout=240)
    bus = open_bus(str(folder), repository=None, state=folder.parent / f"{folder.name}-maker", clock=CLOCK)
    bus.create(new_record(CLOCK, wake="poll", local=True))
    return folder


@pytest.fixture
def place(tmp_path):
    remote = make_bus(tmp_path / "bus.git")
    clone = Clone(tmp_path)
    clone.commit({"tests/test_x.py": "def test_x(): pass\n", "kept.txt": "one\n", "gone.txt": "two\n"})
    clone.git("remote", "add", "origin", str(remote))
    clone.git("push", "-q", "origin", "main")
    bus = open_bus(str(remote), repository=None, state=tmp_path / "host", clock=CLOCK)
    host = ScriptedHost(bus, CLOCK)
    host.beat()
    return Place(tmp_path, remote, host, clone)


def take(host, run_id):
    host.claim(run_id)
    host.start(run_id)
    host.finish(run_id)


def test_a_run_leaves_the_clone_as_it_was_and_a_plain_clone_can_verify_it(place, tmp_path):
    before = place.clone.state_of_repository()
    sent = place.run("run", "mlx-env-probe", "--bus", "origin").out.strip()
    take(place.host, sent)
    ran = place.run("attach", sent, "--bus", "origin")
    assert (ran.code, ran.out.split()[0]) == (1, "gate_rejected")  # unsigned: by the gate here, not by the host's word
    assert place.clone.state_of_repository() == before
    plain = tmp_path / "plain"
    subprocess.run(["git", "clone", "-q", str(place.remote), str(plain)], check=True, timeout=240)
    shown = place.run("status", sent, "--json").document
    branch = shown["request"]["ref"].replace("refs/heads/", "origin/")
    ran = place.run("verify", branch, top=plain)
    assert ran.code == JUDGED_DIFFERENTLY, ran.out + ran.err  # the scripted host's gate is another
    assert "unsigned bus: carries no signature" in ran.out
    assert place.run("verify", branch.removeprefix("origin/"), "--json", top=plain).document["data"]["id"] == sent
    assert place.run("verify", "origin/main", top=plain).code == 2


def test_a_name_on_a_pushed_branch_carries_no_escape_to_a_terminal(place):
    """A branch is anybody's: what it calls a file is printed where it is refused."""
    git, name = place.clone.git, b"x\x1b]52;c;cm0gLXJm\x07y"
    blob = git("hash-object", "-w", "--stdin").strip().encode()
    tree = b""
    for mode, entry_name in ((b"120000", name), (b"040000", b"result"), (b"040000", b".mac-bridge")):
        entry = b"%b %b %b\t%b\0" % (mode, b"blob" if mode == b"120000" else b"tree", tree or blob, entry_name)
        made = subprocess.run(
            ["git", "-C", str(place.clone.top), "mktree", "-z"], input=entry, stdout=subprocess.PIPE, check=True
        )
        tree = made.stdout.strip()
    git("branch", "mac-bridge/hostile", git("commit-tree", "-m", "x", tree.decode()).strip())
    ran = place.run("verify", "mac-bridge/hostile")
    assert (ran.code, "xy is no regular file" in ran.err) == (1, True), ran.err
    assert not {"\x1b", "\x07"} & set(ran.out + ran.err)


def test_a_bus_that_cannot_be_used_leads_to_a_command_but_another_one_than_the_pinned_to_none(place, tmp_path):
    empty = tmp_path / "empty.git"
    subprocess.run(["git", "init", "-q", "--bare", str(empty)], check=True, timeout=60)
    for route, code, remedy in (
        (str(empty), 3, f"kakeya-runner setup --bus {empty} --create-bus"),
        ("https://127.0.0.1:1/x.git", 3, "git ls-remote https://127.0.0.1:1/x.git"),
        ("ssh://git@127.0.0.1:1/x.git", 3, "git ls-remote ssh://git@127.0.0.1:1/x.git"),
        (str(tmp_path / "gone.git"), 2, "mount or make it, or give another: kakeya-mac config"),
        (f"{place.remote}#{'0' * 32}", 3, "whether the other bus is meant, its owner says"),
    ):
        ran = place.run("init", "--bus", route)
        assert ran.code == code, ran.err
        assert remedy in " ".join(ran.err.replace("'", "").split()), ran.err
    assert "kakeya-mac init" not in ran.err


@pytest.mark.skipif(sys.platform == "darwin", reason="its file systems take no such name")
def test_a_bus_in_a_folder_whose_name_is_no_utf_8_is_refused_in_a_line(place, tmp_path):
    odd = tmp_path / "caf\udce9.git"
    shutil.copytree(place.remote, odd)
    for words, environment in ((("ls", "--bus", str(odd)), {}), (("ls",), {"KAKEYA_BUS": str(odd)})):
        ran = place.run(*words, **environment)
        assert (ran.code, "whose name is no UTF-8" in ran.err) == (2, True), ran.err


def test_init_pins_the_bus_and_a_fork_is_refused_before_anything_is_sent(place, tmp_path):
    assert place.run("init", "--bus", "origin").code == 0
    assert place.run("doctor").code == 0
    fork = make_bus(tmp_path / "fork.git")
    place.clone.git("remote", "set-url", "origin", str(fork))
    refs = subprocess.run(["git", "-C", str(fork), "for-each-ref"], check=True, capture_output=True, timeout=240).stdout
    ran = place.run("run", "mlx-env-probe", "--json")
    assert ran.code == 3
    assert "is it a fork?" in ran.document["outcome"]["message"] or "pin" in ran.document["outcome"]["message"]
    after = subprocess.run(
        ["git", "-C", str(fork), "for-each-ref"], check=True, capture_output=True, timeout=240
    ).stdout
    assert after == refs


def test_a_relative_path_that_init_was_given_leads_to_the_bus_from_every_work_tree(place):
    assert place.run("init", "--bus", "../bus.git", "--branch-template", "mac-bridge/{preset}-{id}-mine").code == 0
    sent = place.run("run", "mlx-env-probe", "--json", "--bus", "../bus.git")  # a whole path stands in the file
    assert sent.document["request"]["ref"].endswith("-mine"), sent.err
    linked = place.root / "trees" / "linked"
    place.clone.git("worktree", "add", "-q", "--detach", str(linked))
    for top in (place.clone.top, linked):
        ran = place.run("runners", top=top)
        assert ran.code == 0, ran.err
    assert place.run("init", "--bus", "origin").code == 0
    assert place.run("config", "--json").document["data"]["route"] == "origin"


def test_a_path_is_one_of_the_folder_that_it_was_typed_in(place):
    inner = place.clone.top / "src" / "deep"
    inner.mkdir(parents=True)
    for words in (("runners", "--bus", "../../../bus.git"), ("init", "--bus", "../../../bus.git"), ("runners",)):
        ran = place.run(*words, top=inner)
        assert ran.code == 0, ran.err


def test_init_of_a_bus_that_a_committed_file_names_by_its_id_speaks_of_no_other(place):
    bus_id = place.host.bus.identity().bus_id
    (place.clone.top / "kakeya.toml").write_text(f'schema = 1\nbus_id = "{bus_id}"\n')
    ran = place.run("init", "--json")
    assert (ran.code, ran.document["data"]["route"]) == (0, str(place.remote.resolve())), ran.err
    assert "embedded" not in (place.clone.top / ".git" / "kakeya.toml").read_text()
    assert place.run("runners").code == 0


def processes_at(folder):
    """Return the command lines of this process's own processes that name a place below a folder."""
    lines = []
    for child in psutil.Process().children():
        with suppress(psutil.Error):  # it has just ended
            lines.append(" ".join(child.cmdline()))
    return [line for line in lines if str(folder) in line]


def test_a_command_leaves_no_git_behind_in_a_program_that_goes_on(place):
    sent = place.run("run", "mlx-env-probe", "--bus", "origin").out.strip()
    assert place.run("status", sent, "--bus", "origin").code == 0
    assert processes_at(place.clone.top) == []


@pytest.mark.ci
def test_a_configured_bus_that_is_away_never_becomes_the_embedded_one(place):
    place.run("init", "--bus", "origin")
    shutil.move(place.remote, place.root / "moved")
    ran = place.run("run", "mlx-env-probe", "--json")
    assert ran.code in {2, 3}
    assert not (place.root / "data" / "embedded").exists()


def test_a_remote_without_a_bus_says_what_to_do(place, tmp_path):
    subprocess.run(["git", "init", "-q", "--bare", str(tmp_path / "empty.git")], check=True, timeout=240)
    ran = place.run("run", "mlx-env-probe", "--bus", str(tmp_path / "empty.git"))
    assert ran.code == 3
    assert "carries no bus" in ran.err
    assert "--create-bus" in ran.err


def test_a_committed_file_may_name_an_id_or_a_remote_but_no_new_place(place, tmp_path):
    bus_id = place.host.bus.identity().bus_id
    committed = place.clone.top / "kakeya.toml"
    committed.write_text(f'schema = 1\nbus_id = "{bus_id}"\n')
    assert place.run("runners").code == 0
    committed.write_text('schema = 1\nroute = "origin"\n')
    assert place.run("runners").code == 0
    committed.write_text(f'schema = 1\nroute = "{make_bus(tmp_path / "other.git")}"\n')
    ran = place.run("runners")
    assert ran.code == 2
    assert "no remote of this clone" in ran.err
    committed.write_text('schema = 1\nbus_id = "' + "0" * 32 + '"\n')
    assert place.run("runners").code == 3


def test_push_instead_of_is_refused(place, tmp_path):
    place.clone.git("config", f"url.{tmp_path}/elsewhere.pushInsteadOf", str(place.remote))
    ran = place.run("run", "mlx-env-probe", "--bus", "origin")
    assert ran.code == 3
    assert "elsewhere" in ran.err


def files_of(place: Place, ref: str) -> dict[str, str]:
    """The work tree that arrived with a request; the clone itself never holds a snapshot."""

    def git(*words: str) -> str:
        argv = ["git", "-C", str(place.remote), *words]
        return subprocess.run(argv, check=True, capture_output=True, text=True, timeout=240).stdout

    names = git("ls-tree", "-r", "--name-only", ref).split()
    return {name: git("cat-file", "blob", f"{ref}:{name}") for name in names if not name.startswith(".mac-bridge/")}


def test_a_dirty_tree_is_sent_as_it_is_without_what_is_not_tracked(place):
    clone = place.clone
    (clone.top / "kept.txt").write_text("changed\n")
    (clone.top / "gone.txt").unlink()
    (clone.top / "staged.txt").write_text("staged\n")
    clone.git("add", "staged.txt")
    (clone.top / "secret.env").write_text("TOKEN=x\n")
    before = clone.state_of_repository()
    ran = place.run("run", "pytest-path", "--dirty", "--bus", "origin", "--json")
    assert clone.state_of_repository() == before
    workload = ran.document["request"]["workload"]
    assert workload["dirty"] is True
    sent = files_of(place, ran.document["request"]["ref"])
    assert sent == {
        "README.md": "a clone\n",
        "kept.txt": "changed\n",
        "staged.txt": "staged\n",
        "tests/test_x.py": "def test_x(): pass\n",
    }
    assert "3 changed files" in ran.err
    assert "1 untracked are not sent" in ran.err
    again = place.run("run", "pytest-path", "--dirty", "--bus", "origin", "--json").document
    assert again["id"] == ran.document["id"]
    (clone.top / "kept.txt").write_text("changed more\n")
    assert place.run("run", "pytest-path", "--dirty", "--bus", "origin", "--json").document["id"] != again["id"]


def test_without_dirty_head_is_sent_and_the_difference_is_said(place):
    (place.clone.top / "kept.txt").write_text("changed\n")
    ran = place.run("run", "pytest-path", "--bus", "origin", "--json")
    assert ran.document["request"]["workload"]["tree"] == place.clone.git("rev-parse", "HEAD^{tree}").strip()
    assert "1 files with uncommitted changes are not sent" in ran.err
    older = place.run("run", "pytest-path", "--ref", "HEAD~1", "--bus", "origin", "--json").document
    assert older["request"]["workload"]["commit"] == place.clone.git("rev-parse", "HEAD~1").strip()
    assert place.run("run", "pytest-path", "--ref", "--upload-pack=x", "--bus", "origin").code == 2
    assert place.run("run", "pytest-path", "--ref", "HEAD", "--dirty", "--bus", "origin").code == 2


@pytest.mark.ci
def test_detached_linked_and_shallow_clones_stay_as_they_are(place, tmp_path):
    clone = place.clone
    clone.git("checkout", "-q", "--detach")
    linked = tmp_path / "linked"
    clone.git("worktree", "add", "-q", str(linked), "main")
    before = clone.state_of_repository()
    in_linked = place.run("run", "pytest-path", "--bus", "origin", "--json", top=linked)
    assert in_linked.code == 0, in_linked.err
    assert place.run("run", "pytest-path", "--bus", "origin", "--json").document["id"] == in_linked.document["id"]
    assert clone.state_of_repository() == before
    shallow = Clone(tmp_path / "s")
    shutil.rmtree(shallow.top)
    subprocess.run(
        ["git", "clone", "-q", "--depth", "1", f"file://{place.remote}", str(shallow.top)], check=True, timeout=240
    )
    state = shallow.state_of_repository()
    assert state["shallow"] is True
    ran = place.run("run", "pytest-path", "--bus", "origin", "--new", top=shallow.top)
    assert ran.code == 0, ran.err
    assert shallow.state_of_repository() == state


def test_a_shallow_clone_that_lacks_a_commit_or_its_history_is_told_how_to_get_it(place, tmp_path):
    place.clone.git("push", "-q", "origin", "HEAD~1:refs/heads/older")
    top = tmp_path / "shallow"
    subprocess.run(["git", "clone", "-q", "--depth", "1", f"file://{place.remote}", str(top)], check=True, timeout=240)
    fetch = ["git", "-C", str(top), "fetch", "-q", "--depth", "1", "origin", "older:refs/remotes/origin/older"]
    subprocess.run(fetch, check=True, timeout=240)
    for words in (
        ("pytest-path", "--ref", "HEAD~1"),
        ("commit-comparison", "--against", "HEAD~1"),
        ("commit-comparison", "--against", "origin/older"),
    ):
        ran = place.run("run", *words, "--dry-run", "--bus", "origin", top=top)
        assert (ran.code, "git fetch --unshallow" in ran.err, "merge-base" in ran.err) == (2, True, False), ran.err
    subprocess.run(["git", "-C", str(top), "fetch", "-q", "--unshallow"], check=True, timeout=240)
    ran = place.run("run", "commit-comparison", "--against", "origin/older", "--dry-run", "--bus", "origin", top=top)
    assert ran.code == 0, ran.err


def test_a_failed_push_leaves_the_clone_as_it_was(place):
    hook = place.remote / "hooks" / "pre-receive"
    hook.write_text("#!/bin/sh\nexit 1\n")
    hook.chmod(0o755)
    (place.clone.top / "kept.txt").write_text("changed\n")
    before = place.clone.state_of_repository()
    ran = place.run("run", "pytest-path", "--dirty", "--bus", "origin", "--json")
    assert ran.code == 3
    assert place.clone.state_of_repository() == before
    ran = place.run("doctor", "--bus", "origin", "--json")
    assert ran.code == 1
    assert [row["check"] for row in ran.document["data"] if row["level"] == "fail"] == ["probe_push"]
    hook.unlink()
    assert place.run("run", "pytest-path", "--dirty", "--bus", "origin").code == 0


def test_a_branch_with_links_instead_of_files_is_no_result(place):
    clone = place.clone
    folder = clone.top / ".mac-bridge" / "result"
    folder.mkdir(parents=True)
    (folder / "log.txt").symlink_to("/etc/passwd")
    clone.git("add", "-A")
    clone.git("commit", "-q", "-m", "forged")
    with pytest.raises(IntegrityError, match="no regular file"):
        git_door.read_branch_result(clone.top, "main")
    with pytest.raises(UsageError, match="no branch"):
        git_door.read_branch_result(clone.top, "--output=x")


@pytest.mark.ci
def test_documents_stay_documents_over_git(place):
    sent = place.run("run", "mlx-env-probe", "--bus", "origin").out.strip()
    take(place.host, sent)
    document = json.loads(place.run("status", sent[:14], "--bus", "origin", "--json").out)
    assert (document["id"], document["bus"]["route"]) == (sent, str(place.remote))


COUNTED = (
    "import sys\nfrom bridge.cli.mac.main import main\ncode = main(sys.argv[1:])\n"
    "print(*sys.modules, file=sys.stderr)\nsys.exit(code)\n"
)
NEVER = {
    "cryptography", "securesystemslib", "tuf", "jsonschema", "rich", "yaml", "psutil", "asyncio", "git",
    "bridge.gate.report_kinds", "bridge.gate.judging", "bridge.launches.stopping",
    "bridge.presets.model", "bridge.trust.root", "bridge.bus.archive.folding", "bridge.bus.sides.runner",
    "bridge.client.document.envelope",
}  # fmt: skip
SIGNATURE = {"cryptography", "securesystemslib"}
GATE = {"jsonschema", "bridge.gate.report_kinds", "bridge.gate.judging", "bridge.launches.stopping"}
"""What of those a stored result takes to be believed, and to be judged here where no known key signed it."""


@dataclass
class Cost:
    """What a command of a process of its own loaded and which git it started."""

    modules: set[str]
    calls: list[str]


def cost(place, *words, exit_code=0):
    """Run a command in a process of its own, with a git on its path that writes down how it is called."""
    log, folder = place.root / "calls.txt", place.root / "bin"
    folder.mkdir(exist_ok=True)
    counting = folder / "git"
    counting.write_text(f'#!/bin/sh\necho "$*" >> {log}\nexec {shutil.which("git")} "$@"\n')
    counting.chmod(0o755)
    log.write_text("")
    own = {"KAKEYA_DATA_DIR": str(place.root / "data"), "KAKEYA_CONFIG_DIR": str(place.root / "config")}
    path = f"{folder}:{place.clone.env['PATH']}"
    ran = subprocess.run(
        [sys.executable, "-c", COUNTED, *words, "--bus", "origin"],
        cwd=place.clone.top, env=place.clone.env | own | {"PATH": path}, capture_output=True, text=True, timeout=120,
        check=False,
    )  # fmt: skip
    assert ran.returncode == exit_code, ran.stderr
    return Cost(set(ran.stderr.splitlines()[-1].split()), log.read_text().splitlines())


def loaded(place, *words):
    """Return the modules that a command had loaded at its end."""
    return cost(place, *words).modules


def test_a_look_at_one_run_asks_git_as_seldom_as_it_can(place):
    """One call reads the clone's configuration, one lists bus, runners and run; each thing that is new is fetched.

    Of a queued run one more lists the claims and the other requests, which says its place in the queue.

    Each of the two repositories, one for what a remote may have forged, has a git that reads its objects.
    """
    sent = place.run("run", "mlx-env-probe", "--bus", "origin").out.strip()
    queued = cost(place, "status", sent).calls
    place.host.claim(sent)
    place.host.start(sent)
    place.run("status", sent, "--bus", "origin")
    running = cost(place, "status", sent).calls
    place.host.finish(sent)
    place.run("fetch", sent, "--bus", "origin")
    stored = cost(place, "status", sent).calls
    for calls, most in ((queued, 4), (running, 3)):
        readers = [call for call in calls if "cat-file" in call]
        assert len(readers) <= 2, calls
        assert len(calls) - len(readers) <= most, calls
        assert sum("refs/kakeya/claim" in call for call in calls) == most - 2, calls
    assert stored == []


def test_a_request_takes_three_calls_where_the_runners_are_known(place):
    """One reads the clone's configuration, one lists the bus and brings the runners' beacons, one pushes; two read."""
    place.run("run", "mlx-env-probe", "--new", "--bus", "origin")
    place.host.beat()
    calls = cost(place, "run", "mlx-env-probe", "--new").calls
    readers = [call for call in calls if "cat-file" in call]
    assert (len(calls) - len(readers), len(readers)) == (3, 2), "\n".join(calls)


def test_a_run_that_was_just_sent_is_looked_at_when_it_can_have_changed_and_not_before(place):
    calls = cost(place, "run", "mlx-env-probe", "--wait-timeout", "0.4", exit_code=8).calls
    (sent,) = (number for number, call in enumerate(calls) if " push " in call)
    assert len(calls[sent + 1 :]) == 1, "\n".join(calls)


@pytest.mark.ci
def test_a_look_at_runs_loads_what_it_shows_and_no_more(place):
    """What a short command costs is what it imports; seconds are measured by the study `command-costs`.

    Of a stored result it checks the signature. One that nobody known signed is judged here, by the whole gate.
    """
    key = place.host.sign()
    sent = place.run("run", "mlx-env-probe", "--bus", "origin").out.strip()
    queued, listed = loaded(place, "status", sent), loaded(place, "ls")
    take(place.host, sent)
    place.run("fetch", sent, "--bus", "origin")
    unknown = cost(place, "status", sent)
    assert place.run("init", "--bus", "origin", "--runner-key", key).code == 0
    looked = cost(place, "status", sent)
    assert unknown.calls == looked.calls == []
    stored = looked.modules - SIGNATURE
    for modules in (queued, listed, stored):
        assert modules & NEVER == set()
    assert "bridge.trust.verifier" not in queued
    assert not stored & {"html", "bridge.records.archive"}
    assert unknown.modules & NEVER <= GATE | SIGNATURE
