"""Refs that a stranger with push rights can leave on a bus: one function a kind, over a real bare repository.

Objects are written straight into the remote, as git's own plumbing leaves them; a `.` in a kind's name
says at which ref. Nothing here is ever valid.
"""

from __future__ import annotations

import hashlib
import os
import zlib
from collections.abc import Iterator
from pathlib import Path

from bridge.ids import new_id

MIB = 1 << 20
PREFIX = "refs/kakeya/"
IDENTITY = b"author a <a@b> 1700000000 +0000\ncommitter a <a@b> 1700000000 +0000\n"
EMPTY_TREE = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"


class Stranger:
    """Writes objects and refs into a bare repository."""

    def __init__(self, remote: Path, *, huge_bytes: int = 3 * MIB) -> None:
        self.remote, self.huge_bytes = remote, huge_bytes
        self._trees: tuple[str, str] | None = None
        self.put("tree", b"")

    def put(self, kind: str, data: bytes) -> str:
        whole = f"{kind} {len(data)}\0".encode() + data
        oid = hashlib.sha1(whole, usedforsecurity=False).hexdigest()
        path = self.remote / "objects" / oid[:2] / oid[2:]
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(zlib.compress(whole, 1))
        return oid

    def tree(self, entries: dict[str, tuple[str, str]]) -> str:
        return self.put("tree", b"".join(_entry(mode, name, oid) for name, (mode, oid) in sorted(entries.items())))

    def commit(
        self, tree: str, message: bytes = b"x\n", *, parents: tuple[str, ...] = (), head: bytes = IDENTITY
    ) -> str:
        lines = f"tree {tree}\n" + "".join(f"parent {parent}\n" for parent in parents)
        return self.put("commit", lines.encode() + head + b"\n" + message)

    def file(self, name: str, data: bytes) -> str:
        """Return a commit with one file, in folders where its name has slashes."""
        oid, mode = self.put("blob", data), "100644"
        for part in reversed(name.split("/")):
            oid, mode = self.tree({part: (mode, oid)}), "40000"
        return self.commit(oid)

    def ref(self, name: str, oid: str) -> None:
        path = self.remote / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{oid}\n")

    def trees(self, blob: str) -> tuple[str, str]:
        """Return a deep tree and a wide one."""
        if self._trees is None:
            deep = self.put("tree", b"")
            for _ in range(200):
                deep = self.tree({"d": ("40000", deep)})
            self._trees = deep, self.tree({f"f{number:06d}": ("100644", blob) for number in range(20_000)})
        return self._trees

    def contents(self, file: str) -> dict[str, str]:
        """Return objects that are not what a reader of this file expects, by kind."""
        blob = self.put("blob", b"x")
        deep, wide = self.trees(blob)
        missing = hashlib.sha1(os.urandom(8), usedforsecurity=False).hexdigest()
        noise = self.put("blob", os.urandom(self.huge_bytes))
        return {
            "blob": blob,
            "huge-blob": noise,
            "tree": self.tree({"a": ("100644", blob)}),
            "huge-tree": wide,
            "tag-of-blob": self.put(
                "tag", f"object {blob}\ntype blob\ntag t\ntagger a <a@b> 1700000000 +0000\n\nx\n".encode()
            ),
            "huge-file": self.file(file, os.urandom(self.huge_bytes)),
            "no-json": self.file(file, b"\xff\xfe not json"),
            "deep-json": self.file(file, b"[" * 30_000 + b"]" * 30_000),
            "other-record": self.file(file, b'{"schema_version":1}'),
            "long-message": self.commit(EMPTY_TREE, b"m" * 20_000 + b"\n"),
            "no-file": self.commit(EMPTY_TREE),
            "deep-tree": self.commit(deep),
            "wide-tree": self.commit(wide),
            "missing-blob": self.commit(self.tree({file.rsplit("/", maxsplit=1)[-1]: ("100644", missing)})),
            "missing-tree": self.commit(missing),
            "no-committer": self.commit(EMPTY_TREE, head=b"author a <a@b> 1700000000 +0000\n"),
        }


def leave_all(remote: Path, now_ms: int, *, huge_bytes: int = 3 * MIB) -> list[str]:
    """Leave every kind at every kind of ref; return "KIND at REF" of each."""
    stranger = Stranger(remote, huge_bytes=huge_bytes)
    left = []
    for place, file in (
        ("claim", "claim.json"),
        ("log", "head.json"),
        ("runner", "beacon.json"),
        ("request", ".mac-bridge/request.json"),
        ("cancel", ".mac-bridge/cancel.json"),
    ):
        for number, (kind, oid) in enumerate(stranger.contents(file).items()):
            for ref in _refs(place, kind, now_ms - 60_000 + number):
                stranger.ref(ref, oid)
                left.append(f"{kind} at {ref}")
    return left + [f"below a leaf at {ref}" for ref in leave_below_leaves(stranger, now_ms)]


def leave_below_leaves(stranger: Stranger, now_ms: int) -> list[str]:
    """Leave refs beside which git makes no ref of ours: each has the name of one, and goes on; return their names."""
    head, run_id = stranger.commit(EMPTY_TREE), new_id(now_ms, os.urandom(10))
    refs = [
        f"{PREFIX}{leaf}/x"
        for leaf in ("root", "probe", f"claim/{run_id}", f"log/{run_id}", "runner/other", "archive/other/2026-01-01")
    ]
    for ref in refs:
        stranger.ref(ref, head)
    return refs


def leave_for_folders(stranger: Stranger) -> list[str]:
    """Leave a ref in the place of every folder of a bus without runs and archives; return their names."""
    refs = [f"{PREFIX}{kind}" for kind in ("archive/mini", "claim", "log", "runner")]
    refs += ["refs/heads/AgentMemory", "refs/heads/mac-bridge/cancel"]
    for ref in refs:
        stranger.ref(ref, stranger.commit(EMPTY_TREE))
    return refs


def _refs(place: str, kind: str, id_ms: int) -> Iterator[str]:
    run_id = new_id(id_ms, os.urandom(10))
    if place in {"claim", "log"}:
        yield f"{PREFIX}{place}/{run_id}"
    elif place == "runner":
        yield f"{PREFIX}runner/{kind}"
    elif place == "request":
        yield f"refs/heads/mac-bridge/mlx-env-probe-{run_id}"
    else:
        yield f"refs/heads/mac-bridge/cancel/{run_id}"


def _entry(mode: str, name: str, oid: str) -> bytes:
    return f"{mode} {name}\0".encode() + bytes.fromhex(oid)
