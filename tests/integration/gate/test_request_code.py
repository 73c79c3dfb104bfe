"""Request code that nobody vouches for, measured from outside: real runner, two users, real engine, real lies.

Every lie is a commit that changes what answers the host's asks. A requester sends it; what is compared is what it gets.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bridge.bus import open_bus
from bridge.bus.open.create import new_record
from bridge.executor.local import LocalExecutor
from bridge.system.clock import SystemClock
from bridge.trust import keyring, runner_key
from tests.fakes.clone import Clone
from tests.support import guarded

pytestmark = pytest.mark.ci

ROOT = Path(__file__).parents[3]
CLOCK = SystemClock()
# Of this file alone: what other tests run beside it as their peer is nothing of ours.
UID, PEER_UID = 54331, 54332
POLICY = """schema = 1
name = "mini"
interpreter = "{python}"
rate_per_hour = 0
trust_pushers = true
model_roots = ["{assets}"]
[sandbox]
mode = "required"
uid = {uid}
peer_uid = {peer_uid}
[env]
OMP_NUM_THREADS = "1"
OPENBLAS_NUM_THREADS = "1"
MLX_DISABLE_COMPILE = "1"
"""
ANSWERING = "engine/isolation/answering.py"
REPLY = '        for step in arms.start(engine, SPECULATIVE, decoding, tuple(ask["ids"]), stopping).steps:\n'
LIES = {
    "wrong-token": (
        "tokens=[int(token) for token in step.tokens]",
        "tokens=[int(token) if step.prefill else 7 + int(token) % 64 for token in step.tokens]",
    ),
    "kept-answers": (
        REPLY,
        (
            '        _reply(replies, ask["tag"], tokens=[9])\n'
            '        _reply(replies, ask["tag"], tokens=[9] * (ask["budget"] - 1))\n'
            "        for step in ():\n"
        ),
    ),
    "another-tag": ('_reply(replies, ask["tag"], tokens', '_reply(replies, "0" * 32, tokens'),
    "flood": (REPLY, '        os.write(replies, b"x" * (1 << 22))\n' + REPLY),
    "hang-up": (REPLY, "        os.close(replies)\n        raise SystemExit(0)\n" + REPLY),
    "busy-beside": ("    engine = decoding = None\n", "    engine = decoding = None\n    _spin()\n"),
}
SPIN = """

def _spin() -> None:
    if os.fork() == 0:
        os.setsid()
        while True:
            pass
"""


class Site:
    """A bus, a runner with two users to run as, and a clone that sends and knows its key."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.sent = folder, 0
        subprocess.run(["git", "init", "-q", "--bare", folder / "bus.git"], check=True)
        self.route = f"file://{folder}/bus.git"
        open_bus(self.route, repository=None, state=folder / "state-of-test", clock=CLOCK).create(
            new_record(CLOCK, wake="poll", local=True)
        )
        policy = folder / "policy.toml"
        assets = ROOT / "engine" / "assets"
        policy.write_text(POLICY.format(python=sys.executable, assets=assets, uid=UID, peer_uid=PEER_UID))
        policy.chmod(0o600)
        key = keyring.pin(runner_key.generate(folder / "identity" / "mini", "mini"))
        argv = ["serve", "--policy", policy, "--state", folder / "state", "--bus", self.route]
        with (folder / "log").open("wb") as log:
            self.runner = guarded.start([sys.executable, "-m", "bridge.cli.host.main", *argv], cwd=ROOT, stderr=log)
        self.clone = Clone(folder / "requester", {"PYTHONPATH": str(ROOT)})
        files = {path.relative_to(ROOT).as_posix(): path.read_text("utf-8") for path in (ROOT / "engine").rglob("*.py")}
        self.clone.commit(files)
        completed = self.clone.mac("init", "--bus", self.route, "--runner-key", key)
        assert completed.returncode == 0, completed.stdout + completed.stderr
        self.honest = files[ANSWERING]

    def send(self, text: str) -> dict[str, Any]:
        self.clone.commit({ANSWERING: f"{text}\n# sent {self.sent}\n"})
        self.sent += 1
        words = ("run", "k3-request-code", "--bus", self.route, "--wait", "--new", "--json", "--queue")
        ran = self.clone.mac(*words, timeout_s=500)
        assert ran.stdout, ran.stderr + (self.folder / "log").read_text()
        document: dict[str, Any] = json.loads(ran.stdout)
        return document

    def lie(self, name: str) -> dict[str, Any]:
        old, new = LIES[name]
        assert old in self.honest
        return self.send(self.honest.replace(old, new, 1) + SPIN)


