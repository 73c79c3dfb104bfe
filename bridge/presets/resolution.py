"""Meet a request, a preset and a host's policy in a job spec. Pure: values in, a value or a refusal out.

A request can tighten, never loosen; every decision is written down with its reason.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from bridge import limits as bounds
from bridge import strictjson
from bridge.errors import ParameterError, PolicyRefusedError, RequestRejectedError
from bridge.presets.commands import commands_of, measured_as, outputs_of, seed_basis
from bridge.presets.facts import PolicyFacts, SandboxMode, Trust, TrustClass
from bridge.presets.model import Preset, PresetLimits
from bridge.presets.parameters import bind
from bridge.records.base import ParamValue
from bridge.records.jobspec import EnvironmentVariable, JobSpec, Limits, SandboxSpec
from bridge.records.network import Network, describe_network, lesser
from bridge.records.request import Request

_SIGN_IT = (
    "sign it: kakeya-mac init --signing-key auto prints a line, with which the host's owner lets you in: "
    "kakeya-runner welcome LINE --may PRESET"
)
_STRICTNESS: dict[SandboxMode, int] = {"off": 0, "preferred": 1, "required": 2}


def resolve(
    request: Request, preset: Preset, policy_facts: PolicyFacts, trust: Trust, *, given: str = "request"
) -> JobSpec:
    """Return what will run.

    Args:
        request: what was asked.
        preset: the host's own.
        policy_facts: what its owner allows.
        trust: what is known of sender and code.
        given: where the request's parameters come from, for people.

    Raises:
        RequestRejectedError: the preset is planned, or the request does not fit it.
        PolicyRefusedError: the host's owner does not allow it.
    """
    try:
        params = _check_request(request, preset)
    except ParameterError as error:
        raise RequestRejectedError(f"preset {preset.name}: {error.message}", remedy=error.remedy) from error
    trust_class, policy_lines = _check_policy(request, preset, policy_facts, trust)
    environment = tuple(_environment(request, preset, policy_facts, params))
    limits, limit_lines = _limits(request, preset, policy_facts)
    sandbox, sandbox_lines = _sandbox(request, preset, policy_facts)
    commands = tuple(commands_of(request, preset, policy_facts, params, limits.wall_s))
    placement = _placement(request, preset, policy_facts)
    labels = dict.fromkeys((*preset.labels, *_labels(request, preset, policy_facts, trust)))
    return JobSpec(
        id=request.id,
        request_digest=hashlib.sha256(request.canonical()).hexdigest(),
        preset=preset.name,
        preset_digest=preset.digest(),
        policy_digest=policy_facts.digest,
        params=params,
        profile=measured_as(request.profile),
        code=preset.code,
        trust_class=trust_class,
        principal=trust.principal,
        signer=trust.signer,
        tree=request.workload.tree if request.workload is not None and preset.code == "request" else None,
        base=next((str(params[name]) for name in preset.commits), None),
        commands=commands,
        environment=environment,
        limits=limits,
        sandbox=sandbox,
        outputs=outputs_of(preset, commands),
        gate_profile=preset.gate_profile,
        primary_claim=preset.primary_claim,
        decisions=(
            *policy_lines,
            *_param_lines(request, preset, params, given),
            *limit_lines,
            *sandbox_lines,
            *_node_lines(placement, policy_facts),
        ),
        labels=tuple(labels),
        workload=preset.workload,
        seed_basis=seed_basis(request) if any(command.seed is not None for command in commands) else None,
        placement=placement,
        sitting=request.sweep if request.profile == "standing" else None,
    )


def _placement(request: Request, preset: Preset, facts: PolicyFacts) -> tuple[str, ...] | None:
    """Return the labels of request and preset that mean something for the node; None where nothing is placed."""
    if facts.nodes is None:
        return None
    labels = dict.fromkeys((*request.runner.labels, *preset.needs))
    return tuple(label for label in labels if label in facts.nodes)


def _node_lines(placement: tuple[str, ...] | None, facts: PolicyFacts) -> list[str]:
    """Return what is decided about the node, in the owner's words."""
    if placement is None or facts.nodes is None:
        return []
    return [
        f"nodes with {' and '.join(dict.fromkeys(facts.nodes[label] for label in placement)) or 'any features'} (host)"
    ]


def explain(spec: JobSpec) -> tuple[str, ...]:
    """Return what was decided and why, then what would run, one line each."""
    argv = tuple(f"command {command.name}: {' '.join(command.argv)}" for command in spec.commands)
    hidden = (f"{v.name}={'***' if v.secret else v.value} (set by the {v.origin})" for v in spec.environment)
    return (*spec.decisions, *argv, *(f"environment {line}" for line in hidden))


