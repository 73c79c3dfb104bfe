"""An ssh-keygen that a busy host does not let answer in time revokes nothing and refuses nothing."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

from bridge.errors import InfrastructureError
from bridge.runner.run import sender
from bridge.trust import ssh_signatures
from tests.fakes.ssh_keys import WHO, push_signed, signed_request, write_list
from tests.integration.trust.asking import RAN, ended
from tests.integration.trust.test_signed_cancels import cancel_of
from tests.support.runner_world import probe
from tests.support.waiting import until

pytestmark = pytest.mark.needs("ssh-keygen")


@dataclass
class Tool:
    """The ssh-keygen of this host's search path, which a test can keep from answering."""

    folder: Path
    patch: pytest.MonkeyPatch

    def hold(self) -> None:
        (self.folder / "held").touch()
        self.patch.setattr(ssh_signatures, "TIMEOUT_S", 0.2)

    def let_go(self) -> None:
        (self.folder / "held").unlink()
        self.patch.setattr(ssh_signatures, "TIMEOUT_S", 60.0)


@pytest.fixture
def tool(tmp_path_factory, monkeypatch) -> Tool:
    folder = tmp_path_factory.mktemp("tool")
    path, real = folder / "ssh-keygen", shutil.which("ssh-keygen")
    path.write_text(f'#!/bin/sh\n[ -e "{folder}/held" ] && exec sleep 60\nexec "{real}" "$@"\n')
    path.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=":")
    monkeypatch.setattr(sender, "_ASK_AGAIN_S", 0.0)
    monkeypatch.setattr(sender, "CANCEL_LOOK_S", 0.0)
    return Tool(folder, monkeypatch)


def ask(w, keys):
    request, signature = signed_request(w.requester.identity().bus_id, "mlx-env-probe", keys["agent"])
    push_signed(w.requester, request, signature)
    return request


def test_no_answer_is_no_refusal(keys, lists, tool):
    request, signature = signed_request("b" * 32, "mlx-env-probe", keys["agent"])
    named = {"principal": WHO, "expected": keys["agent"].fingerprint, "signers": lists / "signers"}
    tool.hold()
    with pytest.raises(InfrastructureError, match="did not answer"):
        ssh_signatures.verify(request.canonical(), signature, **named)
    with pytest.raises(InfrastructureError, match="did not answer"):
        ssh_signatures.verify_commit(request.canonical(), signature, signers=lists / "signers")
    with pytest.raises(InfrastructureError, match="did not answer"):
        ssh_signatures.made_with(request.canonical(), signature)
    tool.let_go()
    assert ssh_signatures.verify(request.canonical(), signature, **named).principal == WHO


@pytest.mark.parametrize(("revoked", "reason"), [("somebody@example.org", RAN), (WHO, "policy_refused")])
def test_a_run_goes_on_until_it_is_known_that_its_sender_is_revoked(host, keys, lists, tool, revoked, reason):
    w = host()

    def goes_on(spec, directory):
        tool.hold()
        write_list(lists / "revoked", f"{revoked}\n")
        yield b"first\n"
        tool.let_go()
        yield b"second\n"
        yield b"third\n"
        yield from probe(spec, directory)
        return 0

    w.program = goes_on
    request = ask(w, keys)
    w.serve_once()
    assert ended(w, request.id) == reason
    log = w.result(request.id).files["log.txt"]
    assert b"second\n" in log
    assert (b"third\n" in log) is (reason == RAN)
    assert any("is not known yet: ssh-keygen did not answer" in line for line in w.log_lines)


def test_a_cancel_that_could_not_be_verified_counts_later(host, keys, tool):
    w = host()
    runner = w.runner()

    def goes_on(spec, directory):
        data, signature = cancel_of(w, spec.id, keys, "agent", WHO)
        tool.hold()
        w.requester.ask_cancel(spec.id, data, signature)
        runner.step()
        yield b"first\n"
        tool.let_go()
        yield b"second\n"
        yield b"third\n"
        return 0

    w.program = goes_on
    request = ask(w, keys)
    w.serve_once(runner)
    assert ended(w, request.id) == "cancelled"
    assert b"third\n" not in w.result(request.id).files["log.txt"]


def test_a_run_that_was_left_is_followed_once_its_sender_is_known(host, keys, tool):
    w = host()
    runner = w.runner()

    def left(spec, directory):
        runner.leaving.set()
        yield b"first\n"
        yield b"never\n"

    w.program = left
    request = ask(w, keys)
    w.serve_once(runner)
    w.program = probe
    w.process = w.new_process()
    again = w.runner()
    again._link.bus.store.objects.update(runner._link.bus.store.objects)  # the repository on disk is the same
    tool.hold()
    w.serve_once(again)
    assert w.claim(request.id).state == "started", w.log_lines
    tool.let_go()
    until(lambda: w.serve_once(again) and w.claim(request.id).state == "terminal")
    assert ended(w, request.id) == RAN
    assert w.record(request.id).signer is not None
