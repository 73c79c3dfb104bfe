"""A client killed before or after any call: the same command again goes on, one run and never two."""

from __future__ import annotations

import contextlib
import itertools
from dataclasses import replace

import pytest

from bridge.client.clone.store import Store
from tests.fakes.requester import Requester
from tests.fakes.scripted_host import ScriptedHost

MARGIN = 40  # more calls than one command makes
WHOLE = 13  # whole and scripted: the gate itself would not have said what this host said


class Killed(BaseException):
    """What kill -9 is to a process: nothing of it runs any more."""


class Fuse:
    """Burns after a number of calls, before or after the effect of the last one."""

    def __init__(self, calls: int, *, before: bool) -> None:
        self.left, self.before, self.burnt = calls, before, False

    def call(self, function, *args, **kwargs):
        self.left -= 1
        if self.left == 0 and self.before:
            self._burn()
        result = function(*args, **kwargs)
        if self.left == 0:
            self._burn()
        return result

    def _burn(self):
        self.burnt = True
        raise Killed


class Fused:
    """Any object, every method call of which goes over a fuse."""

    def __init__(self, inner, fuse):
        self._inner, self._fuse = inner, fuse

    def __getattr__(self, name):
        value = getattr(self._inner, name)
        if not callable(value):
            return value
        return lambda *args, **kwargs: self._fuse.call(value, *args, **kwargs)


class FusedRequester(Requester):
    """A requester whose bus and store go over a fuse."""

    fuse: Fuse | None = None

    def open(self, settings, clock):
        session = super().open(settings, clock)
        if self.fuse is None:
            return session
        return replace(session, bus=Fused(session.bus, self.fuse), store=Fused(Store(settings.state_dir), self.fuse))


@pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
def test_killed_at_any_call_of_a_submission_there_is_one_run(tmp_path, before):
    burnt = 0
    for calls in itertools.count(1):
        requester = FusedRequester(tmp_path / f"{calls}")
        requester.folder.mkdir()
        ScriptedHost(requester.bus, requester.clock).beat()
        requester.fuse = Fuse(calls, before=before)
        try:
            requester.run("run", "mlx-env-probe", "--json")
        except Killed:
            burnt += 1
        fuse, requester.fuse = requester.fuse, None
        again = requester.run("run", "mlx-env-probe", "--json")
        assert again.code == 0
        assert [ref.id for ref in requester.bus.snapshot().requests] == [again.document["id"]]
        assert requester.run("run", "mlx-env-probe").out.strip() == again.document["id"]
        if not fuse.burnt:
            break
        assert calls < MARGIN
    assert burnt >= 6


@pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
def test_killed_at_any_call_of_a_wait_the_result_is_whole_or_not_there(tmp_path, before):
    for calls in itertools.count(1):
        requester = FusedRequester(tmp_path / f"{calls}")
        requester.folder.mkdir()
        host = ScriptedHost(requester.bus, requester.clock)
        host.beat()
        requester.pin(host.sign())
        sent = requester.run("run", "mlx-env-probe").out.strip()
        host.claim(sent)
        host.start(sent)
        host.finish(sent)
        requester.fuse = Fuse(calls, before=before)
        with contextlib.suppress(Killed):
            requester.run("attach", sent)
        fuse, requester.fuse = requester.fuse, None
        folder = requester.folder / "data" / "runs" / sent[-8:]
        if folder.exists():
            assert requester.run("verify", str(folder)).code == WHOLE
        assert requester.run("attach", sent).code == 0
        assert requester.run("verify", str(folder)).code == WHOLE
        if not fuse.burnt:
            break
        assert calls < MARGIN
    assert calls > 4
