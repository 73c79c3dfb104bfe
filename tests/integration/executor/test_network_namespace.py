"""A proxy listens in the namespace of its run, or the run does not start; it ends with its supervisor."""

from __future__ import annotations

import os
import sys
import time

import psutil
import pytest

from bridge.errors import InfrastructureError
from bridge.executor.interface import Hooks
from bridge.executor.network.namespace import listen_in
from bridge.executor.running import RunExecution
from bridge.executor.sandbox import bubblewrap
from bridge.executor.trial import make_directory
from bridge.system.clock import SystemClock
from tests.fakes.local_jobs import living
from tests.integration.executor.inside import TRY, told
from tests.support.waiting import PATIENCE_S

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="these are about a Linux sandbox")
NAMES = ("data.invalid",)
ASK = f"""{TRY}
import socket
def ask(target):
    place = os.environ["HTTPS_PROXY"].removeprefix("http://").split(":")
    with socket.create_connection((place[0], int(place[1])), 60) as client:
        client.sendall(b"CONNECT %s HTTP/1.1\\r\\n\\r\\n" % target.encode())
        return client.recv(200).split(b"\\r\\n")[0].decode()
"""


def test_a_run_by_names_finds_its_proxy_and_the_record_what_it_asked_there(caged, token):
    names = "('HTTPS_PROXY', 'https_proxy', 'HTTP_PROXY', 'http_proxy', 'NO_PROXY', 'no_proxy')"
    program = f"""{ASK}
tell(allowed=ask("data.invalid:443"), other=ask("other.invalid:443"), set=[os.environ.get(name) for name in {names}])
# {token}
"""
    execution = caged.run(program, program, sandbox=caged.sandbox(network=NAMES))
    answer = told(execution)

    assert answer["allowed"] == "HTTP/1.1 502 Bad Gateway"  # nobody has the name (RFC 6761)
    assert answer["other"] == "HTTP/1.1 403 Forbidden"
    assert answer["set"] == ["http://127.0.0.1:3128"] * 4 + [None] * 2
    assert execution.sandbox.network == NAMES
    assert "net" in execution.sandbox.namespaces
    assert {refused.target: refused.count for refused in execution.sandbox.use.refused} == {
        "data.invalid:443": 2,
        "other.invalid:443": 2,
    }


def test_a_run_without_a_network_has_no_proxy_and_says_nothing_of_one(caged, token):
    execution = caged.run(f"{TRY}\ntell(proxy=os.environ.get('HTTPS_PROXY'))  # {token}")

    assert told(execution) == {"proxy": None}
    assert execution.sandbox.use is None


def test_no_socket_is_opened_in_a_namespace_that_is_the_hosts():
    with pytest.raises(InfrastructureError, match="no network namespace of its own"):
        listen_in(os.getpid())
    with pytest.raises(InfrastructureError, match="No such file"):
        listen_in(2**22 - 1)


def test_a_program_whose_proxy_could_not_be_opened_never_starts(caged, token, monkeypatch):
    monkeypatch.setattr("bridge.executor.network.namespace._HELPER", "raise SystemExit(3)")
    spec = caged.spec(f"print('it ran')  # {token}", sandbox=caged.sandbox(network=NAMES), outputs=())
    directory = make_directory(caged.base / "run")
    quiet = Hooks(on_log=lambda _: None, should_stop=lambda: None)
    box = bubblewrap.enclose(spec, directory)
    execution = RunExecution(spec, directory, quiet, secrets=(), confinement=box, clock=SystemClock()).execute()

    assert (execution.ok, execution.ending, execution.log) == (False, "not_started", b"")
    assert "no proxy could be opened in the run's network namespace" in execution.message
    assert living(token) == []


@pytest.mark.ci
@pytest.mark.parametrize("wait_s", [0.0, 0.03, 0.1, 0.3])
def test_a_killed_supervisor_takes_its_proxy_and_its_run_with_it(caged, token, wait_s):
    supervisors: list[psutil.Process] = []

    def stop() -> None:
        if caged.started and not supervisors:
            supervisors.append(psutil.Process(caged.started[-1][0]))
            time.sleep(wait_s)
            supervisors[0].kill()

    program = f"{ASK}\nprint(ask('other.invalid:443'), flush=True)\nimport time\ntime.sleep(600)  # {token}"
    execution = caged.run(program, stop=stop, sandbox=caged.sandbox(network=NAMES))
    _gone, alive = psutil.wait_procs(supervisors, timeout=PATIENCE_S)

    assert (execution.ok, execution.ending) == (False, "killed")
    assert alive == []
    assert living(token) == []