@pytest.fixture(scope="module")
def site(tmp_path_factory, missing):
    pytest.importorskip("mlx.core")
    if os.getuid() != 0:
        pytest.skip("becoming two other users needs root")
    applied = LocalExecutor(CLOCK).sandbox(PEER_UID)
    if applied.kind not in {"bwrap", "seatbelt"}:
        missing("sandbox", f"no working sandbox but {applied.kind}: {applied.reason}")
    made = Site(tmp_path_factory.mktemp("peers"))
    yield made
    guarded.stop(made.runner)


def claim_of(document: dict[str, Any], name: str = "total_speedup") -> dict[str, Any]:
    return next(claim for claim in document["claims"] if claim["id"] == name)


def held_back(claim: dict[str, Any]) -> list[str]:
    """Return what stops a claim from being quoted, each reason with its premise."""
    return [
        f"{premise['premise']}: {why}" for premise in claim["premises"] if not premise["held"] for why in premise["why"]
    ]


def said(document: dict[str, Any]) -> str:
    return json.dumps([document["outcome"], document["findings"], document["log_tail"]], indent=1)


def test_honest_code_of_nobody_is_held_back_by_the_profile_and_by_nothing_else_that_it_is(site):
    document = site.send(site.honest)
    assert document["outcome"]["reason"] == "passed", said(document)
    claim = claim_of(document)
    assert claim["n"] == 6
    why = held_back(claim)
    assert any("G5-DESIGN: a smoke run" in line for line in why), why
    assert not any("untrusted_code" in line or "G2-" in line for line in why), why
    assert "identical on these 6 prompts" in claim_of(document, "identical_prompts")["wording"]
    assert not {"G2-TRUST", "G2-PEER"} & {finding["code"] for finding in document["findings"]}, said(document)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["wrong-token", "kept-answers"])
def test_tokens_that_are_not_the_oracles_are_worth_nothing(site, name):
    document = site.lie(name)
    codes = {finding["code"] for finding in document["findings"]}
    assert {"G2-PEER", "G2-TRUST", "G6-IDENTITY"} <= codes, said(document)
    why = held_back(claim_of(document))
    assert any("answers are not the oracle's" in line for line in why), why
    assert any("untrusted_code" in line for line in why), why


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("another-tag", "does not carry the tag"),
        ("flood", "longer than"),
        ("hang-up", "ended or closed its pipe"),
    ],
)
def test_a_peer_that_does_not_keep_to_the_protocol_ends_its_run(site, name, words):
    document = site.lie(name)
    assert (document["outcome"]["reason"], document["outcome"]["program_exit"]) == ("program_failed", 6), said(document)
    assert any(words in line for line in document["log_tail"]["lines"]), said(document)
    assert document["claims"] == []


@pytest.mark.slow
def test_a_peer_that_keeps_the_machine_busy_stands_still_while_the_host_measures_itself(site):
    document = site.lie("busy-beside")
    assert not {"G2-TRUST", "G2-PEER"} & {finding["code"] for finding in document["findings"]}, said(document)
    assert not any(_spinning(process) for process in Path("/proc").iterdir() if process.name.isdigit())


def _spinning(process: Path) -> bool:
    try:
        return process.stat().st_uid == PEER_UID
    except OSError:
        return False
