"""Every actor, record, act and reader of tests/data/attacks.toml, against the code that judges: in process."""

from __future__ import annotations

import datetime as dt
import itertools
import json
import tomllib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bridge.bus.refs import names
from bridge.bus.store.gather import WorkBudget
from bridge.bus.tree import Tree
from bridge.client.connection.pins import Pins
from bridge.client.evidence.verify import verify
from bridge.errors import FencedError, PolicyRefusedError, RequestRejectedError, UntrustedLogError
from bridge.records.claim import Claim
from bridge.request import parse
from bridge.runner.authorisation.signers import Signers
from bridge.runner.policy.file import read_policy
from bridge.runner.state.database import StateDatabase
from bridge.runner.state.ledger import Ledger
from bridge.strictjson import StrictJsonError
from bridge.trust.attestation import ATTESTATION_FILE
from bridge.trust.judgement import KeyAuthority, NamedKey, Signed, may_say
from bridge.trust.key_seals import KeySeals
from bridge.trust.root import RootContent, write_root
from bridge.trust.seals import Seal, SealedKind, Statement
from tests.fakes.asking import make_request
from tests.fakes.bus_actors import Actor, FakeClock, chunk
from tests.fakes.memory_bus import BUS_ID, MemoryBus
from tests.unit.bridge.trust.stage import NOW, OTHER_BUS, REF, Stage

TABLE = tomllib.loads((Path(__file__).parents[3] / "data" / "attacks.toml").read_text("utf-8"))
KINDS: dict[str, SealedKind] = {
    "claim": "claim", "renewal": "claim", "log": "log", "archive": "archive", "offer": "beacon",
}  # fmt: skip


def expected(actor: str, record: str, act: str, reader: str) -> dict[str, Any]:
    """Return the one rule for a cell."""
    cell = {"actor": actor, "record": record, "act": act, "reader": reader}
    (rule,) = [rule for rule in TABLE["rule"] if all(value in rule.get(key, [value]) for key, value in cell.items())]
    return rule


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Stage:
    folder = tmp_path_factory.mktemp("stage")
    folder.chmod(0o700)
    return Stage(folder)


def shown(word: str) -> str:
    return "accepted" if word == "verified" else word


def sealed(stage: Stage, actor: str, record: str, act: str, reader: str) -> str:
    """Attack something that carries a runner's seal; return what it comes to."""
    kind = KINDS[record]
    judge = KeySeals(lambda: stage.authority(reader))
    statement = stage.statement(kind)
    genuine = stage.sealer("hosta").sign(statement)
    seal: Seal | None = genuine
    if act in {"set_back", "delete"}:
        return archived(stage, act, reader) if record == "archive" else on_a_bus(stage, record, act, reader)
    if act == "truncate":
        with pytest.raises(StrictJsonError):
            Claim.parse(statement.record[:-16])
        return "altered"
    if act == "forge":
        statement = stage.statement(kind, nonce="3" * 32)
        seal = stage.sealer(actor).sign(statement)
    elif act == "swap":
        seal = stage.sealer(actor).sign(statement)
    elif act == "replay":
        statement = Statement(kind, BUS_ID, f"{REF[:-1]}1", "hosta", statement.parents, statement.record, statement.at)
    elif act == "strip":
        seal = None
    answer = judge.verify(statement, seal, follows_signed=record == "renewal" and seal is None)
    if record == "log" and seal is None and answer.word == "untrusted":
        return "unsigned"  # `bridge.bus.refs.logs` shows it with a warning
    return shown(answer.word)


