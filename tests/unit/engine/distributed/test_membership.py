"""What nodes know of each other: nobody writes another's card, nothing dead comes back, and all hear soon enough."""

from __future__ import annotations

import math
import random

import pytest

pytest.importorskip("google.protobuf", reason="messages of kakeya.v1")

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from engine.distributed.gossip.membership import (
    MOST_AHEAD_MS,
    MOST_CARD_BYTES,
    MOST_TOMBSTONES,
    MOST_VERSION,
    TOMBSTONE_TTLS,
    TTL_S,
    Membership,
    asked_next,
)
from engine.distributed.kakeya.v1 import capability_pb2 as pb
from engine.errors import UsageError

NODES = st.integers(0, 4)


class World:
    """Nodes without sockets on one clock; pairs that are cut do not hear each other."""

    def __init__(self, count: int = 0) -> None:
        self.now_s = 0.0
        self.nodes: dict[int, Membership] = {}
        self.cut: set[frozenset[int]] = set()
        self.written: dict[tuple[str, int, int], bytes] = {}
        for number in range(count):
            self.start(number, 1)

    def now_ms(self) -> int:
        return 10**12 + int(1e3 * self.now_s)

    def start(self, number: int, generation: int) -> None:
        card = pb.Card(node=f"n{number}", generation=generation, device="cpu")
        self.nodes[number] = Membership(card, lambda: self.now_s, now_ms=self.now_ms)
        self.note(number)

    def note(self, number: int) -> None:
        """Remember what an owner wrote."""
        node = self.nodes[number]
        own = node.cards()[node.node]
        self.written[own.node, own.generation, own.version] = own.SerializeToString(deterministic=True)

    def exchange(self, first: int, other: int) -> None:
        if first == other or frozenset({first, other}) in self.cut or not {first, other} <= self.nodes.keys():
            return
        request = self.nodes[first].ask()
        while request is not None:
            # Through bytes, as over a wire.
            sent = pb.ExchangeRequest.FromString(request.SerializeToString())
            answer = pb.ExchangeResponse.FromString(self.nodes[other].answer(sent).SerializeToString())
            request = self.nodes[first].take(answer) if request.known else None


class Gossiping(RuleBasedStateMachine):
    """Nodes start, change, meet, are cut off and die, in any order."""

    @initialize()
    def begin(self) -> None:
        self.world = World(3)
        self.generation = 1
        self.died_s: dict[int, float] = {}
        self.newest: dict[tuple[int, str], tuple[int, int]] = {}

    @rule(first=NODES, other=NODES)
    def meet(self, first: int, other: int) -> None:
        self.world.exchange(first, other)

    @rule(number=NODES)
    def beat(self, number: int) -> None:
        if number in self.world.nodes:
            self.world.nodes[number].beat()

    @rule(number=NODES, device=st.text(max_size=3))
    def change(self, number: int, device: str) -> None:
        if number in self.world.nodes:
            self.world.nodes[number].rewrite(pb.Card(node="somebody else", device=device))
            self.world.note(number)

    @rule(seconds=st.floats(0.1, 2.0))
    def wait(self, seconds: float) -> None:
        self.world.now_s += seconds

    @rule(number=NODES)
    def start(self, number: int) -> None:
        if number not in self.world.nodes:
            self.generation += 1
            self.world.start(number, self.generation)
            self.died_s.pop(number, None)
            self.newest = {key: version for key, version in self.newest.items() if key[0] != number}

    @rule(number=NODES)
    def die(self, number: int) -> None:
        if self.world.nodes.pop(number, None) is not None:
            self.died_s[number] = self.world.now_s

    @rule(first=NODES, other=NODES)
    def part(self, first: int, other: int) -> None:
        self.world.cut ^= {frozenset({first, other})}

    @rule(number=NODES, data=st.binary(max_size=40))
    def lie(self, number: int, data: bytes) -> None:
        """A card that cannot be read ends nothing."""
        if number in self.world.nodes:
            self.world.nodes[number].answer(pb.ExchangeRequest(told=[pb.ToldCard(card=b"\xff" + data, heartbeat=1)]))

    @precondition(lambda self: self.world.nodes)
    @invariant()
    def every_card_is_one_that_its_owner_wrote(self) -> None:
        for node in self.world.nodes.values():
            for name, card in node.cards().items():
                key = name, card.generation, card.version
                assert self.world.written[key] == card.SerializeToString(deterministic=True)

    @invariant()
    def no_card_gets_older(self) -> None:
        for number, node in self.world.nodes.items():
            for name, card in node.cards().items():
                key = card.generation, card.version
                assert key >= self.newest.get((number, name), key)
                self.newest[number, name] = key

    @invariant()
    def who_died_is_gone_after_the_time_to_live_and_stays_gone(self) -> None:
        gone = {f"n{number}" for number, at_s in self.died_s.items() if self.world.now_s - at_s > TTL_S}
        for node in self.world.nodes.values():
            assert not gone & node.cards().keys()

    @invariant()
    def everybody_knows_itself(self) -> None:
        assert all(node.node in node.cards() for node in self.world.nodes.values())


