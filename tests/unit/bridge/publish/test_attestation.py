"""An attestation binds every byte of a result to one runner key and to its place in that runner's chain."""

from __future__ import annotations

import base64
import hashlib
import json
from dataclasses import replace

import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from bridge import strictjson
from bridge.client.evidence.succession import chain_notes
from bridge.errors import InfrastructureError, IntegrityError, UsageError
from bridge.trust import runner_key as keys
from bridge.trust.attestation import ATTESTATION_FILE, ChainPosition, attest, verify_attestation
from bridge.trust.keyring import pin, pinned
from tests.unit.bridge.publish.records import RECORD, VERDICT

FIRST_LINK = ChainPosition("c" * 64, 1)
SET_BACK = "each result is whole by itself, and the state of mini was set back"
REF = "refs/heads/mac-bridge/mlx-env-probe-x"


@pytest.fixture
def folder(tmp_path):
    keys.generate(tmp_path / "keys", "mini")
    return tmp_path / "keys"


def tree(folder, link: ChainPosition = FIRST_LINK) -> dict[str, bytes]:
    signer, _ = keys.load(folder, "mini")
    files = {
        "log.txt": b"hello\n",
        "manifest.json": b"{}",
        "run.json": RECORD.canonical(),
        "verdict.json": VERDICT.canonical(),
        "reports/r.json": b'{"a":1}',
    }
    return {**files, ATTESTATION_FILE: attest(files, ref=REF, record=RECORD, verdict=VERDICT, link=link, signer=signer)}


def trusted(folder):
    return [keys.load(folder, "mini")[1].public]


def test_an_untouched_result_verifies_with_the_pinned_key(folder) -> None:
    attested = verify_attestation(tree(folder), trusted(folder))
    assert attested.key == trusted(folder)[0]
    assert attested.link == FIRST_LINK
    assert attested.predicate["ref"] == REF


