"""What looks like a cheat and is none may be quoted, and nothing refuses it."""

from __future__ import annotations

import pytest

from bridge.gate.judging import judge
from tests.corpus.gate.twins import TWINS

pytestmark = pytest.mark.ci


@pytest.mark.parametrize("name", TWINS)
def test_an_honest_twin_may_be_quoted(name: str) -> None:
    build, quoted = TWINS[name]
    case = build()
    verdict = judge(case.run_id, case.files(), case.record_value(), case.spec_value())
    assert [finding.message for finding in verdict.findings if finding.severity == "reject"] == []
    citable = {claim.id for claim in verdict.claims if claim.citable}
    assert citable >= set(quoted), {claim.id: claim.why for claim in verdict.claims}
