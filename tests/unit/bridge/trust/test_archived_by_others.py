"""A run whose runner's key was revoked counts where another runner archived it before, on a bus in memory."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace

import pytest

from bridge.bus.store.gather import WorkBudget
from bridge.bus.views import RunView
from bridge.trust.judgement import NOBODY
from bridge.trust.key_seals import KeySeals
from bridge.trust.verifier import judge_result
from tests.fakes.bus_actors import Actor, FakeClock
from tests.fakes.memory_bus import MemoryBus
from tests.unit.bridge.trust.stage import NOW, Stage

DAY = dt.timedelta(days=1)


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Stage:
    folder = tmp_path_factory.mktemp("stage")
    folder.chmod(0o700)
    return Stage(folder)


def seen(stage: Stage, archivist: str, *, revoked: dt.datetime, key: str = "other_runner") -> tuple[RunView, MemoryBus]:
    """Return a run of hosta's that somebody archived in 40 days, as a reader sees it who knows of a revocation."""
    bus = MemoryBus(clock=FakeClock(NOW))
    bus.use_seals(stage.sealer("hosta"))
    hosta = Actor(bus, FakeClock(NOW), "hosta")
    ref = hosta.submit(hosta.request()).ref
    hosta.publish(ref, hosta.start(ref, hosta.claim(ref)), stage.result())
    keeper = MemoryBus(bus.remote, clock=FakeClock(NOW + 40 * DAY))
    keeper.use_seals(KeySeals(lambda: NOBODY, name=archivist, key=stage.keys[key]))
    assert any("/archive/" in name for name in keeper.archive(archivist, budget=WorkBudget(50)))
    authority = replace(stage.authority("pinned"), revoked={stage.keys["hosta"].public: revoked.timestamp()})
    reader = MemoryBus(bus.remote, clock=FakeClock(NOW + 70 * DAY))
    reader.use_seals(KeySeals(lambda: authority))
    return reader.view(ref.id), reader


def test_it_counts_with_its_result_where_the_key_was_revoked_later(stage: Stage) -> None:
    revoked = NOW + 41 * DAY
    view, reader = seen(stage, "hostb", revoked=revoked)
    assert view.claim is not None
    assert (view.claim.signature.word, view.ignored) == ("verified", None)
    assert view.claim.archived_at == (NOW + 40 * DAY).timestamp()
    assert reader.refused == ()
    files = reader.read_result(str(view.claim.claim.result_oid)).files
    authority = replace(stage.authority("pinned"), revoked={stage.keys["hosta"].public: revoked.timestamp()})
    words = [judge_result(files, authority, runner="hosta", archived_at=at).answer.word
             for at in (view.claim.archived_at, None)]  # fmt: skip
    assert words == ["verified", "untrusted"]


@pytest.mark.parametrize(
    ("archivist", "key", "days"),
    [("hostb", "other_runner", 39), ("hosta", "hosta", 41), ("hostb", "pusher", 41), ("hostb", "hosta", 41)],
    ids=["revoked before", "archived by itself", "by a stranger", "by itself in another's name"],
)
def test_it_does_not_where_that_archive_says_nothing(stage: Stage, archivist: str, key: str, days: int) -> None:
    view, reader = seen(stage, archivist, revoked=NOW + days * DAY, key=key)
    assert view.claim is None or view.claim.signature.revoked
    assert view.ignored is not None
    assert view.ignored.revoked
    assert reader.refused
