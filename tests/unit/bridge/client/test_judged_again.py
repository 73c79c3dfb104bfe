"""What a host's gate said is what the same gate says of the files of its result: `verify` says so."""

from __future__ import annotations

import hashlib

import pytest

from bridge.bus.tree import Tree
from bridge.client.clone.store import read_tree
from bridge.client.connection.pins import Pins
from bridge.client.evidence.verify import verify
from bridge.client.run.result import read_result
from bridge.gate.derivation import derive
from bridge.gate.identity import identity
from bridge.gate.judging import judge
from bridge.publish.tree import build_tree
from bridge.records.jobspec import JobSpec
from bridge.records.manifest import Manifest, ManifestEntry
from bridge.records.request import Request
from bridge.records.run import RunRecord
from bridge.trust import runner_key
from bridge.trust.attestation import ATTESTATION_FILE, ChainPosition, attest
from bridge.trust.judgement import KeyAuthority, NamedKey, TrustAnswer
from tests.corpus.gate.breaks import honest
from tests.corpus.gate.launches import launched, scattered
from tests.corpus.gate.turned import in_turns
from tests.support.committed import SMOKE

EARLIER = "01jd7zk3v8q4w2m6x9c5b7n1t0"


def sealed(case):
    case.report["claims"] = []
    return case.seal()


@pytest.mark.parametrize("name", ["smoke", "claim"])
def test_a_result_is_judged_as_on_its_host(name):
    case = sealed(launched(honest(name), scattered(8)))
    record, spec, reports = case.record_value(), case.spec_value(), case.files()
    verdict = judge(case.run_id, reports, record, spec)
    # Where JSON has a list.
    assert any(isinstance(value, tuple) for claim in verdict.claims for value in claim.detail.values())
    files = build_tree(
        request_bytes=None, signature=None, claims=(), log=b"", record=record, spec=spec, reports=reports,
        verdict=verdict, derived=derive(case.run_id, reports, record, spec),
        bus_id=record.bus_id, request_oid=record.request_oid,
    )  # fmt: skip
    verification = verify(Tree(files), Pins(), source="here", run_id=case.run_id)
    stored = [check.text for check in verification.checks if check.name == "stored verdict" and check.level == "fail"]
    assert (stored, verification.differs) == ([], False)


@pytest.mark.parametrize(("then", "differs"), [("evidence", False), ("valid", True)])
def test_a_host_with_an_older_gate_that_said_the_same_is_not_judged_differently(then, differs):
    case = in_turns()
    case.record["gate_digest"] = "ab" * 32
    record, spec, reports = case.record_value(), case.spec_value(), case.files()
    here = record.evolve(gate_digest=identity().digest)
    verdict = judge(case.run_id, reports, here, spec)
    assert verdict.decision == "evidence"
    verdict = verdict.evolve(gate=verdict.gate.evolve(digest=record.gate_digest), decision=then)
    files = build_tree(
        request_bytes=None, signature=None, claims=(), log=b"", record=record, spec=spec, reports=reports,
        verdict=verdict, derived=derive(case.run_id, reports, record, spec),
        bus_id=record.bus_id, request_oid=record.request_oid,
    )  # fmt: skip
    verification = verify(Tree(files), Pins(), source="here", run_id=case.run_id)
    assert verification.differs is differs, verification.checks
    # A record that names another gate than its verdict was changed, as on its host.
    files = build_tree(
        request_bytes=None, signature=None, claims=(), log=b"", record=record.evolve(gate_digest="cd" * 32), spec=spec,
        reports=reports, verdict=verdict, derived=derive(case.run_id, reports, record, spec),
        bus_id=record.bus_id, request_oid=record.request_oid,
    )  # fmt: skip
    assert verify(Tree(files), Pins(), source="here", run_id=case.run_id).differs


def test_honest_evidence_that_nobody_known_signed_is_recorded_and_no_evidence():
    case = in_turns()
    record, spec, reports = case.record_value(), case.spec_value(), case.files()
    verdict = judge(case.run_id, reports, record, spec)
    files = build_tree(
        request_bytes=None, signature=None, claims=(), log=b"", record=record, spec=spec, reports=reports,
        verdict=verdict, derived=derive(case.run_id, reports, record, spec),
        bus_id=record.bus_id, request_oid=record.request_oid,
    )  # fmt: skip
    result = read_result(Tree(files))
    trusted = [result.verdict_for(TrustAnswer(word)).decision for word in ("verified", "first use")]
    unknown = [result.verdict_for(answer).decision for answer in (TrustAnswer("unsigned"), None)]
    assert (trusted, unknown) == (["evidence"] * 2, ["recorded"] * 2)