def _check_request(request: Request, preset: Preset) -> dict[str, ParamValue]:
    if preset.status == "planned":
        raise RequestRejectedError(f"preset {preset.name!r} is planned, not built yet", remedy="kakeya-mac presets")
    if request.profile not in preset.offered_profiles:
        raise RequestRejectedError(
            f"preset {preset.name!r} has no profile {request.profile!r}; expected "
            f"{' or '.join(preset.offered_profiles)}"
        )
    if request.load is not None and not preset.has_ratio:
        raise RequestRejectedError(
            f"preset {preset.name!r} has no launches of two programs, in half of which a load could be drawn",
            remedy="send it without --load drawn, or use a preset that compares two programs",
        )
    if request.limits.wall_s is not None and request.limits.wall_s <= 0:
        raise RequestRejectedError("limits.wall_s is 0; expected more, or nothing at all")
    if preset.code == "request" and request.workload is None:
        raise RequestRejectedError(
            f"preset {preset.name!r} runs the request's code, but the request brings none",
            remedy="run it inside the git repository to be tested",
        )
    params = bind(preset.params, request.params)
    for name in preset.commits:
        if request.workload is not None and params[name] == request.workload.commit:
            raise RequestRejectedError(
                f"preset {preset.name!r}: {name} is {str(params[name])[:12]}, the very commit that is sent",
                remedy=f"name an earlier one: -p {name}=HEAD~1",
            )
    return params


def _check_policy(request: Request, preset: Preset, facts: PolicyFacts, trust: Trust) -> tuple[TrustClass, list[str]]:
    if not facts.allows(preset.name):
        raise PolicyRefusedError(
            f"this host does not allow preset {preset.name!r}; it allows {', '.join(facts.allow) or 'none'}",
            remedy="the host's owner adds it to presets.allow in policy.toml",
        )
    if request.unsandboxed and not facts.embedded:
        raise PolicyRefusedError(
            "the request asks to run without a sandbox (--unsandboxed); on a host only sandbox.mode in policy.toml "
            "decides that",
            remedy="send it without --unsandboxed; on your own machine: kakeya-mac run --bus embedded --unsandboxed",
        )
    lines = [f"preset {preset.name}: allowed by presets.allow = {list(facts.allow)}", f"asked by {trust.asker}"]
    _check_asker(preset, facts, trust)
    _check_peer(preset, facts)
    _check_endpoint(preset, facts)
    if preset.code == "host":
        note = "; the workload it brings is not used" if request.workload is not None else ""
        whose = "the host's installed engine" if preset.workload is None else f"the owner's {preset.workload.label}"
        return "host", [*lines, f"code: {whose}{note}"]
    if trust.sent_code == "trusted":
        return "trusted", [*lines, f"code: the request's tree, trusted ({trust.why})"]
    if preset.has_peer:
        return "untrusted", [*lines, f"code: the request's tree, untrusted ({trust.why}), asked by the host's own code"]
    if not facts.embedded and not facts.apart:
        raise PolicyRefusedError(
            f"preset {preset.name!r} runs the request's code, nobody this host trusts vouches for it ({trust.why}), "
            "and this host has no other user to run it as",
            remedy="the host's owner vouches for a committer with `kakeya-runner trust add KEY --code`, names "
            "protected_refs and floor_commit, or sets sandbox.socket, own_users or uid in policy.toml; on your own "
            "machine: kakeya-mac run --bus embedded",
        )
    return "untrusted", [*lines, f"code: the request's tree, untrusted, at most recorded ({trust.why})"]


def _check_asker(preset: Preset, facts: PolicyFacts, trust: Trust) -> None:
    """Refuse unsigned requests where the owner demands a signature."""
    if trust.signed or facts.embedded:
        return
    if facts.require_signature:
        raise PolicyRefusedError("this host takes signed requests only, and this one is unsigned", remedy=_SIGN_IT)
    if preset.code == "request" and not facts.trust_pushers:
        raise PolicyRefusedError(
            f"preset {preset.name!r} runs the request's code, and the request is unsigned; unsigned requests run only "
            "the host's code here",
            remedy=f"{_SIGN_IT}; on your own machine: kakeya-mac run --bus embedded",
        )


