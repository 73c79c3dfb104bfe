"""What a run came to survives the runner as it was, or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from bridge.publish import mask
from bridge.records import EnvironmentVariable
from bridge.runner.state import kept
from bridge.runner.state.journal import Journal


class LookingJournal(Journal):
    """Looks at what is kept just before the result is built."""

    folder: Path
    found: list[kept.KeptRun | None]

    def append(self, event, run_id, oid=None, **detail):
        super().append(event, run_id, oid, **detail)
        if event == "judged":
            self.found.append(kept.load(self.folder, run_id, None))


@pytest.fixture
def found(world):
    """Return a world and the kept run of its one request, taken where the runner would build its result."""
    w = world()
    w.process.journal.close()
    journal = LookingJournal(w.process.folder.journal, w.clock)
    journal.folder, journal.found = w.process.folder.kept, []
    w.process = w.process.with_journal(journal)

    def program(spec, directory):
        yield b"\xff not text\n"
        (directory.out / "probe.json").write_bytes(b"\x00\xff")
        return 0

    w.program = program
    ref = w.ask()
    w.serve_once()
    return w, ref, journal.found[0]


def test_every_byte_of_an_execution_comes_back(found):
    _w, ref, run = found

    assert (run.id, run.request_oid) == (ref.id, ref.oid)
    assert run.execution.log == b"\xff not text\n"
    assert run.execution.reports == {"probe.json": b"\x00\xff"}
    assert run.execution.program_exit == 0
    assert run.attempt.number == 1
    assert kept.KeptRun.model_validate_json(run.model_dump_json()) == run


def test_secret_values_are_not_written(found, tmp_path):
    _w, _ref, run = found
    secret = EnvironmentVariable(name="TOKEN", value="hunter22", origin="policy", secret=True)
    kept.save(tmp_path, run.evolve(spec=mask(run.spec.evolve(environment=(secret,)))))
    again = kept.load(tmp_path, run.id, None)

    assert again.spec.environment[0].value == "***"


def test_a_file_that_is_not_what_the_journal_says_is_nothing(found, tmp_path):
    _w, _ref, run = found
    digest = kept.save(tmp_path, run)
    path = next(tmp_path.glob("*.json.gz"))
    whole = path.read_bytes()

    assert kept.load(tmp_path, run.id, digest) == run
    assert kept.load(tmp_path, run.id, "0" * 64) is None
    assert kept.load(tmp_path, "0" * 26, None) is None
    for torn in (whole[:-9], whole[: len(whole) // 2], b"", whole[:40] + b"\0" + whole[41:]):
        path.write_bytes(torn)
        assert kept.load(tmp_path, run.id, None) is None


def test_another_commit_under_the_same_id_is_another_request(found):
    w, ref, run = found
    recovery = w.runner()._recovery
    kept.save(w.process.folder.kept, run)

    assert recovery.saved(ref.id, ref.oid) == run
    assert recovery.saved(ref.id, "b" * 40) is None


def test_only_open_runs_are_kept_over_a_restart(found):
    w, _ref, run = found
    kept.save(w.process.folder.kept, run)
    kept.save(w.process.folder.kept, run.evolve(id="0" * 26))

    kept.drop_all_but(w.process.folder.kept, {run.id})

    assert [path.name for path in w.process.folder.kept.iterdir()] == [f"{run.id}.json.gz"]