def attempted_again(folder, unseen):
    """Return a published result as a second attempt, judged by the gate here and signed, with who goes by that key."""
    files = {name: data for name, data in read_tree(SMOKE).files.items() if name != ATTESTATION_FILE}
    record, spec = RunRecord.parse(files["run.json"], max_bytes=1 << 26), JobSpec.parse(files["spec.json"])
    record = record.evolve(
        attempt=record.attempt.evolve(number=2, earlier=(EARLIER,), unseen=unseen), gate_digest=identity().digest
    )
    reports = {name.removeprefix("reports/"): data for name, data in files.items() if name.startswith("reports/")}
    verdict = judge(record.id, reports, record, spec)
    files |= {"run.json": record.canonical(), "verdict.json": verdict.canonical()}
    files["derived.json"] = derive(record.id, reports, record, spec).canonical()
    manifest = Manifest.parse(files["manifest.json"])
    listed = (
        ManifestEntry(path=path, bytes=len(data), sha256=hashlib.sha256(data).hexdigest())
        for path, data in sorted(files.items())
        if path != "manifest.json"
    )
    files["manifest.json"] = manifest.evolve(files=tuple(listed)).canonical()
    key = runner_key.generate(folder, record.runner)
    signer, _ = runner_key.load(folder, record.runner)
    ref = Request.parse(files["request.json"]).ref
    link = ChainPosition("c" * 64, 1)
    files[ATTESTATION_FILE] = attest(files, ref=ref, record=record, verdict=verdict, link=link, signer=signer)
    return Tree(files), Pins(KeyAuthority((NamedKey(key.name, key.public),)))


def test_a_verdict_that_rests_on_earlier_attempts_is_not_said_to_be_judged_again(tmp_path):
    tree, trusted = attempted_again(tmp_path, unseen=())
    verification = verify(tree, trusted, source="here")
    (verdict_check,) = (check for check in verification.checks if check.name == "verdict")
    assert (verification.answer.word, verification.exit_code, verdict_check.level) == ("verified", 0, "warn")
    assert "not judged again: it pools earlier attempts" in verdict_check.text


def test_a_second_attempt_is_judged_again_where_the_first_left_nothing_to_pool(tmp_path):
    tree, trusted = attempted_again(tmp_path, unseen=(EARLIER,))
    verification = verify(tree, trusted, source="here")
    assert [check.level for check in verification.checks if "verdict" in check.name] == ["ok"]
    assert verification.exit_code == 0


def derived_check(files, case):
    verification = verify(Tree(files), Pins(), source="here", run_id=case.run_id)
    (check,) = (check for check in verification.checks if check.name == "derived")
    return check.level, check.text


def test_what_a_result_derives_is_computed_again_and_compared_byte_by_byte():
    case = sealed(honest("smoke"))
    record, spec, reports = case.record_value(), case.spec_value(), case.files()
    verdict, derived = judge(case.run_id, reports, record, spec), derive(case.run_id, reports, record, spec)
    forged = derived.evolve(reports=(derived.reports[0].evolve(preset="the-fastest"),))

    def built(derived=derived, verdict=verdict):
        return build_tree(
            request_bytes=None, signature=None, claims=(), log=b"", record=record, spec=spec, reports=reports,
            verdict=verdict, derived=derived, bus_id=record.bus_id, request_oid=record.request_oid,
        )  # fmt: skip

    assert derived_check(built(), case)[0] == "ok"
    assert derived_check(built(forged), case) == (
        "fail", "derived.json is not what the same gate derives from these reports",
    )  # fmt: skip
    missing = {name: data for name, data in built().items() if name != "derived.json"}
    assert derived_check(missing, case) == ("fail", "derived.json is missing")
    other = verdict.evolve(gate=verdict.gate.evolve(digest="ab" * 32))
    level, text = derived_check(built(forged, other), case)
    assert (level, text.partition(":")[0]) == ("warn", "derived differently")
