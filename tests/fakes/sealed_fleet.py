"""A git remote that anybody may push to, runners with and without keys on it, a client that pins, and a forger."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass, field
from pathlib import Path

from bridge.bus import open_bus
from bridge.bus.open.create import new_record
from bridge.bus.refbus import RefBus
from bridge.records.bus import KeyRecord
from bridge.runner.connection.known_keys import KnownKeys
from bridge.runner.state.attestations import enrolled
from bridge.trust import runner_key as keys
from bridge.trust.judgement import KeyAuthority, NamedKey
from bridge.trust.key_seals import KeySeals
from bridge.trust.keyring import pin
from bridge.trust.seals import Seal, Seals
from tests.fakes.bus_actors import Actor, FakeClock
from tests.fakes.git_servers import git


@dataclass
class Fleet:
    """One bus with its record, and everybody's folder."""

    folder: Path
    name: str = "bus"
    clock: FakeClock = field(default_factory=FakeClock)
    messages: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        subprocess.run(["git", "init", "-q", "--bare", self.path], check=True)
        self.open("maker").create(new_record(self.clock, wake="poll", local=True))

    @property
    def path(self) -> Path:
        return self.folder / f"{self.name}.git"

    def open(self, who: str, seals: Seals | None = None) -> RefBus:
        bus = open_bus(
            f"file://{self.path}", repository=None, state=self.folder / f"{self.name}-{who}", clock=self.clock
        )
        if seals is not None:
            bus.use_seals(seals)
        return bus

    @property
    def bus_id(self) -> str:
        return self.open("maker").identity().bus_id

    def state(self, name: str) -> Path:
        return self.folder / f"state-{name}"

    def key(self, name: str) -> KeyRecord:
        """Return the newest key of a runner, made and named on this bus when there is none."""
        folder = self.state(name)
        if not (folder / keys.KEY_FILE).exists():
            keys.generate(folder, name)
        self.enrol(name)
        return keys.published(folder)[-1]

    def enrol(self, name: str) -> None:
        bus = self.open("maker")
        changed = enrolled(bus.identity(), self.state(name), sign=True)
        if changed != bus.identity():
            bus.update(changed)

    def rotate(self, name: str) -> KeyRecord:
        record = keys.rotate(self.state(name), name)
        self.enrol(name)
        return record

    def seals(self, name: str, *pins: str, folder: str | None = None) -> KeySeals:
        seals = KnownKeys(self.state(folder or name), name, pins=pins, say=self.messages.append).seals()
        assert seals is not None
        return seals

    def runner(self, name: str, *pins: str, signs: bool = True) -> Actor:
        """Return a runner as it is after a start; one that does not sign is one without a key."""
        if signs:
            self.key(name)
        return Actor(self.open(name, self.seals(name, *pins)), self.clock, name)

    def knowing(self, name: str, *others: str) -> Actor:
        """Return a runner that pins other runners' keys."""
        return self.runner(name, *(pin(self.key(other)) for other in others))

    def forger(self, name: str) -> Actor:
        """Return somebody who may push, acting in a runner's name without its key."""
        return Actor(self.open("forger"), self.clock, name)

    def client(self, *pinned: KeyRecord) -> RefBus:
        keys = tuple(NamedKey(record.name, record.public) for record in pinned)
        authority = KeyAuthority(keys, where="a test", closed=bool(keys))
        return self.open(f"client-{len(self.messages)}", KeySeals(lambda: authority))

    def tip(self, ref: str) -> str:
        return git("rev-parse", ref, cwd=self.path).strip()

    def put(self, ref: str, oid: str) -> None:
        """Move a ref as anybody can who may push: no lease, no question asked."""
        git("update-ref", ref, oid, cwd=self.path)

    def take_objects_of(self, other: Fleet) -> None:
        git("fetch", "-q", str(other.path), "+refs/*:refs/stolen/*", cwd=self.path)


def seal_at(fleet: Fleet, oid: str) -> Seal:
    """Return the seal in a commit's message."""
    line = git("log", "-1", "--format=%B", oid, cwd=fleet.path).strip().splitlines()[-1]
    _, runner, signature = line.split()
    return Seal(runner, signature)
