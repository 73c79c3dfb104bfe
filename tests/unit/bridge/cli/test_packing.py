"""`fetch --pack` and what reads a packed result: the same answers as from its folder."""

import json

import pytest

from bridge.bus.tree import Tree
from bridge.client.clone.packed import pack
from bridge.client.clone.store import read_tree
from tests.support.committed import SMOKE, unpacked
from tests.unit.bridge.cli.looking import take


@pytest.mark.parametrize("words", [("verify",), ("quote",), ("gate", "check"), ("report",)], ids=" ".join)
def test_a_packed_result_gets_the_answer_of_its_folder(requester, tmp_path, words):
    folder = unpacked(SMOKE, tmp_path / "smoke")
    from_folder, from_file = (requester.run(*words, str(place)) for place in (folder, SMOKE))
    assert from_file.code == from_folder.code
    assert from_file.out.replace(str(SMOKE), str(folder)) == from_folder.out


def test_a_fetched_result_is_packed_and_opened_again(requester, host, sent, tmp_path):
    take(host, sent)
    file = tmp_path / "result.tar.xz"
    packed = requester.run("fetch", "@last", "--pack", str(file))
    assert (packed.code, packed.out) == (0, f"{file}\n")
    folder = requester.run("open", "@last").out.strip()
    assert read_tree(file) == read_tree(requester.folder / folder)
    ran = requester.run("open", str(file), "--json")
    assert ran.code == 0, ran.err
    opened = ran.document["data"]["path"]
    assert read_tree(file) == read_tree(requester.folder / opened)


@pytest.mark.parametrize("name", ["result.zip", "gone/result.tar.xz"])
def test_a_name_that_is_no_packed_result_s_is_refused_before_anything_is_fetched(requester, tmp_path, name):
    refused = requester.run("fetch", "@last", "--pack", str(tmp_path / name))
    assert refused.code == 2
    assert "expected NAME.tar.xz in a folder that is there" in refused.err


def test_a_packed_result_that_was_changed_is_not_unpacked(requester, tmp_path):
    files = dict(read_tree(SMOKE).files)
    record = json.loads(files["run.json"])
    files["run.json"] = json.dumps(record | {"reason": "failed"}).encode()
    file = tmp_path / "a changed one.tar.xz"
    file.write_bytes(pack(Tree(files)))
    refused = requester.run("open", str(file))
    assert refused.code == 1
    assert "does not verify" in refused.err
    assert f"kakeya-mac verify '{file}'" in refused.err
    assert not list((requester.folder / "data" / "runs").glob("*"))
