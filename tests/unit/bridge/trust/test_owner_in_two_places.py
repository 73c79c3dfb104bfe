"""An owner works from two accounts, at a bus and at its mirror, remotes are set back: no revocation is ever lost."""

from __future__ import annotations

import base64
import datetime as dt
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from bridge.errors import UsageError
from bridge.runner.maintenance.owner import BusOwner, with_revoked, with_runner, without
from bridge.runner.maintenance.root_merge import merge
from bridge.system.ssh_agent import ssh_text
from bridge.trust.keyring import pinned
from bridge.trust.root import RootError, fingerprint, read_root, write_root
from bridge.trust.root_memory import RootMemory
from bridge.trust.signing_key import SigningKey, open_key
from tests.fakes.bus_actors import FakeClock
from tests.fakes.memory_bus import BUS_ID, Faults, MemoryBus, MemoryRemote
from tests.unit.bridge.trust.stage import NOW
from tests.unit.bridge.trust.test_root_machine import new_key

ROOT: Final = "refs/kakeya/root"
ACCOUNTS: Final = ("desk", "laptop")
REMOTES: Final = ("bus", "mirror")


class Places:
    """Two accounts that hold one owner's key, a bus with three runners, and a mirror of it."""

    def __init__(self, folder: Path) -> None:
        folder.chmod(0o700)
        self.folder, self.clock = folder, FakeClock(NOW)
        bus = MemoryBus(clock=self.clock)
        self.remotes = {"bus": bus.remote, "mirror": MemoryRemote()}
        BusOwner(bus, folder / "desk", self.clock).make(())
        self.change("desk", "bus", "add", "host0")
        shutil.copytree(folder / "desk", folder / "laptop")
        self.mirror()

    def mirror(self) -> None:
        """Make the mirror what the bus is."""
        bus, mirror = self.remotes["bus"], self.remotes["mirror"]
        mirror.objects.update(bus.objects)
        mirror.refs.clear()
        mirror.refs.update(bus.refs)

    def owner(self, account: str, remote: str = "bus") -> BusOwner:
        """Return the owner as one command of an account finds it."""
        bus = MemoryBus(self.remotes[remote], clock=self.clock)
        return BusOwner(bus, self.folder / account, self.clock)

    def change(self, account: str, remote: str, what: str, name: str) -> None:
        """Do what one command does: add a runner, revoke one, or rotate the owner's key.

        Raises:
            UsageError: refused.
        """
        owner = self.owner(account, remote)
        if what == "rotate":
            owner.rotate()
        elif what == "revoke":
            owner.change(lambda content: with_revoked(content, name, self.clock.now()))
        else:
            key = pinned(f"{name}={new_key().public}", "a test")
            owner.change(lambda content: with_runner(content, key, self.clock.now()))

    def shown(self, remote: str) -> dict[str, bytes]:
        """Return the files of the root that a remote shows."""
        bus, shown = MemoryBus(self.remotes[remote], clock=self.clock), dict[str, bytes]()
        bus.use_root(lambda files, _: shown.update(files or {}))
        bus.identity()
        return shown

    def write(self, remote: str, files: Mapping[str, bytes]) -> None:
        """Put any root in the place of what a remote shows."""
        bus = MemoryBus(self.remotes[remote], clock=self.clock)
        bus.identity()
        assert bus.write_root(files, bus.root_tip)

    def revoked(self, remote: str = "bus") -> set[str]:
        """Return what the root that a remote shows revokes."""
        return set(read_root(self.shown(remote)).content.revoked or {})

    def key(self, name: str) -> str:
        """Return the key of a runner, as the bus's root has it."""
        return next(runner.key for runner in read_root(self.shown("bus")).content.runners if runner.name == name)

    def forget(self, account: str) -> None:
        """Do what the refusal says: take the bus's root in place of the account's own."""
        RootMemory(self.folder / account).forget(BUS_ID)


@pytest.fixture
def places(tmp_path: Path) -> Places:
    return Places(tmp_path)


