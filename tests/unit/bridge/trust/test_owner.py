"""The owner of a bus changes what its root says, and begins anew after the key is lost without losing a word of it."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from bridge.errors import UsageError
from bridge.runner.maintenance.owner import BusOwner, with_revoked, with_runner, with_signer, without
from bridge.trust.keyring import pinned
from bridge.trust.root import RootContent, read_root, write_root
from bridge.trust.signing_key import make_key, public_text
from bridge.trust.ssh_signatures import NAMESPACE
from tests.fakes.bus_actors import FakeClock
from tests.fakes.memory_bus import BUS_ID, MemoryBus, MemoryRemote, bus_record
from tests.unit.bridge.trust.stage import NOW


def owner_at(remote: MemoryRemote, folder: Path) -> BusOwner:
    clock = FakeClock(NOW)
    return BusOwner(MemoryBus(remote, clock=clock), folder, clock)


@pytest.fixture
def made(tmp_path: Path) -> tuple[MemoryRemote, BusOwner]:
    """Return a bus whose root lists two runners, one of them revoked, and a requester."""
    tmp_path.chmod(0o700)
    bus = MemoryBus(clock=FakeClock(NOW))
    owner = owner_at(bus.remote, tmp_path / "owner")
    owner.make(())
    for name in ("hosta", "hostb"):
        key = pinned(f"{name}={make_key(tmp_path / name).public}", "a test")
        owner.change(lambda content, key=key: with_runner(content, key, NOW))
    line = f'dev namespaces="{NAMESPACE}" {public_text(make_key(tmp_path / "dev"))}'
    owner.change(lambda content: with_signer(content, line))
    owner.change(lambda content: with_revoked(content, "hostb", NOW))
    return bus.remote, owner


def test_what_was_signed_in_the_second_of_a_retirement_counts(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    owner, signed, retired = make_key(tmp_path / "owner"), NOW.replace(microsecond=100), NOW.replace(microsecond=200)
    content = with_runner(
        RootContent(bus_record(FakeClock(NOW))), pinned(f"hosta={make_key(tmp_path / 'a').public}", ""), NOW
    )
    content = with_signer(content, f'dev namespaces="{NAMESPACE}" {public_text(make_key(tmp_path / "dev"))}')
    for who in ("hosta", "dev"):
        content = without(content, who, retired)
    read = read_root(write_root(content, owner, retired)).content
    (runner,), (signer,) = read.runners, read.signers
    assert signed.timestamp() < runner.until <= (retired + timedelta(seconds=1)).timestamp()
    assert f'valid-before="{(NOW + timedelta(seconds=1)):%Y%m%d%H%M%S}Z"' in signer


def test_a_new_owner_keeps_whose_key_is_whose_and_what_is_revoked(made, tmp_path: Path) -> None:
    remote, owner = made
    before = owner.root.content
    owner.key_path(BUS_ID).unlink()
    after = owner_at(remote, tmp_path / "owner").make((), anew=True)
    assert after.owner != owner.root.owner
    assert (after.content.runners, after.content.signers) == (before.runners, before.signers)
    assert after.content.revoked == before.revoked != {}


def test_a_new_owner_from_another_account_keeps_them_as_well(made, tmp_path: Path) -> None:
    remote, owner = made
    after = owner_at(remote, tmp_path / "another account").make((), anew=True)
    assert after.content == owner.root.content


def test_an_account_without_the_key_changes_nothing_and_is_told_where_it_was(made, tmp_path: Path) -> None:
    remote, owner = made
    stranger = owner_at(remote, tmp_path / "stranger")
    with pytest.raises(UsageError, match="whose key this account does not hold"):
        stranger.change(lambda content: with_revoked(content, "hosta", NOW))
    assert owner_at(remote, tmp_path / "owner").root == owner.root


def test_the_record_of_a_bus_is_the_one_it_was_made_with(made) -> None:
    assert made[1].root.content.record == bus_record(FakeClock(NOW))
