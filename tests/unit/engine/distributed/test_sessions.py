"""What a drafting session refuses, and that nothing of a refused or forgotten one is kept; no sockets."""

from __future__ import annotations

import threading

import pytest

pytest.importorskip("google.protobuf", reason="messages of kakeya.v1")

from engine.distributed.compatibility import DrafterOffer
from engine.distributed.kakeya.v1 import proposer_pb2 as pb
from engine.distributed.session import DraftSession, Served, TokenHash
from engine.distributed.sessions import SessionTable
from engine.distributed.tensors import CHUNK_BYTES, Assembly, Budget, chunks, described
from engine.drafters.local import LocalDrafter
from engine.errors import ModelMismatchError, ObservationError, SessionError
from engine.types import Draft, DrafterInfo

FLOAT32, BFLOAT16 = pb.ROW_FORMAT_FLOAT32, pb.ROW_FORMAT_BFLOAT16
INFO = DrafterInfo("counting", "d" * 64, "dflash-v1", 7, 8, {"layers": [1, 2]})
OFFER = DrafterOffer(INFO, (0, 2), 64, 4, 1000, "e" * 64, 30.0)
WIDTH = 8


class Counting(LocalDrafter):
    """Proposes the numbers after the bonus, and keeps the sum of the bytes of rows that it was shown."""

    def __init__(self, begin: int) -> None:
        self.position, self.shown, self.forwards = begin, 0, 0

    def ask(self, bonus: int, position: int, count: int, wait_s: float | None = 0.0) -> Draft:
        self.forwards += 1
        return Draft(tuple(range(bonus + 1, bonus + 1 + count)), count)

    def observe(self, start: int, tokens: tuple[int, ...], features: object) -> None:
        ObservationError.check(start, self.position)
        self.position += len(tokens)
        self.shown += sum(bytes(features))

    def rewind(self, length: int) -> int:
        return length

    def measured_bytes(self) -> int:
        return self.shown


SERVED = Served(OFFER, Counting, lambda data, shape, dtype: [sum(data) % 251] * shape[0])


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def opening(row_format: str = "float32", **options: str) -> pb.Open:
    number = {"float32": FLOAT32, "bfloat16": BFLOAT16}[row_format]
    return pb.Open(compatibility=OFFER.compatibility(row_format), row_format=number, **options)


def block_of(session: DraftSession, sequence: int, start: int, tokens: tuple[int, ...], bonus: int = 5) -> pb.Block:
    """Return a whole block of a session that was shown nothing before ``start``."""
    block = pb.Block(session=session.identity, sequence=sequence)
    if tokens:
        block.segments.add(start=start, tokens=tokens)
        block.rows.CopyFrom(described(bytes(4 * WIDTH * len(tokens)), FLOAT32, len(tokens), WIDTH))
    token_hash = TokenHash()
    token_hash.add(tuple(range(start)))
    token_hash.add(tokens)
    context = start + len(tokens)
    block.ask.CopyFrom(pb.Ask(bonus=bonus, context_length=context, count=3, token_hash=token_hash.with_bonus(bonus)))
    return block


def add_all(assembly: Assembly, parts: list[tuple[int, bytes]]) -> None:
    for offset, part in parts:
        assembly.add(offset, part)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def table(clock: Clock) -> SessionTable:
    return SessionTable(SERVED, clock, lease_s=30.0, most=64)


@pytest.mark.parametrize(
    ("change", "status", "message"),
    [
        ({"format": BFLOAT16}, "INVALID_ARGUMENT", "as the session was opened"),
        ({"rows": 3}, "INVALID_ARGUMENT", "3 rows of 8 numbers; expected 4 of 8"),
        ({"width": 9}, "INVALID_ARGUMENT", "4 rows of 9 numbers; expected 4 of 8"),
        ({"total_bytes": 1 << 50}, "INVALID_ARGUMENT", "take 128"),
        ({"data": bytes(129)}, "INVALID_ARGUMENT", "bytes 0 to 129 of 128"),
        ({"data": bytes(127)}, "INVALID_ARGUMENT", "bytes 0 to 127 of 128; expected 128 from 0 on"),
        ({"crc32": 7}, "INVALID_ARGUMENT", "checksum"),
    ],
)
def test_rows_that_are_not_what_was_agreed_are_refused(change: dict, status: str, message: str) -> None:
    head = described(bytes(range(128)), FLOAT32, 4, 8)
    for name, value in change.items():
        setattr(head, name, value)
    with pytest.raises(SessionError, match=message) as refused:
        Assembly(head, FLOAT32, 4, 8, 1 << 20)
    assert refused.value.status == status


