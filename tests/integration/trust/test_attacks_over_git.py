"""One attack on each record of tests/data/attacks.toml over a real git remote, before every reader of the table."""

from __future__ import annotations

import datetime as dt
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from bridge.bus import open_bus
from bridge.bus.refbus import RefBus
from bridge.bus.refs import names
from bridge.bus.store.gather import WorkBudget
from bridge.bus.tree import Tree
from bridge.bus.views import RequestRef
from bridge.client.connection.pins import Pins
from bridge.client.evidence.verify import verify
from bridge.errors import PolicyRefusedError, UntrustedLogError
from bridge.runner.authorisation.signers import Signers
from bridge.runner.policy.file import read_policy
from bridge.system.clock import Clock, SystemClock
from bridge.trust.attestation import ATTESTATION_FILE
from bridge.trust.judgement import NOBODY
from bridge.trust.key_seals import KeySeals
from bridge.trust.root_memory import RootMemory
from tests.fakes.bus_actors import Actor, FakeClock, chunk
from tests.fakes.git_servers import git
from tests.fakes.memory_bus import BUS_ID
from tests.unit.bridge.trust.stage import NOW, Stage
from tests.unit.bridge.trust.test_attacks import TABLE, expected, shown

CLOCK = SystemClock()
PREFIX = names.DEFAULT_PREFIX


@dataclass
class Remote:
    """A bus in a bare repository, with a root, and readers who each have a clone of their own."""

    folder: Path
    stage: Stage
    readers: dict[str, RefBus] = field(default_factory=dict)

    def __post_init__(self) -> None:
        subprocess.run(["git", "init", "-q", "--bare", self.path], check=True)
        owner = self.open("owner")
        owner.create(self.stage.record)
        assert owner.write_root(self.stage.files, None)
        self.hosta = self.actor("hosta")
        self.readers = {name: self.open(f"reader-{name}") for name in TABLE["readers"]}
        for name, bus in self.readers.items():
            bus.use_seals(KeySeals(lambda name=name: self.stage.authority(name)))
            bus.identity()

    @property
    def path(self) -> Path:
        return self.folder / "bus.git"

    def open(self, who: str, clock: Clock = CLOCK) -> RefBus:
        return open_bus(f"file://{self.path}", repository=None, state=self.folder / f"at-{who}", clock=clock)

    def actor(self, key: str) -> Actor:
        """Return somebody who says that it is hosta, and signs with an actor's key."""
        bus = self.open(f"actor-{key}")
        bus.use_seals(KeySeals(lambda: NOBODY, name="hosta", key=self.stage.keys[key]))
        return Actor(bus, CLOCK, "hosta")

    def put(self, ref: str, oid: str) -> None:
        git("update-ref", ref, oid, cwd=self.path)

    def tip(self, ref: str) -> str:
        return git("rev-parse", ref, cwd=self.path).strip()


@pytest.fixture(scope="module")
def remote(tmp_path_factory: pytest.TempPathFactory) -> Remote:
    folder = tmp_path_factory.mktemp("over-git")
    folder.chmod(0o700)
    return Remote(folder, Stage(folder))


def asked(remote: Remote) -> RequestRef:
    return remote.hosta.submit(remote.hosta.request()).ref


def word_of_claim(bus: RefBus, ref: RequestRef) -> str:
    view = bus.read_claim(ref.id)
    return "absent" if view is None else shown(view.signature.word)


def a_claim(remote: Remote) -> Callable[[str, RefBus], str]:
    ref = asked(remote)
    remote.actor("other_runner").claim(ref)
    return lambda _name, bus: word_of_claim(bus, ref)


def a_renewal(remote: Remote) -> Callable[[str, RefBus], str]:
    ref = asked(remote)
    remote.hosta.start(ref, remote.hosta.claim(ref))
    thief = Actor(remote.open("thief"), CLOCK, "hosta")
    tip = thief.bus.read_claim(ref.id)
    thief.bus.take_over(tip, thief.record(ref, "started", tip.claim.sequence + 1, phase="running", beat=1))
    return lambda _name, bus: word_of_claim(bus, ref)


def a_log(remote: Remote) -> Callable[[str, RefBus], str]:
    other = remote.actor("other_runner")
    ref = asked(remote)
    held_claim = other.start(ref, other.claim(ref))
    other.renew(ref, held_claim, log=chunk(ref.id, 0, 0, b"false\n"))
    return lambda _name, bus: word_of_log(bus, ref)


def word_of_log(bus: RefBus, ref: RequestRef) -> str:
    try:
        bus.read_log(ref.id)
    except UntrustedLogError:
        return "untrusted"
    return shown(bus.log_signature(ref.id).word)


def an_offer(remote: Remote) -> Callable[[str, RefBus], str]:
    other = remote.actor("other_runner")
    other.bus.beacon(other.beacon(1))

    def look(_name: str, bus: RefBus) -> str:
        beacons = bus.read_beacons()
        return (
            "untrusted" if any(entry.kind == "beacon" for entry in bus.refused) else "unsigned" if beacons else "absent"
        )

    return look


