"""What a run left goes, whatever its folders look like, and nothing else does."""

from __future__ import annotations

import os

import pytest

from bridge.executor.removal import remove_tree
from bridge.executor.sandbox.held_folders import held_folder
from tests.support.deep_folder import make_deep


def test_folders_deeper_than_any_path_go_and_what_links_point_at_stays(tmp_path):
    outside = tmp_path / "kept"
    outside.mkdir()
    (outside / "file").touch()
    root = tmp_path / "root"
    (root / "wide" / "down").mkdir(parents=True)
    (root / "link").symlink_to(outside)
    (root / "wide" / "link").symlink_to(outside)
    make_deep(root)

    assert remove_tree(root)
    assert not root.exists()
    assert (outside / "file").exists()
    assert remove_tree(root), "a folder that is not there is gone"
    (tmp_path / "to").symlink_to(outside)
    assert not remove_tree(tmp_path / "to")
    assert (outside / "file").exists()


def test_a_held_folder_goes_with_its_block_however_deep_it_became(tmp_path):
    with held_folder("kakeya-test-", tmp_path) as folder:
        make_deep(folder)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(os.geteuid() == 0, reason="modes keep root out of nothing")
def test_folders_that_were_closed_to_their_owner_go(tmp_path):
    (tmp_path / "root" / "closed" / "inner").mkdir(parents=True)
    for folder in (tmp_path / "root" / "closed" / "inner", tmp_path / "root" / "closed"):
        folder.chmod(0)
    assert remove_tree(tmp_path / "root")
