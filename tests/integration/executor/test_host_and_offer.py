"""What the executor says of this machine and of its sandbox."""

from __future__ import annotations

import json
import os
import platform
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from bridge.executor import local_executor
from bridge.executor import trial as selftest
from bridge.executor.sandbox import bubblewrap as bubble
from bridge.executor.sandbox.bwrap_options import Abilities
from bridge.executor.sandbox.confinement import Unconfined, nothing
from bridge.records.run import HostRecord
from bridge.system.clock import SystemClock
from tests.fakes.local_jobs import OTHER_UID

FRESH = "--proc /proc"  # mounted last, over the one with the read-only binds


def as_ourselves(box: bubble.Bubble) -> bubble.Bubble:
    """Return the sandbox as it would be if nothing became another user before it."""
    directory = box.directory
    for folder in (directory.work, directory.out, directory.home, directory.tmp):
        os.chown(folder, os.getuid(), os.getgid())
    return replace(box, drop=(), uid=os.getuid())


def test_the_host_is_described_from_sources(executor):
    host = executor.host()

    assert isinstance(host, HostRecord)
    assert host is executor.host()
    assert host.machine == platform.machine()
    assert host.memory_bytes == psutil.virtual_memory().total
    assert host.cpu_count >= 1
    assert all((host.name, host.os, host.os_version, host.cpu, host.virtualised))
    assert host.devices or all("unknown" in text for text in host.drivers.values()) or platform.system() == "Darwin"


def test_the_door_to_the_executor_is_the_local_one(executor):
    assert type(local_executor(SystemClock())) is type(executor)


def test_the_sandbox_on_offer_is_one_that_was_tried(executor, need_sandbox):
    need_sandbox("sandboxed")
    applied = executor.sandbox()

    assert applied.kind in ("bwrap", "seatbelt")
    assert applied.reason is None
    assert not applied.network


@pytest.mark.parametrize("uid", [None, OTHER_UID])
def test_every_way_out_was_tried_and_refused(executor, need_sandbox, uid):
    need_sandbox("sandboxed" if uid is None else "other_user")
    tried = {escape.what: escape.refused for escape in executor.escapes(uid)}

    assert set(tried.values()) == {True}
    assert len(tried) >= 11
    assert {"read the runner's key", "connect to the host's loopback", "leave a process"} <= set(tried)
    assert "be root on the host" in tried
    if sys.platform == "linux":
        assert {"open a kernel setting for writing", "see kernel settings that are not read-only"} <= set(tried)


def test_a_sandbox_that_does_not_start_is_no_sandbox(need_sandbox):
    need_sandbox("sandboxed")
    broken = Abilities("/bin/false", disable_userns=True, sized_tmpfs=True)
    offered = selftest.try_sandbox(
        SystemClock(), None, lambda spec, directory: replace(bubble.enclose(spec, directory), able=broken)
    )

    assert offered.applied.kind == "none"
    assert offered.applied.reason.startswith("it does not start")
    assert offered.escapes == ()


def test_a_sandbox_that_lets_a_run_out_is_no_sandbox():
    reached: list[Path] = []

    def sieve(spec, directory):
        reached.append(Path(json.loads(spec.commands[0].argv[-1])["shared_tmp"]))  # other tests' trials have their own
        return Unconfined(nothing("a sieve"), directory.work)

    offered = selftest.try_sandbox(SystemClock(), None, sieve)

    assert offered.applied.kind == "none"
    assert offered.applied.reason.startswith("tried, and a run can ")
    open_to_all = {"write outside its directories", "see a process of the host", "leave a file for the next run"}
    assert open_to_all <= {escape.what for escape in offered.escapes if not escape.refused}
    assert {escape.what for escape in offered.escapes if escape.refused} >= {"leave a process"}
    assert [(path.parent, path.exists()) for path in reached] == [(Path("/tmp"), False)]


def test_a_sandbox_that_only_stops_writing_is_no_sandbox(need_sandbox, tmp_path):
    need_sandbox("sandboxed")

    def leaky(spec, directory):
        box = as_ourselves(bubble.enclose(spec, directory))
        shown = (*box.allow.declared, str(directory.root.parent))
        return replace(box, allow=replace(box.allow, declared=shown))

    offered = selftest.try_sandbox(SystemClock(), None, leaky)

    assert offered.applied.reason == "tried, and a run can " + ", ".join(
        escape.what for escape in offered.escapes if not escape.refused
    )
    reads = {"read the runner's key", "read the runner's key by a link", "read another run's directory"}
    reads |= {"connect to a socket of the host"}
    root = {"be root on the host"} if os.getuid() == 0 else set()
    assert {escape.what for escape in offered.escapes if not escape.refused} == reads | root


@pytest.mark.skipif(os.getuid() != 0, reason="an ordinary user's sandbox cannot be root")
def test_a_sandbox_whose_root_is_the_hosts_is_no_sandbox(need_sandbox):
    need_sandbox("sandboxed")
    offered = selftest.try_sandbox(
        SystemClock(), None, lambda spec, directory: as_ourselves(bubble.enclose(spec, directory))
    )

    assert offered.applied.reason == "tried, and a run can be root on the host"
    assert [escape.what for escape in offered.escapes if not escape.refused] == ["be root on the host"]


@pytest.mark.parametrize("own", [False, True])
def test_a_sandbox_in_which_kernel_settings_are_not_read_only_is_no_sandbox(need_sandbox, own):
    need_sandbox("sandboxed")

    def bare(spec, directory):
        box = bubble.enclose(spec, directory)
        box = as_ourselves(box) if own else box
        return replace(box, able=replace(box.able, path=str(program)))

    with tempfile.TemporaryDirectory(dir="/tmp") as name:  # where any user can go
        Path(name).chmod(0o755)
        program = Path(name) / "bwrap"
        program.write_text(f'#!/bin/sh\nargs=$2\nshift 2\nexec {bubble.abilities().path} --args "$args" {FRESH} "$@"\n')
        program.chmod(0o755)
        offered = selftest.try_sandbox(SystemClock(), None, bare)

    ways = {"open a kernel setting for writing", "see kernel settings that are not read-only"}
    root = {"be root on the host"} if own and os.getuid() == 0 else set()
    assert offered.applied.kind == "none"
    assert {escape.what for escape in offered.escapes if not escape.refused} == ways | root
