"""What a run may do is the meet of what the host allows and what the request may ask for: every combination."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from bridge.errors import PolicyRefusedError
from bridge.presets.facts import PolicyFacts, Trust
from bridge.presets.installed import registry
from bridge.presets.resolution import resolve
from bridge.records.request import RunnerSelector, Workload
from tests.fakes.asking import make_request

CODE = Workload(commit="a" * 40, tree="b" * 40, origin="", dirty=False)
FACTS = PolicyFacts(digest="0" * 64, interpreter="/usr/bin/python3")
SIGNER = {"principal": "agent@example.org", "signer": "SHA256:" + "A" * 43}
STRICT = {"off": 0, "preferred": 1, "required": 2}
BOTH = (False, True)


def allowed(facts: PolicyFacts, trust: Trust, *, request_code: bool) -> bool:
    """The rule in one expression: who may ask, and whose code may run."""
    may_ask = facts.embedded or trust.signed or not facts.require_signature
    may_ask_for_code = facts.embedded or trust.signed or facts.trust_pushers
    may_run = facts.embedded or trust.sent_code == "trusted" or facts.sandbox_uid is not None
    return may_ask and (not request_code or (may_ask_for_code and may_run))


@pytest.mark.parametrize("request_code", BOTH, ids=["host code", "request code"])
def test_every_combination_of_policy_and_trust_gives_the_lesser_of_both(request_code: bool) -> None:
    preset = registry()["pytest-path" if request_code else "mlx-env-probe"]
    request = make_request("b" * 32, preset.name, workload=CODE if request_code else None)
    counts = {True: 0, False: 0}
    axes = (BOTH, BOTH, BOTH, (None, 1000), ("off", "preferred", "required"), BOTH, ("trusted", "untrusted"), BOTH)
    for embedded, pushers, require, uid, mode, signed, code, network in itertools.product(*axes):
        facts = replace(
            FACTS, embedded=embedded, trust_pushers=pushers, require_signature=require, sandbox_uid=uid,
            sandbox_mode=mode, sandbox_network=network,
        )  # fmt: skip
        trust = Trust(sent_code=code, **(SIGNER if signed else {}))
        expected = allowed(facts, trust, request_code=request_code)
        counts[expected] += 1
        if not expected:
            with pytest.raises(PolicyRefusedError) as caught:
                resolve(request, preset, facts, trust)
            assert "kakeya-" in (caught.value.remedy or "")
            continue
        spec = resolve(request, preset, facts, trust)
        untrusted = request_code and code == "untrusted"
        assert spec.trust_class == ("host" if not request_code else code)
        assert STRICT[spec.sandbox.mode] >= STRICT[mode]
        assert spec.sandbox.mode == "required" or not request_code
        assert spec.sandbox.uid == uid
        assert spec.sandbox.network is (network and preset.sandbox.network)
        assert ("untrusted_code" in spec.labels) is untrusted
        assert ("trust_pushers" in spec.labels) is ((pushers or embedded) and not signed)
        assert (spec.principal, spec.signer) == ((trust.principal, trust.signer) if signed else ("unsigned", None))
    assert min(counts.values()) > 0


def test_labels_become_what_the_owner_says_of_nodes_and_nothing_else_of_a_request_does() -> None:
    preset = registry()["mlx-env-probe"]
    request = make_request("b" * 32, preset.name, runner=RunnerSelector(labels=("cuda", "desk")))
    assert resolve(request, preset, FACTS, Trust()).placement is None
    assert "placement" not in resolve(request, preset, FACTS, Trust()).model_dump()
    placed = replace(FACTS, nodes={"cuda": "a100", "metal": "m4"})
    assert resolve(request, preset, placed, Trust()).placement == ("cuda",)
    assert "nodes with a100 (host)" in resolve(request, preset, placed, Trust()).decisions
