"""Owners rotate, add, retire, revoke; strangers push, readers are away: nobody is moved back, nobody locked out."""

from __future__ import annotations

import datetime as dt
import tempfile
from dataclasses import replace
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from bridge.trust.judgement import NamedKey, Signed, may_say
from bridge.trust.root import RootContent, RootError, read_root, retired, write_root
from bridge.trust.root_memory import RootMemory
from bridge.trust.signing_key import FileKey, SigningKey
from tests.fakes.memory_bus import BUS_ID, bus_record
from tests.unit.bridge.trust.stage import NOW, RealClock

READERS = ("pinned", "first", "away", "read-only")


def new_key() -> SigningKey:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    return FileKey(Ed25519PrivateKey.generate())


class Roots(RuleBasedStateMachine):
    """A bus whose ref anybody may push to, its owner, and readers with a memory each."""

    @initialize()
    def begin(self) -> None:
        self.folder = tempfile.TemporaryDirectory(prefix="kakeya-roots-")
        self.now = NOW
        self.owner, self.owners = new_key(), []
        self.content = RootContent(bus_record(RealClock()))
        self.honest = [write_root(self.content, self.owner, self.now)]
        self.shown: dict[str, bytes] | None = self.honest[0]
        self.memories = {name: RootMemory(Path(self.folder.name) / name) for name in READERS}
        self.versions: dict[str, tuple[int, int]] = {}
        self.withdrawn: list[str] = []

    def write(self, content: RootContent, successor: SigningKey | None = None) -> None:
        self.now += dt.timedelta(seconds=60)
        before = read_root(self.honest[-1])
        self.honest.append(write_root(content, self.owner, self.now, before, successor))
        self.content = content
        self.shown = self.honest[-1]

    @rule()
    def rotate(self) -> None:
        successor = new_key()
        self.write(self.content, successor)
        self.owners.append(self.owner)
        self.owner = successor

    @rule()
    def add(self) -> None:
        fresh = NamedKey(f"host{len(self.content.runners)}", new_key().public, since=0.0)
        self.write(replace(self.content, runners=(*self.content.runners, fresh)))

    @rule(number=st.integers(0, 9))
    def retire(self, number: int) -> None:
        if self.content.runners:
            name = self.content.runners[number % len(self.content.runners)].name
            self.write(replace(self.content, runners=retired(self.content.runners, name, self.now.timestamp())))

    @rule(number=st.integers(0, 9))
    def revoke(self, number: int) -> None:
        if self.content.runners:
            key = self.content.runners[number % len(self.content.runners)].key
            self.withdrawn.append(key)
            self.write(replace(self.content, revoked={**(self.content.revoked or {}), key: self.now.timestamp()}))

    @rule(number=st.integers(0, 30))
    def a_stranger_sets_it_back(self, number: int) -> None:
        self.shown = self.honest[number % len(self.honest)]

    @rule()
    def a_stranger_deletes_it(self) -> None:
        self.shown = None

    @rule(former=st.booleans())
    def a_stranger_forges_it(self, former: bool) -> None:
        key = self.owners[-1] if former and self.owners else new_key()
        forged = write_root(replace(self.content, runners=()), key, self.now)
        self.shown = {**self.honest[-1], **forged} if former else forged

    @rule(name=st.sampled_from(READERS))
    def look(self, name: str) -> None:
        first = read_root(self.honest[0])
        pinned = name != "first"  # the reader at first use met the honest root before any stranger pushed
        if name == "first" and "first" not in self.versions:
            self.memories[name].meet(self.honest[0], BUS_ID, pin=None, now_s=self.now.timestamp())
        try:
            known_root = self.memories[name].meet(
                self.shown, BUS_ID, pin=first.owner if pinned else None, now_s=self.now.timestamp()
            )
        except RootError:  # a reader who was told the owner and shown a stranger's root goes by none
            assert name not in self.versions
            return
        if known_root is None:
            assert name not in self.versions
            return
        root = known_root.root
        assert any(dict(root.files) == files for files in self.honest), "a stranger's root was taken"
        assert (root.version, root.targets_version) >= self.versions.get(name, (0, 0)), "moved back"
        self.versions[name] = (root.version, root.targets_version)
        if self.shown == self.honest[-1]:
            assert dict(root.files) == self.honest[-1], "locked out by an honest change"
            for key in self.withdrawn:
                (holder,) = [runner for runner in root.content.runners if runner.key == key]
                signed = Signed("claim", holder.name, present=True, key=key, at=1.0)
                assert may_say(root.authority(vouched=True), signed).word == "untrusted"

    @invariant()
    def nothing_remembered_is_a_stranger_s(self) -> None:
        for memory in getattr(self, "memories", {}).values():
            known_root = memory.recall(BUS_ID)
            assert known_root is None or any(dict(known_root.root.files) == files for files in self.honest)

    def teardown(self) -> None:
        if hasattr(self, "folder"):
            self.folder.cleanup()


TestRoots = Roots.TestCase
TestRoots.settings = settings(
    max_examples=15, stateful_step_count=15, deadline=None, suppress_health_check=list(HealthCheck)
)
