"""A bus over smart HTTP with a proxy in between that can be told to misbehave."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from bridge.bus import open_bus
from bridge.bus.refbus import RefBus
from bridge.bus.store.git import GitStore
from bridge.bus.store.push_budget import Pacer
from bridge.bus.store.route import Route
from tests.fakes import git_servers
from tests.fakes.bus_actors import Actor, FakeClock
from tests.fakes.git_servers import HELPER, HttpServer, Proxy, bare
from tests.fakes.memory_bus import bus_record


@pytest.fixture(scope="session")
def http_server(tmp_path_factory: pytest.TempPathFactory, missing) -> Iterator[HttpServer]:
    absent = git_servers.missing_programs()
    if absent:
        missing("servers", f"not installed: {', '.join(absent)}")
    server = HttpServer(tmp_path_factory.mktemp("nginx"), tmp_path_factory.mktemp("served"))
    yield server
    server.close()


@dataclass
class Line:
    """A bus behind a proxy, as one actor; and the same bus by the direct way."""

    proxy: Proxy
    path: Path
    clock: FakeClock
    tmp_path: Path
    server: HttpServer

    def through(self, name: str = "host-a", *, wall_s: float = 60.0, helper: str = HELPER) -> Actor:
        """An actor whose calls go through the proxy."""
        url = self.server.url(self.path, self.proxy.port)
        config = (("credential.helper", helper), ("protocol.version", "2"))
        store = GitStore(
            Route(url, url, config, is_local=True), self.tmp_path / f"state-{name}-{wall_s}", wall_s=wall_s
        )
        return Actor(RefBus(store, clock=self.clock, pacer=Pacer(None, 60.0, self.clock)), self.clock, name)

    def direct(self, name: str = "host-b") -> Actor:
        """An actor at the same repository, without proxy."""
        bus = open_bus(str(self.path), repository=None, state=self.tmp_path / f"direct-{name}", clock=self.clock)
        return Actor(bus, self.clock, name)


@pytest.fixture
def line(http_server: HttpServer, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Line]:
    proxy = Proxy(http_server.port)
    path = bare(http_server.root / f"{request.node.name.split('[')[0][:60]}-{proxy.port}.git")
    made = Line(proxy, path, FakeClock(), tmp_path, http_server)
    made.direct("maker").bus.create(bus_record(made.clock))
    yield made
    proxy.close()


@pytest.fixture
def remote(tmp_path: Path) -> Path:
    """Return a bare repository that is a bus."""
    path = bare(tmp_path / "remote.git")
    open_bus(str(path), repository=None, state=tmp_path / "maker", clock=FakeClock()).create(bus_record(FakeClock()))
    return path


@pytest.fixture
def host(remote: Path, tmp_path: Path) -> Actor:
    """Return a host that reads it."""
    clock = FakeClock()
    return Actor(open_bus(str(remote), repository=None, state=tmp_path / "host", clock=clock), clock)
