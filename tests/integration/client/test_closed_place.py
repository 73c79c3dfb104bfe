"""A requester in a closed place: the network is a web proxy, the token pushes below one prefix, shells are killed."""

from __future__ import annotations

import subprocess

import pytest

from bridge.bus import open_bus
from bridge.system.clock import SystemClock
from tests.fakes.clone import Clone
from tests.fakes.connect_proxy import ConnectProxy
from tests.fakes.git_servers import HELPER, HttpServer, bare, missing_programs
from tests.fakes.memory_bus import bus_record
from tests.fakes.scripted_host import ScriptedHost
from tests.support.waiting import until

pytestmark = [pytest.mark.slow, pytest.mark.servers]
NAME = "bus.example"
LINE = ("run", "mlx-env-probe", "--wait")
ONE_PREFIX = """#!/bin/sh
test -z "$REMOTE_USER" && exit 0
case "$1" in refs/heads/AgentMemory/*) exit 0 ;; esac
echo "this token may push below refs/heads/AgentMemory/ only" >&2
exit 1
"""
CLOCK = SystemClock()


@pytest.fixture
def repository(tmp_path):
    """Return a repository to which whoever comes with a token may push below one prefix."""
    made = bare(tmp_path / "bus.git")
    hook = made / "hooks" / "update"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(ONE_PREFIX)
    hook.chmod(0o755)
    return made


@pytest.fixture
def host(repository, tmp_path):
    bus = open_bus(str(repository), repository=None, state=tmp_path / "host", clock=CLOCK)
    bus.create(bus_record(CLOCK, lease_s=1200.0))
    host = ScriptedHost(bus, CLOCK)
    host.beat(interval_s=1200.0)
    return host


@pytest.fixture
def proxy(repository, tmp_path, missing):
    """Yield the proxy behind which alone the server has a name."""
    if missing_programs():
        missing("servers", f"not installed: {', '.join(missing_programs())}")
    folder = tmp_path / "server"
    folder.mkdir()
    certificate, key = folder / "certificate.pem", folder / "key.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
         "-subj", f"/CN={NAME}", "-addext", f"subjectAltName=DNS:{NAME}", "-keyout", key, "-out", certificate],
        check=True, capture_output=True, timeout=240,
    )  # fmt: skip
    server = HttpServer(folder, tmp_path, (certificate, key))
    proxy = ConnectProxy({f"{NAME}:443": server.port})
    yield proxy
    proxy.close()
    server.close()


@pytest.fixture
def agent(proxy, tmp_path):
    """Return a clone whose environment names the proxy and nothing else of a network."""
    clone = Clone(tmp_path / "agent", {"https_proxy": f"http://127.0.0.1:{proxy.port}"})
    home = clone.root / "home"
    home.mkdir(exist_ok=True)
    certificate = tmp_path / "server" / "certificate.pem"
    (home / ".gitconfig").write_text(f'[credential]\n\thelper = "{HELPER}"\n[http]\n\tsslCAInfo = {certificate}\n')
    clone.git("checkout", "-q", "-b", "AgentMemory/fix-it-1f2e")
    return clone


def test_a_killed_shell_behind_a_proxy_with_a_token_for_one_prefix_gets_its_result(agent, host, proxy, repository):
    route = f"https://{NAME}/bus.git"
    for words in (("init", "--bus", route), ("doctor",)):
        ran = agent.mac(*words)
        assert ran.returncode == 0, ran.stdout + ran.stderr
    with pytest.raises(subprocess.CalledProcessError):
        agent.git("push", "-q", route, "HEAD:refs/heads/main")

    shell = agent.start(*LINE)
    until(lambda: host.bus.snapshot().requests)
    shell.kill()
    shell.communicate()
    run_id = host.newest()
    host.claim(run_id)
    host.start(run_id)
    again = agent.start(*LINE)
    assert again.stderr is not None
    until(lambda: "already live: attached" in again.stderr.readline())
    host.finish(run_id)
    out, _ = again.communicate()
    assert again.returncode == 1, out  # unsigned: judged here, and the scripted host measured nothing
    assert run_id[-8:] in out

    other = agent.mac("run", "mlx-env-probe", "--new").stdout.strip()
    host.claim(other)
    assert agent.mac("cancel", other).returncode == 0
    assert host.bus.view(other).cancel_asked
    assert set(proxy.destinations) == {f"{NAME}:443"}
    listed = subprocess.run(
        ["git", "-C", repository, "for-each-ref", "--format=%(refname)", "refs/heads"],
        check=True, capture_output=True, text=True, timeout=240,
    ).stdout.split()  # fmt: skip
    assert listed
    assert all(ref.startswith("refs/heads/AgentMemory/") for ref in listed)