def _check_peer(preset: Preset, facts: PolicyFacts) -> None:
    """Refuse a preset whose two sides could reach each other here."""
    if not preset.has_peer:
        return
    own, other = facts.sandbox_uid, facts.sandbox_peer_uid
    if own is None or other is None or own == other or facts.sandbox_mode == "off":
        raise PolicyRefusedError(
            f"preset {preset.name!r} measures the request's code from outside, which takes a sandbox and two users; "
            f"this host has sandbox.uid {own}, sandbox.peer_uid {other}, mode {facts.sandbox_mode}",
            remedy="the host's owner runs the service as root on Linux and sets sandbox.uid and sandbox.peer_uid in "
            "policy.toml to two users without rights of their own",
        )


def _check_endpoint(preset: Preset, facts: PolicyFacts) -> None:
    """Refuse a preset that asks a server behind an endpoint where the host has none."""
    if preset.asks_endpoint and not facts.endpoints:
        raise PolicyRefusedError(
            f"preset {preset.name!r} asks a server on another machine, and this host has no endpoint for it",
            remedy="the host's owner ends `ssh -L FILE:127.0.0.1:PORT MACHINE` in a socket here and names it in "
            "policy.toml: [sandbox] endpoints = ['unix:FILE']",
        )


def host_labels(facts: PolicyFacts, trust: Trust) -> tuple[str, ...]:
    """Return the facts about the host's policy that every result carries, however the request ended."""
    embedded = ("embedded",) if facts.embedded else ()
    lax = (facts.trust_pushers or facts.embedded) and not trust.signed
    return (*embedded, "trust_pushers") if lax else embedded


def _labels(request: Request, preset: Preset, facts: PolicyFacts, trust: Trust) -> Iterator[str]:
    yield from host_labels(facts, trust)
    if request.unsandboxed:
        yield "unsandboxed"
    if preset.code == "request" and trust.sent_code == "untrusted":
        yield "untrusted_code"


def _param_lines(request: Request, preset: Preset, params: dict[str, ParamValue], given: str) -> list[str]:
    """Say where each value is from; a client sends defaults too, so that both sides mean the same ones."""
    lines = []
    for name, value in params.items():
        sent = name in request.params
        default = preset.params[name].default == value
        origin = (given, "the preset's default") if sent and default else (given,) if sent else ("preset default",)
        lines.append(f"parameter {name} = {value} ({', '.join(origin)})")
    return lines


def _environment(
    request: Request, preset: Preset, facts: PolicyFacts, params: dict[str, ParamValue]
) -> Iterator[EnvironmentVariable]:
    """Yield variables, later ones never overriding: the run's facts first, then policy, then preset."""
    variables: list[tuple[str, str, Literal["runner", "policy", "preset"], bool]] = [
        ("KAKEYA_RUN_ID", request.id, "runner", False),
        ("KAKEYA_REQUEST_DIGEST", hashlib.sha256(request.canonical()).hexdigest(), "runner", False),
        ("KAKEYA_PRESET", preset.name, "runner", False),
        ("KAKEYA_PARAMS", strictjson.encode(params).decode(), "runner", False),
        ("KAKEYA_PROFILE", measured_as(request.profile), "runner", False),
    ]
    if facts.card is not None:
        variables.append(("CUDA_VISIBLE_DEVICES", facts.card, "runner", False))
    if facts.model_roots:
        variables.append(("KAKEYA_MODEL_ROOTS", os.pathsep.join(facts.model_roots), "policy", False))
    # A host's target does not go with a preset's own drafter: without one of its own the engine decides.
    own_drafter = None if facts.target and not facts.drafter else preset.models.drafter
    for variable, own, theirs in (
        ("KAKEYA_TARGET", preset.models.target, facts.target),
        ("KAKEYA_DRAFTER", own_drafter, facts.drafter),
    ):
        if own is not None:  # a preset without a model is not given the host's
            variables.append((variable, theirs or own, "policy" if theirs else "preset", False))
    variables += [(name, value, "policy", False) for name, value in facts.environment.items()]
    variables += [(name, facts.secrets[name], "policy", True) for name in preset.secrets if name in facts.secrets]
    variables += [(name, value, "preset", False) for name, value in preset.environment.items()]
    names: set[str] = set()
    for name, value, origin, secret in variables:
        if name not in names:
            names.add(name)
            yield EnvironmentVariable(name=name, value=value, origin=origin, secret=secret)


_DEFAULTS: dict[str, float | None] = {
    "wall_s": bounds.WALL_DEFAULT_S,
    "inactivity_s": bounds.INACTIVITY_DEFAULT_S,
    "cpu_s": None,  # no bound but the wall time
    "memory_bytes": bounds.MEMORY_DEFAULT_BYTES,
    "processes": bounds.PROCESSES_DEFAULT_COUNT,
    "tasks": max(bounds.TASKS_FLOOR_COUNT, bounds.TASKS_PER_CORE_COUNT * (os.cpu_count() or 1)),
    "open_files": bounds.OPEN_FILES_DEFAULT_COUNT,
    "output_bytes": bounds.OUTPUT_DEFAULT_BYTES,
    "output_files": bounds.OUTPUT_FILES_DEFAULT_COUNT,
    "log_bytes": bounds.LOG_MAX_BYTES,
}


