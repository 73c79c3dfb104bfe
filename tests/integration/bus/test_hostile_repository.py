"""A hostile request branch over a real remote: bounded while it is received, refused in one line, never run."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from bridge.bus.store.git import GitStore
from bridge.bus.store.interface import ObjectBoundError
from bridge.bus.store.route import resolve
from bridge.bus.views import RequestRef
from bridge.errors import RequestRejectedError
from bridge.request import DEFAULT_TEMPLATE, request_branch
from tests.fakes.bus_actors import Actor
from tests.fakes.git_servers import git


def push(remote: Path, tmp_path: Path, files: dict[str, bytes], host: Actor) -> tuple[RequestRef, str]:
    """Push a work tree as a stranger would, with a request in it; return its ref and its tree without the request."""
    work = tmp_path / "stranger"
    git("init", "--quiet", str(work))
    for name, data in files.items():
        path = work / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    git("add", "--all", "--force", cwd=work)
    tree = git("write-tree", cwd=work)
    request = host.request()
    (work / ".mac-bridge").mkdir()
    (work / ".mac-bridge/request.json").write_bytes(request.canonical())
    git("add", "--all", "--force", cwd=work)
    git("commit", "--quiet", "--no-gpg-sign", "-m", "request", cwd=work)
    oid = git("rev-parse", "HEAD", cwd=work)
    git("push", "--quiet", str(remote), f"HEAD:{request.ref}", cwd=work)
    return RequestRef(request.id, request.ref, oid), tree


def test_filters_hooks_and_attributes_of_a_pushed_tree_are_plain_bytes(
    remote: Path, host: Actor, tmp_path: Path
) -> None:
    canary = tmp_path / "canary"
    ref, tree = push(
        remote,
        tmp_path,
        {
            ".gitattributes": b"* filter=evil diff=evil text eol=crlf\n",
            ".gitconfig": f'[filter "evil"]\nsmudge = touch {canary}\n'.encode(),
            ".lfsconfig": b"[lfs]\nurl = http://127.0.0.1:9/\n",
            "weights.bin": b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"0" * 64 + b"\nsize 1\n",
            "text.txt": b"a\nb\n",
            "hooks/post-checkout": f"#!/bin/sh\ntouch {canary}\n".encode(),
        },
        host,
    )
    into = tmp_path / "job"
    into.mkdir()
    host.bus.read_request(ref)
    host.bus.fetch_workload(ref, tree, into, large_files="leave")
    assert (into / "text.txt").read_bytes() == b"a\nb\n"
    assert (into / "weights.bin").read_bytes().startswith(b"version https://git-lfs")
    assert not canary.exists()
    assert not (into / ".git").exists()


def test_a_tree_other_than_the_named_one_is_refused(remote: Path, host: Actor, tmp_path: Path) -> None:
    ref, _ = push(remote, tmp_path, {"a": b"1"}, host)
    into = tmp_path / "job"
    into.mkdir()
    with pytest.raises(RequestRejectedError, match="its request names"):
        host.bus.fetch_workload(ref, "ab" * 20, into)
    assert list(into.iterdir()) == []


def test_what_is_received_is_bounded_before_it_is_looked_at(remote: Path, host: Actor, tmp_path: Path) -> None:
    ref, _ = push(remote, tmp_path, {"noise": os.urandom(3_000_000)}, host)
    state = tmp_path / "bounded"
    state.mkdir()
    store = GitStore(resolve(str(remote), None, state), state)
    with pytest.raises(ObjectBoundError, match="more would be received"):
        store.isolate("small", [ref.oid], max_bytes=200_000)
    assert store.isolate("large", [ref.oid], max_bytes=20_000_000)


def test_many_files_are_refused_by_count(remote: Path, host: Actor, tmp_path: Path) -> None:
    ref, tree = push(remote, tmp_path, {f"d{number % 50}/f{number}": b"" for number in range(20_100)}, host)
    into = tmp_path / "job"
    into.mkdir()
    with pytest.raises(RequestRejectedError, match="more than 20000 files"):
        host.bus.fetch_workload(ref, tree, into)
    assert list(into.iterdir()) == []


def test_a_malformed_object_is_refused_by_fsck(remote: Path, host: Actor, tmp_path: Path) -> None:
    work = tmp_path / "forger"
    git("init", "--quiet", str(work))
    (work / "f").write_text("x")
    blob = git("hash-object", "-w", "f", cwd=work)
    raw = b"100644 .git\0" + bytes.fromhex(blob)
    (work / "tree").write_bytes(raw)
    tree = git("hash-object", "-t", "tree", "-w", "--literally", "tree", cwd=work)
    commit = git("commit-tree", "-m", "x", tree, cwd=work)
    run_id = host.new_id()
    ref = request_branch(DEFAULT_TEMPLATE, "x", run_id)
    git("push", "--quiet", str(remote), f"{commit}:{ref}", cwd=work)
    with pytest.raises(RequestRejectedError, match="malformed object") as caught:
        host.bus.read_request(RequestRef(run_id, ref, commit))
    assert "\n" not in caught.value.message


def test_replace_refs_of_the_remote_change_nothing(remote: Path, host: Actor, tmp_path: Path) -> None:
    ref, tree = push(remote, tmp_path, {"a": b"honest"}, host)
    work = tmp_path / "stranger"
    (work / "a").write_bytes(b"forged")
    git("add", "a", cwd=work)
    git("commit", "--quiet", "-m", "forged", cwd=work)
    git("replace", ref.oid, "HEAD", cwd=work)
    git("push", "--quiet", str(remote), "refs/replace/*:refs/replace/*", cwd=work)
    into = tmp_path / "job"
    into.mkdir()
    host.bus.fetch_workload(ref, tree, into)
    assert (into / "a").read_bytes() == b"honest"
