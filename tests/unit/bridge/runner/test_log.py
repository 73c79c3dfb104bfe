"""The runner's own log keeps what people are not shown: tracebacks, versions, run ids; and no secret."""

from __future__ import annotations

import errno
import io
import json
import logging
import os

import pytest

from bridge.cli.host.main import main
from bridge.limits import RUNNER_LOG_FILES_COUNT, RUNNER_LOG_TEXT_MAX_CHARS
from bridge.runner.state import log as runner_log
from bridge.runner.state.log import for_run, keep_log, new_log, read_log, shown

RUN = "01m81smxn185fyeyrvs2zzxpg4"
SECRET = "hunter22-and-more"


@pytest.fixture
def path(tmp_path):
    return tmp_path / "log.jsonl"


@pytest.fixture
def people():
    return io.StringIO()


@pytest.fixture
def log(path, people):
    made = new_log(people, [SECRET])
    end = keep_log(made, path, {"kakeya": "1", "python": "3"}, [SECRET])
    yield made
    end()


def fail(text):
    raise ValueError(text)


def test_a_bug_in_a_run_leaves_its_traceback_and_its_run_id(world, path):
    def buggy(spec, directory):
        raise KeyError("limits")
        yield b""

    w = world(program=buggy)
    end = keep_log(w.process.log, path, {"kakeya": "1"}, [])
    ref = w.ask()
    w.serve_once()
    end()

    assert w.claim(ref.id).message == "bug: KeyError: 'limits'"
    (line,) = [line for line in read_log(path) if line["level"] == "error"]
    assert line["run"] == ref.id
    assert line["versions"] == {"kakeya": "1"}
    assert "in buggy" in line["traceback"]
    assert line["traceback"].endswith("KeyError: 'limits'")
    assert not any("Traceback" in line for line in w.log_lines)


def test_a_full_disk_in_a_run_is_one_line_and_no_bug(world, path):
    def full(spec, directory):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/state/runs/log")
        yield b""

    w = world(program=full)
    end = keep_log(w.process.log, path, {"kakeya": "1"}, [])
    ref = w.ask()
    w.serve_once()
    end()

    assert w.claim(ref.id).message.startswith("/state/runs/log: No space left on device; next: free some space")
    (line,) = [line for line in read_log(path) if line["level"] == "error"]
    assert line["message"].endswith("/state/runs/log: No space left on device")
    assert not any("bug" in line for line in w.log_lines)


def test_secrets_and_tokens_in_addresses_reach_neither_file_nor_people(log, path, people):
    try:
        fail(f"got {SECRET}")
    except ValueError:
        log.exception("fetch https://%s@example.org failed with %s", "ghp_token", SECRET)
    written = path.read_text() + people.getvalue()

    assert SECRET not in written
    assert "ghp_token" not in written
    assert written.count("[redacted]") == 5  # people see the message alone


def test_people_see_no_debugging_and_no_traceback(log, people):
    log.debug("unseen")
    try:
        fail("boom")
    except ValueError:
        for_run(log, RUN).exception("a bug\x1b[31m")

    (line,) = people.getvalue().splitlines()
    assert line.endswith(f"{RUN[-8:]} a bug [31m")


def test_files_are_rotated_bounded_and_read_in_order(log, path):
    (handler,) = [handler for handler in log.handlers if isinstance(handler, logging.FileHandler)]
    handler.maxBytes = 2000
    for number in range(200):
        log.info("line %d", number)
    numbers = [int(line["message"].split()[1]) for line in read_log(path)]

    files = sorted(path.parent.glob("log.jsonl*"))
    assert len(files) == RUNNER_LOG_FILES_COUNT
    assert all(file.stat().st_size <= 2000 and file.stat().st_mode & 0o077 == 0 for file in files)
    assert numbers == list(range(numbers[0], 200))
    assert numbers[0] > 0


def test_one_line_is_bounded(log, path):
    log.info("x" * (3 * RUNNER_LOG_TEXT_MAX_CHARS))

    (line,) = read_log(path)
    assert len(line["message"]) == RUNNER_LOG_TEXT_MAX_CHARS


def test_following_goes_on_across_a_rotation(log, path):
    (handler,) = [handler for handler in log.handlers if isinstance(handler, logging.FileHandler)]
    steps = iter([lambda: log.info("two"), handler.doRollover, lambda: log.info("three")])

    def wait():
        next(steps)()

    log.info("one")
    following = read_log(path, wait)
    assert [next(following)["message"] for _ in range(3)] == ["one", "two", "three"]
    following.close()


def test_what_is_no_line_is_left_out(path):
    path.write_bytes(b'{"level": "info", "message": "whole"}\n[1]\n{"level": "x"}\nnull\n{"level": "info", "mess')

    assert [line["message"] for line in read_log(path)] == ["whole"]


def test_a_log_that_cannot_be_written_is_said_once_and_stops_nothing(log, path, capsys):
    (handler,) = [handler for handler in log.handlers if isinstance(handler, logging.FileHandler)]
    handler.stream.close()
    handler.stream = open("/dev/full", "w")  # noqa: SIM115
    log.info("one")
    log.info("two")

    assert capsys.readouterr().err.count("[Errno 28]") == 1


def write(path, *lines):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def line(level, message, run=None, **more):
    return {"time": "2026-01-02T03:04:05.000Z", "level": level, "run": run, "message": message, **more}


@pytest.mark.parametrize(
    ("options", "messages"),
    [
        ([], ["taken", "failed", "serves"]),
        (["--run", RUN[-8:].upper()], ["taken", "failed"]),
        (["--level", "error"], ["failed"]),
        (["--level", "debug"], ["taken", "looked", "failed", "serves"]),
    ],
)
def test_logs_prints_what_was_asked_for(tmp_path, capsys, options, messages):
    write(
        tmp_path / "log.jsonl",
        line("info", "taken", RUN),
        line("debug", "looked", RUN),
        line("error", "failed", RUN, traceback="Traceback\n  at \x1b[2Jplace"),
        line("info", "serves"),
    )
    assert main(["logs", "--state", str(tmp_path), *options]) == 0
    plain = capsys.readouterr().out
    assert main(["logs", "--state", str(tmp_path), "--json", *options]) == 0
    documents = [json.loads(text) for text in capsys.readouterr().out.splitlines()]

    assert [document["message"] for document in documents] == messages
    assert [text.split()[-1] for text in plain.splitlines() if not text.startswith(" ")] == messages
    assert "\x1b" not in plain
    assert ("    Traceback\n" in plain) == ("failed" in messages)


def test_nothing_has_happened_yet_is_no_error(tmp_path, capsys):
    assert main(["logs", "--state", str(tmp_path)]) == 0
    assert "nothing has happened yet" in capsys.readouterr().err


def test_every_level_of_the_option_is_one_that_is_written():
    assert set(runner_log.LEVELS) == {"debug", "info", "warning", "error"}
    assert list(shown(line("warning", "a\nb"))) == ["2026-01-02T03:04:05.000Z warning -        a b"]
