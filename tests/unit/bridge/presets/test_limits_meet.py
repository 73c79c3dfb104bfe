"""Every limit is the least of preset, host and request: a request tightens, and never loosens."""

from __future__ import annotations

import pytest

from bridge.presets.facts import LimitCaps, PolicyFacts, Trust
from bridge.presets.installed import registry
from bridge.presets.model import PresetLimits
from bridge.presets.resolution import resolve
from bridge.records.request import LimitRequest, Request
from tests.fakes.asking import make_request

NAMES = tuple(PresetLimits.model_fields)
PRESET = registry()["mlx-env-probe"]


def value(name: str, factor: int) -> float | int:
    return float(factor) if name.endswith("_s") else factor


def bound(name: str, *, preset: int | None, host: int | None, requested: int | None) -> float:
    own = PRESET.limits.evolve(**{name: None if preset is None else value(name, preset)})
    facts = PolicyFacts(
        digest="0" * 64,
        interpreter="/usr/bin/python3",
        limits=LimitCaps(**{name: None if host is None else value(name, host)}),
    )
    limits = LimitRequest(**{name: None if requested is None else value(name, requested)})
    request = make_request("b" * 32, PRESET.name, limits=limits)
    return getattr(resolve(request, PRESET.model_copy(update={"limits": own}), facts, Trust()).limits, name)


@pytest.mark.parametrize("name", NAMES)
def test_the_least_of_the_three_counts(name):
    for preset, host, requested in (
        (30, 20, 10),
        (30, 10, 20),
        (10, 30, 20),
        (None, 20, 10),
        (30, None, 10),
        (30, 20, None),
    ):
        assert bound(name, preset=preset, host=host, requested=requested) == min(
            x for x in (preset, host, requested) if x
        )


@pytest.mark.parametrize("name", NAMES)
def test_a_request_cannot_ask_for_less_than_nothing(name):
    with pytest.raises(ValueError, match=name):
        LimitRequest.model_validate({name: value(name, -1)})


def test_a_request_without_the_later_limits_keeps_its_bytes():
    request = make_request("b" * 32, PRESET.name)

    assert b'"limits":{"log_bytes":null,"output_bytes":null,"wall_s":null}' in request.canonical()
    assert Request.parse(request.canonical()) == request


def test_a_request_with_them_says_so_and_parses_back():
    request = make_request("b" * 32, PRESET.name, limits=LimitRequest(memory_bytes=1 << 30, cpu_s=5.0))

    assert b'"cpu_s":5.0' in request.canonical()
    assert b"processes" not in request.canonical()
    assert Request.parse(request.canonical()) == request


@pytest.mark.parametrize(("host", "allowed"), [(None, 2520.0), (1000.0, 700.0)])
def test_the_launches_of_a_claim_leave_time_for_what_follows_them(host, allowed):
    """A real model's launch takes minutes: what ends a series is the run's own time, and never its loss."""
    facts = PolicyFacts(digest="0" * 64, interpreter="/usr/bin/python3", limits=LimitCaps(wall_s=host))
    preset = registry()["k3-fused-allmlx-code"]
    spec = resolve(make_request("b" * 32, preset.name, profile="claim"), preset, facts, Trust())
    (series,) = [command.launches for command in spec.commands if command.launches is not None]
    assert series.rule.allowed_s == pytest.approx(allowed)
