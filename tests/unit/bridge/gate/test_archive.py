"""The gate that made a stored verdict can be had: its commit is in the history, and its digest is the verdict's."""

from __future__ import annotations

from bridge.gate import identity
from tests.gate_archive import digest_at, stored, table


def test_the_gate_of_every_stored_verdict_is_in_the_history():
    assert set(table()) == set(stored()), "python -m tests.gate_archive"
    assert {digest: digest_at(commit) for digest, commit in table().items()} == {digest: digest for digest in table()}


def test_the_digest_of_other_sources_is_another():
    (commit, *_) = table().values()
    assert digest_at(commit) != identity().digest