def on_a_bus(stage: Stage, record: str, act: str, reader: str) -> str:
    """Set a runner's ref back, or delete it, on a bus in memory, after the reader saw the newest."""
    bus = MemoryBus(clock=FakeClock(NOW))
    bus.use_seals(stage.sealer("hosta"))
    hosta, observer = Actor(bus, FakeClock(NOW), "hosta"), MemoryBus(bus.remote, clock=FakeClock(NOW))
    observer.use_seals(KeySeals(lambda: stage.authority(reader)))
    ref = hosta.submit(hosta.request()).ref
    held_claims = [hosta.claim(ref)]
    held_claims += [hosta.start(ref, held_claims[0])]
    claim_ref = names.claim_ref(names.DEFAULT_PREFIX, ref.id)
    if record in {"claim", "renewal"}:
        if record == "renewal":
            held_claims += [hosta.renew(ref, held_claims[1])]
        observer.read_claim(ref.id)
        bus.remote.refs[claim_ref] = held_claims[-2].oid
        if act == "delete":
            del bus.remote.refs[claim_ref]
        view = observer.read_claim(ref.id)
        return "absent" if view is None else shown(view.signature.word)
    if record == "offer":
        target = names.beacon_ref(names.DEFAULT_PREFIX, "hosta")
        bus.beacon(hosta.beacon(1))
        earlier = bus.remote.refs[target]
        bus.beacon(hosta.beacon(2))
        observer.read_beacons()
        bus.remote.refs[target] = earlier
        if act == "delete":
            del bus.remote.refs[target]
        beacons = observer.read_beacons()
        if observer.refused:
            return "untrusted"
        return "unsigned" if beacons else "absent"
    target = names.log_ref(names.DEFAULT_PREFIX, ref.id)
    held_claims += [hosta.renew(ref, held_claims[-1], log=chunk(ref.id, 0, 0, b"one\n"))]
    earlier = bus.remote.refs[target]
    hosta.renew(ref, held_claims[-1], log=chunk(ref.id, 1, 4, b"two\n"))
    observer.read_log(ref.id)
    bus.remote.refs[target] = earlier
    if act == "delete":
        del bus.remote.refs[target]
    try:
        found_log = observer.read_log(ref.id, 1)
    except UntrustedLogError:
        return "untrusted"
    if act == "delete":
        return "absent" if not found_log else "accepted"
    return shown(observer.log_signature(ref.id).word)


def archived(stage: Stage, act: str, reader: str) -> str:
    """Set an archive with two runs back to its first, or delete it; return what its reader makes of the runs."""
    later = FakeClock(NOW + dt.timedelta(days=3))
    bus = MemoryBus(clock=FakeClock(NOW))
    bus.use_seals(stage.sealer("hosta"))
    hosta, keeper, observer = (
        Actor(bus, FakeClock(NOW), "hosta"),
        *(MemoryBus(bus.remote, clock=later) for _ in range(2)),
    )
    keeper.use_seals(stage.sealer("hosta"))
    observer.use_seals(KeySeals(lambda: stage.authority(reader)))
    tips, run_ids = [], []
    for _ in range(2):
        ref = hosta.submit(hosta.request()).ref
        hosta.run(ref)
        (target,) = {name for name in keeper.archive("hosta", budget=WorkBudget(50)) if "/archive/" in name}
        tips.append(bus.remote.refs[target])
        run_ids.append(ref.id)
    assert {run.tip.claim.id for run in observer.archived()} == set(run_ids)
    bus.remote.refs[target] = tips[0]
    if act == "delete":
        del bus.remote.refs[target]
    words = {run.tip.claim.id: run.tip.signature.word for run in observer.archived()}
    if act == "set_back":
        assert list(words) == run_ids[:1]
    assert not observer.refused
    return shown(words[run_ids[0]]) if words else "absent"


def asked(stage: Stage, actor: str, act: str, reader: str) -> str:
    """Attack a request; its reader is a runner."""
    request, data = stage.request, stage.request.canonical()
    policy = read_policy(b'schema = 1\nname = "hosta"\n')
    signers = Signers(policy, lambda: None if reader == "no_root" else stage.root)
    signature: bytes | None = stage.ssh("alice", data)
    if act == "delete":
        return "absent" if not MemoryBus(clock=FakeClock(NOW)).snapshot().requests else "accepted"
    if act == "set_back":
        ledger = Ledger(StateDatabase(stage.folder / f"state-{reader}-{actor}"), FakeClock(NOW))
        ledger.admit(request, data, "a" * 40, "alice")
        with pytest.raises(RequestRejectedError):
            ledger.admit(request, data, "b" * 40, "alice")
        return "kept"
    if act in {"replay", "truncate"}:
        moved = data[:-16] if act == "truncate" else data
        with pytest.raises(RequestRejectedError):
            parse(moved, ref=request.ref, bus_id=OTHER_BUS if act == "replay" else BUS_ID, now=NOW)
        return "altered"
    if act == "strip":
        signature = None
    elif act == "forge":
        request = make_request(BUS_ID, "mlx-env-probe", principal="alice", signer=request.signer)
        data = request.canonical()
        signature = stage.ssh(actor, data)
    elif act == "swap":
        signature = stage.ssh(actor, data)
    try:
        signer = signers.request(request, data, signature)
    except RequestRejectedError:
        return "altered"
    except PolicyRefusedError:
        return "untrusted"
    return "accepted" if signer is not None else "unsigned"


