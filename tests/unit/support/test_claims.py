from __future__ import annotations

import os
from pathlib import Path

from tests.fakes.git_servers import bare, git
from tests.support.claims import ref_mark


def test_a_ref_has_another_mark_once_it_moved_however_it_is_kept(tmp_path: Path) -> None:
    path, ref = bare(tmp_path / "bare.git"), "refs/kakeya/claim/one"
    tree = git("hash-object", "-t", "tree", "-w", os.devnull, cwd=path)
    marks = [ref_mark(path, ref)]
    for message in ("one", "two"):
        git("update-ref", ref, git("commit-tree", "-m", message, tree, cwd=path), cwd=path)
        marks.append(ref_mark(path, ref))
        assert ref_mark(path, ref) == marks[-1]
    git("pack-refs", "--all", cwd=path)
    git("update-ref", "-d", ref, cwd=path)
    marks.append(ref_mark(path, ref))
    assert len(set(marks)) == len(marks)
