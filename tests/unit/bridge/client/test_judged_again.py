"""What a host's gate said is what the same gate says of the files of its result: `verify` says so."""

from __future__ import annotations

import pytest

from bridge.bus.tree import Tree
from bridge.client.connection.pins import Pins
from bridge.client.evidence.verify import verify
from bridge.gate import judge
from bridge.publish.tree import build_tree
from tests.corpus.gate.breaks import honest
from tests.corpus.gate.launches import launched, scattered


def sealed(case):
    case.report["claims"] = []
    return case.seal()


@pytest.mark.parametrize("name", ["smoke", "claim"])
def test_a_result_is_judged_as_on_its_host(name):
    case = sealed(launched(honest(name), scattered(8)))
    record, spec, reports = case.record_value(), case.spec_value(), case.files()
    said = judge(case.run_id, reports, record, spec)
    assert any(isinstance(value, tuple) for claim in said.claims for value in claim.detail.values())  # a list in JSON
    files = build_tree(
        request_bytes=None, signature=None, claims=(), log=b"", record=record, spec=spec, reports=reports,
        verdict=said, bus_id=record.bus_id, request_oid=record.request_oid,
    )  # fmt: skip
    found = verify(Tree(files), Pins(), source="here", run_id=case.run_id)
    stored = [check.text for check in found.checks if check.name == "stored verdict" and check.level == "fail"]
    assert (stored, found.differs) == ([], False)
