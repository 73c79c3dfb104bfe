"""The owner's rules while a runner serves: those that its policy file gives now, or why it takes nothing.

Whoever decides about a request takes `now` once and goes by that; a run keeps what it was let in by.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace

from bridge.runner.authorisation.rules import OwnerRules
from bridge.runner.policy.model import Policy
from bridge.runner.policy.policy_file import PolicyFile, PolicyProblem


class RulesInForce:
    """The rules of one runner.

    Args:
        rules: those it starts with.
        file: where their policy comes from; None: they never change.
        log: told of each change.
        changing: called with another policy before anything goes by it.
    """

    def __init__(
        self,
        rules: OwnerRules,
        file: PolicyFile | None,
        log: logging.Logger,
        changing: Callable[[Policy], None] = lambda _policy: None,
    ) -> None:
        self._now, self._file, self._log, self._changing = rules, file, log, changing
        self._problem: PolicyProblem | None = None

    @property
    def now(self) -> OwnerRules:
        """The rules as they were at the last look; where that found a problem, those before it."""
        return self._now

    @property
    def problem(self) -> PolicyProblem | None:
        """Why nothing is taken, as it was at the last look."""
        return self._problem

    def look(self) -> PolicyProblem | None:
        """Look at the policy file; return why nothing may be taken under it, or None."""
        if self._file is None:
            return None
        seen = self._file.look()
        problem = seen if isinstance(seen, PolicyProblem) else None
        if problem is not None and problem != self._problem:
            level = logging.WARNING if problem.public else logging.DEBUG  # the latter passes by itself
            self._log.log(level, "nothing is taken: %s", problem.reason)
        if not isinstance(seen, PolicyProblem) and seen != self._now.policy:
            self._changing(seen)
            self._now = replace(self._now, policy=seen)
            self._log.info("policy.toml changed: policy %s from now on", self._now.facts.digest[:12])
        elif problem is None and self._problem is not None:
            self._log.info("policy.toml can be used: requests are taken again")
        self._problem = problem
        return problem
