"""What is known of a run before it starts survives the runner as it was, or not at all."""

from __future__ import annotations

import pytest

from bridge.runner.state import prepared
from bridge.runner.state.journal import Journal


@pytest.fixture
def prepared_run(world, tmp_path):
    """Return a world, its one request and a copy of what was written down of it before it started."""
    w = world()
    copied = tmp_path / "copied"
    copied.mkdir()

    class Copying(Journal):
        def append(self, event, run_id, oid=None, **detail):
            super().append(event, run_id, oid, **detail)
            if event == "started":
                (copied / prepared.FILE).write_bytes((w.process.folder.runs / run_id / prepared.FILE).read_bytes())

    w.process = w.process.with_journal(Copying)
    ref = w.ask()
    w.serve_once()
    return w, ref, copied


def test_every_byte_comes_back(prepared_run):
    w, ref, folder = prepared_run
    run = prepared.load(folder, ref.id, ref.oid)

    assert run.request_bytes == w.requester.read_request(ref).data
    assert (run.attempt.number, run.runner_version) == (1, "0")
    assert run.code.identity == "a" * 40
    assert prepared.PreparedRun.model_validate_json(run.model_dump_json()) == run


def test_a_torn_file_is_nothing(prepared_run):
    _w, ref, folder = prepared_run
    path = folder / prepared.FILE
    whole = path.read_bytes()
    for torn in (whole[:-9], whole[: len(whole) // 2], b""):
        path.write_bytes(torn)
        assert prepared.load(folder, ref.id, ref.oid) is None


def test_another_commit_under_the_same_id_is_another_request(prepared_run):
    _w, ref, folder = prepared_run

    assert prepared.load(folder, ref.id, "b" * 40) is None
    assert prepared.load(folder, "0" * 26, ref.oid) is None
    assert prepared.load(folder / "gone", ref.id, ref.oid) is None


def test_nothing_of_a_run_is_left_when_its_result_is_built(prepared_run):
    w, _ref, _folder = prepared_run

    assert list(w.process.folder.runs.iterdir()) == []
