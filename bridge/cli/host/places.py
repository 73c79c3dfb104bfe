"""Which policy file and which state folder a command of `kakeya-runner` means."""

from __future__ import annotations

import argparse
from pathlib import Path

from bridge.cli.host.keys import own_name
from bridge.errors import UsageError
from bridge.runner.policy.file import load_policy
from bridge.runner.policy.model import Policy
from bridge.runner.service.serve import default_policy_path, default_state
from bridge.runner.state.folder import StateFolder


def policy_path(arguments: argparse.Namespace) -> Path:
    """Return the policy file: the one an option names, else the user's."""
    return default_policy_path() if arguments.policy is None else Path(arguments.policy)


def policy_of(arguments: argparse.Namespace) -> Policy:
    """Return the policy.

    Raises:
        UsageError: the file is none.
    """
    return load_policy(policy_path(arguments))


def state_of(arguments: argparse.Namespace) -> StateFolder:
    """Return the state folder, made if it is not there: the one an option names, else that of the runner's name."""
    if arguments.state is not None:
        state = StateFolder(Path(arguments.state).resolve())
    else:
        try:
            name = policy_of(arguments).name
        except UsageError:
            name = own_name()
        state = default_state(name)
    state.create()
    return state