def test_rows_that_wait_are_bounded_over_all_sessions_and_make_room_when_they_are_gone() -> None:
    budget = Budget(3 * 128, "bytes of rows")

    def waiting() -> Assembly:
        return Assembly(described(bytes(128), FLOAT32, 4, WIDTH), FLOAT32, 4, WIDTH, 1 << 20, budget=budget)

    assemblies = [waiting() for _ in range(3)]
    with pytest.raises(
        SessionError, match="128 bytes of rows beside 384 in all sessions, which hold at most 384"
    ) as refused:
        waiting()
    assert refused.value.status == "RESOURCE_EXHAUSTED"
    del refused
    assemblies.pop()
    assemblies.append(waiting())
    assemblies.clear()
    assert budget.taken == 0


def test_rows_that_go_while_others_are_taken_hold_nobody_up() -> None:
    class Holder:
        """What rows are held by."""

    class Letting(int):
        """A size that lets go what is held when it is added: as a collection may, at any moment."""

        def __radd__(self, taken: int) -> int:
            holders.clear()
            return taken + int(self)

    budget, holders, holder = Budget(100, "bytes"), [Holder()], Holder()
    budget.take(10, holders[0])
    taking = threading.Thread(target=budget.take, args=(Letting(30), holder), daemon=True)
    taking.start()
    taking.join(60.0)
    assert not taking.is_alive()
    assert budget.taken == 30


def test_more_rows_than_a_block_may_carry_are_refused_before_memory_is_reserved() -> None:
    rows = 1 << 40
    head = pb.Rows(format=FLOAT32, rows=rows, width=8, total_bytes=rows * 32)
    with pytest.raises(SessionError) as refused:
        Assembly(head, FLOAT32, rows, 8, 1 << 20)
    assert refused.value.status == "RESOURCE_EXHAUSTED"


@pytest.mark.parametrize("fault", ["none", "truncated", "swapped", "twice", "bit"])
def test_chunks_arrive_whole_and_in_order_or_not_at_all(fault: str) -> None:
    data = bytes(index % 251 for index in range(3 * CHUNK_BYTES + 500))
    rows = len(data) // 4
    rest = [(chunk.offset, chunk.data) for chunk in chunks(data, 1)]
    if fault == "truncated":
        rest[-1] = rest[-1][0], rest[-1][1][:-1]
    elif fault == "swapped":
        rest[0], rest[1] = rest[1], rest[0]
    elif fault == "twice":
        rest.insert(1, rest[0])
    elif fault == "bit":
        rest[1] = rest[1][0], bytes([rest[1][1][0] ^ 1]) + rest[1][1][1:]
    assembly = Assembly(described(data, FLOAT32, rows, 1), FLOAT32, rows, 1, 1 << 23)
    if fault == "none":
        for offset, part in rest:
            assert not assembly.complete
            assembly.add(offset, part)
        assert assembly.complete
        assert bytes(assembly.buffer) == data
    else:
        with pytest.raises(SessionError):
            add_all(assembly, rest)
        assert fault == "bit" or not assembly.complete


def test_a_block_is_observed_and_answered(table: SessionTable) -> None:
    session = table.open(opening())
    block = block_of(session, 1, 0, (0, 1, 2))
    draft = session.work(block, session.begin(block))
    assert (tuple(draft.tokens), draft.forwards, session.context_length) == ((6, 7, 8), 1, 3)


def test_a_context_may_begin_late_and_no_later_part_of_it_may_be_missing(table: SessionTable) -> None:
    session = table.open(opening())
    block = pb.Block(session=session.identity, sequence=1)
    block.segments.add(start=900, tokens=(4, 5))
    block.rows.CopyFrom(described(bytes(64), FLOAT32, 2, WIDTH))
    session.work(block, session.begin(block))
    assert session.context_length == 902
    block.sequence, block.segments[0].start = 2, 903
    with pytest.raises(SessionError, match="a gap") as refused:
        session.work(block, session.begin(block))
    assert refused.value.status == "FAILED_PRECONDITION"