def test_a_change_over_a_root_that_this_account_did_not_see_is_refused_and_loses_no_revocation(places: Places) -> None:
    stolen = places.key("host0")
    places.change("laptop", "mirror", "add", "host1")
    places.change("desk", "bus", "revoke", "host0")
    unseen = "the bus shows a root that this account has not seen: another root calls itself"
    with pytest.raises(UsageError, match=unseen) as refused:
        places.change("laptop", "bus", "add", "host2")
    assert "trust merge" in str(refused.value.remedy)
    assert places.revoked() == {stolen}


def test_what_the_refusal_says_to_do_unites_both_roots_and_the_change_goes_through(places: Places) -> None:
    stolen = places.key("host0")
    for name in ("host1", "host4"):
        places.change("laptop", "mirror", "add", name)
    places.change("desk", "bus", "add", "host2")
    places.change("desk", "bus", "revoke", "host0")
    foreign = places.key("host2")
    with pytest.raises(UsageError):
        places.change("laptop", "bus", "add", "host3")
    root, left = places.owner("laptop").merge()
    assert left == (f"host2={foreign}",)
    assert {runner.name for runner in root.content.runners} == {"host0", "host1", "host4"}
    places.change("laptop", "bus", "add", "host3")
    assert (places.revoked(), places.key("host3") != "") == ({stolen}, True)


def test_a_merge_takes_the_keys_that_are_named_and_is_followed_by_the_other_account(places: Places) -> None:
    places.change("laptop", "mirror", "add", "host1")
    places.change("desk", "bus", "add", "host2")
    _, left = places.owner("laptop").merge(["host2"])
    assert left == ()
    places.change("desk", "bus", "add", "host3")
    assert {runner.name for runner in read_root(places.shown("bus")).content.runners} == {
        "host0", "host1", "host2", "host3",
    }  # fmt: skip


def test_what_ends_sooner_on_either_side_ends_then(places: Places) -> None:
    later, sooner = NOW + dt.timedelta(days=2), NOW + dt.timedelta(days=1)
    content = read_root(places.shown("bus")).content
    line = f'dev namespaces="kakeya-request" {ssh_text(base64.b64decode(new_key().public))}'
    own = replace(without(content, "host0", later), signers=(line.replace(" ssh", ',valid-before="2027" ssh'),))
    other = replace(without(content, "host0", sooner), signers=(line.replace(" ssh", ',valid-before="2026" ssh'),))
    for first, second in ((own, other), (other, own), (content, other)):
        merged = merge(first, second, ["dev"]).content
        assert [runner.until for runner in merged.runners] == [sooner.timestamp()]
        assert ['valid-before="2026"' in signer for signer in merged.signers] == [True]


def test_a_key_that_was_rotated_on_one_side_stays_the_owners_after_a_merge(places: Places) -> None:
    stolen, before = places.key("host0"), places.remotes["bus"].refs[ROOT]
    places.change("desk", "bus", "rotate", "")
    rotated = read_root(places.shown("bus")).owner
    places.remotes["bus"].refs[ROOT] = before
    places.change("laptop", "bus", "revoke", "host0")
    root, _ = places.owner("desk").merge()
    assert (root.owner, places.revoked()) == (rotated, {stolen})


def test_an_account_that_only_did_not_look_for_a_while_goes_on(places: Places) -> None:
    stolen = places.key("host0")
    places.change("desk", "bus", "revoke", "host0")
    places.change("laptop", "bus", "add", "host1")
    assert places.revoked() == {stolen}


def test_a_change_that_another_account_was_just_before_is_made_after_it(places: Places) -> None:
    """As two jobs are that ask for a ticket each at the same moment."""
    others = ["host1"]

    def first(operation: str) -> None:
        if operation == "push" and others:
            places.change("desk", "bus", "add", others.pop())

    bus = MemoryBus(places.remotes["bus"], clock=places.clock, faults=Faults(first))
    key = pinned(f"host2={new_key().public}", "a test")
    BusOwner(bus, places.folder / "laptop", places.clock).change(lambda content: with_runner(content, key, NOW))
    names = {runner.name for runner in read_root(places.shown("bus")).content.runners}
    assert names == {"host0", "host1", "host2"}


