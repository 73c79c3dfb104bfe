"""Branches that others push with the run id of a request: what its sender and another clone are told, over git."""

from __future__ import annotations

from bridge.bus import open_bus
from bridge.records import Request
from tests.fakes.asking import make_request, push
from tests.fakes.git_servers import git
from tests.integration.client.test_spooled import Place, place

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
