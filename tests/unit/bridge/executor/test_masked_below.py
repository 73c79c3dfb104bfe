"""What of a folder that a run may read is masked: sockets and credentials, found by walking it."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from bridge.executor.sandbox.private_paths import masked_below


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return a folder with a daemon's socket and credentials three folders down, and files of a model."""
    deep = tmp_path / "models" / "one" / "two"
    (deep / ".ssh").mkdir(parents=True)
    (deep / ".netrc").write_text("")
    (deep / "config.json").write_text("{}")
    monkeypatch.chdir(deep)  # a socket's path is short
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("daemon.sock")
        yield Path(os.path.realpath(tmp_path / "models"))


def test_sockets_and_credentials_are_masked_however_deep_they_lie(folder: Path) -> None:
    deep = folder / "one" / "two"
    expected = {str(deep / ".netrc"): False, str(deep / ".ssh"): True, str(deep / "daemon.sock"): False}
    assert masked_below([str(folder)], []) == expected


def test_of_an_interpreter_only_the_top_is_walked(folder: Path) -> None:
    assert masked_below([], [str(folder)]) == {}
    assert len(masked_below([], [str(folder / "one")])) == 3


def test_what_the_hugging_face_tools_and_git_keep_beside_models_is_masked(tmp_path: Path) -> None:
    root = Path(os.path.realpath(tmp_path))
    secret = [root / "moved" / "token", root / "moved" / "stored_tokens", root / "cloned" / ".git" / "config"]
    plain = [root / "moved" / "hub" / "config.json", root / "cloned" / "token", root / "cloned" / "config"]
    for path in (*secret, *plain):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")
    assert masked_below([str(root)], []) == {str(path): False for path in secret}


@pytest.mark.parametrize("name", [".netrc", ".ssh"])
def test_what_a_link_of_a_credentials_name_leads_to_is_masked_where_the_run_sees_it(tmp_path: Path, name: str) -> None:
    root = Path(os.path.realpath(tmp_path))
    for folder in ("disk", "other"):
        (root / folder / "plain").mkdir(parents=True)
    (root / "models").symlink_to("disk")  # as the policy names it, and as the folder is mounted
    (root / "disk" / name).symlink_to("plain")
    (root / "disk" / "deep").mkdir()
    (root / "disk" / "deep" / name).symlink_to(root / "other" / "plain")
    models, other = str(root / "models"), str(root / "other")
    assert masked_below([models], []) == {f"{models}/plain": True}
    assert masked_below([models, other], []) == {f"{models}/plain": True, f"{other}/plain": True}
    assert masked_below([other], []) == {}
