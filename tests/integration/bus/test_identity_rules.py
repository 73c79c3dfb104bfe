"""Hosts with rules about who commits and what a message says: each is satisfied by a setting that the refusal names."""

from __future__ import annotations

import io
import subprocess

import pytest

from bridge.bus import open_bus
from bridge.bus.open.create import new_record
from bridge.cli.host.main import main as runner_main
from bridge.cli.mac.program import Surroundings, main
from bridge.client.clone.config import check_identity
from bridge.errors import UsageError
from bridge.system.clock import SystemClock
from bridge.system.gitobjects import committer_from
from tests.fakes.clone import Clone
from tests.fakes.git_servers import bare, git
from tests.fakes.requester import Ran
from tests.fakes.scripted_host import ScriptedHost
from tests.fakes.sealed_fleet import Fleet

CLOCK = SystemClock()
RULE = """#!/bin/sh
for commit in $(git rev-list "$3" --not --all); do
  {check} && continue
  echo "{words}" >&2
  exit 1
done
"""
COMMITTER = RULE.format(
    check='test "$(git log -1 --format=%ce "$commit")" = t@example.org',
    words="GitLab: You cannot push commits for 'kakeya@localhost'. The committer's email must be one of yours.",
)
MESSAGE = RULE.format(
    check="git log -1 --format=%B $commit | grep -q OPS-1", words="commit message does not reference a JIRA issue key"
)


def with_rule(path, rule: str):
    hook = bare(path) / "hooks" / "update"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(rule)
    hook.chmod(0o755)
    return path


def mac(clone: Clone, *words: str) -> Ran:
    out, err = io.StringIO(), io.StringIO()
    own = {f"KAKEYA_{name}_DIR": str(clone.root / name.lower()) for name in ("DATA", "CONFIG")}
    code = main(list(words), Surroundings(out, err, own, clone.top, CLOCK))
    return Ran(code, out.getvalue(), err.getvalue())


@pytest.mark.parametrize(
    ("rule", "committer", "option"),
    [
        (COMMITTER, committer_from("T Ester <t@example.org>"), "--commit-as 'T Ester <t@example.org>'"),
        (MESSAGE, committer_from(None, "OPS-1"), "--message-prefix TEXT"),
    ],
)
def test_a_refusal_names_the_setting_and_with_it_the_whole_life_of_a_run_passes(tmp_path, rule, committer, option):
    path = with_rule(tmp_path / "bus.git", rule)
    bus = open_bus(str(path), repository=None, state=tmp_path / "host", clock=CLOCK, committer=committer)
    bus.create(new_record(CLOCK, wake="poll", local=True))
    host = ScriptedHost(bus, CLOCK)
    host.beat(interval_s=1200.0)
    clone = Clone(tmp_path / "agent")
    clone.git("config", "user.name", "T Ester")
    clone.git("config", "user.email", "t@example.org")
    refused = mac(clone, "run", "mlx-env-probe", "--bus", str(path))
    assert refused.code == 3
    assert option in " ".join(refused.err.split())
    setting = ["--commit-as", committer.who] if "commit-as" in option else ["--message-prefix", "OPS-1"]
    made = mac(clone, "init", "--bus", str(path), *setting)
    assert (made.code, "cannot be pushed" in made.out) == (0, False), made.out + made.err
    sent = mac(clone, "run", "mlx-env-probe")
    assert sent.code == 0, sent.err
    run_id = sent.out.strip()
    host.claim(run_id)
    host.start(run_id)
    host.finish(run_id)
    assert bus.view(run_id).claim.claim.state == "terminal"


def test_a_signed_claim_of_another_committer_counts_and_one_that_was_made_over_does_not(tmp_path):
    fleet = Fleet(tmp_path)
    alpha = fleet.runner("alpha")
    alpha.bus._store.committer = committer_from("A <a@example.org>", "OPS-1")
    ref = alpha.submit().ref
    held_claim = alpha.claim(ref)
    reader = fleet.client(fleet.key("alpha"))
    assert reader.read_claim(ref.id).signature.signed
    raw = git("cat-file", "commit", held_claim.oid, cwd=fleet.path).replace("A <a@example.org>", "B <b@example.org>")
    oid = subprocess.run(
        ["git", "hash-object", "-t", "commit", "-w", "--stdin"], cwd=fleet.path, input=f"{raw}\n".encode(),
        capture_output=True, check=True,
    ).stdout.decode().strip()  # fmt: skip
    assert git("cat-file", "commit", held_claim.oid, cwd=fleet.path) == raw.replace("B <b@", "A <a@")
    fleet.put(f"refs/kakeya/claim/{ref.id}", oid)
    assert reader.read_claim(ref.id).signature.refused


@pytest.mark.parametrize("who", ["no address", "A <a@b>\nX: y", "<a@b>", "A <a b>", ""])
def test_an_identity_that_is_none_is_refused_by_name(who):
    with pytest.raises(UsageError, match="expected one line: NAME <ADDRESS>"):
        check_identity(who, "", "init")
    with pytest.raises(UsageError, match="expected one line of at most"):
        check_identity(None, "a\nb", "init")


def test_a_runner_is_set_up_with_an_identity_that_its_policy_keeps(tmp_path, capsys):
    path = with_rule(tmp_path / "bus.git", COMMITTER)
    words = ["setup", "--create-bus", "--bus", str(path), "--name", "mini",
             "--policy", str(tmp_path / "policy.toml"), "--state", str(tmp_path / "state")]  # fmt: skip
    assert runner_main(words) == 3
    assert "--commit-as" in capsys.readouterr().err
    assert runner_main([*words, "--commit-as", "T <t@example.org>"]) == 0, capsys.readouterr().err
    assert '[identity]\ncommitter = "T <t@example.org>"' in (tmp_path / "policy.toml").read_text()
    place = words[words.index("--policy") :]
    assert runner_main(["bus", "check", *place]) == 0
