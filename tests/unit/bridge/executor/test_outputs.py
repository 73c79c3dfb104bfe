from __future__ import annotations

import datetime as dt
import hashlib
import os
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from bridge.bus.tree import check_path
from bridge.executor.command.outputs import import_outputs, start_stamp
from bridge.limits import LOG_MAX_BYTES, REPORT_MAX_BYTES, REPORTS_MAX_COUNT, RESULT_MAX_BYTES
from bridge.system.clock import ClockReading


class HandClock:
    """A clock whose two hands a test moves."""

    def __init__(self) -> None:
        self.wall, self.steady = dt.datetime(2026, 11, 20, 12, 0, tzinfo=dt.UTC), 100.0

    def now(self) -> dt.datetime:
        return self.wall

    def steady_s(self) -> float:
        return self.steady


@pytest.fixture
def out(tmp_path):
    folder = tmp_path / "out"
    folder.mkdir()
    return folder


def bring_in(out, write, *, declared=(), secrets=()):
    stamp = start_stamp(out)
    write()
    return import_outputs(out, stamp=stamp, declared=declared, secrets=secrets)


def test_a_report_comes_in_with_its_digest(out):
    result = bring_in(out, lambda: (out / "report.json").write_bytes(b"{}"))

    assert result.reports == {"report.json": b"{}"}
    assert [(r.path, r.bytes, r.sha256, r.after_start) for r in result.outputs] == [
        ("report.json", 2, hashlib.sha256(b"{}").hexdigest(), True)
    ]
    assert (result.refused, result.hits) == ([], [])


def test_reports_and_marks_share_the_room_of_a_result(out):
    stamp = start_stamp(out)
    (out / "a.json").write_bytes(b"12345")
    (out / "b.json").write_bytes(b"678")
    marks_bytes = RESULT_MAX_BYTES - 2 * LOG_MAX_BYTES - 7
    result = import_outputs(out, stamp=stamp, declared=("a.json", "b.json"), marks_bytes=marks_bytes)

    assert list(result.reports) == ["a.json"]
    assert result.refused == ["'b.json': 3 bytes, at most 2 are taken"]
    assert [(hit.limit, hit.bound, hit.observed) for hit in result.hits] == [("report_bytes", 2, 3)]


def test_of_names_that_a_mac_takes_for_one_the_first_comes_in(out):
    def write():
        for path in ("Loss.png", "loss.png", "kept/a", "Kept/b", "e\u0301.txt", "\u00e9.txt"):
            (out / path).parent.mkdir(exist_ok=True)
            (out / path).write_text(path)

    result = bring_in(out, write, declared=("loss.png",))
    assert set(result.reports) == {"loss.png", "Kept/b", "e\u0301.txt"}
    assert [line.partition(":")[0] for line in result.refused] == ["'Loss.png'", "'kept/a'", "'\u00e9.txt'"]
    assert "one name with 'loss.png' where a system tells no case apart" in result.refused[0]


def test_a_file_that_was_there_before_or_claims_to_be_is_marked(out):
    (out / "old.json").write_text("{}")
    os.utime(out / "old.json", (1, 1))

    def write():
        (out / "backdated.json").write_text("{}")
        os.utime(out / "backdated.json", (1, 1))
        (out / "new.json").write_text("{}")

    result = bring_in(out, write)

    assert {r.path: r.after_start for r in result.outputs} == {
        "old.json": False,
        "backdated.json": False,
        "new.json": True,
    }


def test_what_came_after_the_wall_clock_was_set_back_is_the_runs_own(out):
    clock = HandClock()
    began, stamp = ClockReading.of(clock), start_stamp(out)
    stamp = replace(stamp, since_ns=stamp.since_ns + 3_600_000_000_000)  # the clock that goes now is an hour behind
    (out / "report.json").write_text("{}")
    (out / "backdated.json").write_text("{}")
    os.utime(out / "backdated.json", (1, 1))
    clock.steady += 20.0
    clock.wall += dt.timedelta(seconds=20)
    assert began.set_back_s(clock) == 0.0
    clock.wall -= dt.timedelta(hours=1)
    result = import_outputs(out, stamp=stamp.set_back(began.set_back_s(clock)), declared=())
    assert {output.path: output.after_start for output in result.outputs} == {
        "report.json": True,
        "backdated.json": False,
    }


def test_only_regular_files_of_their_own_come_in(out, tmp_path):
    (tmp_path / "outside").write_text("not the run's")

    def write():
        (out / "link").symlink_to(tmp_path / "outside")
        (out / "folder").symlink_to(tmp_path)
        (out / "astray").symlink_to(tmp_path / "missing")
        os.link(tmp_path / "outside", out / "hard")
        os.mkfifo(out / "pipe")
        (out / "inner").mkdir()
        (out / "inner" / "back").symlink_to("..")
        (out / "inner" / "good").write_text("x")

    result = bring_in(out, write)

    assert list(result.reports) == ["inner/good"]
    assert len(result.refused) == 6
    assert {f"{name!r}: not a regular file" for name in ("link", "folder", "astray")} <= {*result.refused}


@pytest.mark.parametrize(
    "name",
    [
        *(".git", ".GIT", ".gitattributes", ".github", ".gitmodules", "a\nb", "a\x1b[2Jb", "a\\b"),
        *(".hydra", ".DS_Store", "git~1", "GIT~1.", "gitmod~1", "gi7eba~1"),
    ],
)
def test_names_with_a_meaning_or_without_a_shape_stay_behind(out, name):
    result = bring_in(out, lambda: (out / name).write_text("x"))

    assert result.reports == {}
    assert len(result.refused) == 1
    assert result.refused[0].isprintable()


