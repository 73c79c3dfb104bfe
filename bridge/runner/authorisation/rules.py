"""What the owner of this host allows: the policy, what job specs take from it, the presets, the trusted keys."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property

from bridge.presets.facts import PolicyFacts
from bridge.presets.model import Preset
from bridge.records.request import Request
from bridge.runner.authorisation.signers import Signers
from bridge.runner.policy.model import Policy
from bridge.system.clock import parse_rfc3339
from bridge.trust.root import TrustRoot


@dataclass(frozen=True)
class OwnerRules:
    """The rules that a request is let in by; the lists of keys are read anew for each request.

    Attributes:
        presets: installed presets and the owner's own, by name.
        embedded: whether requester and owner are the same person, on a bus of this machine.
        root: returns the root of the bus as it is known now.
    """

    policy: Policy
    presets: Mapping[str, Preset]
    embedded: bool = False
    root: Callable[[], TrustRoot | None] = lambda: None

    @property
    def name(self) -> str:
        """The runner's name on its bus."""
        return self.policy.name

    @cached_property
    def facts(self) -> PolicyFacts:
        """What a job spec depends on."""
        return self.policy.facts(embedded=self.embedded)

    @cached_property
    def signers(self) -> Signers:
        """The keys the owner trusts."""
        return Signers(self.policy, self.root)

    def valid_until(self, request: Request) -> dt.datetime:
        """Return until when a request may be started here."""
        validity = dt.timedelta(seconds=self.policy.expiry_max_s)
        return min(parse_rfc3339(request.expires), parse_rfc3339(request.created) + validity)


def lacking(preset: Preset | None, installed: Mapping[str, str]) -> tuple[str, ...]:
    """Return the packages that a preset needs and an interpreter has not; none where it could not be asked."""
    wanted = () if preset is None or not installed else preset.packages
    return tuple(one for one in wanted if one not in installed)
