"""Say what this host would do with a request of a preset, without one."""

from __future__ import annotations

import datetime as dt
from collections.abc import Generator, Iterator

from bridge.errors import KakeyaError
from bridge.presets.facts import PolicyFacts, Trust
from bridge.presets.installed import find
from bridge.presets.model import Preset
from bridge.presets.resolution import explain, resolve
from bridge.records.request import Request, Workload
from bridge.runner.authorisation.names import check_rights, facts_for
from bridge.runner.policy.file import own_presets
from bridge.runner.policy.model import Policy
from bridge.system.clock import Clock, rfc3339
from bridge.trust.ssh_signatures import Signer

_ID = "0" * 26
_OID = "0" * 40


def what_would_run(policy: Policy, name: str, clock: Clock, asker: str | None = None) -> Iterator[str]:
    """Yield the decisions over a request of this preset with its default parameters, on a served bus.

    Args:
        policy: the owner's policy.
        name: the preset.
        clock: the machine's clocks.
        asker: the name that signs the request, as the host's list or the bus's root has it; None for an unsigned one.

    Raises:
        PresetNotFoundError: there is no such preset.
    """
    preset = find(name, own_presets(policy))
    now = clock.now()
    code = Workload(commit=_OID, tree=_OID, origin="", dirty=False) if preset.code == "request" else None
    request = Request(
        id=_ID,
        bus_id="",
        ref="",
        principal=asker or "unsigned",
        preset=name,
        params={},
        profile=preset.profiles[0],
        workload=code,
        created=rfc3339(now),
        expires=rfc3339(now + dt.timedelta(hours=1)),
        idempotency_key="0" * 64,
    )
    try:
        facts, trust = policy.facts(embedded=False), Trust()
        if asker is not None:
            facts, trust = yield from _as_name(policy, asker, request, preset)
        yield from explain(resolve(request, preset, facts, trust))
    except KakeyaError as error:
        yield f"{error.reason}: {error}"


def _as_name(
    policy: Policy, asker: str, request: Request, preset: Preset
) -> Generator[str, None, tuple[PolicyFacts, Trust]]:
    """Yield what the rules of a name say, and return what a job spec of it depends on.

    Raises:
        PolicyRefusedError: naming the rule.
    """
    facts = policy.facts(embedded=False)
    rules = policy.names.get(asker)
    if rules is None:
        yield f"names: none for {asker}: listed by this host it may what policy.toml allows everybody who signs;"
        yield "names: listed by the bus's root alone its requests count as unsigned"
        return facts, Trust()
    for field, value in rules.model_dump(exclude_defaults=True).items():
        yield f"names.{asker}.{field} = {value}"
    signer = Signer(asker, "SHA256:" + "A" * 43)
    check_rights(policy, signer, request, preset)
    return facts_for(policy, signer, facts), Trust(principal=asker, signer=signer.fingerprint)
