"""Rows made again elsewhere, at both ends of a stream and without one: what is refused, with nothing half had."""

from __future__ import annotations

import asyncio
import json
import queue
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest

pytest.importorskip("google.protobuf", reason="messages of kakeya.v1")

from engine.distributed.compatibility import FORMATS
from engine.distributed.kakeya.v1 import proposer_pb2 as pb
from engine.distributed.remote_rows import RemoteRestoration, RemoteRows
from engine.distributed.restoration_offer import RestorationOffer
from engine.distributed.restoring import MOST_SHOWN_ROWS, MOST_WANTED_ROWS, RestoringSession, ServedRestoration
from engine.distributed.tensors import CHUNK_BYTES, Budget, chunks, described
from engine.errors import ModelMismatchError, SessionError
from engine.restoration.settings import LayerWidths, RestorationSettings
from engine.types import TargetInfo

LAYERS = {1: LayerWidths(4, 2), 3: LayerWidths(6, 6)}
SETTINGS = RestorationSettings("context", 8, 2, LAYERS, ("t", "aa"), ("d", "bb"))
OFFER = RestorationOffer("f", "c" * 64, SETTINGS, (0, 2), 5, 30.0)
ROW = 4 * OFFER.row_width((1, 3))


class Kept:
    """Latents of one sequence: each position's number, which is what its rows consist of."""

    def __init__(self, layers: Mapping[int, LayerWidths]) -> None:
        self.layers = layers
        self.values: list[int] = []

    def append(self, start: int, features: list[int]) -> None:
        self.values[start:] = features

    def rows(self, layer: int, begin: int, end: int) -> tuple[list[bytes], list[bytes]]:
        width = self.layers[layer]
        keys, values = (
            [bytes([number]) * 4 * size for number in self.values[begin:end]] for size in (width.keys, width.values)
        )
        return keys, values


def numbers(data: bytearray, shape: tuple[int, int], dtype: str) -> list[int]:
    assert len(data) == shape[0] * shape[1] * (4 if dtype == "float32" else 2)
    return [data[row * len(data) // shape[0]] for row in range(shape[0])]


def served(offer: RestorationOffer) -> ServedRestoration:
    def packed(arrays: list[list[bytes]], _dtype: str) -> bytes:
        return b"".join(b"".join(each) for each in arrays)

    return ServedRestoration(offer, lambda: Kept(offer.settings.layers), numbers, packed)


SERVED = served(OFFER)


def session(offer: RestorationOffer = OFFER) -> RestoringSession:
    return RestoringSession(served(offer), "float32", Budget(1 << 20, "bytes"), Budget(1 << 20, "latents"))


def shown(start: int, count: int, sequence: int = 1, **changes: Any) -> pb.Shown:
    data = b"".join(bytes([start + row]) * 4 * OFFER.width for row in range(count))
    head = described(data, FORMATS["float32"], count, OFFER.width)
    head.MergeFrom(pb.Rows(**changes))
    return pb.Shown(sequence=sequence, start=start, rows=head)


def show(to: RestoringSession, message: pb.Shown) -> None:
    to.show(message, to.begin(message))


def test_rows_are_of_what_was_shown_last_and_a_rejected_draft_is_forgotten() -> None:
    restoring = session()
    show(restoring, shown(0, 6))
    show(restoring, shown(4, 1, 2))  # two of those shown were rejected, and one came
    data, count, width = restoring.made(pb.Wanted(sequence=3, layers=[1, 3], begin=2, end=5))
    assert (count, width) == (3, 18)
    assert data[: 3 * 4 * 4] == b"".join(bytes([row]) * 16 for row in (2, 3, 4))
    with pytest.raises(SessionError, match="rows of positions 4 to 6; 5 were shown"):
        restoring.made(pb.Wanted(sequence=4, layers=[1], begin=4, end=6))


@pytest.mark.parametrize(
    ("message", "what"),
    [
        (shown(4, 2), "positions from 4 on; 3 were shown"),
        (shown(0, 0), "0 positions shown at once; expected 1 to"),
        (shown(0, 2, sequence=0), "message 0 after 0"),
        (shown(0, 2, width=11), "2 rows of 11 numbers; expected 2 of 10"),
        (shown(0, 2, format=FORMATS["bfloat16"]), "rows of format 2"),
        (shown(0, 2, total_bytes=1 << 40), "rows of 1099511627776 bytes"),
        (shown(0, 2, rows=MOST_SHOWN_ROWS + 1), "positions shown at once"),
        (shown(0, 2, crc32=1), "the checksum of the rows is another"),
    ],
    ids=["gap", "none", "out of turn", "shape", "dtype", "size", "many", "checksum"],
)
def test_a_host_keeps_nothing_of_what_it_refuses(message: pb.Shown, what: str) -> None:
    restoring = session()
    show(restoring, shown(0, 3))
    message = pb.Shown.FromString(message.SerializeToString())
    message.sequence = message.sequence and 2
    with pytest.raises(SessionError, match=what.replace("message 0 after 0", "message 0 after 1")):
        show(restoring, message)
    assert restoring.made(pb.Wanted(sequence=9, layers=[1], begin=0, end=3))[1] == 3


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"layers": [2]}, r"rows of layers \[2\]; expected of \[1, 3\]"),
        ({"layers": [3, 1]}, "ascending"),
        ({"layers": []}, "rows of layers"),
        ({"begin": 2, "end": 2}, "rows of positions 2 to 2"),
        ({"end": 2**60}, "were shown"),
    ],
)
def test_rows_that_a_host_cannot_make_are_refused(change: dict[str, Any], what: str) -> None:
    restoring = session()
    show(restoring, shown(0, 3))
    with pytest.raises(SessionError, match=what):
        restoring.made(pb.Wanted(**({"sequence": 2, "layers": [1], "begin": 0, "end": 3} | change)))


