"""A signature by a key that no list names counts as none where unsigned requests are taken; any other must hold."""

from __future__ import annotations

import subprocess

import pytest

from bridge.records.request import Request, Workload
from bridge.trust.ssh_signatures import NAMESPACE, sign
from tests.fakes.ssh_keys import WHO, Key, make_key, push_signed, signed_request, signers_line, write_list
from tests.integration.trust.asking import RAN, ended, policy, push_anything, serve
from tests.support.runner_world import World

STRANGER, EXPIRED, GONE = "stranger@example.org", "expired@example.org", "gone@example.org"
REFUSED, SIGN_AGAIN = "policy_refused", "send the request once more with kakeya-mac run"
# What a request carries: how it ends where unsigned ones are taken and where not, whose it is, the words, what to do.
TABLE = {
    "none": (RAN, REFUSED, "unsigned", "takes signed requests only", "kakeya-mac init --signing-key auto"),
    "listed key": (RAN, RAN, WHO, "", ""),
    "key of no list": (
        RAN,
        REFUSED,
        f"unsigned (calls itself {STRANGER}, key {{stranger}})",
        "Could not verify signature",
        f"kakeya-runner welcome '{STRANGER} ssh-ed25519 ",
    ),
    "key of no list, broken": (REFUSED, REFUSED, "unsigned", "not made over this request", SIGN_AGAIN),
    "key of no list, wrong namespace": (REFUSED, REFUSED, "unsigned", "namespace does not match", SIGN_AGAIN),
    "key of no list, revoked": (REFUSED, REFUSED, "unsigned", "the owner has revoked dropped@", "ask the owner"),
    "listed key, another name": (REFUSED, REFUSED, "unsigned", "lists the key under another name", "init --principal"),
    "listed name, another key": (REFUSED, REFUSED, "unsigned", "not accepted", f"{WHO} is listed with another key"),
    "listed key, revoked": (REFUSED, REFUSED, "unsigned", f"the owner has revoked {GONE}", "ask the owner"),
    "listed key, expired": (
        REFUSED,
        REFUSED,
        "unsigned",
        "not accepted: key has expired: verify time ",
        f"kakeya-runner welcome '{EXPIRED} ssh-ed25519 ",
    ),
    "listed key, broken": (REFUSED, REFUSED, "unsigned", "not made over this request", SIGN_AGAIN),
    "listed key, wrong namespace": (REFUSED, REFUSED, "unsigned", "namespace does not match", SIGN_AGAIN),
}


@pytest.fixture(scope="module")
def people(tmp_path_factory) -> dict[str, Key]:
    folder = tmp_path_factory.mktemp("people")
    return {name: make_key(folder, name) for name in ("listed", "stranger", "dropped", "expired", "gone")}


def send_each(w: World, people: dict[str, Key]) -> dict[str, Request]:
    """Push a request for each row of the tables above; return them by the row's name."""
    bus_id = w.requester.identity().bus_id

    def made(signer: str, name: str) -> tuple[Request, bytes]:
        return signed_request(bus_id, "mlx-env-probe", people[signer], name)

    signed_requests = {
        "listed key": made("listed", WHO),
        "key of no list": made("stranger", STRANGER),
        "key of no list, revoked": made("dropped", "dropped@example.org"),
        "listed key, another name": made("listed", STRANGER),
        "listed name, another key": made("stranger", WHO),
        "listed key, revoked": made("gone", GONE),
        "listed key, expired": made("expired", EXPIRED),
    }
    for signer, name, row in (("stranger", STRANGER, "key of no list"), ("listed", WHO, "listed key")):
        key = people[signer].path
        broken, _ = made(signer, name)
        for_git, _ = made(signer, name)
        argv = ["ssh-keygen", "-Y", "sign", "-q", "-n", "git", "-f", str(key)]
        signed_for_git = subprocess.run(argv, input=for_git.canonical(), capture_output=True, check=True, timeout=240)
        signed_requests[f"{row}, broken"] = (broken, sign(broken.canonical() + b" ", key))
        signed_requests[f"{row}, wrong namespace"] = (for_git, signed_for_git.stdout)
    for request, signature in signed_requests.values():
        push_anything(w, request.ref, request.id, request.canonical(), signature)
    return {"none": w.ask("mlx-env-probe"), **{name: request for name, (request, _) in signed_requests.items()}}