def published(stage: Stage, actor: str, act: str, reader: str) -> str:
    """Attack a result: what `verify` says."""
    if act in {"delete", "set_back"}:
        return on_its_branch(stage, act)
    files = stage.result()
    if act == "forge":
        files = stage.result(actor, make_request(BUS_ID, "mlx-env-probe", principal="unsigned"))
    elif act == "swap":
        files = {**files, ATTESTATION_FILE: stage.result(actor)[ATTESTATION_FILE]}
    elif act == "strip":
        files = {path: data for path, data in files.items() if path != ATTESTATION_FILE}
    elif act == "truncate":
        files = {**files, "run.json": files["run.json"][:-16]}
    run_id = "0" * 26 if act == "replay" else None
    verification = verify(Tree(files), Pins(stage.authority(reader)), source="a test", run_id=run_id)
    return shown(verification.answer.word)


def on_its_branch(stage: Stage, act: str) -> str:
    """Delete the branch that carries a result, or set it back to the request; say whether a result is read there."""
    bus = MemoryBus(clock=FakeClock(NOW))
    hosta = Actor(bus, FakeClock(NOW), "hosta")
    ref = hosta.submit(hosta.request()).ref
    held_claim = hosta.publish(ref, hosta.start(ref, hosta.claim(ref)), stage.result())
    assert bus.copy_result(ref, str(held_claim.claim.result_oid)) == "copied"
    copied = bus.remote.refs[ref.ref]
    with pytest.raises(FencedError):
        MemoryBus(bus.remote).read_request(replace(ref, oid=copied))  # it is there
    bus.remote.refs[ref.ref] = ref.oid
    if act == "delete":
        del bus.remote.refs[ref.ref]
        return "absent" if not MemoryBus(bus.remote).snapshot().requests else "accepted"
    return "absent" if MemoryBus(bus.remote).read_request(ref).data else "accepted"


def rooted(stage: Stage, actor: str, act: str, reader: str) -> str:
    """Attack the root: what a reader goes by afterwards."""
    memory, files = stage.memory(reader), dict(stage.files)
    targets = json.loads(files["targets.json"])
    if act == "delete":
        return outcome_of_root(stage, memory, None)
    if act == "set_back":
        files = dict(stage.first_files)
    elif act == "truncate":
        files["targets.json"] = files["targets.json"][:-16]
    elif act == "strip":
        files["targets.json"] = json.dumps({**targets, "signatures": []}).encode()
    elif act == "swap":
        files["targets.json"] = write_root(stage.content, stage.keys[actor], NOW)["targets.json"]
    elif act == "replay":
        other = RootContent(stage.record.evolve(bus_id=OTHER_BUS), stage.content.runners)
        files = write_root(other, stage.keys["owner"], NOW)
    else:
        mine = RootContent(stage.record, (NamedKey("hosta", stage.keys[actor].public, since=0.0),))
        files = write_root(mine, stage.keys[actor], NOW)
        if actor == "former_owner" and reader != "no_root":  # the best that the old key can do: another version 2
            files = {**stage.first_files, "2.root.json": files["1.root.json"]}
    return outcome_of_root(stage, memory, files)


def outcome_of_root(stage: Stage, memory: Any, files: dict[str, bytes] | None) -> str:
    before = memory.recall(BUS_ID)
    known_root = memory.meet(files, BUS_ID, pin=None, now_s=NOW.timestamp())
    if before is not None:
        assert known_root is not None
        assert known_root.note is not None
        return "kept" if known_root.root == stage.root and memory.recall(BUS_ID) == before else "accepted"
    if known_root is not None:
        memory.forget(BUS_ID)
        return "accepted" if known_root.vouched else "first use"
    return "absent" if files is None else "untrusted"


