"""An agent behind the proxy of its product: it may push below one prefix, one branch at a time, and delete nothing."""

from __future__ import annotations

import io
import itertools
import re
import subprocess
from dataclasses import dataclass

import pytest

from bridge.bus import open_bus
from bridge.bus.open.create import new_record
from bridge.cli.mac.program import Surroundings, main
from bridge.system.clock import SystemClock
from tests.fakes.clone import Clone
from tests.fakes.git_host import GitHost, Reply, in_turn, is_upload, only_below
from tests.fakes.git_servers import bare
from tests.fakes.requester import Ran
from tests.fakes.scripted_host import ScriptedHost

CLOCK = SystemClock()
LATER = Reply(503, b"ERR Could not verify PR ownership\n")


@pytest.fixture
def host(tmp_path):
    made = GitHost(tmp_path)
    yield made
    made.close()


@pytest.fixture
def runner(tmp_path):
    bus = open_bus(str(bare(tmp_path / "bus.git")), repository=None, state=tmp_path / "runner", clock=CLOCK)
    bus.create(new_record(CLOCK, wake="poll", local=True))
    runner = ScriptedHost(bus, CLOCK)
    runner.beat(interval_s=1200.0)
    return runner


@dataclass
class Agent:
    """A clone, and `kakeya-mac` in it."""

    clone: Clone

    def mac(self, *words: str) -> Ran:
        out, err = io.StringIO(), io.StringIO()
        own = {f"KAKEYA_{name}_DIR": str(self.clone.root / name.lower()) for name in ("DATA", "CONFIG")}
        code = main(list(words), Surroundings(out, err, own, self.clone.top, CLOCK))
        return Ran(code, out.getvalue(), err.getvalue())


def agent_on(branch: str, tmp_path) -> Agent:
    clone = Clone(tmp_path / "agent")
    clone.git("checkout", "-q", "-B", branch)
    return Agent(clone)


def branches(tmp_path) -> list[str]:
    argv = ["git", "-C", tmp_path / "bus.git", "for-each-ref", "--format=%(refname)", "refs/heads"]
    return subprocess.run(argv, check=True, capture_output=True, text=True, timeout=60).stdout.split()


@pytest.mark.parametrize(
    ("branch", "space", "end"),
    [
        ("claude/task-011", "claude", ""),
        pytest.param("copilot/fix-4-1f2e", "copilot", "-1f2e", marks=pytest.mark.ci),
    ],
)
def test_an_agent_that_may_push_below_one_prefix_needs_no_setting(host, runner, tmp_path, branch, space, end):
    host.gates += [in_turn([LATER], is_upload), only_below(f"refs/heads/{space}/")]
    agent = agent_on(branch, tmp_path)
    agent.clone.git("remote", "add", "origin", host.url(tmp_path / "bus.git", "local_proxy"))
    made = agent.mac("init", "--bus", "origin")
    assert made.code == 0, made.err
    assert f"go to {space}/mac-bridge-" in " ".join(made.out.split())
    looked = agent.mac("doctor")
    assert looked.code == 0, looked.out
    assert not [line for line in looked.out.splitlines() if line.startswith("fail")]
    sent = agent.mac("run", "mlx-env-probe")
    assert sent.code == 0, sent.err
    run_id = sent.out.strip()
    named = re.escape(f"refs/heads/{space}/mac-bridge-mlx-env-probe-{run_id}-") + f"[0-9a-f]{{12}}{end}"
    assert any(re.fullmatch(named, ref) for ref in branches(tmp_path))
    runner.claim(run_id)
    assert agent.mac("cancel", run_id).code == 0
    assert runner.bus.view(run_id).cancel_asked
    runner.start(run_id)
    runner.finish(run_id)
    assert run_id[-8:] in agent.mac("attach", run_id).out
    assert all(ref.startswith(f"refs/heads/{space}/") for ref in branches(tmp_path))


def test_a_request_that_is_refused_at_the_usual_branch_moves_on_under_the_same_id_and_says_so_once(
    host, runner, tmp_path
):
    host.gates.append(only_below("refs/heads/claude/"))
    agent = agent_on("claude/task-011", tmp_path)
    route = ("--bus", host.url(tmp_path / "bus.git"))
    ran = agent.mac("run", "mlx-env-probe", *route)
    assert ran.code == 0, ran.err
    assert "requests of this clone go to claude/mac-bridge-{preset}-{id} from now on" in ran.err
    again = agent.mac("run", "mlx-env-probe", *route)
    assert again.out == ran.out
    assert "from now on" not in again.err
    other = agent.mac("run", "mlx-env-probe", "--new", *route)
    assert other.code == 0
    assert "from now on" not in other.err


def test_init_tries_the_branches_that_it_is_given_and_refuses_those_that_the_bus_does_not_take(host, runner, tmp_path):
    host.gates.append(only_below("refs/heads/claude/"))
    agent = agent_on("main", tmp_path)
    init = ("init", "--bus", host.url(tmp_path / "bus.git"), "--branch-template")
    made = agent.mac(*init, "claude/mac-bridge-{preset}-{id}")
    assert made.code == 0, made.err
    assert "go to claude/mac-bridge-" in " ".join(made.out.split())
    assert "cannot be pushed" not in made.out
    assert agent.mac("run", "mlx-env-probe").code == 0
    refused = agent.mac(*init, "feature/mac-bridge-{preset}-{id}")
    assert refused.code == 2
    assert "takes requests on mac-bridge/*" in refused.err
    assert "kakeya-runner bus allow-branches" in refused.err


def test_a_request_that_was_refused_goes_to_the_branches_that_init_was_given_since(host, runner, tmp_path):
    host.gates.append(only_below("refs/heads/claude/"))
    agent, route = agent_on("main", tmp_path), host.url(tmp_path / "bus.git")
    assert agent.mac("run", "mlx-env-probe", "--bus", route).code == 3
    made = agent.mac("init", "--bus", route, "--branch-template", "claude/mac-bridge-{preset}-{id}")
    assert made.code == 0, made.err
    ran = agent.mac("run", "mlx-env-probe")
    assert ran.code == 0, ran.err
    (ref,) = [ref for ref in branches(tmp_path) if ran.out.strip() in ref]
    assert ref.startswith("refs/heads/claude/mac-bridge-mlx-env-probe-")


@pytest.mark.ci
def test_commands_that_ask_and_look_get_through_a_host_that_fails_every_fifth_call(host, runner, tmp_path):
    calls = itertools.count(1)
    host.gates.append(lambda call: Reply(502, b"bad gateway\n") if next(calls) % 5 == 0 else None)
    agent, bus = agent_on("main", tmp_path), ("--bus", host.url(tmp_path / "bus.git"))
    sent = agent.mac("run", "mlx-env-probe", *bus)
    assert sent.code == 0, sent.err
    for step in (runner.claim, runner.start, runner.finish):
        step(sent.out.strip())
    for command in ("attach", "status"):
        looked = agent.mac(command, sent.out.strip(), *bus)
        assert looked.code != 3, looked.err
        assert sent.out.strip()[-8:] in looked.out


@pytest.mark.parametrize("branch", ["main", "fix-it"])
def test_who_may_push_nowhere_is_told_why_and_that_it_is_a_matter_of_rights(host, runner, tmp_path, branch):
    host.gates.append(only_below("refs/heads/claude/"))
    agent = agent_on(branch, tmp_path)
    ran = agent.mac("run", "mlx-env-probe", "--bus", host.url(tmp_path / "bus.git"))
    assert ran.code == 3
    assert "error: 403" in ran.err
    assert "must give this account the right to" in " ".join(ran.err.split())
