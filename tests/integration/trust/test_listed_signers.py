"""The owner's lists decide who may ask: listed, expired, revoked, and lists that others could write."""

from __future__ import annotations

import pytest

from bridge.errors import PolicyRefusedError
from bridge.runner.authorisation.signers import Signers
from bridge.runner.policy.file import read_policy
from bridge.trust.root import RootContent, read_root, write_root
from bridge.trust.signing_key import make_key
from bridge.trust.ssh_signatures import NAMESPACE, sign
from tests.fakes.bus_actors import FakeClock
from tests.fakes.memory_bus import bus_record
from tests.fakes.ssh_keys import WHO, push_signed, signed_request, write_list
from tests.integration.trust.asking import OTHER, RAN, ended, push_anything, serve


@pytest.mark.parametrize(
    ("listed", "why"),
    [
        ("{who} namespaces=\"git\" {key}\n", "not accepted"),
        ("{who} namespaces=\"kakeya-request-v1\",valid-before=\"20200101\" {key}\n", "not accepted"),
        ("{who} namespaces=\"kakeya-request-v1\",valid-after=\"29990101\" {key}\n", "not accepted"),
        ("", "knows no signers"),
    ],
    ids=["another namespace", "expired", "not yet valid", "empty"],
)  # fmt: skip
def test_the_owners_list_decides_and_the_refusal_names_one_command(host, keys, lists, listed, why):
    key, other = keys["agent"], keys["other"]
    write_list(lists / "signers", listed.format(who=WHO, key=key.public, other=other.public))
    w = host("require_signature = true")  # where unsigned requests are taken, an empty list knows nobody to refuse
    request, signature = signed_request(w.requester.identity().bus_id, "mlx-env-probe", key)
    push_signed(w.requester, request, signature)
    w.serve_once()
    assert ended(w, request.id) == "policy_refused"
    message = w.claim(request.id).message or ""
    assert why in message
    assert f"kakeya-runner welcome '{WHO} {key.public}'" in message
    assert w.executor.executed == []
    assert w.record(request.id).principal == "unsigned"


def test_a_name_that_is_listed_with_another_key_gets_no_command_that_would_let_both_in(host, keys, lists):
    write_list(lists / "signers", f'{WHO} namespaces="kakeya-request-v1" {keys["other"].public}\n')
    w = host()
    request, signature = signed_request(w.requester.identity().bus_id, "mlx-env-probe", keys["agent"])
    push_signed(w.requester, request, signature)
    w.serve_once()
    assert ended(w, request.id) == "policy_refused"
    message = w.claim(request.id).message or ""
    assert f"{WHO} is listed with another key" in message
    assert "kakeya-runner" not in message
    assert w.executor.executed == []


def test_a_signature_made_for_git_or_by_another_listed_key_is_refused(host, keys):
    import subprocess

    w = host()
    request, _ = signed_request(w.requester.identity().bus_id, "mlx-env-probe", keys["agent"])
    argv = ["ssh-keygen", "-Y", "sign", "-q", "-n", "git", "-f", str(keys["agent"].path)]
    for_git = subprocess.run(argv, input=request.canonical(), capture_output=True, check=True, timeout=240).stdout
    push_anything(w, request.ref, request.id, request.canonical(), for_git)
    second, _ = signed_request(w.requester.identity().bus_id, "mlx-env-probe", keys["agent"])
    by_other = sign(second.canonical(), keys["other"].path)
    push_anything(w, second.ref, second.id, second.canonical(), by_other)
    serve(w, 2)
    assert {ended(w, request.id), ended(w, second.id)} == {"policy_refused"}
    assert w.executor.executed == []


@pytest.mark.parametrize("who", ["principal", "fingerprint", "key"])
def test_a_revoked_principal_or_key_is_refused(host, keys, lists, who):
    gone = {"principal": WHO, "fingerprint": keys["agent"].fingerprint, "key": keys["agent"].public}[who]
    write_list(lists / "revoked", f"{gone}\n")
    w = host()
    bus_id = w.requester.identity().bus_id
    request, signature = signed_request(bus_id, "mlx-env-probe", keys["agent"])
    fine, fine_signature = signed_request(bus_id, "mlx-env-probe", keys["other"], OTHER)
    push_signed(w.requester, request, signature)
    push_signed(w.requester, fine, fine_signature)
    serve(w, 2)
    assert ended(w, request.id) == "policy_refused"
    assert "has revoked" in (w.claim(request.id).message or "")
    assert ended(w, fine.id) == RAN


@pytest.mark.parametrize("name", ["signers", "revoked"])
def test_a_list_that_others_could_write_makes_nobody_trusted(host, keys, lists, name):
    write_list(lists / "revoked", "")
    (lists / name).chmod(0o666)
    w = host()
    request, signature = signed_request(w.requester.identity().bus_id, "mlx-env-probe", keys["agent"])
    push_signed(w.requester, request, signature)
    w.serve_once()
    assert ended(w, request.id) == "policy_refused"
    assert "chmod 600" in (w.claim(request.id).message or "")
    assert w.executor.executed == []


def test_a_name_that_a_host_revokes_takes_its_key_in_the_root_along_under_every_other_name(keys, tmp_path):
    """As a name of the host's own list does; the bus's owner may know somebody by two names."""
    clock, names, other = FakeClock(), ("ann@example.org", "ann-at-home"), "bob@example.org"
    lines = [
        f'{",".join(names)} namespaces="{NAMESPACE}" {keys["agent"].public}',
        f'{other} namespaces="{NAMESPACE}" {keys["other"].public}',
    ]
    content = RootContent(bus_record(clock), (), tuple(lines))
    root = read_root(write_root(content, make_key(tmp_path / "owner"), clock.now()))
    tables = "".join(f'[names."{name}"]\n' for name in (*names, other))
    policy = read_policy(f'schema = 1\nname = "mini"\nrevoked = "{tmp_path}/revoked"\n{tables}'.encode())
    signers = Signers(policy, lambda: root)
    requests = [
        (*signed_request("b" * 32, "mlx-env-probe", keys[key], name), name)
        for key, name in (("agent", names[1]), ("other", other))
    ]
    for request, signature, name in requests:
        assert signers.request(request, request.canonical(), signature).principal == name
    write_list(tmp_path / "revoked", f"{names[0]}\n")
    (request, signature, _), (untouched, its_signature, _) = requests
    with pytest.raises(PolicyRefusedError, match=f"has revoked {names[1]} or its key"):
        signers.request(request, request.canonical(), signature)
    assert signers.request(untouched, untouched.canonical(), its_signature).principal == other
