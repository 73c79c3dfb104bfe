"""docs/protocol.md says what the code does: refs, fields, states, reasons, transitions, bounds and test vectors."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from typing import get_args

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from bridge.bus.content import commits
from bridge.bus.refs import names
from bridge.bus.refs.spaces import DEFAULT_PATTERNS
from bridge.errors import BusError
from bridge.ids import new_id
from bridge.records.archive import ArchivedRun, ArchiveHead
from bridge.records.base import Record
from bridge.records.bus import Beacon, BusRecord, KeyRecord
from bridge.records.claim import Claim, ClaimState, Delivery, Reason, RunProgress
from bridge.records.logs import LogHead
from bridge.records.request import Request
from bridge.request import cancel_branch, cancelled_id_of, run_id_of
from bridge.request.cancel import CancelRequest
from bridge.run.state import check_next
from bridge.trust import keyring
from bridge.trust.seals import Seal, SealedKind, Statement, seal_in
from bridge.trust.signing_key import FileKey

PAGE = (Path(__file__).parents[4] / "docs" / "protocol.md").read_text(encoding="utf-8")
RECORDS: tuple[type[Record], ...] = (
    BusRecord, KeyRecord, Request, CancelRequest, Claim, RunProgress, LogHead, Beacon, ArchiveHead, ArchivedRun,
)  # fmt: skip
RUN_ID = new_id(1_767_323_045_000, bytes(10))
QUOTED = re.compile(r"`([^`]+)`")


def cells(first: str) -> list[list[str]]:
    """Return the rows of the table whose header begins with this cell."""
    lines = PAGE[PAGE.index(f"| {first} |") :].splitlines()
    rows = lines[2 : next(number for number, line in enumerate(lines) if not line.startswith("|"))]
    return [[cell.strip() for cell in row.strip("|").split(" | ")] for row in rows]


def listed(label: str) -> list[str]:
    return QUOTED.findall(next(line for line in PAGE.splitlines() if line.startswith(f"**{label}.** ")))


def claim(**changes: object) -> Claim:
    fields: dict[str, object] = {
        "id": RUN_ID, "request_oid": "1" * 40, "state": "claimed", "runner": "mini", "nonce": "2" * 32, "sequence": 0,
        "lease_s": 15.0, "time": "2026-01-02T03:04:05.000Z",
    }  # fmt: skip
    return Claim.model_validate({**fields, **changes})


def test_the_refs_of_a_runner_are_those_that_the_code_writes() -> None:
    written = {
        names.bus_ref("<prefix>"),
        names.root_ref("<prefix>"),
        names.claim_ref("<prefix>", "<id>"),
        names.start_ref("<prefix>", "<id>"),
        names.log_ref("<prefix>", "<id>"),
        names.beacon_ref("<prefix>", "<name>"),
        names.archive_ref("<prefix>", "<name>", "<day>"),
    }
    assert {QUOTED.findall(row[0])[0] for row in cells("ref") if "<prefix>" in row[0]} == written
    assert all(f"`{prefix}`" in PAGE for prefix in names.PREFIXES)
    assert all(f"`{pattern}`" in PAGE for pattern in DEFAULT_PATTERNS)


def test_the_branches_of_the_page_are_request_branches_with_their_cancels() -> None:
    block = PAGE[PAGE.index("refs/heads/mac-bridge/<preset>") :].split("```")[0]
    pairs = [line.split() for line in block.splitlines() if line]
    assert len(pairs) == 2
    for pair in pairs:
        request, cancel = (
            text.replace("<preset>", "a-preset")
            .replace("<id>", RUN_ID)
            .replace("<suffix>", "-x")
            .replace("<space>", "s")
            for text in pair
        )
        assert (run_id_of(request), cancel_branch(request)) == (RUN_ID, cancel)
        assert cancelled_id_of(cancel) == RUN_ID


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.__name__)
def test_a_record_has_the_fields_that_the_page_lists_in_order(record: type[Record]) -> None:
    (row,) = [row for row in cells("record") if row[0] == f"`{record.__name__}`"]
    assert QUOTED.findall(row[1]) == list(record.model_fields)
    version = record.model_fields.get("schema_version")
    stated = re.search(r"`schema_version` (\d)", row[1])
    assert (stated and int(stated[1])) == (version and version.default)


@pytest.mark.parametrize(("label", "kind"), [("States", ClaimState), ("Reasons", Reason), ("Deliveries", Delivery)])
def test_states_reasons_and_deliveries_are_those_of_the_records(label: str, kind: object) -> None:
    assert listed(label) == list(get_args(kind))


def follows(old: str, new: str, runner: str, reason: str) -> bool:
    ended = {"reason": reason, "exit_code": 3}
    before = claim(state=old, **(ended if old == "terminal" else {}))
    after = claim(state=new, runner=runner, sequence=1, nonce="3" * 32, **(ended if new == "terminal" else {}))
    try:
        check_next(before, after)
    except BusError:
        return False
    return True


def test_the_transitions_are_those_that_the_code_allows() -> None:
    transitions = set()
    for old, new, own, other in cells("from"):
        (before,) = QUOTED.findall(old)
        for after in QUOTED.findall(new):
            transitions.add((before, after))
            mine, others = (
                {reason for reason in get_args(Reason) if follows(before, after, runner, reason)}
                for runner in ("mini", "other")
            )
            allowed = {"yes": set(get_args(Reason)), "no": set()}
            assert mine == allowed[own], (before, after)
            assert others == allowed.get(other, set(QUOTED.findall(other))), (before, after)
    assert transitions == {(old, new) for old in get_args(ClaimState) for new in get_args(ClaimState)}


def test_each_bound_is_the_one_in_the_code() -> None:
    rows = cells("bound")
    assert len(rows) > 10
    for _, stated, code in rows:
        module, name = code.strip("`").split(":")
        assert float(stated.split()[0]) == getattr(importlib.import_module(module), name), code


def test_each_kind_of_seal_has_its_payload_type() -> None:
    for kind in get_args(SealedKind):
        assert f"`{Statement(kind, '', '', '', (), b'').payload_type}`" in PAGE


def vectors() -> dict[str, str]:
    """Return the test vectors of the page by their titles."""
    first = claim()
    ref = names.claim_ref(names.DEFAULT_PREFIX, RUN_ID)
    statement = Statement("claim", "4" * 32, ref, "mini", (), first.canonical())
    key = Ed25519PrivateKey.from_private_bytes(bytes(32))
    seal = Seal("mini", keyring.sign(statement.payload_type, statement.payload(), FileKey(key)))
    plain, _ = commits.claim_commit(first, ())
    sealed, _ = commits.claim_commit(first, (), seal)
    assert seal_in(sealed.data.decode().partition("\n\n")[2]) == seal
    return {
        "`claim.json`": first.canonical().decode(),
        f"The commit without a seal, `{plain.oid}`": plain.data.decode().rstrip("\n"),
        f"The payload of its seal on `{ref}` of bus `{'4' * 32}`": statement.payload().decode(),
        f"The commit sealed with the key of 32 zero bytes, `{sealed.oid}`": sealed.data.decode().rstrip("\n"),
    }


def test_the_vectors_of_the_page_are_what_the_code_writes() -> None:
    section = PAGE[PAGE.index("## 12 ") :]
    assert section == "## 12 Test vectors\n\n" + "\n".join(
        f"{title}:\n\n```\n{text}\n```\n" for title, text in vectors().items()
    )