def an_archive(remote: Remote) -> Callable[[str, RefBus], str]:
    ref = asked(remote)
    remote.hosta.run(ref)
    later = FakeClock(NOW + dt.timedelta(days=3))
    bus = remote.open("archivist", later)
    bus.use_seals(KeySeals(lambda: NOBODY, name="hosta", key=remote.stage.keys["other_runner"]))
    assert any("/archive/" in ref_name for ref_name in bus.archive("hosta", budget=WorkBudget(50)))

    def look(_name: str, bus: RefBus) -> str:
        words = {archived_run.tip.claim.id: archived_run.tip.signature.word for archived_run in bus.archived()}
        refused = any(refusal.kind == "archive" for refusal in bus.refused)
        assert refused == (ref.id not in words)
        return "untrusted" if refused else shown(words[ref.id])

    return look


def a_result(remote: Remote) -> Callable[[str, RefBus], str]:
    ref = asked(remote)
    files = {**remote.stage.result(), ATTESTATION_FILE: remote.stage.result("other_runner")[ATTESTATION_FILE]}
    held_claim = remote.hosta.publish(ref, remote.hosta.start(ref, remote.hosta.claim(ref)), files)
    oid = held_claim.claim.result_oid

    def look(name: str, bus: RefBus) -> str:
        bus.view(ref.id)
        tree: Tree = bus.read_result(oid)
        return shown(verify(tree, Pins(remote.stage.authority(name)), source="a test").answer.word)

    return look


def a_request(remote: Remote) -> Callable[[str, RefBus], str]:
    request = remote.stage.request
    signature = remote.stage.ssh("pusher", request.canonical())
    ref = remote.open("pusher").submit(request.canonical(), request.ref, None, signature).ref

    def look(name: str, bus: RefBus) -> str:
        received = bus.read_request(ref)
        root = None if name == "no_root" else remote.stage.root
        signers = Signers(read_policy(b'schema = 1\nname = "hosta"\n'), lambda: root)
        try:
            signers.request(request, received.data, received.signature)
        except PolicyRefusedError:
            return "untrusted"
        return "accepted"

    return look


def a_root(remote: Remote) -> Callable[[str, RefBus], str]:
    memories = {name: remote.stage.memory(name) for name in TABLE["readers"]}
    ref, pusher = names.root_ref(PREFIX), remote.open("pusher")
    assert pusher.write_root(remote.stage.first_files, remote.tip(ref))
    return lambda name, _bus: word_of_root(remote, memories[name], name)


def word_of_root(remote: Remote, memory: RootMemory, name: str) -> str:
    before, meetings = memory.recall(BUS_ID), []
    bus = remote.open(f"root-{name}")

    def judge(files, bus_id):
        meetings.append(memory.meet(files, bus_id, pin=None, now_s=NOW.timestamp()))
        return meetings[-1].root.content.record

    bus.use_root(judge)
    bus.identity()
    if before is None:
        return "accepted" if meetings[-1].vouched else "first use"
    return "kept" if meetings[-1].root == remote.stage.root and meetings[-1].note is not None else "accepted"


# record -> the attack on it, who does it, and how it is done.
ATTACKS: dict[str, tuple[str, str, Callable[[Remote], Callable[[str, RefBus], str]]]] = {
    "request": ("pusher", "swap", a_request),
    "claim": ("other_runner", "forge", a_claim),
    "renewal": ("pusher", "strip", a_renewal),
    "log": ("other_runner", "forge", a_log),
    "archive": ("other_runner", "forge", an_archive),
    "offer": ("other_runner", "forge", an_offer),
    "result": ("other_runner", "swap", a_result),
    "root": ("former_owner", "set_back", a_root),
}


@pytest.mark.parametrize("record", ATTACKS)
def test_an_attack_over_git_comes_to_what_was_written_down(remote: Remote, record: str) -> None:
    actor, act, attack = ATTACKS[record]
    look = attack(remote)
    outcomes = {name: expected(actor, record, act, name)["outcome"] for name in remote.readers}
    assert {name: look(name, bus) for name, bus in remote.readers.items()} == outcomes


def test_what_is_genuine_is_accepted_over_git(remote: Remote) -> None:
    ref = asked(remote)
    held_claim = remote.hosta.start(ref, remote.hosta.claim(ref))
    remote.hosta.renew(ref, held_claim, log=chunk(ref.id, 0, 0, b"true\n"))
    words = {"pinned": "accepted", "first_use": "first use", "no_root": "unsigned", "read_only": "accepted"}
    assert {name: word_of_claim(bus, ref) for name, bus in remote.readers.items()} == words
    assert {name: word_of_log(bus, ref) for name, bus in remote.readers.items()} == words