@pytest.mark.parametrize(
    ("change", "status"),
    [
        (lambda block: setattr(block, "session", "another"), "NOT_FOUND"),
        (lambda block: setattr(block, "sequence", 1), "INVALID_ARGUMENT"),
        (lambda block: setattr(block.ask, "count", 8), "INVALID_ARGUMENT"),
        (lambda block: setattr(block.ask, "count", 0), "INVALID_ARGUMENT"),
        (lambda block: setattr(block.ask, "bonus", 1000), "INVALID_ARGUMENT"),
        (lambda block: setattr(block.ask, "token_hash", b"short"), "INVALID_ARGUMENT"),
        (lambda block: block.segments[0].tokens.append(1000), "INVALID_ARGUMENT"),
        (lambda block: block.segments[0].tokens.append(4), "INVALID_ARGUMENT"),
        (lambda block: block.segments.add(start=2, tokens=[1] * (1 << 17)), "INVALID_ARGUMENT"),
        (lambda block: setattr(block.ask, "token_hash", bytes(16)), "FAILED_PRECONDITION"),
        (lambda block: setattr(block.ask, "context_length", 9), "FAILED_PRECONDITION"),
    ],
)
def test_a_block_that_does_not_follow_is_refused_and_nothing_is_drafted(table, change, status: str) -> None:
    session = table.open(opening())
    first = block_of(session, 1, 0, (0, 1))
    session.work(first, session.begin(first))
    block = block_of(session, 2, 2, (2,))
    change(block)
    with pytest.raises(SessionError) as refused:
        session.work(block, session.begin(block))
    assert refused.value.status == status


@pytest.mark.parametrize(
    ("segments", "context", "message"),
    [
        ([(0, ())], 0, "a segment without tokens"),
        ([(0, (1, 2)), (2, ())], 2, "a segment without tokens"),
        ([((1 << 64) - 2, (1, 2))], 2, "position 18446744073709551616; expected at most"),
        ([(1 << 31, (1,))], (1 << 31) + 1, "expected at most 16777216"),
        ([], 1 << 63, "expected at most 16777216"),
    ],
)
def test_positions_that_no_context_has_are_refused_before_anything_is_computed(
    table: SessionTable, segments: list, context: int, message: str
) -> None:
    session = table.open(opening())
    block = pb.Block(session=session.identity, sequence=1)
    for start, tokens in segments:
        block.segments.add(start=start, tokens=tokens)
    block.ask.CopyFrom(pb.Ask(bonus=5, context_length=context, count=3, token_hash=bytes(16)))
    with pytest.raises(SessionError, match=message) as refused:
        session.begin(block)
    assert refused.value.status == "INVALID_ARGUMENT"


def test_a_session_that_keeps_every_token_keeps_a_bounded_number() -> None:
    offer = DrafterOffer(DrafterInfo("ngram", None, "ngram", 0, None), (), None, 0, 0, "", 30.0)
    session = DraftSession(Served(offer, Counting), "s", "float32")
    block = pb.Block(session="s", sequence=1)
    block.segments.add(start=(1 << 18) - 1, tokens=(7, 8))
    with pytest.raises(SessionError, match="262145 tokens in one session; ngram keeps every one") as refused:
        session.begin(block)
    assert refused.value.status == "RESOURCE_EXHAUSTED"


def test_an_ask_that_a_newer_one_overtook_is_observed_and_not_drafted_for(table: SessionTable) -> None:
    session = table.open(opening())
    old, new = block_of(session, 1, 0, (0, 1)), block_of(session, 2, 2, (2,))
    waiting = [(block, session.begin(block)) for block in (old, new)]
    drafts = [session.work(*each) for each in waiting]
    assert [draft.skipped for draft in drafts] == ["overtaken by a newer ask", ""]
    assert drafts[1].forwards == 1


