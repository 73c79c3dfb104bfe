"""The study's probes find nothing open in the sandbox that runs get, and find every hole that is dug into it."""

from __future__ import annotations

import os
import sys
from dataclasses import replace

import pytest

from benchmarks.studies.sandbox.escapes import situations
from benchmarks.studies.sandbox.escapes.scene import host_scene
from benchmarks.studies.sandbox.jobs import QUIET
from bridge.executor.running import RunExecution
from bridge.executor.sandbox import bubblewrap, bwrap_options, landlock, seccomp
from bridge.system.clock import SystemClock

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="these are ways out of a Linux sandbox"),
    pytest.mark.skipif(os.getuid() != 0, reason="another user's runs need root"),
]


@pytest.mark.ci
def test_some_hundred_ways_out_of_a_run_of_another_user_reach_nothing(need_sandbox, only_mounts):
    need_sandbox("other_user")
    probes, files = situations.SITUATIONS["other user"]()

    assert {name: problem for name, problem in probes.items() if problem is not None} == {}
    assert len(probes) >= 200
    assert files > 100


@pytest.mark.ci
@pytest.mark.skipif(landlock.kernel_abi() == 0, reason="this kernel has no Landlock")
def test_where_namespaces_are_denied_the_executor_refuses_what_landlock_alone_is_not_for():
    cell = "landlock alone, other user, request code, network names"

    assert "this run needs a sandbox and the host has none" in str(situations.NOT_STARTED[cell]())
    assert situations.where_denied("other user", "host", network=False) is None


def holes(monkeypatch, scene, name):
    """Dig a hole into the sandbox that is about to be made."""
    if "filter" in name:
        monkeypatch.setattr(seccomp, "program", lambda _machine: None)
    if name == "writable settings":
        monkeypatch.setattr(bwrap_options, "_KERNEL", ())
    if "namespaces" in name:
        original = bwrap_options.options

        def shared(scene_, descriptors):
            gone = {"--unshare-net", "--unshare-ipc", "--disable-userns"}
            return [option for option in original(scene_, descriptors) if option not in gone]

        monkeypatch.setattr(bwrap_options, "options", shared)


EXPECTED = {
    "no filter of system calls": {"be without a filter of system calls", "make a socket of family 40"},
    "writable settings": {"open a file below /proc for writing", "see /proc/sys without its being read-only"},
    "no namespaces": {
        "connect to the host's loopback",
        "be in the host's net namespace",
        "connect to an abstract socket of the host, stream",
    },
    "neither namespaces nor a filter": {"reach the host's semaphores"},
    "the key": {"read the runner's key by its path", "read the state folder by its path"},
    "no mask": {"read .netrc below the declared folder", "connect to a socket below the declared folder, stream"},
}


@pytest.mark.parametrize("hole", EXPECTED)
def test_the_probes_find_a_hole_that_was_dug(need_sandbox, only_mounts, monkeypatch, hole):
    need_sandbox("other_user")
    uid = situations.OTHER_UID
    with situations.new_folder() as folder, host_scene(folder, uid) as scene:
        spec = situations.job(scene, uid=uid, code="host")
        directory = situations.prepare(scene, spec, EXPECTED[hole])
        holes(monkeypatch, scene, hole)
        box = bubblewrap.enclose(spec, directory)
        if hole == "the key":
            box = replace(box, allow=replace(box.allow, declared=(*box.allow.declared, str(folder / "state"))))
        if hole == "no mask":
            box = replace(box, allow=replace(box.allow, masked={}))
        run = RunExecution(spec, directory, QUIET, secrets=(), confinement=box, clock=SystemClock())
        probes = situations.answer_of(run.execute())["probes"]

    assert EXPECTED[hole] <= {name for name, problem in probes.items() if problem is not None}


def test_the_probes_that_look_without_touching_find_what_nothing_hides():
    names = (
        *("execute a set-user program with its rights", "gain privileges by executing a program"),
        *("be without a filter of system calls", "see the size of a file of the host"),
        *("see the owner of a process of the host", "read the group of a process of the host"),
        *("open a descriptor of a process of the host", "see the host's connections in tcp"),
        *("read an attribute of a file of the host by its name", "see the host's mounts in mountinfo"),
        *("attach the host's shared memory by its number", "reach the host's semaphores by their number"),
        *("reach the host's message queue by its number", "read the processor time of a process of the host"),
    )
    probes = situations.without_a_sandbox(*names)

    assert {name for name, outcome in probes.items() if outcome is None} == set()
    assert set(probes) == set(names)
