"""Waiting requests: each principal whose signature holds has a share, all others have one together."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import pytest

from bridge.bus.store.gather import WorkBudget
from bridge.bus.views import RequestRef
from bridge.request import UNSIGNED
from bridge.runner.connection.link import link_to
from bridge.runner.queue.inbox import Inbox
from tests.fakes.asking import make_request
from tests.fakes.bus_actors import FakeClock
from tests.fakes.memory_bus import BUS_ID, MemoryBus


@dataclass
class Signers:
    """Whose signature holds: the signature says so itself."""

    verified: int = 0

    def stamp(self) -> tuple[object, ...]:
        return ()

    def quota_name(self, request: Any, data: bytes, signature: bytes) -> str:
        self.verified += 1
        return signature.decode()


@dataclass
class Rules:
    signers: Signers = field(default_factory=Signers)

    @property
    def now(self) -> Rules:
        return self


@dataclass
class Served:
    """A journal that counts who was served."""

    counts: Counter[str] = field(default_factory=Counter)

    def claims_since(self, _moment: Any, principal: str) -> int:
        return self.counts[principal]


@dataclass
class Desk:
    """An inbox, its bus and what it asks."""

    bus: MemoryBus
    rules: Rules
    served: Served
    inbox: Inbox

    def ask(self, principal: str, count: int) -> list[RequestRef]:
        signature = None if principal == UNSIGNED else principal.encode()
        signer = None if signature is None else "SHA256:" + "A" * 43
        made = [
            make_request(BUS_ID, "mlx-env-probe", now=FakeClock().now(), principal=principal, signer=signer)
            for _ in range(count)
        ]
        return [self.bus.submit(request.canonical(), request.ref, None, signature).ref for request in made]


@pytest.fixture
def desk() -> Desk:
    clock = FakeClock()
    bus, rules, served = MemoryBus(clock=clock), Rules(), Served()
    inbox = Inbox(rules, served, link_to(bus, clock), clock)  # type: ignore[arg-type]
    return Desk(bus, rules, served, inbox)


def test_principals_are_served_alike_however_many_requests_others_push(desk: Desk) -> None:
    refs = [*desk.ask("flooder", 200), *desk.ask(UNSIGNED, 200), *desk.ask("alice", 20), *desk.ask("bob", 20)]
    desk.inbox.read(refs, WorkBudget(10))
    for _ in range(60):
        request = next(desk.inbox.in_turn(refs, WorkBudget(1000)))
        desk.served.counts[request.principal] += 1
        refs.remove(request.ref)
    shares = desk.served.counts
    assert set(shares) == {"flooder", UNSIGNED, "alice", "bob"}
    assert max(shares.values()) <= 1.5 * min(shares.values())


def test_a_signature_is_verified_once_and_only_as_far_as_the_budget_goes(desk: Desk) -> None:
    refs = desk.ask("alice", 20)
    desk.inbox.read(refs, WorkBudget(10))
    assert len(list(desk.inbox.in_turn(refs, WorkBudget(5)))) == 5
    assert len(list(desk.inbox.in_turn(refs, WorkBudget(100)))) == 20
    assert len(list(desk.inbox.in_turn(refs, WorkBudget(0)))) == 20
    assert desk.rules.signers.verified == 20


def test_what_is_no_request_comes_last(desk: Desk) -> None:
    broken = make_request(BUS_ID, "mlx-env-probe", now=FakeClock().now())
    first = desk.bus.submit(broken.canonical().replace(b"smoke", b"smoky"), broken.ref, None).ref
    (second,) = desk.ask(UNSIGNED, 1)
    desk.inbox.read([first, second], WorkBudget(10))
    assert [request.ref for request in desk.inbox.in_turn([first, second], WorkBudget(10))] == [second, first]


@pytest.mark.parametrize("asked_by", [UNSIGNED, "alice"])
@pytest.mark.parametrize("name", ["aaa", "zzz"])
def test_another_branch_with_a_request_s_id_is_not_taken_in_its_place(desk: Desk, asked_by: str, name: str) -> None:
    (sent,) = desk.ask(asked_by, 1)
    forged = make_request(BUS_ID, name, now=FakeClock().now(), id=sent.id)
    broken = desk.bus.submit(b'{"created":"2026-01-02T03:04:05.000Z"}', forged.ref, None).ref
    refs = sorted([sent, broken], key=lambda request: request.ref)
    desk.inbox.read([broken], WorkBudget(10))
    assert list(desk.inbox.in_turn(refs, WorkBudget(10))) == []  # the other one was not read yet
    desk.inbox.read(refs, WorkBudget(10))
    assert [request.ref for request in desk.inbox.in_turn(refs, WorkBudget(10))] == [sent]


def test_of_two_requests_with_one_id_that_whose_signature_holds_is_taken(desk: Desk) -> None:
    (sent,) = desk.ask("alice", 1)
    forged = make_request(BUS_ID, "aaa", now=FakeClock().now(), id=sent.id)
    refs = [desk.bus.submit(forged.canonical(), forged.ref, None).ref, sent]
    desk.inbox.read(refs, WorkBudget(10))
    assert list(desk.inbox.in_turn(refs, WorkBudget(0))) == []  # whose it is, is not known yet
    assert [request.ref for request in desk.inbox.in_turn(refs, WorkBudget(10))] == [sent]