@pytest.mark.parametrize("shown", ["nothing", "an older root of its own"])
def test_an_owner_goes_on_where_the_bus_shows_nothing_or_only_what_the_account_said_itself(
    places: Places, shown: str
) -> None:
    stolen, before = places.key("host0"), places.remotes["bus"].refs[ROOT]
    places.change("desk", "bus", "revoke", "host0")
    if shown == "nothing":
        del places.remotes["bus"].refs[ROOT]
    else:
        places.remotes["bus"].refs[ROOT] = before
    places.change("desk", "bus", "add", "host1")
    assert places.revoked() == {stolen}


def test_a_root_of_another_owner_is_not_written_over(places: Places) -> None:
    stranger = write_root(read_root(places.shown("bus")).content, new_key(), NOW)
    places.write("bus", stranger)
    with pytest.raises(UsageError, match=r"1\.root\.json is another") as refused:
        places.change("desk", "bus", "add", "host1")
    assert f":{ROOT}" in str(refused.value.remedy)
    assert places.shown("bus") == stranger


def test_a_newer_root_that_only_lacks_a_revocation_is_followed_by_one_that_every_reader_takes(places: Places) -> None:
    stolen, before = places.key("host0"), read_root(places.shown("bus"))
    places.change("desk", "mirror", "revoke", "host0")
    owner, memory = open_key(places.owner("desk").key_path(BUS_ID)), RootMemory(places.folder / "reader")
    newer = before
    for _ in range(2):
        newer = read_root(write_root(before.content, owner, NOW, newer))
    places.write("bus", newer.files)
    memory.meet(newer.files, BUS_ID, pin=before.owner, now_s=NOW.timestamp())
    places.change("desk", "bus", "add", "host1")
    met = memory.meet(places.shown("bus"), BUS_ID, pin=before.owner, now_s=NOW.timestamp())
    assert met is not None
    assert (met.note, set(met.root.content.revoked or {})) == (None, {stolen})


def test_an_older_root_that_holds_what_this_account_never_saw_is_not_written_over(places: Places) -> None:
    places.change("desk", "mirror", "add", "host1")
    places.change("desk", "mirror", "add", "host2")
    places.change("laptop", "bus", "revoke", "host0")
    with pytest.raises(UsageError, match="host0"):
        places.change("desk", "bus", "add", "host3")


def test_a_key_of_the_owner_that_was_rotated_elsewhere_is_not_written_over(places: Places) -> None:
    places.change("desk", "mirror", "rotate", "")
    places.change("laptop", "bus", "rotate", "")
    with pytest.raises(UsageError, match=r"2\.root\.json is another") as refused:
        places.change("desk", "bus", "add", "host1")
    assert "--new-owner" in str(refused.value.remedy)


def test_a_reader_refuses_a_newer_root_without_a_revocation_that_it_knows(places: Places) -> None:
    owner: SigningKey = open_key(places.owner("desk").key_path(BUS_ID))
    memory, before = RootMemory(places.folder / "reader"), read_root(places.shown("bus"))
    content = with_revoked(before.content, "host0", NOW)
    revoking = read_root(write_root(content, owner, NOW, before))
    memory.meet(revoking.files, BUS_ID, pin=before.owner, now_s=NOW.timestamp())
    forgetful = write_root(before.content, owner, NOW, revoking)
    met = memory.meet(forgetful, BUS_ID, pin=before.owner, now_s=NOW.timestamp())
    assert met is not None
    assert met.root == revoking
    assert "revocation" in str(met.note)
    with pytest.raises(RootError, match="revocation"):
        read_root(forgetful, revoking)


def test_a_reader_refuses_a_newer_root_that_dates_a_revocation_later(places: Places) -> None:
    owner: SigningKey = open_key(places.owner("desk").key_path(BUS_ID))
    before = read_root(places.shown("bus"))
    revoking = read_root(write_root(with_revoked(before.content, "host0", NOW), owner, NOW, before))
    later = with_revoked(before.content, "host0", NOW + dt.timedelta(days=1))
    with pytest.raises(RootError, match="revocation"):
        read_root(write_root(later, owner, NOW, revoking), revoking)