@pytest.mark.parametrize("unsigned_taken", [True, False], ids=["unsigned requests taken", "refused"])
def test_only_a_key_that_nobody_lists_counts_as_no_signature(world, tmp_path, people, unsigned_taken):
    tmp_path.chmod(0o700)
    write_list(
        tmp_path / "signers",
        signers_line(people["listed"]),
        signers_line(people["gone"], GONE),
        signers_line(people["expired"], EXPIRED, more=',valid-before="20200101"'),
    )
    write_list(tmp_path / "revoked", f"{people['dropped'].fingerprint}\n", f"{GONE}\n")
    w = world(policy_text=policy(tmp_path, *(() if unsigned_taken else ("require_signature = true",))))
    requests = send_each(w, people)

    serve(w, len(requests))

    stranger = people["stranger"].fingerprint
    outcomes = {name: (ended(w, request.id), w.record(request.id).principal) for name, request in requests.items()}
    assert outcomes == {
        name: (taken, who.format(stranger=stranger))
        if unsigned_taken
        else (refused, who if refused == RAN else "unsigned")
        for name, (taken, refused, who, _, _) in TABLE.items()
    }
    assert len(w.executor.executed) == [ending for ending, _ in outcomes.values()].count(RAN)
    for name, (_, _, _, reason, remedy) in TABLE.items():
        if outcomes[name][0] == REFUSED:
            what, _, to_do = (w.claim(requests[name].id).message or "").partition("; next: ")
            assert (reason in what, remedy in to_do, "/tmp" in what) == (True, True, False), (name, what, to_do)


def test_a_key_of_no_list_is_shown_and_has_the_rights_and_the_share_of_unsigned_requests(world, lists, people):
    w = world(policy_text=policy(lists))
    bus_id, key = w.requester.identity().bus_id, people["stranger"]
    request, signature = signed_request(bus_id, "mlx-env-probe", key, STRANGER)
    code, code_signature = signed_request(
        bus_id, "pytest-path", key, STRANGER,
        params={"path": "tests"}, workload=Workload(commit="a" * 40, tree="b" * 40, origin="", dirty=False),
    )  # fmt: skip
    push_signed(w.requester, request, signature)
    push_anything(w, code.ref, code.id, code.canonical(), code_signature)

    serve(w, 2)

    words = f"unsigned (calls itself {STRANGER}, key {key.fingerprint})"
    assert (w.record(request.id).principal, w.record(request.id).signer) == (words, None)
    assert w.verdict(request.id).principal == words
    assert words.replace("@", "@\u2060") in w.result(request.id).files["summary.md"].decode()
    assert ended(w, code.id) == "policy_refused"
    assert f"kakeya-runner welcome '{STRANGER} {key.public}'" in (w.claim(code.id).message or "")
    assert w.process.rules.signers.quota_name(request, request.canonical(), signature) == "unsigned"


@pytest.mark.parametrize("line", ['names."{who}"', "code", "pattern", "authority", "krl"])
def test_a_name_or_key_that_is_listed_for_anything_never_counts_as_no_signature(world, lists, people, line):
    key, more = people["stranger"], ()
    if line.startswith("names"):
        more = (f'[names."{STRANGER}"]', 'presets = ["*"]')
    if line == "code":
        write_list(lists / "code", signers_line(key, "dev@example.org", code=True))
        more = (f'code_signers = "{lists}/code"',)
    if line == "pattern":
        write_list(lists / "signers", f'*@example.org namespaces="{NAMESPACE}" {people["listed"].public}\n')
    if line == "authority":
        write_list(lists / "signers", f'* cert-authority,namespaces="{NAMESPACE}" {people["listed"].public}\n')
    if line == "krl":
        public = key.path.with_name(f"{key.path.name}.pub")
        subprocess.run(["ssh-keygen", "-q", "-k", "-f", lists / "revoked", public], check=True, timeout=240)
        (lists / "revoked").chmod(0o600)
    w = world(policy_text=policy(lists, *more))
    request, signature = signed_request(w.requester.identity().bus_id, "mlx-env-probe", key, STRANGER)
    push_signed(w.requester, request, signature)

    serve(w, 1)

    assert ended(w, request.id) == "policy_refused"
    assert w.executor.executed == []
