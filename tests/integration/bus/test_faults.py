"""A remote that loses replies, resets, stalls, refuses or forgets who we are: nothing is lost, nothing runs twice."""

from __future__ import annotations

import random
import threading
from pathlib import Path

import pytest

from bridge.errors import FencedError, KakeyaError, RemoteError
from tests.fakes.bus_actors import chunk
from tests.integration.bus.conftest import Line

pytestmark = pytest.mark.servers
WALL_S = 20.0  # git says once a second how far a push is, and nothing of the last megabyte


def test_a_claim_whose_reply_was_lost_is_ours(line: Line) -> None:
    sent = line.direct("client").submit()
    host = line.through()
    host.bus.identity()
    line.proxy.lose_reply = True
    held_claim = host.claim(sent.ref)
    assert line.proxy.uploads >= 1  # the transport itself may send it twice
    line.proxy.lose_reply = False
    assert host.start(sent.ref, held_claim).claim.state == "started"
    with pytest.raises(FencedError):
        line.direct().claim(sent.ref)


def test_an_end_whose_reply_was_lost_is_the_end(line: Line) -> None:
    client = line.direct("client")
    sent = client.submit()
    host = line.through()
    held_claim = host.start(sent.ref, host.claim(sent.ref))
    line.proxy.lose_reply = True
    ended = host.publish(sent.ref, held_claim)
    assert host.bus.copy_result(sent.ref, ended.claim.result_oid or "") == "copied"
    view = client.bus.view(sent.ref.id)
    assert view.claim is not None
    assert (view.claim.oid, view.delivery) == (ended.oid, "copied")


def test_an_upload_cut_short_changes_nothing_and_may_be_repeated(line: Line) -> None:
    sent = line.direct("client").submit()
    host = line.through()
    host.bus.identity()
    claim = host.record(sent.ref, "claimed", 0)
    line.proxy.reset_after_bytes = 200
    with pytest.raises(RemoteError):
        host.bus.claim(claim)
    assert host.bus.read_claim(sent.ref.id) is None
    line.proxy.reset_after_bytes = None
    held_claim = host.bus.claim(claim)
    assert held_claim.chain == (held_claim.oid,)


@pytest.mark.ci
def test_a_slow_push_of_a_fenced_owner_publishes_nothing(line: Line) -> None:
    client, other = line.direct("client"), line.direct()
    sent = client.submit()
    host = line.through()
    held_claim = host.start(sent.ref, host.claim(sent.ref))
    line.proxy.hold = True
    failures: list[KakeyaError] = []

    def publish() -> None:
        try:
            host.publish(sent.ref, held_claim)
        except KakeyaError as error:
            failures.append(error)

    slow = threading.Thread(target=publish)
    slow.start()
    assert line.proxy.holding.wait(240)
    tip = other.bus.read_claim(sent.ref.id)
    assert tip is not None
    lost = other.take_over(sent.ref, tip, "terminal", reason="runner_lost", exit_code=3)
    line.proxy.release.set()
    slow.join()
    assert [type(error) for error in failures] == [FencedError]
    view = client.bus.view(sent.ref.id)
    assert view.claim is not None
    assert (view.claim.oid, view.claim.claim.reason) == (lost.oid, "runner_lost")


@pytest.mark.ci
def test_a_silent_remote_ends_at_the_wall_limit(line: Line) -> None:
    host = line.through(wall_s=0.5)
    line.proxy.silent = True
    with pytest.raises(RemoteError, match="no answer within"):
        host.bus.identity()


@pytest.mark.ci
@pytest.mark.slow
@pytest.mark.parametrize(("bytes_per_s", "arrives"), [(300_000, True), (1_000, False)])
def test_a_push_over_a_slow_line_arrives_as_long_as_it_makes_progress(
    line: Line, bytes_per_s: int, arrives: bool
) -> None:
    client = line.direct("client")
    sent = client.submit()
    host = line.through(wall_s=WALL_S)
    held_claim = host.start(sent.ref, host.claim(sent.ref))
    files = {"manifest.json": b"{}", "reports/a.bin": random.Random(1).randbytes(int(1.5 * WALL_S * 300_000))}
    line.proxy.up_bytes_per_s = bytes_per_s  # 64 KiB in 0.2 s, or in a minute
    if arrives:
        held_claim = host.publish(sent.ref, held_claim, files)
    else:
        with pytest.raises(RemoteError, match="no answer within"):
            host.publish(sent.ref, held_claim, files)
    view = client.bus.view(sent.ref.id)
    assert view.claim is not None
    assert (view.claim.oid, view.claim.claim.state) == (held_claim.oid, "terminal" if arrives else "started")