def test_every_byte_of_every_file_counts(folder) -> None:
    files = tree(folder)
    for path, data in files.items():
        for index in range(0, len(data), max(1, len(data) // 25)):
            damaged = data[:index] + bytes([data[index] ^ 1]) + data[index + 1 :]
            try:
                assert verify_attestation({**files, path: damaged}, trusted(folder)).key is None, (path, index)
            except IntegrityError:
                continue
            assert path == ATTESTATION_FILE, (path, index)


def test_a_dropped_or_added_file_is_named(folder) -> None:
    files = tree(folder)
    with pytest.raises(IntegrityError, match=r"log\.txt is attested and missing"):
        verify_attestation({path: data for path, data in files.items() if path != "log.txt"}, trusted(folder))
    with pytest.raises(IntegrityError, match=r"extra is not attested"):
        verify_attestation({**files, "extra": b""}, trusted(folder))


def test_a_missing_envelope_is_an_error_and_not_a_warning(folder) -> None:
    files = tree(folder)
    del files[ATTESTATION_FILE]
    with pytest.raises(IntegrityError, match="carries no attestation"):
        verify_attestation(files, trusted(folder))


def test_an_envelope_of_another_run_does_not_fit(folder) -> None:
    files, other = tree(folder), tree(folder, ChainPosition("c" * 64, 2, "1" * 64))
    assert verify_attestation({**files, ATTESTATION_FILE: other[ATTESTATION_FILE]}, trusted(folder)).link.sequence == 2
    changed = {**files, "run.json": RECORD.evolve(runner="other").canonical()}
    with pytest.raises(IntegrityError, match=r"run\.json has sha256"):
        verify_attestation(changed, trusted(folder))


def test_a_key_that_did_not_sign_is_not_named(folder, tmp_path) -> None:
    stranger = keys.generate(tmp_path / "stranger", "mini")
    assert verify_attestation(tree(folder), [stranger.public]).key is None
    assert verify_attestation(tree(folder), [stranger.public, *trusted(folder)]).key == trusted(folder)[0]


def test_a_predicate_that_contradicts_the_record_is_refused_even_when_signed(folder) -> None:
    from securesystemslib.dsse import Envelope

    files = tree(folder)
    envelope = Envelope.from_dict(json.loads(files[ATTESTATION_FILE]))
    for field, value in (("verdict", "evidence"), ("trust_class", "host"), ("extra", 1), ("bus_id", "9" * 32)):
        statement = json.loads(envelope.payload)
        statement["predicate"][field] = value
        forged = Envelope(strictjson.encode(statement), envelope.payload_type, {})
        forged.sign(keys.load(folder, "mini")[0])
        with pytest.raises(IntegrityError, match=field):
            verify_attestation({**files, ATTESTATION_FILE: strictjson.encode(forged.to_dict())}, trusted(folder))


@pytest.mark.parametrize("name", [5, None, True])
def test_a_subject_whose_name_is_no_text_is_malformed(folder, name) -> None:
    files = tree(folder)
    envelope = json.loads(files[ATTESTATION_FILE])
    statement = json.loads(base64.b64decode(envelope["payload"]))
    statement["subject"][0]["name"] = name
    envelope["payload"] = base64.b64encode(strictjson.encode(statement)).decode()
    with pytest.raises(IntegrityError, match="its subjects are malformed"):
        verify_attestation({**files, ATTESTATION_FILE: strictjson.encode(envelope)}, trusted(folder))


def test_half_of_a_character_is_no_part_of_an_envelope(folder) -> None:
    files = tree(folder)
    halved = json.dumps({**json.loads(files[ATTESTATION_FILE]), "payloadType": "\ud800"}).encode()
    with pytest.raises(IntegrityError, match="is no DSSE envelope"):
        verify_attestation({**files, ATTESTATION_FILE: halved}, trusted(folder))


def test_an_independent_reading_of_dsse_verifies_ours(folder) -> None:
    """Pre-authentication encoding and ed25519 by hand, from the specification."""
    envelope = json.loads(tree(folder)[ATTESTATION_FILE])
    payload = base64.b64decode(envelope["payload"])
    kind = envelope["payloadType"].encode()
    signed = b"DSSEv1 " + str(len(kind)).encode() + b" " + kind + b" " + str(len(payload)).encode() + b" " + payload
    (signature,) = envelope["signatures"]
    key = Ed25519PublicKey.from_public_bytes(base64.b64decode(trusted(folder)[0]))
    key.verify(base64.b64decode(signature["sig"]), signed)
    with pytest.raises(InvalidSignature):
        key.verify(base64.b64decode(signature["sig"]), signed + b" ")
    statement = json.loads(payload)
    assert statement["_type"] == "https://in-toto.io/Statement/v1"
    assert [subject["name"] for subject in statement["subject"]] == [
        "log.txt",
        "manifest.json",
        "reports/r.json",
        "run.json",
        "verdict.json",
    ]


def test_the_in_toto_project_s_own_bindings_read_the_statement(folder) -> None:
    from google.protobuf import json_format
    from in_toto_attestation.v1 import statement_pb2
    from in_toto_attestation.v1.statement import Statement

    files = tree(folder)
    payload = base64.b64decode(json.loads(files[ATTESTATION_FILE])["payload"])
    statement = Statement.copy_from_pb(json_format.Parse(payload, statement_pb2.Statement()))
    statement.validate()
    digests = {subject.name: subject.digest["sha256"] for subject in statement.pb.subject}
    assert digests == {
        path: hashlib.sha256(data).hexdigest() for path, data in files.items() if path != ATTESTATION_FILE
    }
    assert statement.pb.predicate["sequence"] == 1


def test_a_gap_a_fork_and_a_repeat_show_in_the_chain(folder) -> None:
    first = verify_attestation(tree(folder), trusted(folder))
    second = verify_attestation(tree(folder, ChainPosition("c" * 64, 2, first.digest)), trusted(folder))
    third = verify_attestation(tree(folder, ChainPosition("c" * 64, 3, second.digest)), trusted(folder))
    forked = verify_attestation(tree(folder, ChainPosition("c" * 64, 3, first.digest)), trusted(folder))
    assert chain_notes([third, first, second]) == []
    assert chain_notes([first, third]) == ["not shown: 2 of mini (before 3 came run unknown)"]
    assert chain_notes([first, second, forked]) == [f"{SET_BACK} before it gave out number 3"]
    assert f"{SET_BACK}: it gave out number 3 twice" in chain_notes([first, second, third, forked])


def test_a_gap_is_excused_by_a_void_number_or_a_run_that_is_not_over_and_by_nothing_else(folder) -> None:
    first = verify_attestation(tree(folder), trusted(folder))
    after = ChainPosition("c" * 64, 4, "1" * 64, "r" * 26, (2, 3))
    assert chain_notes([first, verify_attestation(tree(folder, after), trusted(folder))]) == []
    part = verify_attestation(tree(folder, replace(after, void=(2,))), trusted(folder))
    assert chain_notes([first, part]) == ["not shown: 3 of mini (before 4 came run rrrrrrrr)"]
    assert chain_notes([first, part], pending={"r" * 26}) == []
    two = verify_attestation(tree(folder, replace(after, void=())), trusted(folder))
    gap = ["not shown: 2, 3 of mini (before 4 came run rrrrrrrr)"]
    assert chain_notes([first, two], pending={"r" * 26}) == gap  # one unfinished run has one number
    assert chain_notes([first, two], pending={"r" * 26, "s" * 26}) == []


def test_chains_of_different_runners_and_journals_are_not_mixed(folder) -> None:
    here = verify_attestation(tree(folder), trusted(folder))
    other = verify_attestation(tree(folder, ChainPosition("d" * 64, 9, "1" * 64)), trusted(folder))
    assert chain_notes([here, other]) == []


@pytest.mark.parametrize("text", ["", "{key}", "={key}", "Mini={key}", "mini={key}=", "mini=short", "mini {key}"])
def test_a_pin_names_its_runner(folder, text) -> None:
    key = keys.load(folder, "mini")[1]
    assert pinned(pin(key), "a test") == key
    with pytest.raises(UsageError, match="expected NAME=KEY"):
        pinned(text.format(key=key.public), "a test")


def test_a_key_others_can_read_is_not_used_and_one_that_exists_is_not_replaced(folder) -> None:
    with pytest.raises(UsageError, match="exists"):
        keys.generate(folder, "mini")
    (folder / keys.KEY_FILE).chmod(0o640)
    with pytest.raises(InfrastructureError, match="open to others"):
        keys.load(folder, "mini")
