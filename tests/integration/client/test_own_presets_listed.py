"""Runs of presets that only a bus's own hosts know, in the listing of a full bus: what is queued there is shown."""

from __future__ import annotations

import datetime as dt

import pytest

from bridge.bus import open_bus
from bridge.bus.refbus import RefBus
from tests.fakes.asking import make_request, push
from tests.fakes.bus_actors import Actor
from tests.fakes.git_servers import git
from tests.integration.client.test_spooled import Place, place

__all__ = ["place"]

OTHER_RUNS = 25  # more than a page of `ls`, so that a listing of installed presets alone looks complete


@pytest.fixture
def bus(place: Place) -> RefBus:
    """Return a bus with 25 queued runs of an installed preset and one host that offers a preset of its own."""
    bus = open_bus(str(place.remote), repository=None, state=place.folder.parent / "others", clock=place.clock)
    bus.beacon(Actor(bus, place.clock, name="gpu-box").beacon(presets=("my-train",)))
    for number in range(OTHER_RUNS):
        asked_at = place.clock.now() - dt.timedelta(minutes=1, seconds=number)
        request = make_request(bus.identity().bus_id, "mlx-env-probe", now=asked_at)
        if number == 0:
            commit = push(bus, request).oid
        git("update-ref", request.ref, commit, cwd=place.remote)
    return bus


def test_a_queued_request_of_a_host_s_own_preset_is_listed_in_every_clone(place: Place, bus: RefBus) -> None:
    request = make_request(bus.identity().bus_id, "my-train", now=place.clock.now())
    push(bus, request)

    rows = place.run("ls", "--state", "queued", "--json").document["data"]

    assert (rows[0]["id"], rows[0]["preset"]) == (request.id, "my-train")
    assert [row["id"] for row in place.run("ls", "--preset", "my-train", "--json").document["data"]] == [request.id]


@pytest.mark.usefixtures("bus")
def test_what_this_clone_sent_is_queued_although_no_runner_offers_it_any_more(place: Place) -> None:
    sent = place.run("run", "my-train").out.strip()
    git("update-ref", "-d", "refs/kakeya/runner/gpu-box", cwd=place.remote)

    rows = place.run("ls", "--json").document["data"]

    assert [(row["state"], row["preset"]) for row in rows if row["id"] == sent] == [("queued", "my-train")]
