"""Result trees over a store: built once as a root commit, read back within bounds.

A root commit, so that reading a result drags no history along. Knows nothing about what the files mean.
"""

from __future__ import annotations

from bridge.bus.content import commits
from bridge.bus.store.interface import Reader, RefStore
from bridge.bus.tree import Tree
from bridge.errors import BusError, IntegrityError
from bridge.ids import unix_ms
from bridge.limits import MIB, RESULT_MAX_BYTES, RESULT_MAX_FILES, RESULT_PATH_MAX_CHARS, RESULT_PATH_MAX_PARTS
from bridge.system.gitobjects import DIRECTORY, REGULAR, commit


class Results:
    """Result commits of one bus."""

    def __init__(self, store: RefStore) -> None:
        self._store = store

    def build(self, tree: Tree, run_id: str) -> str:
        """Store a result durably and return its commit's id, a function of the files and the run.

        Raises:
            IntegrityError: the tree breaks its bounds.
        """
        _check(tree)
        top, objects = commits.nested_tree(tree.files)
        head = commit(top.oid, (), unix_ms(run_id) // 1000, f"result {run_id}", self._store.committer)
        # On the disk before a claim names it: after a crash exactly this id is published again.
        self._store.write([*objects, head], durable=True)
        self._store.keep(run_id, head.oid)
        return head.oid

    def read(self, oid: str) -> Tree:
        """Return a result.

        Raises:
            IntegrityError: it breaks its bounds, or is none.
        """
        files: dict[str, bytes] = {}
        try:
            self._store.obtain({"": oid}, max_bytes=2 * RESULT_MAX_BYTES)
            with self._store.reader() as reader:
                head = commits.read_commit(reader, oid)
                _collect(reader, head.tree, "", files, 0)
        except (BusError, UnicodeDecodeError) as error:
            raise IntegrityError(f"{oid[:12]} is no result within its bounds: {error}") from error
        tree = Tree(files)
        _check(tree)
        return tree


def _collect(reader: Reader, tree_oid: str, folder: str, files: dict[str, bytes], depth: int) -> None:
    if depth > RESULT_PATH_MAX_PARTS:
        raise IntegrityError(f"result folders are nested deeper than {RESULT_PATH_MAX_PARTS}")
    entries = commits.read_entries(reader, tree_oid, MIB)
    if folder and not entries:  # each folder brings a file, so that the bound of files is one of the work
        raise IntegrityError(f"result holds {folder!r}, an empty folder")
    for entry in entries.values():
        path = folder + entry.name.decode()
        if entry.mode == DIRECTORY:
            _collect(reader, entry.oid, path + "/", files, depth + 1)
        elif entry.mode == REGULAR:
            left = RESULT_MAX_BYTES - sum(map(len, files.values()))
            files[path] = reader.read(entry.oid, "blob", max(0, left))
        else:
            raise IntegrityError(f"result holds {path!r} with mode {entry.mode}; only plain files are allowed")
        if len(files) > RESULT_MAX_FILES:
            raise IntegrityError(f"result has more than {RESULT_MAX_FILES} files")


def _check(tree: Tree) -> None:
    total = sum(map(len, tree.files.values()))
    if len(tree.files) > RESULT_MAX_FILES or total > RESULT_MAX_BYTES:
        raise IntegrityError(
            f"result has {len(tree.files)} files, {total} bytes; at most {RESULT_MAX_FILES}, {RESULT_MAX_BYTES}"
        )
    for path in tree.files:
        parts = path.split("/")
        unsafe = any(part in ("", ".", "..") or part.lower().startswith(".git") for part in parts)
        if unsafe or not path.isprintable() or len(path) > RESULT_PATH_MAX_CHARS or len(parts) > RESULT_PATH_MAX_PARTS:
            raise IntegrityError(f"result path {path!r} is not a plain relative path")