@pytest.mark.parametrize("other", ["drafter", "tokenizer", "layers", "rows", "none"])
def test_a_session_opens_only_where_both_sides_agree(table: SessionTable, other: str) -> None:
    changed = {
        "drafter": DrafterOffer(DrafterInfo("x", "e" * 64, "dflash-v1", 7, 8), (0, 2), 64, 4, 1000, "e" * 64, 30.0),
        "tokenizer": DrafterOffer(INFO, (0, 2), 64, 4, 1000, "u" * 64, 30.0),
        "layers": DrafterOffer(INFO, (0, 1), 64, 4, 1000, "e" * 64, 30.0),
    }.get(other, OFFER)
    row_format = pb.ROW_FORMAT_UNSPECIFIED if other == "none" else FLOAT32
    name = "bfloat16" if other == "rows" else "float32"
    with pytest.raises(SessionError) as refused:
        table.open(pb.Open(compatibility=changed.compatibility(name), row_format=row_format))
    assert refused.value.status == "FAILED_PRECONDITION"
    assert len(table) == 0


def test_an_offer_is_read_as_it_was_sent_and_another_protocol_is_refused() -> None:
    assert DrafterOffer.read(pb.DrafterFacts.FromString(OFFER.message().SerializeToString())) == OFFER
    for change in ({"protocol": 2}, {"settings_json": "{"}):
        facts = OFFER.message()
        for name, value in change.items():
            setattr(facts, name, value)
        with pytest.raises(ModelMismatchError):
            DrafterOffer.read(facts)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"name": "\x1b[2Jdrafter"}, r"a name of '\\x1b\[2Jdrafter'"),
        ({"name": "n" * 201}, "at most 200 printable"),
        ({"format": "dflash\nv1"}, "a format of"),
        ({"digest": "D" * 64}, "sha256 in hex"),
        ({"tokenizer": "../../etc"}, "sha256 in hex"),
        ({"settings_json": '{"scale": NaN}'}, "no JSON: NaN is no number"),
        ({"settings_json": '{"scale": -Infinity}'}, "no JSON"),
        ({"settings_json": '{"scale": 1e999}'}, "no JSON"),
        ({"settings_json": '{"scale": "\\ud800"}'}, "no JSON"),
        ({"settings_json": '"' + "x" * (1 << 17) + '"'}, "characters of settings"),
        ({"block_size": 1}, "a block of 1 rows, expected 2 to"),
        ({"block_size": (1 << 32) - 1}, "expected 2 to 1024"),
        ({"capture": [9, 0]}, r"layers \[9, 0\] that it reads, expected them ascending"),
        ({"capture": [1, 1]}, "expected them ascending"),
    ],
)
def test_what_no_drafter_is_is_refused_before_it_reaches_a_screen_or_a_report(change: dict, message: str) -> None:
    facts = OFFER.message()
    facts.ClearField("capture")
    facts.MergeFrom(pb.DrafterFacts(**{"capture": OFFER.capture} | change))
    with pytest.raises(ModelMismatchError, match=message):
        DrafterOffer.read(facts)


def test_there_are_at_most_so_many_sessions_and_a_lease_makes_room(table: SessionTable, clock: Clock) -> None:
    sessions = [table.open(opening()) for _ in range(64)]
    with pytest.raises(SessionError, match="at most 64") as refused:
        table.open(opening())
    assert refused.value.status == "RESOURCE_EXHAUSTED"
    clock.now_s = 29.0
    table.renew(sessions[0])
    clock.now_s = 31.0
    table.open(opening())
    assert len(table) == 2
    for session in sessions[1:]:
        with pytest.raises(SessionError) as gone:
            table.renew(session)
        assert gone.value.status == "NOT_FOUND"


def test_a_session_that_lost_its_stream_goes_on_within_its_lease_only(table: SessionTable, clock: Clock) -> None:
    session = table.open(opening())
    first = block_of(session, 1, 0, (0, 1))
    session.work(first, session.begin(first))
    with pytest.raises(SessionError) as busy:
        table.open(opening(resume=session.identity))
    assert busy.value.status == "ABORTED"
    table.detach(session)
    assert table.open(opening(resume=session.identity)) is session
    table.detach(session)
    clock.now_s = 61.0
    with pytest.raises(SessionError) as gone:
        table.open(opening(resume=session.identity))
    assert gone.value.status == "NOT_FOUND"
    assert len(table) == 0


def test_ten_thousand_sessions_leave_nothing(table: SessionTable, clock: Clock) -> None:
    ids = set()
    for number in range(10_000):
        session = table.open(opening())
        ids.add(session.identity)
        if number % 3:
            table.close(session)
        clock.now_s += 1.0
    assert len(ids) == 10_000
    assert len(table) <= 30
    clock.now_s += 31.0
    table.sweep()
    assert len(table) == 0