def test_all_sequences_together_keep_no_more_than_there_is_room_for() -> None:
    room = Budget(1 << 15, "bytes of latents")
    first = RestoringSession(SERVED, "float32", Budget(1 << 20, "bytes"), room)
    other = RestoringSession(SERVED, "float32", Budget(1 << 20, "bytes"), room)
    show(first, shown(0, 3))
    show(other, shown(0, 3))
    with pytest.raises(SessionError, match="bytes of latents beside 32768") as refused:
        show(RestoringSession(SERVED, "float32", Budget(1 << 20, "bytes"), room), shown(0, 3))
    assert refused.value.status == "RESOURCE_EXHAUSTED"


class Host:
    """A host at the other end of a stream: it answers as a session does, its answers changed on the way."""

    def __init__(
        self, change: Callable[[list[Any]], list[Any]] = lambda replies: replies, offer: RestorationOffer = OFFER
    ) -> None:
        self.session, self.offer, self.change = session(offer), offer, change
        self.sent: list[Any] = []
        self.listener: Any = None
        self.cancelled = 0

    def connect(self, listener: Any) -> Host:
        self.listener = listener
        return self

    def send(self, message: Any) -> None:
        self.sent.append(message)
        if isinstance(message, pb.Open):
            assert message.compatibility == self.offer.compatibility("float32")
            self.listener.heard(pb.Opened(session="s"))
        elif isinstance(message, pb.Shown):
            assembly = self.session.begin(message)
            assert assembly.complete
            self.session.show(message, assembly)
        elif isinstance(message, pb.Wanted):
            data, count, width = self.session.made(message)
            head = described(data, FORMATS["float32"], count, width)
            made = [pb.Made(sequence=message.sequence, rows=head), *chunks(data, message.sequence)]
            for reply in self.change(made):
                self.listener.ended(*reply) if isinstance(reply, tuple) else self.listener.heard(reply)

    def close(self, message: Any) -> None:
        self.cancelled += message is None


def opened(host: Host, patience_s: float = 5.0) -> RemoteRows:
    rows = RemoteRestoration(host.offer, "127.0.0.1:7", host.connect, patience_s).open("float32")
    data = b"".join(bytes([row % 200]) * 4 * OFFER.width for row in range(1500))
    rows.show(0, 1500, data)
    return rows


def test_rows_come_in_runs_and_are_those_that_were_asked_for() -> None:
    host = Host()
    rows = opened(host)
    runs = rows.rows((1, 3), 4, 4 + MOST_WANTED_ROWS + 10)
    assert [count for count, _ in runs] == [MOST_WANTED_ROWS, 10]
    assert [len(data) for _, data in runs] == [MOST_WANTED_ROWS * ROW, 10 * ROW]
    assert runs[0][1][:16] == bytes([4]) * 16
    rows.close()
    with pytest.raises(SessionError, match="a sequence that was closed"):
        rows.rows((1,), 4, 5)


def head(**changes: Any) -> Callable[[list[Any]], list[Any]]:
    """Return what changes the head of rows."""

    def change(replies: list[Any]) -> list[Any]:
        for name, value in changes.items():
            setattr(replies[0].rows, name, value)
        return replies

    return change


