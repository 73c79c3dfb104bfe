"""The part of `policy.toml` that says who may ask, how often, and whose code may run.

Knows values and their shapes; files that hold keys are read by `bridge.runner.authorisation.signers`.
"""

from __future__ import annotations

import re
from typing import Annotated, Self

from pydantic import Discriminator, Field, Tag, model_validator

from bridge.records.base import Oid, Record
from bridge.records.request import PRINCIPAL_PATTERN
from bridge.request.branches import cancelled_id_of, run_id_of
from bridge.runner.policy.names import NameRules

AbsolutePath = Annotated[str, Field(pattern=r"^/[^\x00-\x1f]*$")]
Principal = Annotated[str, Field(pattern=f"^{PRINCIPAL_PATTERN}$")]
KeyTime = Annotated[str, Field(pattern=r"^[0-9]{8}([0-9]{4}([0-9]{2})?)?Z?$")]
PublicKey = Annotated[str, Field(pattern=r"^(ssh|ecdsa|sk)-[a-z0-9@.-]+ [A-Za-z0-9+/]+={0,2}( [^\x00-\x1f]*)?$")]
RootKey = Annotated[
    str, Field(pattern=r"^(SHA256:[A-Za-z0-9+/]{43}|ssh-ed25519 [A-Za-z0-9+/]+={0,2}( [^\x00-\x1f]*)?)$")
]
RunnerKey = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._-]{0,62}=[A-Za-z0-9+/]{43}=$")]
FullRef = Annotated[str, Field(pattern=r"^refs/(heads|tags)/[A-Za-z0-9._/-]{1,200}$")]
_REQUESTERS = re.compile(r"refs/heads/(.*/)?mac-bridge[/-].*")


class SignerEntry(Record):
    """A key the owner trusts, and for how long; times as ssh-keygen reads them: YYYYMMDD[HHMM[SS]][Z]."""

    principals: Annotated[tuple[Principal, ...], Field(min_length=1)]
    key: PublicKey
    valid_after: KeyTime | None = None
    valid_before: KeyTime | None = None

    def line(self, namespace: str) -> str:
        """Return it as a line of an allowed_signers file."""
        options = [f'namespaces="{namespace}"']
        options += [f'valid-after="{self.valid_after}"'] if self.valid_after else []
        options += [f'valid-before="{self.valid_before}"'] if self.valid_before else []
        return f"{','.join(self.principals)} {','.join(options)} {self.key}"


def _shape(value: object) -> str:
    return "list" if isinstance(value, list | tuple) else "path"


_Source = Annotated[
    Annotated[AbsolutePath, Tag("path")] | Annotated[tuple[SignerEntry, ...], Tag("list")], Discriminator(_shape)
]
SignerSource = _Source | None


class TrustPolicy(Record):
    """Who may ask and which code may run.

    Attributes:
        allowed_signers: keys that may sign requests: an OpenSSH allowed_signers file, or a list of entries.
        code_signers: keys that may vouch for code by signing commits.
        revoked: file of revoked keys, fingerprints and principals, or an OpenSSH revocation list.
        require_signature: refuse unsigned requests altogether, and unsigned cancels.
        quota_per_hour, quotas: signed requests taken per hour and principal, and exceptions by principal; 0: no limit.
        names: what one name may do on this host; a name that only the bus's root lists may do nothing more without.
        owners: principals whose signed cancels count for everybody's runs.
        protected_refs: refs of the bus that requesters cannot push; code on their first-parent chain is trusted.
        floor_commit: only what follows this commit on that chain counts.
        runner_keys: the other runners of the bus, each as ``NAME=KEY``; with any, a claim or beacon does not count
            unless the key of its runner signed it.
        root_key: the bus owner's key, or its fingerprint; then only that owner's root counts.
    """

    allowed_signers: SignerSource = None
    code_signers: SignerSource = None
    revoked: AbsolutePath | None = None
    require_signature: bool = False
    quota_per_hour: Annotated[int, Field(ge=0)] = 60
    quotas: dict[Principal, Annotated[int, Field(ge=0)]] = Field(default_factory=dict)
    names: dict[Principal, NameRules] = Field(default_factory=dict)
    owners: tuple[Principal, ...] = ()
    protected_refs: tuple[FullRef, ...] = ()
    floor_commit: Oid | None = None
    runner_keys: tuple[RunnerKey, ...] = ()
    root_key: RootKey | None = None

    @model_validator(mode="after")
    def _protects_something(self) -> Self:
        if bool(self.protected_refs) != (self.floor_commit is not None):
            raise ValueError("protected_refs and floor_commit go together: which refs, and after which commit")
        for ref in self.protected_refs:
            if run_id_of(ref) or cancelled_id_of(ref) or _REQUESTERS.fullmatch(ref) or ".." in ref or "//" in ref:
                raise ValueError(f"protected_refs: requesters push to {ref}, or it is no ref name")
        return self

    def quota(self, principal: str) -> int:
        """Return how many requests of a principal are taken per hour, 0 for no limit."""
        rules = self.names.get(principal)
        own = None if rules is None else rules.per_hour
        return self.quotas.get(principal, self.quota_per_hour) if own is None else own