def test_a_name_that_is_not_utf_8_stays_behind(out):
    result = bring_in(out, lambda: (out / os.fsdecode(b"\xff\xfe")).write_text("x"))

    assert result.reports == {}


def test_every_path_that_comes_in_may_lie_in_a_result(out):
    """What a reader refuses would make the whole result unreadable, and the run with it."""
    names = ["plot.png", "g~.txt", "digit~1.txt", "/".join("1234567"), "/".join("abcdefgh"), ".hydra/config.yaml"]
    names += [f"{'a' * 120}/{'b' * 126}", f"{'a' * 120}/{'b' * 127}", "kept/.cache/x"]

    def write():
        for name in names:
            (out / name).parent.mkdir(parents=True, exist_ok=True)
            (out / name).write_text("x")

    result = bring_in(out, write, declared=names)

    for path in result.reports:
        check_path(f"reports/{path}")
    assert set(result.reports) == {*names[:4], names[6]}


def test_declared_reports_come_before_a_flood_of_others(out):
    def write():
        for index in range(REPORTS_MAX_COUNT + 20):
            (out / f"a{index:04}").write_text("flood")
        (out / "z-report.json").write_text("{}")

    result = bring_in(out, write, declared=["z-report.json"])

    assert len(result.reports) == REPORTS_MAX_COUNT
    assert next(iter(result.reports)) == "z-report.json"
    assert [(hit.limit, hit.observed) for hit in result.hits] == [("reports", REPORTS_MAX_COUNT + 21)]


def test_declared_reports_are_found_among_more_files_than_are_listed(out):
    many = [f"report-{index}.json" for index in range(50)]  # in which order a folder lists its files is its own affair

    def write():
        (out / "0").mkdir()
        for index in range(25_000):
            os.close(os.open(out / f"flood-{index}", os.O_CREAT | os.O_WRONLY))
        for name in (*many, "0/deep.json"):
            (out / name).write_text("{}")
        (out / "linked.json").symlink_to(many[0])
        (out / "aside").symlink_to("0")

    others = ("linked.json", "aside/deep.json", "missing.json", "../out/report-0.json")
    result = bring_in(out, write, declared=(*many, "0/deep.json", *others))

    assert [*result.reports][:51] == [*many, "0/deep.json"]
    assert not set(result.reports) & set(others)
    assert len(result.reports) == REPORTS_MAX_COUNT
    assert {hit.limit for hit in result.hits} == {"files", "reports"}


def test_a_file_beyond_the_size_bound_is_refused_and_the_rest_comes_in(out):
    def write():
        with (out / "huge").open("wb") as file:
            file.truncate(REPORT_MAX_BYTES + 1)
        (out / "small").write_text("x")

    result = bring_in(out, write)

    assert list(result.reports) == ["small"]
    assert [(hit.limit, hit.action) for hit in result.hits] == [("report_bytes", "refused")]


def test_all_files_together_are_bounded(out):
    def write():
        for name in "abc":
            with (out / name).open("wb") as file:
                file.truncate(REPORT_MAX_BYTES - 1)

    result = bring_in(out, write)

    assert list(result.reports) == ["a"]
    assert len(result.hits) == 2


def test_folders_beyond_the_depth_bound_stay_behind(out):
    def write():
        deep = out
        for index in range(12):
            deep /= str(index)
            deep.mkdir()
            (deep / "x").write_text("x")

    result = bring_in(out, write)

    assert len(result.reports) == 6
    assert "deeper than" in result.refused[0]


def test_a_replaced_report_directory_gives_nothing(out):
    def write():
        out.rename(out.with_name("old"))
        out.mkdir()
        (out / "report.json").write_text("{}")

    result = bring_in(out, write)

    assert (result.reports, result.refused) == ({}, ["the report directory was replaced by another one"])


@contextmanager
def without_root(folder):
    """Be somebody whom modes keep out, in a folder that need not be reached by its whole path."""
    before, root = Path.cwd(), os.geteuid() == 0
    folder.chmod(0o755)
    os.chdir(folder)
    try:
        if root:
            os.seteuid(65534)
        yield
    finally:
        if root:
            os.seteuid(0)
        os.chdir(before)


def test_a_folder_that_cannot_be_read_stays_behind_and_the_rest_comes_in(out):
    for name in ("a.json", "closed/b.json", "m/closed/c.json", "z.json"):
        (out / name).parent.mkdir(parents=True, exist_ok=True)
        (out / name).write_text("{}")
    stamp = start_stamp(out)
    closed = [out / "closed", out / "m" / "closed"]
    for folder in closed:
        folder.chmod(0)
    try:
        with without_root(out.parent):
            result = import_outputs(Path("out"), stamp=stamp, declared=["closed/b.json"])
    finally:
        for folder in closed:
            folder.chmod(0o755)
    assert set(result.reports) == {"a.json", "z.json"}
    reason = "cannot be read: Permission denied"
    assert sorted(result.refused) == [f"'closed': {reason}", f"'m/closed': {reason}"]


def test_a_file_that_shows_a_secret_is_refused(out):
    result = bring_in(out, lambda: (out / "r").write_text("key=hunter2-hunter2"), secrets=("hunter2-hunter2",))

    assert result.reports == {}
    assert [hit.limit for hit in result.hits] == ["secret_in_report"]
