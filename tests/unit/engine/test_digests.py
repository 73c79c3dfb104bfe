"""A large file is digested once, and again as soon as it is another one."""

from __future__ import annotations

import hashlib
import json
import os
import time
from pathlib import Path

import pytest

from engine import digests


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    path = tmp_path / "model.safetensors"
    path.write_bytes(bytes(digests.SMALLEST_BYTES) + b"one")
    past = time.time() - 60
    os.utime(path, (past, past))
    return path


def settle(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a file that changed a moment ago be settled: when its state last changed cannot be set from outside."""
    monkeypatch.setattr(digests, "SETTLED_S", -1.0)


def test_the_digest_comes_from_the_cache_while_the_file_is_the_same(
    weights: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settle(monkeypatch)
    cache = tmp_path / "cache" / "weights.json"
    digest = hashlib.sha256(weights.read_bytes()).hexdigest()
    assert digests.file_digest(weights, cache) == digest
    (key,) = json.loads(cache.read_text())
    cache.write_text(json.dumps({key: "a" * 64}))
    assert digests.file_digest(weights, cache) == "a" * 64
    with weights.open("r+b") as stream:
        stream.write(b"other")
    assert digests.file_digest(weights, cache) == hashlib.sha256(weights.read_bytes()).hexdigest()


def test_a_file_that_has_just_changed_is_digested_and_not_remembered(
    weights: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(digests, "SETTLED_S", 3600.0)  # to write and to digest it takes a busy machine seconds
    cache = tmp_path / "weights.json"
    weights.write_bytes(weights.read_bytes() + b"new")
    assert digests.file_digest(weights, cache) == hashlib.sha256(weights.read_bytes()).hexdigest()
    assert not cache.exists()


@pytest.mark.parametrize("text", ["{", "[]", '{"k": 7}'])
def test_a_damaged_cache_is_done_without(weights: Path, tmp_path: Path, text: str) -> None:
    cache = tmp_path / "weights.json"
    cache.write_text(text)
    assert digests.file_digest(weights, cache) == hashlib.sha256(weights.read_bytes()).hexdigest()


def test_a_cache_that_cannot_be_written_is_done_without(
    weights: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settle(monkeypatch)
    (tmp_path / "file").touch()
    assert digests.file_digest(weights, tmp_path / "file" / "c") == hashlib.sha256(weights.read_bytes()).hexdigest()


def test_a_cache_that_cannot_be_replaced_leaves_nothing_beside_it(
    weights: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settle(monkeypatch)
    cache = tmp_path / "cache" / "weights.json"
    cache.mkdir(parents=True)
    assert digests.file_digest(weights, cache) == hashlib.sha256(weights.read_bytes()).hexdigest()
    assert list(cache.parent.iterdir()) == [cache]
