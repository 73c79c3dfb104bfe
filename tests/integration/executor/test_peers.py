"""Request code that host code asks over pipes: another user, another sandbox, stopped when told."""

from __future__ import annotations

import json
import sys

import pytest

from bridge.errors import SandboxUnavailableError
from bridge.records.jobspec import Command, SandboxSpec
from tests.fakes.local_jobs import OTHER_UID, Jobs

PEER_UID = 54322
CONDUCTOR = """
import json, os, time
ask, reply, order, done = (int(os.environ["KAKEYA_PEER_" + name]) for name in ("ASK", "REPLY", "ORDER", "DONE"))
def hold(word):
    os.write(order, word)
    assert os.read(done, 1) == b"k"
"""
ECHO = """
import os
ask, reply = int(os.environ["KAKEYA_PEER_ASK"]), int(os.environ["KAKEYA_PEER_REPLY"])
"""


@pytest.fixture
def pair(executor, tmp_path, need_sandbox):
    need_sandbox("other_user")
    jobs = Jobs(executor, tmp_path, "other_user")

    def run(conductor: str, peer: str, *, prepare=None, sandbox=None, **limits):
        commands = [
            (sys.executable, "-I", "-S", "-c", head + text) for head, text in ((CONDUCTOR, conductor), (ECHO, peer))
        ]
        spec = jobs.spec(
            argv=[commands[0]], code="request", outputs=("seen.json",), processes=32,
            sandbox=sandbox or SandboxSpec(mode="required", uid=OTHER_UID, peer_uid=PEER_UID), **limits,
        )  # fmt: skip
        spec = spec.evolve(commands=(Command(name="c0", argv=commands[0], peer=commands[1]),))
        jobs.spec = lambda *_programs, **_fields: spec
        return jobs.run(prepare=prepare)

    return run


def seen(execution):
    assert execution.program_exit == 0, execution.log.decode()
    return json.loads(execution.reports["seen.json"])


def say(expression: str) -> str:
    return f'\nopen(os.environ["KAKEYA_OUT"] + "/seen.json", "w").write(json.dumps({expression}))\n'


def test_both_sides_talk_and_the_record_says_who_was_who(pair):
    conductor = 'os.write(ask, b"hello")\nheard = os.read(reply, 999).decode()' + say(
        'dict(heard=heard, nonce=os.environ["KAKEYA_NONCE"], uid=os.getuid(), work=os.listdir("."))'
    )
    peer = """
word = os.read(ask, 99).decode()
names = [name for name in os.environ if name.startswith("KAKEYA_")]
os.write(reply, repr((word, os.getuid(), os.listdir("."), sorted(names))).encode())
"""

    def prepare(directory):
        (directory.work / "theirs.py").write_text("")

    execution = pair(conductor, peer, prepare=prepare)
    answer = seen(execution)
    word, uid, work, names = eval(answer["heard"])
    assert (word, uid, work) == ("hello", PEER_UID, ["theirs.py"])
    assert (answer["uid"], answer["work"]) == (OTHER_UID, [])
    assert not {"KAKEYA_NONCE", "KAKEYA_OUT", "KAKEYA_SAMPLE_PIPE", "KAKEYA_PEER_ORDER"} & set(names)
    (record,) = execution.peers
    assert (record.command, record.nonce, record.sandbox.uid) == ("c0", answer["nonce"], PEER_UID)
    assert (execution.sandbox.uid, record.sandbox.kind, record.sandbox.network) == (OTHER_UID, "bwrap", False)
    assert record.survivors == 0


def test_what_is_held_does_not_run_whatever_it_forked_or_threaded(pair):
    conductor = """
def moments(begin, end):
    "How often the peer's fork ran between two moments of the clock that all processes share."
    os.write(ask, json.dumps([begin, end]).encode())
    return json.loads(os.read(reply, 99))
def wait_for_some(begin):
    while not moments(begin, time.monotonic()): time.sleep(0.02)
wait_for_some(0.0)
hold(b"h")
begin = time.monotonic()
time.sleep(0.5)
end = time.monotonic()
hold(b"r")
wait_for_some(end)
""" + say("moments(begin, end)")
    peer = """
import itertools, json, mmap, struct, threading, time
ring = mmap.mmap(-1, 8 * 100000)
def spin():
    for place in itertools.cycle(range(0, len(ring), 8)):
        ring[place:place + 8] = struct.pack("d", time.monotonic())
        time.sleep(0.001)
if os.fork() == 0:
    os.setsid()
    threading.Thread(target=spin).start()
    time.sleep(1000)
while asked := os.read(ask, 99):
    begin, end = json.loads(asked)
    ran = [one for (one,) in struct.iter_unpack("d", ring[:]) if one and begin < one < end]
    os.write(reply, json.dumps(len(ran)).encode())
"""
    execution = pair(conductor, peer)
    assert seen(execution) == 0
    ((begin, end),) = execution.peers[0].held
    assert end - begin >= 0.5
    assert execution.peers[0].survivors == 0


def test_a_peer_cannot_reach_the_report_the_other_side_or_the_network(pair):
    peer = """
import glob, json, socket, signal
def refused(what):
    try:
        what()
    except OSError:
        return True
    return False
root = os.path.dirname(os.path.dirname(os.getcwd()))
others = [pid for pid in os.listdir("/proc") if pid.isdigit() and os.stat("/proc/" + pid).st_uid != os.getuid()]
said = {
    "out": not os.path.exists(root + "/out"),
    "write out": refused(lambda: open(root + "/out/seen.json", "w")),
    "other processes": others,
    "network": refused(lambda: socket.create_connection(("127.0.0.1", 22), 1)),
    "init": refused(lambda: os.kill(1, signal.SIGKILL)) or True,
}
os.read(ask, 1)
os.write(reply, json.dumps(said).encode())
"""
    conductor = 'os.write(ask, b"?")\nheard = json.loads(os.read(reply, 999))\n' + say("heard")
    answer = seen(pair(conductor, peer))
    assert answer == {"out": True, "write out": True, "other processes": [], "network": True, "init": True}


def test_a_peer_that_dies_is_the_end_of_its_pipe_and_one_that_stays_is_killed(pair):
    died = pair('assert os.read(reply, 9) == b""\n' + say("{}"), "raise SystemExit(3)")
    seen(died)
    assert died.peers[0].exit_code == 3
    stayed = pair(say("{}"), "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\ntime.sleep(1000)")
    seen(stayed)
    assert stayed.peers[0].survivors == 0


@pytest.mark.parametrize(
    "sandbox",
    [
        SandboxSpec(mode="required", uid=OTHER_UID, peer_uid=OTHER_UID),
        SandboxSpec(mode="required", uid=OTHER_UID),
        SandboxSpec(mode="required", peer_uid=PEER_UID),
        SandboxSpec(mode="preferred", uid=OTHER_UID, peer_uid=PEER_UID),
    ],
)
def test_without_two_users_and_a_sandbox_nothing_starts(pair, sandbox):
    with pytest.raises(SandboxUnavailableError, match="two users"):
        pair("", "", sandbox=sandbox)