def attack(stage: Stage, actor: str, record: str, act: str, reader: str) -> str:
    find: dict[str, Callable[[], str]] = {
        "request": lambda: asked(stage, actor, act, reader),
        "result": lambda: published(stage, actor, act, reader),
        "root": lambda: rooted(stage, actor, act, reader),
    }
    return find.get(record, lambda: sealed(stage, actor, record, act, reader))()


def test_the_table_says_something_of_every_cell_and_why() -> None:
    cells = list(itertools.product(*(TABLE[axis] for axis in ("actors", "records", "acts", "readers"))))
    assert len(cells) == 7 * 8 * 7 * 4
    rules = [expected(*cell) for cell in cells]
    assert {rule["outcome"] for rule in rules} == set(TABLE["outcomes"])
    assert all(len(rule["reason"]) > 10 for rule in TABLE["rule"])


@pytest.mark.parametrize("record", TABLE["records"])
@pytest.mark.needs("ssh-keygen")
def test_every_attack_comes_to_what_was_written_down(stage: Stage, record: str) -> None:
    outcomes: dict[tuple[str, str, str], str] = {}
    wrong = []
    for actor, act, reader in itertools.product(TABLE["actors"], TABLE["acts"], TABLE["readers"]):
        key = (actor if act in {"forge", "swap"} else "", act, reader)  # no key of the actor's is used in the others
        if key not in outcomes:
            outcomes[key] = attack(stage, actor, record, act, reader)
        if outcomes[key] != (due := expected(actor, record, act, reader)["outcome"]):
            wrong.append(f"{actor} {act} {reader}: {outcomes[key]}, expected {due}")
    assert wrong == []


@pytest.mark.needs("ssh-keygen")
def test_what_is_genuine_is_accepted(stage: Stage) -> None:
    """The matrix would also hold of a reader who refuses everything."""
    for record, kind in KINDS.items():
        statement = stage.statement(kind)
        seal = stage.sealer("hosta").sign(statement)
        answers = {reader: KeySeals(lambda r=reader: stage.authority(r)).verify(statement, seal).word
                   for reader in TABLE["readers"]}  # fmt: skip
        words = {"pinned": "verified", "first_use": "first use", "no_root": "unsigned", "read_only": "verified"}
        assert answers == words, record
    by_reader = {reader: verify(Tree(stage.result()), Pins(stage.authority(reader)), source="a test").answer.word
             for reader in TABLE["readers"]}  # fmt: skip
    assert by_reader == words
    signers = Signers(read_policy(b'schema = 1\nname = "hosta"\n'), lambda: stage.root)
    data = stage.request.canonical()
    assert signers.request(stage.request, data, stage.ssh("alice", data)).principal == "alice"


def test_a_retired_key_counts_for_its_time_and_a_revoked_one_where_another_runner_archived_it(
    stage: Stage,
) -> None:
    at = NOW.timestamp()
    authority = stage.authority("pinned")
    say = {"kind": "claim", "name": "hosta", "present": True}
    old = Signed(**say, key=stage.keys["retired"].public, at=at - 5 * 3600)
    assert may_say(authority, old).word == "verified"
    assert may_say(authority, Signed(**say, key=old.key, at=at)).word == "untrusted"
    gone = stage.keys["revoked"].public
    words = [
        may_say(authority, Signed(**say, key=gone, at=at - 5 * 3600, archived_at=archived)).word
        for archived in (None, at - 3 * 3600, at - 3600)
    ]
    assert words == ["untrusted", "verified", "untrusted"]


def test_a_key_speaks_in_one_role(stage: Stage) -> None:
    both = KeyAuthority((NamedKey("x", "KEY", "requester"),))
    assert may_say(both, Signed("claim", "x", present=True, key="KEY")).word == "untrusted"
    assert may_say(both, Signed("request", "x", present=True, key="KEY")).word == "verified"
