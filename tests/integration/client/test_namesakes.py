"""Branches that others push with the run id of a request: what its sender and another clone are told, over git."""

from __future__ import annotations

import pytest

from bridge.bus import open_bus
from bridge.records.request import Request
from tests.fakes.asking import make_request, push
from tests.fakes.git_servers import git
from tests.integration.client.test_spooled import JUDGED, Place, place

__all__ = ["place"]


def sent_with_twin(place: Place, name: str, *, same_commit: bool = False) -> tuple[Request, Request]:
    """Send a request, and push another of its run id to a branch of this name; return both."""
    shown = place.run("run", "mlx-env-probe", "--json").document
    sent = Request.parse(git("show", f"{shown['request']['ref']}:.mac-bridge/request.json", cwd=place.remote).encode())
    ref = f"refs/heads/mac-bridge/{name}-{sent.id}"
    twin = make_request(sent.bus_id, "mlx-env-probe", id=sent.id, ref=ref, now=place.clock.now(), profile="claim")
    if same_commit:
        git("update-ref", ref, sent.ref, cwd=place.remote)
    else:
        push(open_bus(str(place.remote), repository=None, state=place.folder / "twin", clock=place.clock), twin)
    return sent, twin


def elsewhere(place: Place) -> Place:
    """Return the same place with another clone."""
    folder = place.folder.parent / "another"
    folder.mkdir()
    return Place(place.remote, place.runner, place.world, place.clock, folder)


def let_run(place: Place) -> None:
    place.runner.step()
    place.runner.join()


def test_the_result_of_another_request_with_its_run_id_is_not_taken_for_the_sender_s(place: Place) -> None:
    sent, _ = sent_with_twin(place, "cuda-env-probe")
    let_run(place)
    ran = place.run("wait", sent.id, "--json")
    assert ran.code == 1
    assert "answers another request than the one that this clone sent" in ran.document["outcome"]["message"]
    assert place.run("fetch", sent.id).code == 1
    assert place.run("retry", sent.id).out.strip() not in {"", sent.id}


@pytest.mark.parametrize("same_commit", [False, True])
def test_another_clone_sees_the_request_that_the_claim_names(place: Place, *, same_commit: bool) -> None:
    sent, twin = sent_with_twin(place, "cuda-env-probe", same_commit=same_commit)
    expected = sent if same_commit else twin
    let_run(place)
    other = elsewhere(place)
    shown = other.run("status", sent.id, "--json").document
    assert (shown["terminal"], shown["request"]["ref"], shown["request"]["profile"]) == (
        True,
        expected.ref,
        expected.profile,
    )
    view = open_bus(str(place.remote), repository=None, state=other.folder / "bus", clock=place.clock).view(sent.id)
    assert (view.delivery, view.namesakes) == ("copied", ())


def test_before_a_claim_it_sees_the_one_that_a_runner_would_take_and_is_told_of_the_other(place: Place) -> None:
    sent, twin = sent_with_twin(place, "zzz")
    git("update-ref", empty := f"refs/heads/mac-bridge/aaa-{sent.id}", "refs/kakeya/bus", cwd=place.remote)
    other = elsewhere(place)
    ran = other.run("status", sent.id)
    for ref in (empty, twin.ref):
        assert f"{ref} has this run id too" in " ".join(ran.out.split())
    assert other.run("status", sent.id, "--json").document["request"]["ref"] == sent.ref
    let_run(place)
    assert other.run("status", sent.id, "--json").document["request"]["ref"] == sent.ref
    assert "has this run id too" not in place.run("status", sent.id).out


def test_a_listing_of_part_of_the_bus_takes_no_branch_in_the_place_of_one_that_it_does_not_show(place: Place) -> None:
    bus = open_bus(str(place.remote), repository=None, state=place.folder / "sender", clock=place.clock)
    bus_id, now = bus.identity().bus_id, place.clock.now()
    first = make_request(bus_id, "mlx-env-probe", now=now)
    request = push(bus, first.evolve(ref=f"refs/heads/mac-bridge/mine-{first.id}"))
    git("update-ref", f"refs/heads/mac-bridge/mlx-env-probe-{request.id}", request.ref, cwd=place.remote)
    for _ in range(3):
        let_run(place)
    view = bus.view(request.id)
    assert (view.claim.claim.reason, view.claim.claim.request_oid, view.delivery) == (JUDGED, request.oid, "copied")
    assert len(place.world.executor.executed) == 1
