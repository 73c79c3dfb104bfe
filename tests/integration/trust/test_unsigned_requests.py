"""What unsigned requests may do, what everybody's share is, and what an owner who trusts pushers is told."""

from __future__ import annotations

from tests.fakes.ssh_keys import WHO, push_signed, signed_request
from tests.integration.trust.asking import OTHER, RAN, ended, policy, serve


def test_unsigned_requests_run_host_code_only_and_the_owner_may_refuse_them_altogether(host, world, lists):
    w = host()
    plain = w.ask("mlx-env-probe")
    w.serve_once()
    assert ended(w, plain.id) == RAN
    assert w.record(plain.id).signer is None
    w.process.state.close()
    strict = world(policy_text=policy(lists, "require_signature = true"))
    plain = strict.ask("mlx-env-probe")
    strict.serve_once()
    assert ended(strict, plain.id) == "policy_refused"
    assert "signed requests only" in (strict.claim(plain.id).message or "")
    assert strict.executor.executed == []


def test_quotas_are_per_principal_and_forged_names_use_up_the_unsigned_share(host, keys):
    w = host("quota_per_hour = 1", '[quotas]\n"other@example.org" = 2')
    bus_id = w.requester.identity().bus_id
    senders = [("agent", WHO), ("agent", WHO), ("other", OTHER), ("other", OTHER), ("other", OTHER)]
    sent = []
    for name, who in senders:
        request, signature = signed_request(bus_id, "mlx-env-probe", keys[name], who)
        sent.append((who, push_signed(w.requester, request, signature)))
    serve(w, len(senders))
    took = [who for who, ref in sent if ref.id in w.requester.snapshot().claims]
    assert sorted(took) == [WHO, OTHER, OTHER]
    assert any("requests of agent@example.org in the last hour" in line for line in w.log_lines)
    w.process.state.close()
    again = w.runner(w.new_process())  # counted by the journal, hence also by the next process
    w.serve_once(again)
    assert len(w.executor.executed) == 3


def test_trusting_pushers_is_in_every_result_also_in_a_refused_one(host, world, lists, keys):
    w = host("trust_pushers = true")
    bus_id = w.requester.identity().bus_id
    plain, planned = w.ask("mlx-env-probe"), w.ask("cuda-env-probe", params={"unknown": 1})
    request, signature = signed_request(bus_id, "mlx-env-probe", keys["agent"])
    push_signed(w.requester, request, signature)
    serve(w, 3)
    assert "trust_pushers" in w.record(plain.id).labels
    assert "trust_pushers" in w.record(planned.id).labels
    assert ended(w, planned.id) == "request_rejected"
    assert "trust\\_pushers" in w.result(planned.id).files["summary.md"].decode()
    assert "trust_pushers" not in w.record(request.id).labels
