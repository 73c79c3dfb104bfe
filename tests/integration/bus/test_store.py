"""A host's own repositories over months: nothing that is needed goes away, nothing grows without end."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from bridge.bus.open.embedded import embedded_route, ensure_embedded
from bridge.bus.store.git import GitStore
from bridge.bus.store.interface import MalformedObjectError, MissingObjectError, ObjectBoundError, RefAnswer, RefUpdate
from bridge.bus.store.route import Route
from bridge.bus.store.upkeep import is_half_pruned
from bridge.bus.store.user_clone import read_clone
from bridge.errors import KakeyaError
from bridge.limits import GIT_WALL_S
from bridge.system.durable import NameLock
from bridge.system.git import run_in_work_tree
from bridge.system.gitobjects import REGULAR, TreeEntry, blob, commit, tree
from tests.fakes.bus_actors import FakeClock
from tests.fakes.git_servers import bare, git
from tests.support.waiting import until


@pytest.fixture
def store(tmp_path: Path) -> GitStore:
    remote = bare(tmp_path / "remote.git")
    (tmp_path / "state").mkdir()
    return GitStore(Route(str(remote), "here", (), is_local=True), tmp_path / "state")


def loose(store_path: Path) -> int:
    return sum(1 for path in (store_path / "objects").glob("[0-9a-f][0-9a-f]/*"))


def test_many_small_objects_are_packed_and_stay_readable(store: GitStore, tmp_path: Path) -> None:
    made = [blob(f"object {number}".encode()) for number in range(2000)]
    store.write(made)
    control = tmp_path / "state" / "control.git"
    store.tend()
    assert loose(control) < len(made) / 2
    with store.reader() as reader:
        for obj in made[::97]:
            assert reader.read(obj.oid, "blob", 100) == obj.data


def test_a_ref_comes_with_its_listing_although_another_is_not_there(store: GitStore) -> None:
    top = tree([])
    made = commit(top.oid, (), 0, "x")
    store.write([top, made])
    store.push([RefUpdate("refs/x/claim/1", made.oid, None), RefUpdate("refs/x/other", made.oid, None)])
    reader = GitStore(store._route, store._state.with_name("reader"))
    listing = reader.list(["refs/x/other"], bring=["refs/x/claim/1", "refs/x/log/1"], max_bytes=10**6)
    assert listing.refs == {"refs/x/claim/1": made.oid, "refs/x/other": made.oid}
    assert reader._missing({"claim": made.oid}) == {}


def test_what_a_fetch_left_out_is_not_fetched_by_who_reads(store: GitStore, tmp_path: Path) -> None:
    remote = tmp_path / "remote.git"
    git("config", "uploadpack.allowFilter", "true", cwd=remote)
    large = blob(os.urandom(100_000))
    top = tree([TreeEntry(REGULAR, b"large", large.oid)])
    made = commit(top.oid, (), 0, "x")
    store.write([large, top, made])
    store.push([RefUpdate("refs/x/1", made.oid, None)])
    reader = GitStore(Route(f"file://{remote}", "there", (), is_local=True), tmp_path / "reader")
    (tmp_path / "reader" / "control.git" / "pruning").touch()  # nothing is looked up before the fetch then
    part = reader.isolate("peek", [made.oid], max_bytes=10**6, checked=False, shallow_trees=True)
    with part.reader() as objects:
        assert objects.read(top.oid, "tree", 1000) == top.data
        with pytest.raises(MissingObjectError):
            objects.read(large.oid, "blob", 10**6)
    assert "promisor" not in (tmp_path / "reader" / "isolated" / "peek.git" / "config").read_text()


def test_what_was_fetched_or_pushed_long_ago_goes_and_what_was_built_stays(store: GitStore, tmp_path: Path) -> None:
    control, day_s = tmp_path / "state" / "control.git", 24 * 3600
    top = tree([])
    made = [commit(top.oid, (), number, "x") for number in range(3)]
    pushed, built, new = made
    store.write([top, *made])
    store.keep("run-1", built.oid)
    store.tend()
    store.push([RefUpdate("refs/x/old", pushed.oid, None), RefUpdate("refs/x/new", new.oid, None)])
    old_ref = next(path for path in (control / "refs" / "fetched").iterdir() if pushed.oid in path.read_text())
    for path in (old_ref, control / "pruned", *(control / "objects").glob("??/*")):
        os.utime(path, (time.time() - 3 * day_s,) * 2)
    store.tend()
    assert set(store._missing({obj.oid: obj.oid for obj in made})) == {pushed.oid}
    store.obtain({"refs/x/old": pushed.oid}, max_bytes=10**6)
    assert not store._missing({"": pushed.oid})


def test_a_prune_that_was_cut_off_is_done_again_and_what_it_left_of_an_object_is_no_object(
    store: GitStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    control, top = tmp_path / "state" / "control.git", tree([TreeEntry(REGULAR, b"file", blob(b"x").oid)])
    head, ref = commit(top.oid, (), 0, "x"), "refs/x/one"
    store.write([blob(b"x"), top, head])
    store.push([RefUpdate(ref, head.oid, None)])
    store.tend()
    for path in (control / "pruned", *(control / "refs" / "fetched").iterdir()):
        os.utime(path, (0, 0))
    store.stop_when(lambda: True)
    with monkeypatch.context() as patched:
        patched.setenv("PATH", f"{endless_git(tmp_path / 'bin')}:{os.environ['PATH']}")
        store.tend()  # killed, as its runner is to end
    store.stop_when(lambda: False)
    (control / "objects" / top.oid[:2] / top.oid[2:]).unlink()
    store.obtain({ref: head.oid}, max_bytes=10**6)
    with store.reader() as reader:
        assert reader.read(top.oid, "tree", 100) == top.data
    store.tend()
    assert not is_half_pruned(store._repository)
    assert (control / "pruned").stat().st_mtime > 0


def test_a_repository_that_another_prunes_is_left_to_it(store: GitStore, tmp_path: Path) -> None:
    control = tmp_path / "state" / "control.git"
    store.tend()
    os.utime(control / "pruned", (0, 0))
    with NameLock(control / "upkeep.lock").held():
        store.tend()
        assert (control / "pruned").stat().st_mtime == 0
    store.tend()
    assert (control / "pruned").stat().st_mtime > 0


def endless_git(folder: Path) -> Path:
    """Make a folder with a git that never ends."""
    folder.mkdir()
    (folder / "git").write_text("#!/bin/sh\nexec sleep 1000\n")
    (folder / "git").chmod(0o755)
    return folder


def test_nothing_is_pruned_where_packing_found_an_object_missing(store: GitStore, tmp_path: Path) -> None:
    control, top = tmp_path / "state" / "control.git", tree([TreeEntry(REGULAR, b"file", blob(b"x").oid)])
    head, alone = commit(top.oid, (), 0, "x"), blob(b"leads nowhere")
    store.write([top, head, alone])  # but not the file
    store.keep("run-1", head.oid)
    store.tend()
    for path in (control / "pruned", *(control / "objects").glob("??/*")):
        os.utime(path, (0, 0))
    store.tend()
    assert not store._missing({"": alone.oid})
    assert (control / "pruned").stat().st_mtime == 0
    store.write([blob(b"x")])
    store.tend()
    assert store._missing({"": alone.oid})


def test_an_object_that_is_written_again_is_not_pruned_as_an_old_one(store: GitStore, tmp_path: Path) -> None:
    control, (old, again) = tmp_path / "state" / "control.git", (blob(b"old"), blob(b"written again"))
    store.write([old, again])
    for path in (control / "objects").glob("??/*"):
        os.utime(path, (0, 0))
    store.write([again])
    git("prune", "--expire=1.day.ago", cwd=control)
    assert set(store._missing({obj.oid: obj.oid for obj in (old, again)})) == {old.oid}


@pytest.mark.parametrize("emptied", ["ref", "commit", "tree"])
def test_what_a_power_cut_left_empty_is_cleared_at_the_next_start(
    store: GitStore, tmp_path: Path, emptied: str
) -> None:
    control, ref = tmp_path / "state" / "control.git", "refs/x/pushed"
    trees = [tree([TreeEntry(REGULAR, b"file", blob(text).oid)]) for text in (b"pushed", b"built")]
    pushed, built = (commit(top.oid, (), 0, "x") for top in trees)
    store.write([blob(b"pushed"), trees[0], pushed])
    store.write([blob(b"built"), trees[1], built], durable=True)
    store.keep("run-1", built.oid)
    store.push([RefUpdate(ref, pushed.oid, None)])
    (control / "refs" / "kept" / "run-2").write_bytes(b"")
    if emptied == "ref":
        next((control / "refs" / "fetched").iterdir()).write_bytes(b"")
    else:
        gone = (pushed if emptied == "commit" else trees[0]).oid
        path = control / "objects" / gone[:2] / gone[2:]
        path.unlink()
        path.touch()
    os.utime(control / "recovered", (0, 0))  # written before this machine was started

    again = GitStore(store._route, tmp_path / "state")
    again.obtain({ref: pushed.oid}, max_bytes=10**6)
    with again.reader() as reader:
        assert reader.read(trees[0].oid, "tree", 100) == trees[0].data
    assert [path.name for path in (control / "refs" / "kept").iterdir()] == ["run-1"]
    for verb in (["repack", "-A", "-d"], ["prune"], ["rev-list", "--objects", "--all"]):
        assert "error" not in git(*verb, cwd=control)
    assert not again._missing({"built": built.oid})


def test_what_waits_for_the_disk_is_one_pack_that_git_takes_and_a_prune_leaves(store: GitStore, tmp_path: Path) -> None:
    control = tmp_path / "state" / "control.git"
    data = [b"", b"x" * 15, b"y" * 16, b"z" * 3000, *(bytes([number, 7]) * number for number in range(1, 40))]
    top = tree([TreeEntry(REGULAR, b"%d" % number, blob(content).oid) for number, content in enumerate(data)])
    made = [*map(blob, data), top, commit(top.oid, (), 0, "x")]
    store.write(made)
    for path in control.glob("objects/??/*"):
        os.utime(path, (0, 0))
    store.write([*made, made[0]], durable=True)
    (index,) = (control / "objects" / "pack").glob("*.idx")
    git("index-pack", "--verify", str(index.with_suffix(".pack")), cwd=control)
    git("prune", "--expire=1.day.ago", cwd=control)
    git("prune-packed", cwd=control)
    assert len(list(control.glob("objects/??/*"))) == 0
    with store.reader() as reader:
        for obj in made:
            assert reader.read(obj.oid, obj.kind, 4000) == obj.data
    assert git("rev-list", "--objects", "--count", made[-1].oid, cwd=control).strip() == str(len({*made}))


def test_packs_are_joined_when_they_are_many(store: GitStore, tmp_path: Path) -> None:
    packs, top = tmp_path / "state" / "control.git" / "objects" / "pack", tree([])
    made = [commit(top.oid, (), number, "x") for number in range(52)]
    for obj in made:
        store._repository.write([top, obj], durable=False)
        argv, listed = ["git", "pack-objects", "objects/pack/pack"], f"{obj.oid}\n".encode()
        subprocess.run(argv, input=listed, cwd=packs.parents[1], check=True, capture_output=True)
    git("prune-packed", cwd=packs.parents[1])
    store.tend_apart()
    until(lambda: len(list(packs.glob("*.pack"))) < 5, why="no other process joined them")
    until(NameLock(tmp_path / "state" / "control.git" / "upkeep.lock").try_acquire, why="it goes on")
    assert not store._missing({obj.oid: obj.oid for obj in made})


def test_isolated_stores_are_kept_within_bounds(store: GitStore, tmp_path: Path) -> None:
    top = tree([])
    head = commit(top.oid, (), 0, "x")
    store.write([top, head])
    assert store.push([RefUpdate("refs/heads/x", head.oid, None)]) == {"refs/heads/x": RefAnswer(taken=True)}
    for number in range(70):
        store.isolate(f"run-{number}", [head.oid], max_bytes=1_000_000)
    assert len(list((tmp_path / "state" / "isolated").iterdir())) <= 64
    store.drop("run-69")
    assert not (tmp_path / "state" / "isolated" / "run-69.git").exists()
    for name in ("../x", "a/b", "", "A"):
        with pytest.raises(ValueError, match="no name"):
            store.isolate(name, [head.oid], max_bytes=1)


def test_a_fetch_that_breaks_its_bound_says_so_although_the_commits_of_all_came(store: GitStore) -> None:
    """Commits come before what they hold, so those of a batch may all be here when git is stopped."""
    heads = []
    for data in (b"small", os.urandom(10**6)):
        file_blob = blob(data)
        top = tree([TreeEntry(REGULAR, b"f", file_blob.oid)])
        heads.append(commit(top.oid, (), 0, "x"))
        store.write([file_blob, top, heads[-1]])
        store.push([RefUpdate(f"refs/x/{len(heads)}", heads[-1].oid, None)])
    reader = GitStore(store._route, store._state.with_name("reader"))
    with pytest.raises(ObjectBoundError):
        reader.isolate("both", [head.oid for head in heads], max_bytes=10**5, checked=False)


def test_a_read_is_bounded_whether_loose_or_packed(store: GitStore, tmp_path: Path) -> None:
    large = blob(b"x" * 10_000)
    store.write([large])
    for _ in ("loose", "packed"):
        with store.reader() as reader:
            assert len(reader.read(large.oid, "blob", 10_000)) == 10_000
            with pytest.raises(ObjectBoundError, match="10000 bytes"):
                reader.read(large.oid, "blob", 9_999)
            with pytest.raises(MalformedObjectError, match="is a blob"):
                reader.read(large.oid, "tree", 10_000)
            with pytest.raises(MissingObjectError):
                reader.read("0" * 40, "blob", 1)
        git("maintenance", "run", "--quiet", "--task=loose-objects", cwd=tmp_path / "state" / "control.git")
        git("prune-packed", cwd=tmp_path / "state" / "control.git")
    assert loose(tmp_path / "state" / "control.git") == 0


@pytest.mark.parametrize(
    "damage", [lambda data: b"", lambda data: b"no zlib", lambda data: data[:40], lambda data: data[:-5000]]
)
def test_a_damaged_object_of_the_users_clone_is_an_error_and_never_half_an_object(
    store: GitStore, tmp_path: Path, damage: Callable[[bytes], bytes]
) -> None:
    clone = tmp_path / "clone"
    git("init", "--quiet", str(clone))
    (clone / "file").write_bytes(os.urandom(20_000))
    oid = git("hash-object", "-w", "file", cwd=clone)
    path = clone / ".git" / "objects" / oid[:2] / oid[2:]
    data = path.read_bytes()
    path.unlink()
    path.write_bytes(damage(data))
    (tmp_path / "own").mkdir()
    with GitStore(store._route, tmp_path / "own", read_clone(clone)).reader() as reader, pytest.raises(KakeyaError):
        reader.read(oid, "blob", 10**6)


def test_what_is_packed_is_read_within_bounds_as_a_delta_or_whole(store: GitStore, tmp_path: Path) -> None:
    text = "".join(f"line {number}\n" for number in range(2000))
    blobs = [blob(f"{number}{text}{'x' * number}{number}".encode()) for number in range(8)] + [blob(b"")]
    store.write(blobs)
    control = tmp_path / "state" / "control.git"
    listed = "".join(f"{packed.oid}\n" for packed in blobs).encode()
    argv = ["git", "pack-objects", "--depth=3", "objects/pack/pack"]
    subprocess.run(argv, cwd=control, input=listed, capture_output=True, check=True)
    git("prune-packed", cwd=control)
    with store.reader() as reader:
        assert [reader.read(packed.oid, "blob", 10**7) for packed in blobs] == [packed.data for packed in blobs]
        for packed in blobs[:-1]:
            with pytest.raises(ObjectBoundError):
                reader.read(packed.oid, "blob", len(packed.data) - 1)
    assert store._missing({"here": blobs[3].oid, "not": "0" * 40}) == {"not": "0" * 40}


def test_a_folder_of_this_machine_shows_without_asking_that_something_was_pushed(
    store: GitStore, tmp_path: Path
) -> None:
    top = tree([])
    head, watched = commit(top.oid, (), 0, "x"), ["refs/heads/mac-bridge/", "refs/kakeya/claim/"]
    store.write([top, head])
    before = store.mark(watched)
    assert before == store.mark(watched)
    store.push([RefUpdate("refs/kakeya/claim/1", head.oid, None)])
    assert store.mark(watched) != before
    elsewhere = Route("https://example.org/x.git", "there", (), is_local=False)
    assert GitStore(elsewhere, tmp_path / "state").mark(watched) is None


def test_the_embedded_bus_is_private_and_made_once(tmp_path: Path) -> None:
    path = ensure_embedded(tmp_path, FakeClock())
    assert path == embedded_route(tmp_path) == ensure_embedded(tmp_path, FakeClock())
    assert (path.parent.stat().st_mode & 0o777, path.stat().st_mode & 0o777) == (0o700, 0o700)
    assert len(git("for-each-ref", cwd=path).splitlines()) == 1


def test_a_call_that_a_thread_waits_for_ends_with_its_process(tmp_path: Path) -> None:
    code = """
