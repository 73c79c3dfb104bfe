"""Nodes on real sockets: they find each other, and who is killed, stopped or started again is known to be."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest

pytest.importorskip("grpc", reason="nodes exchange over gRPC")

from engine.cli.distributed import node as cli
from engine.distributed.gossip.membership import Membership
from engine.distributed.kakeya.v1 import capability_pb2 as pb
from engine.distributed.rpc.node import GossipNode, listed
from engine.errors import SessionError, UsageError

PATIENT_S = 120.0
INTERRUPTED = """
import signal, sys
from engine.cli.main import main
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.exit(main())
"""
"""What a shell starts in the background ignores an interrupt, and so do the tests and what they start."""


def until(true: Callable[[], bool], what: str) -> None:
    """Wait until something holds, however busy the machine is."""
    end_s = time.monotonic() + PATIENT_S
    while not true():
        assert time.monotonic() < end_s, what
        time.sleep(0.05)


def names(address: str) -> set[str]:
    return {pb.Card.FromString(entry.card).node for entry in listed(address, PATIENT_S)}


async def until_met(nodes: list[GossipNode]) -> None:
    while any(len(node.membership.cards()) < len(nodes) for node in nodes):
        await asyncio.sleep(0.01)


def test_nodes_find_each_other_over_one_that_both_know(capsys: pytest.CaptureFixture[str]) -> None:
    async def meet() -> list[str]:
        first = GossipNode(pb.Card(node="a", generation=1, roles=[pb.NODE_ROLE_DRAFTER]), ttl_s=600.0, round_s=0.01)
        seed = await first.start("127.0.0.1:0")
        others = [GossipNode(pb.Card(node=name, generation=1), (seed,), ttl_s=600.0, round_s=0.01) for name in "bc"]
        for other in others:
            await other.start("127.0.0.1:0")
        await asyncio.wait_for(until_met([first, *others]), PATIENT_S)
        loop = asyncio.get_running_loop()
        assert await loop.run_in_executor(None, cli.main, ["ls", "--address", seed]) == 0
        for node in (first, *others):
            await node.stop()
        return seed

    seed = asyncio.run(meet())
    output = capsys.readouterr().out
    assert all(f"\n{name}  " in output for name in "abc")
    assert "drafter" in output
    with pytest.raises(SessionError, match="is it served there"):
        listed(seed, 0.2)


def test_two_nodes_of_one_name_and_a_bad_card_are_said_once_and_end_nothing() -> None:
    warnings: list[str] = []

    async def meet() -> None:
        twin = pb.Card(node="a", generation=7)
        first = GossipNode(pb.Card(node="a", generation=1), ttl_s=600.0, round_s=0.01, said=warnings.append)
        seed = await first.start("127.0.0.1:0")
        first.membership.answer(pb.ExchangeRequest(told=[pb.ToldCard(card=b"\xff"), pb.ToldCard(card=b"\xff")]))
        other = GossipNode(twin, (seed,), ttl_s=600.0, round_s=0.01)
        await other.start("127.0.0.1:0")
        end_s = time.monotonic() + PATIENT_S
        while len(warnings) < 2 and time.monotonic() < end_s:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.1)
        for node in (first, other):
            await node.stop()

    asyncio.run(meet())
    assert sorted(warnings) == [
        "a card was refused: no card",
        "another node says that it is 'a', so that both come and go; give one another --name",
    ]


def test_a_round_that_fails_is_said_and_is_not_the_last() -> None:
    class Failing(Membership):
        beats = 0

        def beat(self) -> None:
            self.beats += 1
            if self.beats < 3:
                raise ValueError("what no round expects")

    warnings: list[str] = []

    async def go() -> int:
        node = GossipNode(pb.Card(node="a", generation=1), round_s=0.001, said=warnings.append)
        node.membership = failing = Failing(pb.Card(node="a", generation=1), time.monotonic)
        await node.start("127.0.0.1:0")
        end_s = time.monotonic() + PATIENT_S
        while failing.beats < 4 and not node._rounds.done() and time.monotonic() < end_s:
            await asyncio.sleep(0.001)
        await node.stop()
        return failing.beats

    assert asyncio.run(go()) >= 4
    assert warnings == ["a round of asking others failed: ValueError"]


def test_a_neighbour_with_an_address_that_is_none_is_left_out() -> None:
    node = GossipNode(pb.Card(node="a", generation=1))
    card = pb.Card(node="b", generation=1, endpoints={"gossip": "127.0.0.1:" + "1" * 4301})
    node.membership.answer(pb.ExchangeRequest(told=[pb.ToldCard(card=card.SerializeToString(), heartbeat=1)]))
    assert node.membership.cards().keys() == {"a", "b"}
    asyncio.run(node.round())


def test_a_card_that_nobody_can_read_is_left_out_of_a_list(capsys: pytest.CaptureFixture[str]) -> None:
    class Telling(Membership):
        def told(self) -> list[pb.ToldCard]:
            return [pb.ToldCard(card=b"\xff"), *super().told()]

    async def ask() -> None:
        node = GossipNode(pb.Card(node="a", generation=1))
        node.membership = Telling(pb.Card(node="a", generation=1), time.monotonic)
        address = await node.start("127.0.0.1:0")
        loop = asyncio.get_running_loop()
        assert await loop.run_in_executor(None, cli.main, ["ls", "--address", address]) == 0
        await node.stop()

    asyncio.run(ask())
    output = capsys.readouterr()
    assert output.err == "1 left out: no card\n"
    assert output.out.count("\na  ") == 1


@pytest.mark.parametrize(("free", "words"), [(0, "64.0 GiB"), (1 << 33, "8.0 of 64.0 GiB")])
def test_no_free_memory_is_listed_of_a_node_that_does_not_know_its_own(free: int, words: str) -> None:
    card = pb.Card(node="a", generation=1, memory_total_bytes=1 << 36, memory_free_bytes=free)
    assert cli._row(pb.ToldCard(card=card.SerializeToString()))[3] == words


@pytest.mark.parametrize("address", ["0.0.0.0:0", "192.0.2.7:50051", "nowhere"])
def test_a_node_is_served_and_asked_on_this_machine_only(address: str) -> None:
    with pytest.raises(UsageError):
        GossipNode(pb.Card(node="a"), (address,))
    with pytest.raises(UsageError):
        asyncio.run(GossipNode(pb.Card(node="a")).start(address))
    assert cli.main(["ls", "--address", address]) != 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--name", "x" * 101], "a name of 101 characters"),
        (["--name", "\udcff"], "expected UTF-8"),
    ],
)
def test_a_node_whose_card_others_would_refuse_does_not_start(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["serve", *words]) == UsageError.exit_code
    output = capsys.readouterr()
    assert message in output.err
    assert output.err.count("\n") == 1
    assert cli.SERVING not in output.out


@pytest.fixture
def processes() -> Iterator[list[subprocess.Popen]]:
    started: list[subprocess.Popen] = []
    yield started
    for process in started:
        with suppress(ProcessLookupError):
            process.send_signal(signal.SIGCONT)
        process.kill()
        process.communicate()


def serve(processes: list[subprocess.Popen], name: str, address: str = "127.0.0.1:0", *seeds: str) -> str:
    words = [word for seed in seeds for word in ("--seed", seed)]
    command = [sys.executable, "-m", "engine.cli", "node", "serve", "--until-eof", "--name", name, "--address", address]
    process = subprocess.Popen([*command, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    processes.append(process)
    return process.stdout.readline().removeprefix(cli.SERVING).split()[0]


@pytest.mark.parametrize("words", [["node", "serve", "--name", "a"], ["distributed", "serve", "--drafter", "ngram"]])
def test_a_server_that_is_interrupted_ends_although_its_input_goes_on(
    words: list[str], processes: list[subprocess.Popen]
) -> None:
    command = [sys.executable, "-c", INTERRUPTED, *words, "--until-eof"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    processes.append(process)
    assert process.stdout.readline().startswith(cli.SERVING)
    process.send_signal(signal.SIGINT)
    assert process.wait(PATIENT_S) == 0


@pytest.mark.slow
def test_processes_that_are_killed_stopped_and_started_again(processes: list[subprocess.Popen]) -> None:
    first = serve(processes, "a")
    second = serve(processes, "b", "127.0.0.1:0", first)
    serve(processes, "c", "127.0.0.1:0", first)
    until(lambda: names(first) == names(second) == {"a", "b", "c"}, "all three know each other")

    processes[2].kill()
    processes[2].wait()
    until(lambda: names(first) == names(second) == {"a", "b"}, "the killed one is forgotten by both")

    os.kill(processes[1].pid, signal.SIGSTOP)
    until(lambda: names(first) == {"a"}, "the stopped one is taken for gone")
    os.kill(processes[1].pid, signal.SIGCONT)
    until(lambda: names(first) == names(second) == {"a", "b"}, "it comes back with a larger heartbeat")

    # The name of a dead node on the port of none: a start is a larger generation.
    serve(processes, "c", "127.0.0.1:0", second)
    until(lambda: names(first) == names(second) == {"a", "b", "c"}, "the one that was killed is there again")
