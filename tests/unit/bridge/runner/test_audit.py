"""Audit records reach journald, syslog or a file as the owner chose, and only what is one."""

from __future__ import annotations

import io
import json
import logging
import socket
from pathlib import Path

import pytest

from bridge.errors import UsageError
from bridge.runner.state.audit import audit, keep_audit
from bridge.runner.state.log import for_run, new_log

RUN = "0" * 26


@pytest.fixture
def log() -> logging.Logger:
    return new_log(io.StringIO())


def listening(path: Path) -> socket.socket:
    server = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    server.bind(str(path))
    server.settimeout(5.0)
    return server


def test_a_file_gets_one_json_object_a_record_and_is_its_owner_s(log: logging.Logger, tmp_path: Path) -> None:
    end = keep_audit(log, str(tmp_path / "audit.jsonl"))
    audit(for_run(log, RUN), "request", RUN, principal="alice", signer="SHA256:x")
    log.info("not one")
    audit(log, "refused", RUN, why="names.'alice'.presets\nforged")
    end()
    audit(log, "ended", RUN)
    lines = [json.loads(line) for line in (tmp_path / "audit.jsonl").read_text().splitlines()]
    assert [(line["event"], line["run"]) for line in lines] == [("request", RUN), ("refused", RUN)]
    assert lines[0]["principal"] == "alice"
    assert (tmp_path / "audit.jsonl").stat().st_mode & 0o777 == 0o600


def test_journald_and_syslog_get_theirs(log: logging.Logger, tmp_path: Path) -> None:
    for name in ("journald", "syslog"):
        with listening(tmp_path / name) as server:
            end = keep_audit(log, name, journal=tmp_path / "journald", syslog=tmp_path / "syslog")
            audit(log, "root", None, owner="SHA256:x\nKAKEYA_EVENT=forged")
            datagram = server.recv(65536).decode()
            end()
        if name == "journald":
            fields = dict(line.split("=", 1) for line in datagram.splitlines())
            assert fields.keys() == {"MESSAGE", "PRIORITY", "SYSLOG_IDENTIFIER", "KAKEYA_EVENT"}
            assert (fields["KAKEYA_EVENT"], json.loads(fields["MESSAGE"])["event"]) == ("root", "root")
        else:
            assert datagram.startswith("<86>kakeya-runner[")
            assert json.loads(datagram.partition("]: ")[2])["event"] == "root"


def test_a_target_that_is_not_there_is_refused_at_the_start(log: logging.Logger, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="audit = 'journald'"):
        keep_audit(log, "journald", journal=tmp_path / "nothing")
    with pytest.raises(UsageError, match="audit = "):
        keep_audit(log, str(tmp_path / "no" / "folder"))