@pytest.mark.ci
@pytest.mark.slow
@pytest.mark.parametrize(("bytes_per_s", "arrives"), [(300_000, True), (1_000, False)])
def test_a_fetch_over_a_slow_line_arrives_as_long_as_it_makes_progress(
    line: Line, bytes_per_s: int, arrives: bool
) -> None:
    host = line.direct()
    sent = line.direct("client").submit()
    files = {"manifest.json": b"{}", "reports/a.bin": random.Random(1).randbytes(int(1.5 * WALL_S * 300_000))}
    ended = host.publish(sent.ref, host.start(sent.ref, host.claim(sent.ref)), files)
    reader = line.through("reader", wall_s=WALL_S)
    reader.bus.identity()
    line.proxy.down_bytes_per_s = bytes_per_s  # 64 KiB in 0.2 s, or in a minute
    if arrives:
        assert reader.bus.read_result(ended.claim.result_oid or "").files == files
    else:
        with pytest.raises(RemoteError, match="no answer within"):
            reader.bus.read_result(ended.claim.result_oid or "")


@pytest.mark.ci
def test_an_unreachable_remote_is_an_error_that_says_so(line: Line) -> None:
    host = line.through()
    line.proxy.close()
    with pytest.raises(RemoteError, match="cannot list"):
        host.bus.snapshot()


@pytest.mark.ci
def test_expired_credentials_are_an_error_and_never_a_prompt(line: Line) -> None:
    expired = line.through("expired", helper="!f() { echo username=agent; echo password=old; }; f")
    with pytest.raises(RemoteError) as caught:
        expired.bus.identity()
    assert "old" not in str(caught.value)
    assert line.through().bus.identity()


def hook(path: Path, text: str) -> None:
    (path / "hooks").mkdir(exist_ok=True)
    (path / "hooks" / "update").write_text(f"#!/bin/sh\n{text}\n")
    (path / "hooks" / "update").chmod(0o755)


@pytest.mark.ci
def test_a_remote_that_refuses_logs_still_renews_the_claim_and_gets_the_log_later(line: Line) -> None:
    client = line.direct("client")
    sent = client.submit()
    host = line.through()
    held_claim = host.start(sent.ref, host.claim(sent.ref))
    hook(line.path, 'case "$1" in refs/kakeya/log/*) echo "No space left on device" >&2; exit 1;; esac')
    held_claim = host.renew(sent.ref, held_claim, log=chunk(sent.ref.id, 0, 0, b"a"), beacon=host.beacon(1))
    assert client.bus.read_log(sent.ref.id) == ()
    hook(line.path, "exit 0")
    held_claim = host.renew(sent.ref, held_claim, log=chunk(sent.ref.id, 1, 1, b"b"))
    assert [log_chunk.data for log_chunk in client.bus.read_log(sent.ref.id)] == [b"a", b"b"]
    assert held_claim.chain == (client.bus.read_claim(sent.ref.id) or held_claim).chain


@pytest.mark.ci
def test_a_remote_that_refuses_claims_says_why(line: Line) -> None:
    sent = line.direct("client").submit()
    hook(line.path, 'case "$1" in refs/kakeya/*) echo "protected by rule 7" >&2; exit 1;; esac')
    host = line.through()
    with pytest.raises(RemoteError, match="unchanged; the remote says: hook declined; protected by rule 7") as caught:
        host.claim(sent.ref)
    assert "ask who keeps the remote" in (caught.value.remedy or "")


@pytest.mark.ci
def test_a_branch_that_may_not_be_deleted_keeps_its_claim_at_gc(line: Line) -> None:
    client, host = line.direct("client"), line.direct()
    sent = client.submit()
    host.run(sent.ref)
    line.clock.advance(30 * 3600)
    hook(line.path, 'case "$1" in refs/heads/*) exit 1;; esac')
    assert list(host.bus.collect(older_than_s=0, dry_run=False)) == []
    assert client.bus.read_claim(sent.ref.id) is not None
