"""Models are digested once, and again as soon as anything about a file changes."""

from __future__ import annotations

import json
import os
import threading

import pytest

from bridge.runner.machine.models import ModelDigests
from bridge.system.durable import write_atomically


@pytest.fixture
def model(tmp_path):
    folder = tmp_path / "models" / "tiny"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(b"weights")
    return folder


def digest(tmp_path, model) -> str:
    return ModelDigests(tmp_path / "cache.json").of(["tiny"], [str(model.parent)], None)[0].sha256


def test_an_unchanged_file_is_not_read_again(tmp_path, model):
    first = digest(tmp_path, model)
    cache = tmp_path / "cache.json"
    cached = json.loads(cache.read_text())
    cache.write_text(json.dumps(cached | {next(iter(cached)): "0" * 64}))

    assert digest(tmp_path, model) != first  # what is remembered is what counts


def test_forgetting_reads_every_file_again(tmp_path, model):
    first = digest(tmp_path, model)
    (tmp_path / "cache.json").write_text("not json")

    assert digest(tmp_path, model) == first


def test_weights_swapped_under_the_same_size_and_time_are_noticed(tmp_path, model):
    first, weights = digest(tmp_path, model), model / "model.safetensors"
    times = (weights.stat().st_atime_ns, weights.stat().st_mtime_ns)
    with weights.open("r+b") as file:
        file.write(b"WEIGHTS")
    os.utime(weights, ns=times)

    assert weights.stat().st_mtime_ns == times[1]
    assert digest(tmp_path, model) != first


def test_slots_that_write_the_same_file_at_once_leave_a_whole_one(tmp_path):
    path, errors = tmp_path / "cache.json", []

    def write(letter: str) -> None:
        try:
            for _ in range(50):
                write_atomically(path, letter.encode() * 4096)
        except OSError as error:
            errors.append(error)

    threads = [threading.Thread(target=write, args=(letter,)) for letter in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert errors == []
    assert len(set(path.read_bytes())) == 1
    assert [file.name for file in tmp_path.iterdir()] == ["cache.json"]