def flipped(replies: list[Any]) -> list[Any]:
    data = bytearray(replies[0].rows.data)
    data[3] ^= 1
    replies[0].rows.data = bytes(data)
    return replies


LIES: dict[str, tuple[Callable[[list[Any]], list[Any]], str]] = {
    "shape": (head(width=19), "20 rows of 19 numbers; expected 20 of 18"),
    "fewer rows": (head(rows=19), "19 rows of 18 numbers; expected 20 of 18"),
    "dtype": (head(format=FORMATS["bfloat16"]), "rows of format 2; expected ROW_FORMAT_FLOAT32"),
    "size": (head(total_bytes=1 << 40), "rows of 1099511627776 bytes; 20 of 18 numbers take 1440"),
    "short": (head(data=b"12"), "bytes 0 to 2 of 1440; expected 1440"),
    "a flipped bit": (flipped, "the checksum of the rows is another than was sent"),
    "another ask's": (lambda made: [pb.Made(sequence=77, rows=made[0].rows)], "which ask 2 is for"),
    "a draft": (lambda made: [pb.BlockDraft(sequence=2), *made], "something else than rows"),
    "twice": (lambda made: [*made, *made], "it said more than it was asked"),
    "gone": (lambda made: [("UNAVAILABLE", "socket\nclosed")], r"the stream ended: UNAVAILABLE: socket\?closed"),
    "silent": (lambda made: [], "it was silent for 0.05 s"),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_host_that_lies_or_goes_ends_the_sequence_with_one_line_for_good(lie: str) -> None:
    change, what = LIES[lie]
    host = Host(change)
    rows = opened(host, 0.05 if lie == "silent" else 5.0)
    if lie == "twice":
        rows.rows((1, 3), 4, 24)  # what comes unasked is met by the next ask
    with pytest.raises(SessionError, match=what) as first:
        rows.rows((1, 3), 4, 24)
    line = str(first.value)
    assert line.startswith("rows made again at 127.0.0.1:7 did not come: ")
    assert line.endswith("begin again, or take a --cache without @remote")
    assert "\n" not in line
    host.change = lambda replies: replies  # telling the truth again does not help: what was shown is in doubt
    for again in (lambda: rows.rows((1, 3), 4, 24), lambda: rows.show(1500, 1, bytes(4 * OFFER.width))):
        with pytest.raises(SessionError) as repeated:
            again()
        assert repeated.value is first.value
    assert host.cancelled >= 1


def test_a_host_is_waited_for_while_what_it_was_shown_is_still_leaving() -> None:
    host = Host()
    rows = opened(host)
    timeouts: list[float] = []

    class Replies:
        """None come within two timeouts, in each of which a message leaves; then those there are."""

        def __init__(self, replies: list[Any]) -> None:
            self.replies = replies

        def empty(self) -> bool:
            return True

        def put(self, reply: Any) -> None:
            self.replies.append(reply)

        def get(self, timeout: float) -> Any:
            timeouts.append(timeout)
            if len(timeouts) <= 2:
                host.listener.left()
            elif self.replies:
                return self.replies.pop(0)
            raise queue.Empty

    rows._heard = Replies([])  # type: ignore[assignment]
    assert [count for count, _ in rows.rows((1, 3), 4, 24)] == [20]
    assert timeouts == 3 * [5.0]
    host.change = lambda replies: []
    timeouts.clear()
    with pytest.raises(SessionError, match="it was silent for 5 s"):
        rows.rows((1, 3), 4, 24)
    assert timeouts == 3 * [5.0]


@pytest.mark.parametrize("reply", [pb.Made(), pb.Made(rows=pb.Rows(data=bytes(1 << 20)))], ids=["empty", "large"])
def test_a_host_that_says_more_and_more_fills_no_memory(reply: pb.Made) -> None:
    host = Host()
    rows = opened(host)
    for _ in range(5000):
        host.listener.heard(reply)
    assert rows._heard.qsize() < 100
    assert host.cancelled == 1, "nobody reads on"
    with pytest.raises(SessionError, match="it said more than it was asked"):
        rows.rows((1, 3), 4, 24)


def test_a_damaged_chunk_behind_a_whole_one_leaves_nothing() -> None:
    layers = {1: LayerWidths(200, 200)}
    wide = RestorationOffer("f", "c" * 64, replace(SETTINGS, layers=layers), (0, 2), 5, 30.0)

    def struck(replies: list[Any]) -> list[Any]:
        assert len(replies) == 2, "rows of more than one message"
        replies[1].data = replies[1].data[:-1] + b"\7"
        return replies

    whole = opened(Host(offer=wide)).rows((1,), 0, MOST_WANTED_ROWS)
    assert len(whole[0][1]) == MOST_WANTED_ROWS * 1600 > CHUNK_BYTES
    with pytest.raises(SessionError, match="the checksum of the rows"):
        opened(Host(struck, wide)).rows((1,), 0, MOST_WANTED_ROWS)


def test_an_answer_may_take_longer_than_a_lease_and_none_of_its_messages_may() -> None:
    pytest.importorskip("grpc", reason="streams of rows")
    from engine.distributed.rpc.restoring import RestorationHandlers

    class Long:
        """Makes rows of four messages of whatever is asked for."""

        def made(self, ask: pb.Wanted) -> tuple[bytes, int, int]:
            return bytes(4 * CHUNK_BYTES), 1, CHUNK_BYTES

    class Slow:
        """A context whose every message takes so many seconds by the clock of its loop."""

        def __init__(self, write_s: float) -> None:
            self.write_s = write_s
            self.written: list[Any] = []

        async def write(self, response: Any) -> None:
            until_s = clock[0] + self.write_s
            while clock[0] < until_s:
                clock[0] += 1.0
                await asyncio.sleep(0)
            self.written.append(response)

    clock = [0.0]

    async def answered(context: Slow) -> None:
        asyncio.get_running_loop().time = lambda: clock[0]  # type: ignore[method-assign]
        with ThreadPoolExecutor(1) as worker:
            handlers = RestorationHandlers(SERVED, worker, 30.0, 1)
            await handlers._answer(Long(), pb.Wanted(sequence=7), "float32", context)  # type: ignore[arg-type]

    reading = Slow(20.0)
    asyncio.run(answered(reading))
    assert len(reading.written) == 4
    with pytest.raises(SessionError, match="nothing was read in time"):
        asyncio.run(answered(Slow(40.0)))


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"protocol": 9}, "version 9 of the protocol; expected 1"),
        ({"name": "a\x1b[2Jb"}, "a name of 'a"),
        ({"digest": "f"}, "a digest of 'f', expected sha256 in hex"),
        ({"config_json": "{"}, "a config that is no JSON"),
        ({"config_json": "[]"}, "a config that is no object"),
        ({"config_json": '{"format": "x"}'}, "a config that cannot be read: f has the format 'x'"),
        ({"config_json": "[" * 60000}, "a config that is no JSON"),
        ({"capture": []}, "expected at least one, ascending"),
        ({"capture": [2, 0]}, "expected at least one, ascending"),
    ],
)
def test_a_host_that_says_what_no_f_theta_is_is_refused_in_one_line(changes: dict[str, Any], what: str) -> None:
    facts = OFFER.message()
    assert RestorationOffer.read(facts) == OFFER
    for name, value in changes.items():
        if name == "capture":
            del facts.capture[:]
            facts.capture.extend(value)
        else:
            setattr(facts, name, value)
    with pytest.raises(ModelMismatchError, match=what) as refused:
        RestorationOffer.read(facts)
    assert str(refused.value).isprintable()


