"""A requester and a scripted host, for the commands that look at runs."""

from __future__ import annotations

import pytest

from tests.fakes.requester import Requester
from tests.fakes.scripted_host import ScriptedHost


@pytest.fixture
def requester(tmp_path):
    return Requester(tmp_path)


@pytest.fixture
def host(requester):
    host = ScriptedHost(requester.bus, requester.clock)
    host.beat()
    requester.pin(host.sign())
    return host


@pytest.fixture
def sent(requester, host):
    return requester.run("run", "mlx-env-probe").out.strip()
