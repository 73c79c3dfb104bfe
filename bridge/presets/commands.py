"""Fill in what a preset's commands leave open: parameters, the host's interpreter, launches.

Pure. Knows nothing about whether any of it may run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from bridge.launches.answers import LOOKS
from bridge.launches.loads import LOADED_MOST
from bridge.launches.stopping import SITTING_LAUNCHES
from bridge.launches.wording import FASTER
from bridge.presets.facts import PolicyFacts
from bridge.presets.model import HOST_TOKEN, PARAMETER_TOKEN, Preset, SeriesTemplate
from bridge.presets.parameters import render
from bridge.records.base import ParamValue
from bridge.records.jobspec import Command, DeclaredOutput
from bridge.records.request import EffectWord, Measuring, Profile, Request
from bridge.records.turns import AskedWord, LaunchSeries, StopRule
from bridge.records.workload import KIND, REPORT_FILE, seed_of
from bridge.run.stop_rule import rule_of

SHARE_OF_WALL: Final = 0.7
"""What the launches of a run may take of its time: the one that runs then still ends, and so does what follows."""


def commands_of(
    request: Request, preset: Preset, facts: PolicyFacts, params: dict[str, ParamValue], wall_s: float
) -> Iterator[Command]:
    """Yield the commands of a run in order, a launch each, with what answers them.

    Args:
        request: what is asked.
        preset: what it names.
        facts: of the host's policy.
        params: of the request, with the preset's defaults.
        wall_s: for how many seconds the run may last.
    """
    several = sum(template.launches is not None for template in preset.commands)
    allowed_s = wall_s * SHARE_OF_WALL / max(1, several)
    for template in preset.commands:
        launches = getattr(template.repeat, measured_as(request.profile))
        for launch in range(launches):
            name = template.name if launches == 1 else f"{template.name}-{launch}"
            place = (launch, launches)
            argv, peer, reference, asker = (
                None if tokens is None else _argv(tokens, (request, preset, facts), params, place)
                for tokens in (template.argv, template.peer, template.reference, template.asker)
            )
            series = None if template.launches is None else series_of(template.launches, request, params, allowed_s)
            yield Command.model_validate(
                {
                    "name": name,
                    "argv": argv,
                    "peer": peer,
                    "launches": series,
                    "reference": reference,
                    "asker": asker,
                    "confirms": template.confirms,
                    "seed": seed_of(seed_basis(request), launch) if template.seeded else None,
                    "folder": f"repeat-{launch}" if template.seeded else template.name if asker else None,
                }
            )


def measured_as(profile: Profile) -> Measuring:
    """Return how strictly what is asked for is measured: a sitting as a claim is."""
    return "smoke" if profile == "smoke" else "claim"


def series_of(
    template: SeriesTemplate, request: Request, params: Mapping[str, ParamValue], allowed_s: float
) -> LaunchSeries:
    """Return the launches of a request; those of a sitting are one rotation of those of a claim.

    What is asked a word is looked at three times instead, where its rule has looks; a run whose load is drawn has as
    many launches as that takes.

    Args:
        template: the launches of either profile.
        request: what is asked.
        params: of the request, with the preset's defaults.
        allowed_s: seconds after which no launch begins, so that what was measured is not lost with the run's time.
    """
    series = template.smoke if request.profile == "smoke" else template.claim
    series = series.evolve(rule=series.rule.evolve(allowed_s=min(series.rule.allowed_s or allowed_s, allowed_s)))
    if request.asks is not None and rule_of(series) in LOOKS:
        return series.evolve(asks=AskedWord(word=request.asks, margin=_margin(request.asks, params)))
    if request.load is not None:
        drawn = StopRule(
            least=series.rule.least, most=LOADED_MOST, blocks=series.rule.blocks, allowed_s=series.rule.allowed_s
        )
        return series.evolve(rule=drawn, load=request.load)
    if request.profile != "standing":
        return series
    rule = StopRule(
        least=SITTING_LAUNCHES,
        most=SITTING_LAUNCHES,
        blocks=series.rule.blocks,
        half_width=series.rule.half_width,
        allowed_s=series.rule.allowed_s,
    )
    return series.evolve(rule=rule)


def _margin(word: EffectWord, params: Mapping[str, ParamValue]) -> float:
    """Return by how much a ratio has to lie beyond 1: where a preset has a margin of its own, slower means by that."""
    own = params.get("margin")
    return 1.0 / (1.0 - own) if word == "slower" and isinstance(own, float) and 0.0 < own < 1.0 else FASTER


def seed_basis(request: Request) -> str:
    """Return what the seeds of a request's repeats follow from: its id, or its repeat of a sweep."""
    return request.id if request.sweep is None else f"{request.sweep.id}.{request.sweep.repeat}"


def outputs_of(preset: Preset, commands: tuple[Command, ...]) -> tuple[DeclaredOutput, ...]:
    """Return what a run promises to write: of a workload, a report a repeat and what it keeps beside it."""
    if preset.workload is None:
        return preset.outputs
    outputs: list[DeclaredOutput] = []
    for command in commands:
        if command.folder is not None and not command.confirms:
            outputs.append(DeclaredOutput(path=f"{command.folder}/{REPORT_FILE}", kind=KIND))
            outputs += (
                DeclaredOutput(path=f"{command.folder}/{name}", kind="attachment", required=False)
                for name in preset.workload.keep
            )
    return tuple(outputs)


def _argv(
    tokens: tuple[str, ...],
    met: tuple[Request, Preset, PolicyFacts],
    params: dict[str, ParamValue],
    place: tuple[int, int],
) -> tuple[str, ...]:
    (request, preset, facts), (launch, launches) = met, place
    # Host code must not be shadowed by the working directory (-I); request code must be found there first.
    flags = ("-I",) if preset.code == "host" else ("-s",)
    host_values = {
        "engine": (facts.interpreter, *flags, "-m", "engine.cli"),
        "host_engine": (facts.interpreter, "-I", "-m", "engine.cli"),
        "interpreter": (facts.interpreter,),
        "workload": (request.workload.commit if request.workload is not None else "",),
        "launch": (str(launch),),
        "launches": (str(launches),),
        "profile": (measured_as(request.profile),),
        "target": (facts.target or preset.models.target or "",),
        "drafter": (facts.drafter or preset.models.drafter or "",),
        "endpoint": facts.endpoints[:1],
    }
    argv: list[str] = []
    for token in tokens:
        if (host := HOST_TOKEN.fullmatch(token)) is not None:
            argv += host_values[host.group(1)]
        elif (parameter := PARAMETER_TOKEN.fullmatch(token)) is not None:
            name = parameter.group(1)
            argv += render(name, preset.params[name], params[name])
        else:
            argv.append(token)
    return tuple(argv)
