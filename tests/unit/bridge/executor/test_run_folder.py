"""What a run's own user may leave in its folder: no whole files are no result, and nobody waits for them."""

from __future__ import annotations

import hashlib
import io
import os
import tarfile

import pytest

from bridge.executor.holder.folder import KeptExecution, RunFolder, packed, unpacked
from bridge.executor.holder.regular_files import reading

REPORTS = {"a.json": b"{}", "deep/b.bin": bytes(range(256))}


def archive(kind: bytes, linkname: str = "nowhere", **pax: str) -> bytes:
    """Return an archive of one member of a kind."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as tar:
        member = tarfile.TarInfo("a.json")
        member.type, member.linkname, member.pax_headers = kind, linkname, pax
        tar.addfile(member)
    return buffer.getvalue()


FORGED = {
    "a link to nothing": archive(tarfile.LNKTYPE),
    "a symbolic link": archive(tarfile.SYMTYPE),
    "a link to itself": archive(tarfile.LNKTYPE, "a.json"),
    "a folder": archive(tarfile.DIRTYPE),
    "a pipe": archive(tarfile.FIFOTYPE),
    "a terabyte of nothing": archive(
        tarfile.REGTYPE, "", **{"GNU.sparse.size": str(1 << 40), "GNU.sparse.map": "0,0", "GNU.sparse.name": "a.json"}
    ),
    "no number": archive(
        tarfile.REGTYPE, "", **{"GNU.sparse.size": "many", "GNU.sparse.map": "0,x", "GNU.sparse.name": "a.json"}
    ),
    "no archive": b"x" * 512,
}


@pytest.fixture
def folder(tmp_path):
    """Return the folder of a run that was refused, with what one that ran would leave beside it."""
    (tmp_path / "log").write_bytes(b"a line\n")
    keep(tmp_path, packed(REPORTS))
    for name in ("progress", "lock", "stop", "marks", "job.json"):
        (tmp_path / name).write_bytes(b"")
    return RunFolder(tmp_path)


def keep(root, outputs: bytes) -> None:
    """Write reports and what says that they are whole."""
    (root / "outputs.tar").write_bytes(outputs)
    kept_execution = KeptExecution(
        version="1",
        log_sha256=hashlib.sha256((root / "log").read_bytes()).hexdigest(),
        outputs_sha256=hashlib.sha256(outputs).hexdigest(),
        execution=None,
    )
    (root / "kept.json").write_text(kept_execution.model_dump_json())


@pytest.mark.parametrize("name", FORGED)
def test_an_archive_that_no_supervisor_makes_is_none(name):
    with pytest.raises((tarfile.TarError, ValueError)):
        unpacked(FORGED[name])


@pytest.mark.timeout(60)
@pytest.mark.parametrize("name", ["kept.json", "log", "outputs.tar"])
def test_what_a_run_came_to_is_not_known_where_a_pipe_takes_the_place_of_a_file(folder, name):
    assert folder.kept() is not None
    (folder.root / name).unlink()
    os.mkfifo(folder.root / name)
    assert folder.kept() is None


@pytest.mark.timeout(60)
def test_pipes_in_the_place_of_its_files_hold_nobody_up(folder):
    for name in ("progress", "lock", "stop", "log", "job.json"):
        (folder.root / name).unlink()
        os.mkfifo(folder.root / name)
    assert (folder.progress(), folder.facts(), folder.withdrawn(), folder.job()) == (b"", None, None, None)
    calls = (folder.taken, lambda: folder.stop("cancelled"), lambda: folder.withdraw("late"), folder.opened().__enter__)
    for call in calls:
        with pytest.raises(OSError, match=r"no regular file|[Dd]evice"):
            call()
    with pytest.raises(OSError, match="no regular file"):
        reading(folder.log)


def test_a_link_in_the_place_of_the_log_leads_nowhere_else(folder, tmp_path):
    (tmp_path / "other").write_bytes(b"of somebody else")
    folder.log.unlink()
    folder.log.symlink_to(tmp_path / "other")
    with pytest.raises(OSError, match="symbolic links"):
        reading(folder.log)