Gossiping.TestCase.settings = settings(
    max_examples=30, stateful_step_count=30, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
TestGossiping = Gossiping.TestCase


@pytest.mark.slow
def test_gossip_keeps_its_rules_over_many_more_histories() -> None:
    many = settings(
        max_examples=1000, stateful_step_count=60, deadline=None, suppress_health_check=[HealthCheck.too_slow]
    )
    run_state_machine_as_test(Gossiping, settings=many)


def rounds_until_all_know(count: int, loss: float, seed: int) -> int:
    """Return after how many rounds everybody knows everybody; at first each knows one other, the node before it."""
    world, chooser = World(count), random.Random(seed)
    for number in range(1, count):
        world.exchange(number, number - 1)
    for round_number in range(1, 100):
        world.now_s += 0.01
        for number, node in world.nodes.items():
            node.beat()
            names = [name for name in node.cards() if name != node.node]
            for name in asked_next(names, chooser):
                if chooser.random() >= loss:
                    world.exchange(number, int(name[1:]))
        if all(len(node.cards()) == count for node in world.nodes.values()):
            return round_number
    return 100


@pytest.mark.parametrize("count", [2, 3, 5, 8, 17])
def test_everybody_is_known_everywhere_in_so_many_rounds(count: int) -> None:
    needed = math.ceil(math.log2(count))
    for seed in range(3 if count < 10 else 1):
        assert rounds_until_all_know(count, 0.0, seed) <= needed + 3
        assert rounds_until_all_know(count, 0.3, seed) <= 2 * needed + 6


def cards_after(entries: list[pb.ToldCard]) -> dict[str, bytes]:
    node = Membership(pb.Card(node="me", generation=1), lambda: 0.0)
    node.answer(pb.ExchangeRequest(told=entries))
    return {name: card.SerializeToString(deterministic=True) for name, card in node.cards().items()}


def test_what_is_known_does_not_depend_on_the_order_or_number_of_times_it_was_told() -> None:
    entries = [
        pb.ToldCard(card=pb.Card(node=f"n{node}", generation=1, version=version, device=device).SerializeToString())
        for node in range(2)
        for version, device in ((1, "a"), (2, "b"), (2, "c"))
    ]
    chooser = random.Random(0)
    results = [cards_after(chooser.sample(entries * 2, len(entries) * 2)) for _ in range(20)]
    assert all(result == results[0] for result in results)
    assert pb.Card.FromString(results[0]["n1"]).device == "c"


def test_a_card_that_is_wanted_many_times_is_told_once() -> None:
    node = Membership(pb.Card(node="me", generation=1), lambda: 0.0)
    other = pb.ToldCard(card=pb.Card(node="other", generation=1).SerializeToString(), heartbeat=1)
    request = node.take(pb.ExchangeResponse(told=[other], wanted=["me", "other", "nobody"] * 1000))
    assert request is not None
    assert [pb.Card.FromString(entry.card).node for entry in request.told] == ["me", "other"]


def test_what_is_unknown_here_is_passed_on_as_it_came() -> None:
    # Field 99, and a role that this version has no name for.
    data = pb.Card(node="new", generation=3, roles=[77]).SerializeToString() + bytes([0x9A, 0x06, 2]) + b"hi"
    relay, reader = (Membership(pb.Card(node=name, generation=1), lambda: 0.0) for name in ("relay", "reader"))
    relay.answer(pb.ExchangeRequest(told=[pb.ToldCard(card=data, heartbeat=1)]))
    reader.take(relay.answer(reader.ask()))
    assert {entry.card for entry in reader.told()} >= {data}
    assert list(reader.cards()["new"].roles) == [77]


@pytest.mark.parametrize(
    "bad",
    [
        b"\xff\xff",
        b"",
        bytes(MOST_CARD_BYTES + 1),
        pb.Card(node="x" * 101).SerializeToString(),
        pb.Card(node="me", generation=2**64 - 1).SerializeToString(),
    ],
)
def test_one_bad_card_ends_nothing_but_itself(bad: bytes) -> None:
    node = Membership(pb.Card(node="me", generation=1), lambda: 0.0)
    good = pb.Card(node="good", generation=1).SerializeToString()
    node.answer(pb.ExchangeRequest(told=[pb.ToldCard(card=bad), pb.ToldCard(card=good, heartbeat=1)]))
    assert node.cards().keys() == {"me", "good"}
    assert node.refused.total() == 1


@pytest.mark.parametrize(
    ("own", "message"),
    [
        (pb.Card(node=""), "a name of 0 characters"),
        (pb.Card(node="x" * 101), "a name of 101 characters"),
        (pb.Card(node="me", device="d" * 17000), r"more than 16384 bytes\. It has \d{5} bytes"),
        (pb.Card(node="me", generation=2**62), f"generation {2**62}"),
        (pb.Card(node="me", version=2**63), f"version {2**63}"),
    ],
)
def test_a_card_that_others_would_refuse_is_refused_by_its_own_node(own: pb.Card, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Membership(own, lambda: 0.0)


def test_a_rewritten_card_that_others_would_refuse_leaves_the_one_before() -> None:
    node = Membership(pb.Card(node="me", generation=1, device="cpu"), lambda: 0.0)
    with pytest.raises(UsageError, match="a shorter --name"):
        node.rewrite(pb.Card(device="x" * MOST_CARD_BYTES))
    card = node.cards()["me"]
    assert (card.device, card.version) == ("cpu", 0)


def test_a_node_outdoes_whoever_writes_under_its_name() -> None:
    node = Membership(pb.Card(node="me", generation=5, device="mine"), lambda: 0.0)
    stranger = pb.Card(node="me", generation=9, device="a stranger's").SerializeToString()
    node.answer(pb.ExchangeRequest(told=[pb.ToldCard(card=stranger, heartbeat=1)]))
    own = node.cards()["me"]
    assert (own.device, own.generation, node.clashes) == ("mine", 10, 1)


def test_a_node_stays_known_after_a_lie_of_the_largest_generation() -> None:
    world = World(2)
    world.exchange(0, 1)
    largest = {"generation": world.now_ms() + MOST_AHEAD_MS, "version": MOST_VERSION}
    lie = pb.Card(node="n0", device="a liar's", **largest)
    entry = pb.ToldCard(card=lie.SerializeToString(), heartbeat=(1 << 64) - 1)
    world.nodes[1].answer(pb.ExchangeRequest(told=[entry]))
    assert world.nodes[1].cards()["n0"].device == "a liar's"
    for _ in range(12):
        world.now_s += 1.0
        for node in world.nodes.values():
            node.beat()
        world.exchange(0, 1)
        world.exchange(1, 0)
    assert world.nodes[1].cards()["n0"].device == "cpu"
    assert world.nodes[1].refused == {}
    world.nodes[0].rewrite(pb.Card(device="another"))
    world.exchange(1, 0)
    assert world.nodes[1].cards()["n0"].device == "another"


def test_the_dead_that_are_remembered_are_bounded_and_the_newest_stay_dead() -> None:
    world = World(1)
    node = world.nodes[0]

    def tell(name: str) -> None:
        card = pb.Card(node=name, generation=1).SerializeToString()
        node.answer(pb.ExchangeRequest(told=[pb.ToldCard(card=card, heartbeat=1, silent_ms=4999)]))

    for number in range(MOST_TOMBSTONES + 100):
        tell(f"made up {number}")
        world.now_s += 0.002
    node.beat()
    assert len(node._tombstones) == MOST_TOMBSTONES
    tell(f"made up {number}")
    assert node.cards().keys() == {"n0"}
    world.now_s += TOMBSTONE_TTLS * TTL_S
    node.beat()
    assert node._tombstones == {}


def test_a_card_is_no_younger_for_being_passed_on() -> None:
    world = World(3)
    world.exchange(0, 1)
    del world.nodes[0]
    for _ in range(12):
        world.now_s += 0.6
        for number in (1, 2):
            world.nodes[number].beat()
        world.exchange(1, 2)
        world.exchange(2, 1)
    assert all("n0" not in node.cards() for node in world.nodes.values())