class Histories(RuleBasedStateMachine):
    """Drawn histories of two accounts, two remotes, remotes that are set back, a thief of the key, and readers."""

    @initialize()
    def begin(self) -> None:
        self.temporary = tempfile.TemporaryDirectory(prefix="kakeya-places-")
        self.places = Places(Path(self.temporary.name))
        self.earlier = [dict(self.places.remotes["bus"].refs)]
        self.names = ["host0"]
        self.revocations: set[str] = set()

    @rule(
        account=st.sampled_from(ACCOUNTS),
        remote=st.sampled_from(REMOTES),
        what=st.sampled_from(("add", "add", "add", "revoke", "revoke", "rotate")),
        number=st.integers(0, 9),
        yields=st.booleans(),
    )
    def change(self, account: str, remote: str, what: str, number: int, *, yields: bool) -> None:
        self.places.clock.advance(60)
        name = f"host{len(self.names)}" if what == "add" else self.names[number % len(self.names)]
        remembered = RootMemory(self.places.folder / account).recall(BUS_ID)
        before = set() if remembered is None else set(remembered.root.content.revoked or {})
        shown = self.places.revoked(remote)
        try:
            self.places.change(account, remote, what, name)
        except (UsageError, RootError):  # also an account whose key the owner rotated away elsewhere
            if yields:
                self.unite(account, remote)
            return
        assert self.places.revoked(remote) >= before | shown, "a revocation was lost by a writer"
        self.earlier.append(dict(self.places.remotes[remote].refs))
        if what == "add":
            self.names.append(name)
        self.look(remote)

    @rule(account=st.sampled_from(ACCOUNTS), remote=st.sampled_from(REMOTES))
    def unite(self, account: str, remote: str) -> None:
        """Merge, and where that is refused too take the bus's root."""
        shown = self.places.revoked(remote)
        remembered = RootMemory(self.places.folder / account).recall(BUS_ID)
        before = set() if remembered is None else set(remembered.root.content.revoked or {})
        try:
            self.places.owner(account, remote).merge()
        except (UsageError, RootError):
            self.places.forget(account)
            return
        now = RootMemory(self.places.folder / account).recall(BUS_ID)
        assert now is None or set(now.root.content.revoked or {}) >= before | shown, "a revocation was lost by a merge"
        self.earlier.append(dict(self.places.remotes[remote].refs))
        self.look(remote)

    @rule(remote=st.sampled_from(REMOTES), number=st.integers(0, 20))
    def set_back(self, remote: str, number: int) -> None:
        tip = self.earlier[number % len(self.earlier)][ROOT]
        if tip in self.places.remotes[remote].objects:
            self.places.remotes[remote].refs[ROOT] = tip

    @rule(account=st.sampled_from(ACCOUNTS), remote=st.sampled_from(REMOTES))
    def a_thief_writes(self, account: str, remote: str) -> None:
        """Sign a newer root that revokes nothing, with the key that an account holds."""
        shown = read_root(self.places.shown(remote))
        key = open_key(self.places.owner(account).key_path(BUS_ID))
        if fingerprint(key.public) != shown.owner:
            return  # a key from before it was rotated signs no root
        self.places.write(remote, write_root(replace(shown.content, revoked={}), key, self.places.clock.now(), shown))
        self.look(remote)

    @rule(remote=st.sampled_from(REMOTES))
    def look(self, remote: str) -> None:
        memory = RootMemory(self.places.folder / "reader")
        met = memory.meet(self.places.shown(remote), BUS_ID, pin=None, now_s=self.places.clock.now().timestamp())
        assert met is not None
        revoked = set(met.root.content.revoked or {})
        assert revoked >= self.revocations, "a revocation was lost by a reader"
        self.revocations = revoked

    def teardown(self) -> None:
        if hasattr(self, "temporary"):
            self.temporary.cleanup()


TestHistories = Histories.TestCase
TestHistories.settings = settings(
    max_examples=30, stateful_step_count=12, deadline=None, suppress_health_check=list(HealthCheck)
)


@pytest.mark.ci
@pytest.mark.timeout(2000)  # a busy machine takes ten minutes for them
class TestThousandHistories(Histories.TestCase):
    """The same, drawn a thousand times."""

    settings = settings(
        max_examples=1000, stateful_step_count=12, deadline=None, suppress_health_check=list(HealthCheck)
    )