def _limits(request: Request, preset: Preset, facts: PolicyFacts) -> tuple[Limits, list[str]]:
    values: dict[str, float] = {}
    lines: list[str] = []
    for name, default in _DEFAULTS.items():
        own = _preset_limit(preset.limits, name)
        if measured_as(request.profile) == "claim":
            own = _preset_limit(preset.limits.claim, name) or own
        candidates = {
            "preset" if own is not None else "default": own or default,
            "host policy": getattr(facts.limits, name),
            "request": getattr(request.limits, name, None),
        }
        given = {who: value for who, value in candidates.items() if value is not None}
        if not given:
            continue
        who = min(given, key=lambda key: given[key])
        values[name] = given[who]
        rest = "".join(f"; {other} {value}" for other, value in given.items() if other != who)
        lines.append(f"limit {name} = {given[who]} ({who}{rest}; the least counts)")
    whole = {name: int(value) for name, value in values.items() if not name.endswith("_s")}
    times = {name: value for name, value in values.items() if name.endswith("_s")}
    return Limits.model_validate({**whole, **times, "grace_s": facts.grace_s}), lines


def longest_wall_s(preset: Preset, facts: PolicyFacts) -> float:
    """Return for how many seconds a run of a preset may last on a host, whatever its profile."""
    own = preset.limits.wall_s or bounds.WALL_DEFAULT_S
    return min(max(own, preset.limits.claim.wall_s or own), facts.limits.wall_s or float("inf"))


def _preset_limit(limits: PresetLimits, name: str) -> float | None:
    value: float | None = getattr(limits, name)
    return value


def _sandbox(request: Request, preset: Preset, facts: PolicyFacts) -> tuple[SandboxSpec, list[str]]:
    mode, why = _sandbox_mode(request, preset, facts)
    network = lesser(preset.sandbox.network, facts.sandbox_network)
    models = (facts.target, facts.drafter) if preset.models != type(preset.models)() else (None, None)
    roots = (*preset.read_only, *facts.read_only, *facts.model_roots)
    endpoints = facts.endpoints[:1] if preset.asks_endpoint else ()
    roots = (*roots, *(endpoint.removeprefix("unix:") for endpoint in endpoints))
    folders = (*roots, *(path for path in models if path and Path(path).is_absolute()))
    spec = SandboxSpec(
        mode=mode,
        network=network,
        read_only=tuple(dict.fromkeys(folders)),
        devices=facts.devices if preset.sandbox.gpu else (),
        uid=facts.sandbox_uid,
        peer_uid=facts.sandbox_peer_uid if preset.has_peer else None,
    )
    return spec, [
        *([] if facts.card is None else [f"card {facts.card} (this slot's own)"]),
        *(f"endpoint {endpoint} (the host's own, shown for this preset)" for endpoint in endpoints),
        f"sandbox {mode} ({why})",
        _network_line(network, preset.sandbox.network, facts.sandbox_network),
    ]


def _network_line(network: Network, preset: Network, host: Network) -> str:
    """Return the line of ``explain`` about the network, with what to write where the preset gets less than it asks."""
    words = f"network {describe_network(network)}"
    if preset is False:
        return f"{words} (the preset asks for none)"
    if network == preset:
        return f"{words} (preset; the host allows {describe_network(host)})"
    return (
        f"{words} (the preset asks for {describe_network(preset)}, the host allows {describe_network(host)}; "
        "what both allow counts: sandbox.network in policy.toml)"
    )


def _sandbox_mode(request: Request, preset: Preset, facts: PolicyFacts) -> tuple[SandboxMode, str]:
    """Return how strictly a run is confined, and who said so: code of a request always is, or has ``--unsandboxed``."""
    if request.unsandboxed and not preset.has_peer:
        return "off", "the request says --unsandboxed, on the requester's own machine"
    modes: list[tuple[SandboxMode, str]] = [(preset.sandbox.mode, "preset"), (facts.sandbox_mode, "host policy")]
    if preset.has_peer:
        modes.append(("required", "request code that host code measures"))
    elif preset.code == "request":
        modes.append(("required", "code of a request"))
    mode, who = max(modes, key=lambda pair: _STRICTNESS[pair[0]])
    return mode, f"{who}; the strictest counts"