def target(**changes: Any) -> TargetInfo:
    return replace(TargetInfo("t", "aa", "x", 1, 9, 5, 4, 99, None, "float32"), **changes)


def test_both_models_are_bound_by_digest_and_both_ends_agree_by_a_hash() -> None:
    OFFER.check_fits(target(), LAYERS)
    with pytest.raises(ModelMismatchError, match=r"f was fitted for the target 't' \(aa\); this is 't' \(ab\)"):
        OFFER.check_fits(target(digest="ab"), LAYERS)
    with pytest.raises(ModelMismatchError, match="f restores layer 1 of 4 and 2 values"):
        OFFER.check_fits(target(), {1: LayerWidths(4, 4), 3: LayerWidths(6, 6)})
    with pytest.raises(ModelMismatchError, match="reads hidden states of 5 values up to layer 2"):
        OFFER.check_fits(target(hidden_size=6), LAYERS)
    other = RestorationOffer("f", "d" * 64, SETTINGS, (0, 2), 5, 30.0)
    for opened_as in (other.compatibility("float32"), OFFER.compatibility("bfloat16"), b""):
        with pytest.raises(SessionError, match="agreed on another f_theta, rows or protocol") as refused:
            SERVED.check_opened(pb.Open(compatibility=opened_as, row_format=FORMATS["float32"]))
        assert refused.value.status == "FAILED_PRECONDITION"
    assert json.loads(OFFER.message().config_json)["target"] == {"name": "t", "digest": "aa"}
