"""The policy file while its runner serves: read again when it changed, checked each time that it is looked at.

Knows which values take effect at once and which only at a start; decides nothing about requests.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bridge.errors import UsageError, of_system
from bridge.runner.policy.file import load_policy
from bridge.runner.policy.model import Policy
from bridge.runner.policy.name_files import stamp_of
from bridge.runner.policy.rights import file_problems
from bridge.system.clock import Clock

# An editor may write a file in pieces, and the first piece of a policy can be one that allows more than the whole.
REST_S: Final = 1.0

# Whatever is not here was used to put the runner together: its sandbox, its keys, its links and its files.
_LIVE: Final = frozenset({
    "allowed_signers", "code_signers", "revoked", "require_signature", "trust_pushers", "owners", "names",
    "protected_refs", "floor_commit", "quota_per_hour", "quotas", "rate_per_hour", "expiry_max_s",
    "presets.allow", "limits", "only_when", "approval", "secrets",
})  # fmt: skip
_KEY_FILES: Final = ("allowed_signers", "code_signers", "revoked")


@dataclass(frozen=True)
class PolicyProblem:
    """Why nothing is taken under a policy file as it is.

    Attributes:
        reason: for the owner.
        public: for requesters, without a path or a value of the file; empty where it is about to pass by itself.
    """

    reason: str
    public: str = ""


_Identity = tuple[tuple[int, int, int, int, int], tuple[tuple[str, int, int, int], ...]]


class PolicyFile:
    """One policy file.

    Args:
        path: the file.
        clock: says how long it has been left alone.
        derive: makes of what the file says the policy that a runner goes by; None: it is that.

    Attributes:
        started: the policy when the runner started.

    Raises:
        UsageError: it is no policy file of this user's.
    """

    def __init__(self, path: Path, clock: Clock, derive: Callable[[Policy], Policy] | None = None) -> None:
        self._path, self._clock, self._derive = path, clock, derive
        self._changing: tuple[_Identity, float] | None = None
        before = _identity(path) if os.path.lexists(path) else None
        self.started = self._load()
        self._seen: Policy | PolicyProblem = self.started
        self._identity = before if before == _identity(path) else None  # None: the next look reads it again

    def look(self) -> Policy | PolicyProblem:
        """Return the policy in force, or why nothing may be taken; the file is parsed only when it has changed."""
        try:
            if problems := file_problems(self._path):
                return _unusable(f"{self._path}: {problems[0]}")
            identity = _identity(self._path)
            return self._seen if identity == self._identity else self._read(identity)
        except UsageError as error:
            return _unusable(error.message)
        except OSError as error:
            return _unusable(f"{self._path}: {of_system(error).message}")

    def _read(self, identity: _Identity) -> Policy | PolicyProblem:
        """Read a file once it was left alone for a moment.

        Raises:
            OSError: it is gone.
            UsageError: it is no policy.
        """
        now_s = self._clock.steady_s()
        if self._changing is None or self._changing[0] != identity:
            self._changing = (identity, now_s)
        if now_s - self._changing[1] >= REST_S:
            policy = self._load()
            if _identity(self._path) == identity:
                self._identity, self._changing = identity, None
                self._seen = _restart(read_at_start(self.started, policy)) or policy
                return self._seen
        return PolicyProblem(f"{self._path} has just changed: it is read once it is left alone")

    def _load(self) -> Policy:
        policy = load_policy(self._path)
        return policy if self._derive is None else self._derive(policy)


def read_at_start(started: Policy, policy: Policy) -> tuple[str, ...]:
    """Return the keys, as the file writes them, whose values differ and take effect only at a start.

    A list of keys in another file is one of them: its path is hidden from runs when the runner starts.
    """
    before, after = _values(started), _values(policy)
    moved = {name for name in _KEY_FILES if isinstance(after[name], str)}
    return tuple(sorted(name for name in after if before[name] != after[name] and (name not in _LIVE or name in moved)))


def _values(policy: Policy) -> dict[str, object]:
    """Return the values of a policy by key; those of `presets` each by its own."""
    fields = type(policy).model_fields
    values = {fields[name].alias or name: getattr(policy, name) for name in fields if name != "presets"}
    return values | {f"presets.{name}": getattr(policy.presets, name) for name in type(policy.presets).model_fields}


def _restart(names: tuple[str, ...]) -> PolicyProblem | None:
    if not names:
        return None
    text = f"{', '.join(names)} changed in policy.toml: restart the runner"
    return PolicyProblem(text, text)


def _unusable(reason: str) -> PolicyProblem:
    return PolicyProblem(f"the policy cannot be used: {reason}", "its policy.toml cannot be used")


def _identity(path: Path) -> _Identity:
    facts = path.lstat()
    return (facts.st_dev, facts.st_ino, facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns), stamp_of(path)
