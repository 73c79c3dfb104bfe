"""Each kind of run is tried in its own sandbox, once for all runners of a user until what decides it changes."""

from __future__ import annotations

import os
import sys
from dataclasses import replace

import pytest

from bridge.executor.interface import HOST_KIND, Escape, HostPaths, RunKind
from bridge.executor.local import LocalExecutor
from bridge.executor.trial import SandboxTrial
from bridge.executor.trial_cache import trial_key
from bridge.records.run import SandboxApplied
from bridge.system.clock import SystemClock
from tests.fakes.local_jobs import OTHER_UID, Jobs

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="these are about a Linux sandbox")


class Counting(LocalExecutor):
    """An executor that counts its trials."""

    def __init__(self, folder, paths=None) -> None:
        super().__init__(SystemClock(), paths, folder)
        self.tried: list[tuple[int | None, RunKind]] = []

    def try_out(self, uid: int | None, kind: RunKind) -> SandboxTrial:
        self.tried.append((uid, kind))
        return super().try_out(uid, kind)


class Known(Counting):
    """An executor whose trials come out as they are told to."""

    refused = True

    def try_out(self, uid: int | None, kind: RunKind) -> SandboxTrial:
        self.tried.append((uid, kind))
        return SandboxTrial(HELD, (Escape("read the runner's key", self.refused),))


HELD = SandboxApplied(kind="bwrap", reason=None, network=False, namespaces=(), filters=(), uid=1)


def test_a_trial_is_made_once_for_all_runners_and_its_outcome_is_in_the_result(need_sandbox, tmp_path, token):
    need_sandbox("sandboxed")
    first, second = Counting(tmp_path / "trials"), Counting(tmp_path / "trials")
    offered, again = first.sandbox(), second.sandbox()
    execution = Jobs(second, tmp_path, "sandboxed").run(f"print('{token}')")

    assert (first.tried, second.tried) == ([(None, HOST_KIND)], [])
    assert offered == again
    assert second.escapes() == first.escapes()
    assert execution.sandbox.trial == offered.trial
    assert (offered.trial.kind, offered.trial.tried) == ("host", len(first.escapes()))
    assert b'"trial":{"key":' in execution.sandbox.canonical()


def test_code_of_a_request_and_peers_are_tried_as_such(need_sandbox, tmp_path, token):
    need_sandbox("other_user")
    executor = Counting(tmp_path / "trials")
    execution = Jobs(executor, tmp_path, "other_user").run(f"print('{token}')", code="request")
    peer = executor.sandbox(OTHER_UID, RunKind("peer"))
    shared = executor.sandbox(OTHER_UID, RunKind("host", network="host"))

    assert [(uid, kind.name) for uid, kind in executor.tried] == [
        (OTHER_UID, "request"), (OTHER_UID, "peer"), (OTHER_UID, "host"),
    ]  # fmt: skip
    assert (execution.sandbox.trial.kind, peer.trial.kind) == ("request", "peer")
    assert (shared.kind, shared.network, peer.network) == ("bwrap", "host", False)


@pytest.mark.parametrize("fault", ["cut off", "another user's", "open to others", "a link"])
def test_an_outcome_that_somebody_else_could_have_written_is_not_believed(tmp_path, fault):
    folder = tmp_path / "trials"
    Known(folder).sandbox()
    intact = Known(folder)
    assert (intact.sandbox().kind, intact.tried) == ("bwrap", [])
    (path,) = folder.glob("*.json")
    if fault == "cut off":
        path.write_bytes(path.read_bytes()[:-3])
    elif fault == "another user's":
        if os.getuid() != 0:
            pytest.skip("giving a file away needs root")
        os.chown(path, OTHER_UID, OTHER_UID)
    elif fault == "open to others":
        folder.chmod(0o777)
    else:
        path.rename(tmp_path / "elsewhere")
        path.symlink_to(tmp_path / "elsewhere")
    later = Known(folder)

    assert later.sandbox().kind == "bwrap"
    assert len(later.tried) == 1


def test_a_sandbox_that_let_something_through_is_not_kept(tmp_path):
    class Leaky(Known):
        refused = False

    Leaky(tmp_path / "trials").sandbox()
    assert list(tmp_path.glob("trials/*.json")) == []


def test_whatever_decides_the_sandbox_is_part_of_the_key(tmp_path):
    (tmp_path / "models").mkdir()
    paths = HostPaths(private=("/x/key",), read_only=(str(tmp_path / "models"),))
    keys = [
        trial_key(None, HOST_KIND, paths),
        trial_key(OTHER_UID, HOST_KIND, paths),
        trial_key(None, RunKind("request"), paths),
        trial_key(None, RunKind("host", network="host"), paths),
        trial_key(None, HOST_KIND, replace(paths, private=("/y/key",))),
        trial_key(None, HOST_KIND, replace(paths, interpreter="/bin/sh")),
        trial_key(None, HOST_KIND, replace(paths, devices=("/dev/null",))),
    ]
    assert len(set(keys)) == len(keys)
    assert trial_key(None, HOST_KIND, paths) == keys[0]
    (tmp_path / "models").rmdir()
    assert trial_key(None, HOST_KIND, paths) != keys[0]
