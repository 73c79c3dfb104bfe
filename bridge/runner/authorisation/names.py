"""What a name may do on this host: the rules of `policy.toml` applied to one request of that name.

Every refusal names the rule. Knows no key: who signed was decided before.
"""

from __future__ import annotations

from dataclasses import replace

from bridge.errors import PolicyRefusedError
from bridge.presets.facts import LimitCaps, PolicyFacts
from bridge.presets.model import Preset, PresetLimits
from bridge.presets.parameters import bind
from bridge.records.request import Request
from bridge.runner.policy.model import Policy
from bridge.runner.policy.name_files import FOLDER
from bridge.runner.policy.names import FiledRules, NameRules
from bridge.trust.ssh_signatures import Signer


def check_rights(policy: Policy, signer: Signer | None, request: Request, preset: Preset) -> None:
    """Refuse what the rules of a name do not let it ask for.

    Args:
        policy: the owner's policy.
        signer: who signed the request, None for nobody.
        request: what is asked.
        preset: its preset.

    Raises:
        PolicyRefusedError: naming the rule.
        ParameterError: the parameters are not the preset's.
    """
    if signer is None:
        return
    name = signer.principal
    rules = policy.names.get(name)
    if rules is None:
        if not signer.on_host:
            _check_without_rules(policy, name, preset)
        return
    if not rules.allows(preset.name):
        raise _refused(name, rules, "presets", f"preset {preset.name!r}", list(rules.presets))
    if preset.code == "request" and not rules.own_code:
        raise _refused(name, rules, "own_code", f"preset {preset.name!r}, which runs the request's code", "false")
    if request.profile not in rules.profiles:
        raise _refused(name, rules, "profiles", f"profile {request.profile!r}", list(rules.profiles))
    if rules.runners and policy.name not in rules.runners:
        raise _refused(name, rules, "runners", f"runner {policy.name!r}", list(rules.runners))
    for param, value in bind(preset.params, request.params).items():
        rule = rules.params.get(param)
        if rule is not None and not rule.lets(value):
            raise _refused(name, rules, f"params.{param}", f"{param} = {value!r}", rule.model_dump(exclude_none=True))


def check_unlisted(policy: Policy, asker: str, preset: Preset, remedy: str) -> None:
    """Refuse what an unsigned request may not ask for, where a signature counts as none; say how it would count.

    Raises:
        PolicyRefusedError: the preset runs the request's own code.
    """
    if preset.code == "request" and not policy.trust_pushers:
        raise PolicyRefusedError(
            f"preset {preset.name!r} runs the request's code, and unsigned requests run only the host's code here; "
            f"this one is {asker}: no list of this host names that name or that key",
            remedy=remedy,
        )


def facts_for(policy: Policy, signer: Signer | None, facts: PolicyFacts) -> PolicyFacts:
    """Return what a job spec of this name depends on: the host's limits, or the name's where they are lower."""
    rules = None if signer is None else policy.names.get(signer.principal)
    if rules is None:
        return facts
    given = {name: value for name, value in rules.limits.model_dump().items() if value is not None}
    host = {name: getattr(facts.limits, name) for name in PresetLimits.model_fields}
    lower = {name: value for name, value in given.items() if host[name] is None or value < host[name]}
    return replace(facts, limits=LimitCaps(**{**host, **lower}))


def counts_as(policy: Policy, signer: Signer | None) -> Signer | None:
    """Return the signer whose rights count: nobody's where only the root knows the name and no rule names it."""
    if signer is None or signer.on_host or signer.principal in policy.names:
        return signer
    return None


def _check_without_rules(policy: Policy, name: str, preset: Preset) -> None:
    """Refuse what an unsigned request may not ask for either: a name in the root gives no right here."""
    if policy.require_signature or (preset.code == "request" and not policy.trust_pushers):
        raise PolicyRefusedError(
            f"{name} is listed in the bus's root and has no rule on this host, so its request counts as unsigned "
            f"(names.{name!r} in policy.toml is missing)",
            remedy=f"the host's owner: kakeya-runner welcome '{name} ssh-ed25519 KEY' --may {preset.name}, or "
            f'[names."{name}"] in policy.toml; kakeya-runner who {name} shows what it may',
        )


def _refused(name: str, rules: NameRules, rule: str, got: str, allowed: object) -> PolicyRefusedError:
    """Return the refusal, and where the rule lies: a name that has two places has none that counts."""
    filed = isinstance(rules, FiledRules)
    place = f"{FOLDER}/{name}.toml beside policy.toml" if filed else f'[names."{name}"] in policy.toml'
    return PolicyRefusedError(
        f"{name} may not ask for {got} on this host: names.{name!r}.{rule} = {allowed}",
        remedy=f"the host's owner changes {rule.split('.', maxsplit=1)[0]} in {place}",
    )
