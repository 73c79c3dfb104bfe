"""A runner signs each result once, in order, also when it dies or loses a run in between."""

from __future__ import annotations

import json

import pytest

from bridge.client.evidence.succession import chain_notes
from bridge.errors import UsageError
from bridge.runner.connection.known_keys import KnownKeys
from bridge.runner.connection.link import link_to
from bridge.runner.state.attestations import enrolled, newest
from bridge.trust import runner_key as keys
from bridge.trust.attestation import ATTESTATION_FILE, FIRST, verify_attestation
from bridge.trust.verifier import verify_tree
from tests.fakes.memory_bus import MemoryBus


@pytest.fixture
def signing(world):
    """A world whose bus signs and whose runner has a key."""
    w = world()
    keys.generate(w.process.folder.root, "mini")
    MemoryBus(w.remote, clock=w.clock).update(enrolled(w.requester.identity(), w.process.folder.root, sign=True))
    return w


def attested(w, ref):
    return verify_attestation(w.result(ref.id).files, [key.public for key in keys.published(w.process.folder.root)])


def test_results_carry_attestations_that_follow_each_other(signing) -> None:
    w = signing
    refs = []
    for _ in range(3):
        refs.append(w.ask())
        w.serve_once()
    attestations = [attested(w, ref) for ref in refs]
    assert [attestation.link.sequence for attestation in attestations] == [1, 2, 3]
    assert [attestation.link.previous for attestation in attestations] == [
        FIRST,
        attestations[0].digest,
        attestations[1].digest,
    ]
    assert [attestation.link.previous_run for attestation in attestations] == [None, refs[0].id, refs[1].id]
    assert len({attestation.link.journal for attestation in attestations}) == 3
    assert {attestation.link.chain for attestation in attestations} == {w.process.journal.attested.chain}
    assert chain_notes(attestations) == []
    assert attestations[0].predicate["ref"] == refs[0].ref
    assert all(verify_tree(w.result(ref.id).files, run_id=ref.id) == [] for ref in refs)


def test_without_a_key_nothing_pretends_and_with_one_no_bus_record_switches_signing_off(world) -> None:
    w = world()
    ref = w.ask()
    w.serve_once()
    files = w.result(ref.id).files
    assert ATTESTATION_FILE not in files
    assert json.loads(files["manifest.json"])["attestation"] == "none"
    keys.generate(w.process.folder.root, "mini")
    second = w.ask()
    w.serve_once()
    assert w.requester.identity().attestation == "none"
    assert attested(w, second).link.sequence == 1


def test_the_chain_goes_on_after_a_restart(signing) -> None:
    w = signing
    first = w.ask()
    w.serve_once()
    w.process.state.close()
    again = w.new_process()
    second = w.ask()
    w.serve_once(w.runner(again))
    assert chain_notes([attested(w, first), attested(w, second)]) == []
    assert attested(w, second).link.sequence == 2


def test_a_number_lost_to_another_runner_is_named_void_by_the_next(signing) -> None:
    w = signing
    journal = w.process.journal
    first = w.ask()
    w.serve_once()
    journal.append("result_built", "0" * 26, None, sequence=2, attestation="a" * 64)
    journal.append("fenced", "0" * 26)
    second = w.ask()
    w.serve_once()
    attestation = attested(w, second)
    assert (attestation.link.sequence, attestation.link.void) == (3, (2,))
    assert chain_notes([attested(w, first), attestation]) == []


def test_a_rotated_key_signs_the_next_result_and_the_chain_goes_on(signing) -> None:
    w = signing
    first = w.ask()
    w.serve_once()
    old = newest(w.process.folder.root)
    new = keys.rotate(w.process.folder.root, "mini")
    second = w.ask()
    w.serve_once()
    assert (attested(w, first).key, attested(w, second).key) == (old.public, new.public)
    assert chain_notes([attested(w, first), attested(w, second)]) == []


def test_a_bus_that_signs_takes_no_runner_without_a_key(signing, tmp_path) -> None:
    record = signing.requester.identity()
    fresh = MemoryBus(signing.remote, clock=signing.clock).identity()
    assert (fresh.attestation, len(fresh.keys)) == ("dsse", 1)
    with pytest.raises(UsageError, match="no key"):
        enrolled(fresh, tmp_path, sign=False)
    assert enrolled(record.evolve(attestation="none", keys=()), tmp_path, sign=True).attestation == "none"


def test_a_crash_in_the_middle_of_a_rotation_leaves_the_old_key_in_use(tmp_path) -> None:
    old = keys.generate(tmp_path, "mini")
    key_file = (tmp_path / keys.KEY_FILE).read_bytes()
    keys.rotate(tmp_path, "mini")
    (tmp_path / keys.KEY_FILE).write_bytes(key_file)  # as if the last step had not happened
    assert keys.load(tmp_path, "mini")[1] == old
    assert keys.rotate(tmp_path, "mini").public != old.public
    assert len(keys.published(tmp_path)) == 3


def test_a_runner_whose_key_is_gone_takes_nothing_and_says_how_to_go_on(world) -> None:
    w = world()
    keys.generate(w.process.folder.identity, "mini")
    by_key = KnownKeys(w.process.folder.identity, "mini")
    runner = w.process.on(link_to(MemoryBus(w.remote, clock=w.clock), w.clock, by_key))
    keys.key_path(w.process.folder.identity).unlink()
    ref = w.ask()
    assert runner.step() == 1
    assert ref.id not in w.requester.snapshot().claims
    assert any(f"the key of this runner is gone from {w.process.folder.identity}" in line for line in w.log_lines)