import sys, threading
from pathlib import Path
from bridge.system.git import collect, start
process = start(["sleep", "1000"], {}, cwd=Path(sys.argv[1]))
threading.Thread(target=collect, args=(process, 900.0), daemon=True).start()
print(process.pid)
"""
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True)
    while is_running(int(done.stdout)):
        time.sleep(0.02)


def is_running(pid: int) -> bool:
    """Whether a process goes on; one that has ended may still have an entry until it is reaped."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_variables_that_point_git_elsewhere_do_not_reach_it(
    store: GitStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    canary = tmp_path / "canary"
    helper = tmp_path / "helper"
    helper.write_text(f'#!/bin/sh\ntouch {canary}\nexec git "$@"\n')
    helper.chmod(0o755)
    for name, value in {
        "GIT_DIR": "/nowhere",
        "GIT_WORK_TREE": "/nowhere",
        "GIT_INDEX_FILE": "/nowhere",
        "GIT_OBJECT_DIRECTORY": "/nowhere",
        "GIT_NAMESPACE": "elsewhere",
        "GIT_EXTERNAL_DIFF": str(helper),
        "GIT_CONFIG_PARAMETERS": "'core.hookspath'='/nowhere'",
        "GIT_TRACE": "1",
    }.items():
        monkeypatch.setenv(name, value)
    top = tree([])
    head = commit(top.oid, (), 0, "x")
    store.write([top, head])
    assert store.push([RefUpdate("refs/heads/x", head.oid, None)]) == {"refs/heads/x": RefAnswer(taken=True)}
    assert store.list(["refs/"]).refs == {"refs/heads/x": head.oid}
    assert run_in_work_tree(tmp_path, ["version"]).exit_code == 0
    assert not canary.exists()


def test_a_lock_of_git_is_named_and_goes_when_whoever_held_it_is_surely_gone(store: GitStore, tmp_path: Path) -> None:
    head = commit(tree([]).oid, (), 0, "x")
    store.write([tree([]), head])
    store.push([RefUpdate("refs/heads/x", head.oid, None)])
    (tmp_path / "own").mkdir()
    reader = GitStore(store._route, tmp_path / "own")
    reader.isolate("one", [head.oid], max_bytes=10**6)
    lock = tmp_path / "own" / "isolated" / "one.git" / "shallow.lock"
    lock.touch()
    with pytest.raises(KakeyaError, match=r"shallow\.lock': File exists") as caught:
        reader.isolate("one", [head.oid], max_bytes=10**6, commits=2)
    assert "an editor" not in caught.value.message
    os.utime(lock, (time.time() - GIT_WALL_S - 1,) * 2)
    reader.isolate("one", [head.oid], max_bytes=10**6, commits=2)
    assert not lock.exists()
